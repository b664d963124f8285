"""The kernel's side of the agent: what becomes of a launch when the agent does not serve."""

import subprocess
import sys
from pathlib import Path

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


MEETS_A_LIMIT = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
from worldsize.launch import launch
def rank_of(fabric):
    return fabric.rank
launch(rank_of, 16)
"""


def test_a_limit_of_this_system_is_named_with_what_to_do(tmp_path: Path):
    script = tmp_path / "meets_a_limit.py"
    script.write_text(MEETS_A_LIMIT)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert "A process may have 32 open files here (`ulimit -n`). Launch fewer ranks, or raise the limit" in ended.stderr


@pytest.mark.parametrize("words", ["BlockingIOError: [Errno 11] Resource temporarily unavailable", "can't start new thread"])
def test_a_system_without_processes_is_named(monkeypatch, words):
    monkeypatch.setattr(local_engine.resource, "getrlimit", lambda _: (40, 40))
    assert local_engine._limit_named(f"Traceback\n{words}\n").startswith("You may have 40 processes and threads here")
    assert local_engine._limit_named("EOFError") == ""
