"""Ranks that stay in a real kernel: cells, the stop button, and a kernel that dies in their midst."""

from collections.abc import Iterator

import psutil
import pytest

from tests.support.kernels import Kernel, pid_gone, printed, seconds_until
from tests.support.processes import LONG_S

SETUP = "import os\nos.environ['WORLDSIZE_HEADLESS'] = '1'\nfrom worldsize.notebook import *\nfrom pathlib import Path"
RANKS = "%%ranks 3\nimport os, time\nfrom pathlib import Path\nkept = rank"


@pytest.fixture(scope="module")
def one_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(tmp_path_factory.mktemp("k")) as opened:
        assert opened.run(SETUP).error == ""
        yield opened


@pytest.fixture
def kernel(one_kernel: Kernel) -> Kernel:
    """A kernel that tests share, with three ranks that stay."""
    assert one_kernel.run(RANKS).error == ""
    return one_kernel


@pytest.fixture
def doomed_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(tmp_path_factory.mktemp("k")) as opened:
        assert opened.run(SETUP).error == opened.run(RANKS).error == ""
        yield opened


def pids(kernel: Kernel) -> list[int]:
    return [int(word) for word in printed(kernel.run("print(*world['os.getpid()'])")).split()]


def at_work(kernel: Kernel, text: str) -> object:
    """Begin a cell whose ranks are all at work on `text` when this returns."""
    for rank in range(3):
        (kernel.folder / f"at work {rank}").unlink(missing_ok=True)
    cell = kernel.begin(f"%%ranks\nPath(f'at work {{rank}}').touch()\n{text}")
    seconds_until(lambda: all((kernel.folder / f"at work {rank}").exists() for rank in range(3)), LONG_S)
    return cell


def test_cells_see_what_earlier_ones_left_and_what_the_notebook_defines(kernel):
    kernel.run("def double(x):\n    return 2 * x + OFFSET")
    kernel.run("%%ranks\nOFFSET = 10 * rank")
    text = printed(kernel.run("%%ranks\nx = torch.ones(1) * double(rank)\ndist.all_reduce(x)\nx"))
    assert "[all 3 ranks] tensor([36.])" in text and "3 ranks · 1 collective · " in text
    assert printed(kernel.run("print(world['OFFSET'])")) == "[0, 10, 20]"
    assert printed(kernel.run("print(last_run().trace.collectives[0].op)")) == "all_reduce"


def test_a_failing_cell_and_the_cell_of_its_function_are_named_by_their_numbers(kernel):
    kernel.run("def outer():\n    return inner()\ndef inner():\n    return [][3]")
    number = int(printed(kernel.run("print(len(In) - 1)")))
    error = kernel.run("%%ranks\n\nouter()").error
    assert f"cell In[{number + 1}], line 3, in <module>\n      outer()" in error
    assert f"cell In[{number - 1}], line 2, in outer\n      return inner()" in error
    assert f"cell In[{number - 1}], line 4, in inner" in error


def test_a_cell_may_take_an_hour_and_its_time_limit_is_named_with_the_option(kernel):
    assert printed(kernel.run("print(world.timeout_s)")) == "3600.0"
    error = kernel.run("%%ranks --timeout 0.2\ntime.sleep(60)").error
    assert "after timeout_s=0.2 s" in error and "more time: %%ranks --timeout 2" in error


def test_a_cell_on_one_rank_and_another_number_of_ranks(kernel):
    assert "[rank 2] 20" in printed(kernel.run("%%rank 2\nrank * 10"))
    for written in ("%%rank[0, 2]", "%%rank [0,2]", "%%rank 0,2", "%%rank 0 2"):  # the first two as nbdistributed has them
        assert "[ranks 0 and 2] 7" in printed(kernel.run(f"{written} --timeout 100\n7"))
    text = printed(kernel.run("%%ranks 2\nworld_size"))
    assert "closing the 3 open ranks and opening 2 new ones" in text and "[ranks 0 and 1] 2" in text


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%ranks four\n1", "UsageError: %%ranks: expected"),
        ("%%ranks 2 3\n1", "expected one number, the number of ranks, got 2"),
        ("%%rank\n1", "expected the number of a rank"),
        ("%%rank 7\n1", "expected ranks from 0 to 2, got 7"),
        ("%%ranks\nx = 1\n%time x", "line 3: ranks have no shell"),
        ("%%ranks\n!ls", "line 2: ranks have no shell"),
        ("%%ranks\nimport tensorflow", "open ranks run torch only"),
        ("%%ranks 300\n1", "expected a world_size from 1 to 256"),
        ("%%ranks 0\n1", "expected a world_size from 1 to 256"),
        ("%%ranks\nx = (1,\ny = 3", "UsageError: line 2: SyntaxError: '(' was never closed\n    x = (1,\n        ^"),
        ("%%ranks\nimport asyncio\nawait asyncio.sleep(0)", "write asyncio.run(f())"),
    ],
)
def test_what_a_cell_may_not_have_is_one_line(kernel, cell, words):
    answer = kernel.run(cell)
    assert words in f"{answer.error}{answer.text}" and "Traceback" not in f"{answer.error}{answer.text}"
    assert printed(kernel.run("print(world['kept'])")) == "[0, 1, 2]"


def test_the_stop_button_frees_the_ranks_with_what_they_have(kernel):
    cell = at_work(kernel, "time.sleep(1000)")
    kernel.manager.interrupt_kernel()
    assert kernel.finish(cell, timeout_s=LONG_S).name == "Interrupted"
    assert printed(kernel.run("print(world['kept'])")) == "[0, 1, 2]"


@pytest.mark.parametrize("text", ["", "fabric.recv(torch.ones(1), 1) if rank == 0 else time.sleep(1000)"])
def test_a_kernel_that_is_killed_leaves_nothing(doomed_kernel, text):
    ranks = pids(doomed_kernel)
    if text:
        at_work(doomed_kernel, text)
    psutil.Process(doomed_kernel.pid).kill()
    doomed_kernel.nothing_left()
    assert all(pid_gone(pid) for pid in ranks)


def test_ranks_that_ended_with_their_engine_open_anew_at_the_next_cell(kernel):
    kernel.run("from worldsize.engines.current_engine import local_engine\nlocal_engine('torch').abandon()")
    text = printed(kernel.run("%%ranks\n'kept' in dir()"))
    assert (
        "were no longer open (they ended with the process that started them)" in text
        and "[all 3 ranks] False" in text
    )


def test_a_missing_name_says_how_it_comes_to_the_ranks(kernel):
    kernel.run("steps = 3")
    answer = kernel.run("%%ranks\nsteps + 1")
    assert "world.push(steps=steps)" in answer.error
    assert printed(kernel.run("world.push(steps=steps)\nprint(world['steps'])")) == "[3, 3, 3]"
