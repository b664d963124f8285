"""Which interpreter starts on a host, and what is said when it lacks this package."""

import os
import subprocess
import sys

import pytest

from worldsize.engines.remote.ways.opening import _advice
from worldsize.engines.remote.ways.programs import start_line
from worldsize.engines.remote.ways.slurm import _in_our_words

pytestmark = pytest.mark.quick


def program(path, word):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {word} $2\n")
    path.chmod(0o755)


@pytest.mark.parametrize("there", [True, False])
def test_the_interpreter_at_the_same_path_comes_before_python3(tmp_path, monkeypatch, there):
    same = tmp_path / "a venv" / "python"
    if there:
        program(same, "same")
    program(tmp_path / "bin" / "python3", "other")
    monkeypatch.setattr(sys, "executable", str(same))
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", start_line()], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == f"{'same' if there else 'other'} worldsize.engines.remote.host_program\n"


def test_a_named_interpreter_is_the_only_one():
    assert start_line("/opt/python").split() == ["/opt/python", "-m", "worldsize.engines.remote.host_program", "--stdio"]


def test_a_host_without_the_package_is_told_how_to_name_an_interpreter():
    for reason in ("ModuleNotFoundError: No module named 'worldsize'", "bash: python3: command not found"):
        assert 'Ssh([…], python="/path/to/.venv/bin/python")' in _advice(reason) and sys.executable in _advice(reason)
    assert _advice("Connection refused") == ""


@pytest.mark.parametrize(("name", "ours"), [("time_min", "timeout_min=60"), ("gres", "gpus_per_node=8"), ("qos", "slurm_qos")])
def test_submitits_words_are_translated(name, ours):
    assert ours in _in_our_words({name: 1})
