"""The kernel's side of the agent: what becomes of a launch when the agent does not serve."""

import sys

import pytest

from worldsize.engines import local_engine
from worldsize.engines.local_engine import LocalEngine
from worldsize.errors import EngineLost

# it sleeps until it is ended: what hangs up may live on
_HANGS_UP_AND_STAYS = "import os, sys, time; print('no more', flush=True); os.close(int(sys.argv[1])); time.sleep(100)"


def test_an_agent_that_hung_up_is_not_asked_again_though_its_process_lives_on(monkeypatch):
    engine = LocalEngine()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(local_engine, "_BOOT", _HANGS_UP_AND_STAYS)
            with pytest.raises(EngineLost, match="no more"):
                engine.new_run_dir()
        assert engine.new_run_dir().is_dir()
    finally:
        engine.close()


@pytest.mark.parametrize(("system", "usual"), [("darwin", "spawn"), ("linux", "forkserver")])
def test_ranks_are_forked_unless_the_systems_libraries_do_not_bear_it(monkeypatch, system, usual):
    monkeypatch.delenv("WORLDSIZE_START_METHOD", raising=False)
    monkeypatch.setattr(sys, "platform", system)
    assert local_engine.start_method() == usual
