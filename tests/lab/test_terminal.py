"""A command of a notebook's cell: its output is shown, its failure is an error, and its time is limited."""

import os
import re
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import psutil
import pytest

from tests.support.kernels import seconds_until
from worldsize.lab.terminal import CommandFailed, terminal

# starts a process with a session of its own that ends only if somebody ends it, and says which
CHILD = """import os, subprocess, sys
p = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
with open("note.new", "w") as note:
    note.write(str(p.pid))
os.replace("note.new", "note")
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
import os, signal
with open("rank" + os.environ["RANK"], "w") as file:
    file.write(str(os.getpid()))
signal.pause()
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
def test_it_computes_with_one_thread_unless_the_environment_says_otherwise(monkeypatch):
    """As torchrun has it: ranks that each take all cores slow each other down."""
    says = "import os; print(os.environ['OMP_NUM_THREADS'])"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert python(says) == "1\n"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert python(says) == "2\n"


@pytest.mark.quick
def test_of_pytorch_s_c_it_says_errors_alone_unless_the_environment_says_otherwise(monkeypatch):
    """As torchrun ends on a busy machine, a warning with a long trace may come between the ranks' lines."""
    says = "import os; print(os.environ['TORCH_CPP_LOG_LEVEL'])"
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    assert python(says) == "ERROR\n"
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    assert python(says) == "INFO\n"


@pytest.mark.quick
def test_another_exit_code_is_an_error_with_the_last_line():
    with pytest.raises(CommandFailed, match=r"expected exit code 0, got 3. Its last line: that was it"):
        python("import sys; print('that was it'); sys.exit(3)")


@pytest.mark.quick
def test_a_program_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="got 'torchruns', which is not on PATH"):
        terminal("torchruns")


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_command_that_does_not_end_is_stopped_with_all_that_it_started(tmp_path, monkeypatch):
    note = tmp_path / "note"
    # its time is over as soon as its child is there
    clock = SimpleNamespace(monotonic=lambda: 1000.0 * note.exists(), sleep=time.sleep)
    monkeypatch.setattr("worldsize.lab.terminal.time", clock)
    with pytest.raises(CommandFailed, match="expected it to end within 60 s; it was stopped"):
        python(CHILD, folder=tmp_path, timeout_s=60)
    assert gone(int(note.read_text()))


def test_an_interrupt_ends_a_command_with_all_that_it_started(tmp_path):
    note = tmp_path / "note"
    with pytest.raises(KeyboardInterrupt), interrupted_once(note.exists):
        python(CHILD, folder=tmp_path, timeout_s=100)
    assert gone(int(note.read_text()))


def test_what_a_command_leaves_behind_when_it_ends_is_ended_too(tmp_path):
    python(CHILD.replace("\np.wait()", ""), folder=tmp_path)
    assert gone(int((tmp_path / "note").read_text()))


@contextmanager
def interrupted_once(ready):
    """Press Ctrl-C as soon as `ready()` holds."""

    def interrupt():
        seconds_until(ready, 90)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()


# the labs' solutions run torchrun in every usual run
@pytest.mark.soak
def test_torchrun_starts_ranks_and_leaves_none(tmp_path):
    (tmp_path / "sum.py").write_text(SCRIPT)
    said = terminal("torchrun", "--standalone", "--nproc-per-node", 2, "sum.py", folder=tmp_path, timeout_s=100)
    # in any order, and where Python's output is unbuffered a line may come before the end of the one before
    assert sorted(re.findall(r"rank \d has 3", said)) == ["rank 0 has 3", "rank 1 has 3"]


@pytest.mark.soak
def test_an_interrupt_ends_torchrun_with_its_ranks(tmp_path):
    (tmp_path / "hang.py").write_text(HANG)
    notes = [tmp_path / f"rank{rank}" for rank in range(2)]
    with pytest.raises(KeyboardInterrupt), interrupted_once(lambda: all(note.exists() and note.read_text() for note in notes)):
        terminal("torchrun", "--standalone", "--nproc-per-node", 2, "hang.py", folder=tmp_path, timeout_s=100)
    assert all(gone(int(note.read_text())) for note in notes)


def test_torchrun_is_started_as_a_module_where_its_script_is_not_found(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda program, path: None)
    assert "--nproc-per-node" in terminal("torchrun", "--help", folder=tmp_path)
