"""A command of a notebook's cell: its output is shown, its failure is an error, and its time is limited."""

import os
import re
import signal
import sys
import threading
import time

import psutil
import pytest

from tests.support.kernels import seconds_until
from worldsize.lab.terminal import CommandFailed, terminal

CHILD = """import subprocess, sys
p = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(p.pid, flush=True)
p.wait()"""
SCRIPT = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} has {total.item():g}", flush=True)
dist.destroy_process_group()
"""

HANG = """
import os, time
with open("rank" + os.environ["RANK"], "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""


def python(code, **more):
    return terminal("python", "-c", code, **more)


@pytest.mark.quick
def test_the_command_and_its_output_are_printed_and_the_output_returned(capsys):
    assert python("print('a'); print('b')") == "a\nb\n"
    assert capsys.readouterr().out == "$ python -c 'print('\"'\"'a'\"'\"'); print('\"'\"'b'\"'\"')'\na\nb\n"


@pytest.mark.quick
def test_what_it_says_about_errors_is_in_its_output():
    assert "warned" in python("import sys; print('warned', file=sys.stderr)")


@pytest.mark.quick
def test_it_is_the_python_beside_this_one():
    assert os.path.samefile(python("import sys; print(sys.executable)").strip(), sys.executable)


@pytest.mark.quick
def test_it_runs_in_the_folder_that_is_given(tmp_path):
    assert os.path.samefile(python("import os; print(os.getcwd())", folder=tmp_path).strip(), tmp_path)


@pytest.mark.quick
def test_a_variable_that_is_given_reaches_it():
    assert python("import os; print(os.environ['OMP_NUM_THREADS'])", env={"OMP_NUM_THREADS": "3"}) == "3\n"


@pytest.mark.quick
def test_another_exit_code_is_an_error_with_the_last_line():
    with pytest.raises(CommandFailed, match=r"expected exit code 0, got 3. Its last line: that was it"):
        python("import sys; print('that was it'); sys.exit(3)")


@pytest.mark.quick
def test_a_program_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="got 'torchruns', which is not on PATH"):
        terminal("torchruns")


def test_a_command_that_does_not_end_is_stopped_with_all_that_it_started(tmp_path):
    began_s = time.monotonic()
    with pytest.raises(CommandFailed, match="expected it to end within 1.5 s; it was stopped") as failed:
        python(CHILD, timeout_s=1.5)
    assert time.monotonic() - began_s < 15
    child = int(failed.value.output)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_what_a_command_leaves_behind_when_it_ends_is_ended_too():
    child = int(python(CHILD.replace("\np.wait()", "")))
    assert not psutil.pid_exists(child)


def test_torchrun_starts_ranks_and_leaves_none(tmp_path):
    (tmp_path / "sum.py").write_text(SCRIPT)
    said = terminal("torchrun", "--standalone", "--nproc-per-node", 2, "sum.py", folder=tmp_path, timeout_s=100)
    # in any order, and where Python's output is unbuffered a line may come before the end of the one before
    assert sorted(re.findall(r"rank \d has 3", said)) == ["rank 0 has 3", "rank 1 has 3"]


def test_an_interrupt_ends_torchrun_with_its_ranks(tmp_path):
    (tmp_path / "hang.py").write_text(HANG)
    notes = [tmp_path / f"rank{rank}" for rank in range(2)]

    def interrupt():
        seconds_until(lambda: all(note.exists() and note.read_text() for note in notes), 90)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        terminal("torchrun", "--standalone", "--nproc-per-node", 2, "hang.py", folder=tmp_path, timeout_s=100)
    thread.join()
    assert not any(psutil.pid_exists(int(note.read_text())) for note in notes)
