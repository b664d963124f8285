"""`launch` from real Jupyter kernels: functions of cells, what a cell shows, the stop button, and kernels that die."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.kernels import BUSY, Kernel, launch_busy, pid_gone, printed, seconds_until
from tests.support.processes import LONG_S
from worldsize.launch import launch

IMPORTS = """\
import json, os, signal, threading, time
from pathlib import Path
from worldsize.launch import launch, last_run, warm
"""
SOAK = pytest.mark.soak
HANDLERS = """\
import signal
handlers = {n: signal.getsignal(n) for n in signal.valid_signals()}
"""
ALL_REDUCE = """\
def all_reduce():
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    x = torch.tensor([1.0 + 1000 * dist.get_rank()])
    dist.all_reduce(x)
    return x.item()
"""


def started(folder: Path) -> Iterator[Kernel]:
    with Kernel(folder) as kernel:
        answer = kernel.run(HANDLERS + IMPORTS)
        assert answer.error == ""
        yield kernel


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Kernel]:
    """A kernel that is used by every test that leaves it whole."""
    for kernel in started(tmp_path_factory.mktemp("k")):
        assert kernel.run("warm()\n" + ALL_REDUCE).error == ""
        assert kernel.run(BUSY).error == ""
        yield kernel


@pytest.fixture
def kernel(tmp_path_factory) -> Iterator[Kernel]:
    """A kernel of the test's own, in a folder with a short name, because sockets lie in it."""
    yield from started(tmp_path_factory.mktemp("k"))


@pytest.mark.quick
def test_a_function_takes_along_a_helper_and_a_variable_of_other_cells(shared):
    for cell in ("scale = 3", "def scaled(x):\n    return scale * x", "def work(x):\n    return scaled(x) + 1"):
        assert shared.run(cell).error == ""
    assert printed(shared.run("print(launch(work, 2, args=(5,)).results)")) == "[16, 16]"


@pytest.mark.quick
def test_a_function_takes_along_what_only_the_body_of_its_class_reads(shared):
    cell = """
def twice(fn):
    return lambda self, x: 2 * fn(self, x)
ten = 10
def with_a_class(x):
    class Scaled:
        five = 5
        @twice
        def by(self, y, more=ten + five):
            return y + more
    return Scaled().by(x)
"""
    assert shared.run(cell).error == ""
    assert printed(shared.run("print(launch(with_a_class, 2, args=(1,)).results)")) == "[32, 32]"


def test_a_variable_that_a_later_cell_changed_is_seen_by_the_next_launch(shared):
    shared.run("step = 1")
    shared.run("def read():\n    return step")
    assert printed(shared.run("print(launch(read, 2).results)")) == "[1, 1]"
    shared.run("step = 2")
    assert printed(shared.run("print(launch(read, 2).results)")) == "[2, 2]"


FAULTY = """\
# Exercise 6.2: reduce-scatter round the ring

def ring(fabric):
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()
    if fabric.rank == 1:
        Path("failed").write_text(repr(time.monotonic()))
        raise IndexError("chunk 3 of 3")
    dist.all_reduce(torch.ones(3))
"""


@pytest.mark.quick
def test_a_failure_names_the_exercise_the_line_and_its_text(shared):
    assert shared.run(FAULTY).error == ""
    shown = shared.run("launch(ring, 2)")
    text = 'raise IndexError("chunk 3 of 3")'
    number = 1 + next(i for i, line in enumerate(FAULTY.splitlines()) if text in line)
    assert shown.name == "RankFailed"
    assert shown.error.startswith("RankFailed: rank 1 of 2 failed first: IndexError: chunk 3 of 3\n  Exercise 6.2 (")
    assert f", line {number}, in ring\n      {text}\n" in shown.error
    assert len(shown.error.splitlines()) <= 40


LEAVING = """\
# Exercise 6.3: all-gather round the ring
def leave(how):
    import signal
    if os.environ["RANK"] == "1":
        if how == "os._exit(3)":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)  # its peers are waited for until the failure ends them
"""


@pytest.mark.parametrize("text", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_rank_that_leaves_without_an_exception_names_its_line_too(shared, text):
    assert shared.run(LEAVING).error == ""
    number = 1 + next(i for i, line in enumerate(LEAVING.splitlines()) if line.strip() == text)
    shown = shared.run(f"launch(leave, 2, args=({text!r},))").error
    assert "\n  Exercise 6.3 (cell " in shown and f", line {number}, in leave\n      {text}\n" in shown


def test_a_rank_that_is_killed_from_outside_was_last_seen_in_its_loop(shared):
    cell, ranks = launch_busy(shared, "linger")
    psutil.Process(ranks[1]).kill()
    shown = shared.finish(cell).error
    assert shown.startswith("RankFailed: rank 1 of 2 was killed by SIGKILL")
    assert "  last seen here:\n  cell In[" in shown and ", in linger\n" in shown


def test_a_crash_in_native_code_leaves_its_stack_in_the_log(shared):
    shared.run("def crash():\n    import ctypes\n    ctypes.string_at(0)")
    assert "rank 0 of 1 was killed by SIGSEGV" in shared.run("launch(crash, 1)").error
    assert "line 3 in crash" in printed(shared.run("print(last_run().log(0))"))


def test_a_cell_that_is_no_exercise_is_named_by_its_number(shared):
    assert shared.run("def fail():\n    return {}['lost']").error == ""
    assert "(cell" not in (shown := shared.run("launch(fail, 2)").error)
    assert "\n  cell In[" in shown and "], line 2, in fail\n      return {}['lost']\n" in shown


@SOAK
def test_a_failure_in_a_cell_is_known_within_a_moment(shared):
    shared.run(FAULTY)
    since = "print(time.monotonic() - float(Path('failed').read_text()))"
    assert float(printed(shared.run(f"try:\n    launch(ring, 2)\nexcept Exception:\n    {since}"))) < 3


@pytest.mark.parametrize("function", ["loop", "collective", "receive"])
def test_the_stop_button_ends_the_cell_leaves_no_rank_and_the_next_launch_works(shared, function):
    cell, ranks = launch_busy(shared, function)
    shared.manager.interrupt_kernel()
    stopped = shared.finish(cell)
    assert stopped.name == "Interrupted"
    assert "rank 0" in stopped.error and len(stopped.error.splitlines()) <= 40
    assert all(pid_gone(pid) for pid in ranks)
    assert printed(shared.run("print(launch(all_reduce, 2).results)")) == "[1002.0, 1002.0]"


def test_the_stop_button_during_the_first_launch_leaves_a_kernel_that_launches(kernel):
    cell = kernel.begin("print('now', flush=True)\nlaunch(lambda: 1, 2)")
    seconds_until(kernel.agents, LONG_S)
    kernel.manager.interrupt_kernel()
    assert kernel.finish(cell).name == "KeyboardInterrupt"
    assert printed(kernel.run("print(launch(lambda: 1, 2).results)")) == "[1, 1]"


@pytest.mark.parametrize("function", [pytest.param("loop", marks=SOAK), "collective"])
def test_a_killed_kernel_takes_its_ranks_its_agent_and_its_files_along(kernel, function):
    kernel.run(BUSY)
    launch_busy(kernel, function)
    assert len(kernel.processes()) >= 4
    psutil.Process(kernel.pid).kill()
    kernel.nothing_left()


def test_a_kernel_killed_while_its_agent_warms_up_leaves_nothing(kernel):
    assert kernel.run("warm()").error == ""
    seconds_until(lambda: kernel.processes() and kernel.files(), 30)  # it begins in the background
    psutil.Process(kernel.pid).kill()
    kernel.nothing_left()


@SOAK
def test_a_killed_kernel_takes_its_ranks_along_though_a_forked_child_of_its_own_lives_on(kernel):
    kernel.run(BUSY + "warm()")
    kernel.run("child = os.fork()\nif child == 0:\n    time.sleep(1000)\nprint(child)")  # until it is killed below
    launch_busy(kernel, "loop")
    child = psutil.Process(kernel.pid).children()
    others = [p for p in child if p not in kernel.agents()]
    psutil.Process(kernel.pid).kill()
    try:
        seconds_until(lambda: kernel.processes() == others and not kernel.files(), 30)
    finally:
        for process in others:
            process.kill()


@SOAK
def test_a_kernel_that_shuts_down_leaves_nothing(kernel):
    assert printed(kernel.run("print(launch(lambda: 1, 2).results)")) == "[1, 1]"
    kernel.manager.shutdown_kernel()
    kernel.nothing_left()


@SOAK
def test_a_kernel_that_is_shut_down_in_the_middle_of_a_run_leaves_nothing(kernel):
    kernel.run(BUSY)
    launch_busy(kernel, "loop")
    kernel.manager.shutdown_kernel()
    kernel.nothing_left()


def test_when_the_agent_is_killed_its_ranks_end_and_the_next_launch_works(shared):
    cell, ranks = launch_busy(shared, "loop")
    before = shared.processes()
    [agent] = shared.agents()
    agent.kill()
    assert shared.finish(cell).name == "EngineLost"
    seconds_until(lambda: all(pid_gone(pid) for pid in ranks), 30)
    seconds_until(lambda: not [p for p in before if not pid_gone(p.pid)], 30)
    assert printed(shared.run("print(last_run().log(0))")) == "at work"
    assert printed(shared.run("print(launch(all_reduce, 2).results)")) == "[1002.0, 1002.0]"


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=SOAK)])
def test_two_stops_in_a_row_leave_no_rank_and_the_next_launch_works(shared, world_size):
    cell, ranks = launch_busy(shared, "loop", world_size)
    shared.manager.interrupt_kernel()
    shared.manager.interrupt_kernel()
    assert shared.finish(cell).name in ("Interrupted", "KeyboardInterrupt")
    assert printed(shared.run("print(launch(all_reduce, 2).results)")) == "[1002.0, 1002.0]"
    assert all(pid_gone(pid) for pid in ranks)


def test_an_agent_that_cannot_start_says_why(kernel):
    (kernel.folder / "bad").mkdir()
    (kernel.folder / "bad" / "torch.py").write_text("raise ImportError('this torch is broken')")
    kernel.run("before = os.environ.get('PYTHONPATH', '')\nos.environ['PYTHONPATH'] = str(Path('bad').resolve())")
    shown = kernel.run("launch(lambda: 1, 2)")
    assert shown.name == "EngineLost" and "ImportError: this torch is broken" in shown.error
    assert len(shown.error.splitlines()) <= 40
    kernel.run("os.environ['PYTHONPATH'] = before")
    assert printed(kernel.run("print(launch(lambda: 1, 2).results)")) == "[1, 1]"


@SOAK
def test_a_temporary_folder_whose_name_is_too_long_for_sockets_does_no_harm(kernel):
    long = kernel.tmp / ("long" * 25)
    long.mkdir()
    kernel.run(f"import tempfile\ntempfile.tempdir = os.environ['TMPDIR'] = {str(long)!r}")
    assert printed(kernel.run("print(launch(tempfile.gettempdir, 2).results)")) == str([str(long)] * 2)
    assert list(long.iterdir()) == []


def test_the_signal_handlers_are_the_same_after_runs_as_before_the_import(shared):
    shared.run("launch(lambda: 1, 2)")
    shared.run("launch(lambda: 1 / 0, 2)")
    changed = "print([n for n in handlers if signal.getsignal(n) is not handlers[n]])"
    assert printed(shared.run(changed)) == "[]"


@contextmanager
def port_29500_held() -> Iterator[None]:
    with closing(socket.socket()) as stranger:
        with suppress(OSError):  # held by somebody else: a stranger too
            stranger.bind(("127.0.0.1", 29500))
            stranger.listen()
        yield


def test_two_notebooks_launch_at_once_while_a_stranger_holds_port_29500(shared):
    with port_29500_held():
        cell = shared.begin("print(launch(all_reduce, 2).results)")
        assert launch(lambda: 1, 2).results == [1, 1]
        assert printed(shared.finish(cell)) == "[1002.0, 1002.0]"


@SOAK
def test_four_kernels_launch_at_once_while_a_stranger_holds_port_29500(tmp_path):
    with ExitStack() as stack, port_29500_held():
        kernels = [Kernel(tmp_path / str(number)) for number in range(4)]
        for kernel in kernels:
            kernel.begin_start()
            stack.push(kernel.__exit__)
        for kernel in kernels:
            kernel.end_start()
        code = IMPORTS + ALL_REDUCE + "print(launch(all_reduce, 2).results)"
        cells = [kernel.begin(code) for kernel in kernels]
        shown = [printed(kernel.finish(cell)) for kernel, cell in zip(kernels, cells, strict=True)]
        assert shown == ["[1002.0, 1002.0]"] * 4


TORCH_FIRST = """\
import torch
weight = torch.rand(200, 200, requires_grad=True)
(torch.rand(200, 200) @ weight).sum().backward()
data = torch.utils.data.TensorDataset(torch.rand(64, 3))
loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, persistent_workers=True)
print(sum(len(batch[0]) for batch in loader))
"""
TENSORFLOW_FIRST = """\
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
print(tf.reduce_sum(tf.matmul(tf.ones([50, 50]), tf.ones([50, 50]))).numpy())
"""


@SOAK
def test_torch_with_data_loaders_and_tensorflow_used_first_do_no_harm(kernel):
    assert printed(kernel.run(TORCH_FIRST)) == "64"
    assert kernel.run(TENSORFLOW_FIRST).text.strip() == "125000.0"
    assert printed(kernel.run(ALL_REDUCE + "print(launch(all_reduce, 2).results)")) == "[1002.0, 1002.0]"


@SOAK
def test_the_first_launch_after_a_warm_up_gives_the_right_result(kernel):
    assert kernel.run("warm()\n" + ALL_REDUCE).error == ""
    assert printed(kernel.run("print(launch(all_reduce, 4).results)")) == "[6004.0, 6004.0, 6004.0, 6004.0]"


def test_a_signal_that_was_not_meant_for_ranks_does_not_reach_the_agent(shared):
    """The stop button of a cell that launches nothing goes to the kernel's process group; the agent is not in it."""
    shared.run("launch(lambda: 1, 2)")
    [before] = shared.agents()
    cell = shared.begin("Path('here').write_text('now')\ntime.sleep(1000)")  # until the stop button
    seconds_until((shared.folder / "here").exists, LONG_S)
    shared.manager.interrupt_kernel()
    assert shared.finish(cell).name == "KeyboardInterrupt"
    assert shared.agents() == [before]
