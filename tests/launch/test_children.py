"""Processes that a rank's function starts: data loaders, pools, forks. They start as in the notebook, and end with the rank."""

import multiprocessing
import os
import signal
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.support.kernels import seconds_until
from tests.support.processes import LONG_S
from worldsize.errors import RankFailed
from worldsize.launch import launch
from worldsize.ranks import open_ranks


def local_rows() -> Dataset:
    """A dataset of a class that no other process can import, like a class of a cell."""

    class Rows(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, number):
            return torch.tensor([float(number)])

    return Rows()


only_where_children_fork = pytest.mark.skipif(
    multiprocessing.get_all_start_methods()[0] != "fork",
    reason="children do not fork in this Python, in the notebook either: they cannot take a cell's classes along",
)


@only_where_children_fork
def test_a_data_loader_has_workers_for_a_class_of_the_notebook():
    rows = local_rows()

    def read():
        return sum(batch.sum().item() for batch in DataLoader(rows, batch_size=4, num_workers=2, collate_fn=torch.stack))

    assert launch(read, 2).results == [66.0, 66.0]


@only_where_children_fork
def test_a_data_loader_has_workers_on_ranks_that_stay():
    with open_ranks(2) as world:
        world.run(
            "class Rows(torch.utils.data.Dataset):\n"
            "    def __len__(self): return 12\n"
            "    def __getitem__(self, number): return torch.tensor([float(number)])\n"
            "total = sum(x.sum().item() for x in torch.utils.data.DataLoader(Rows(), num_workers=2))"
        )
        assert world["total"] == [66.0, 66.0]


@only_where_children_fork
def test_pools_and_subprocesses_work_in_a_rank():
    def square(number):
        return number * number

    def work():
        with multiprocessing.Pool(1) as pool:
            squares = pool.map(os.path.basename, ["a/b", "c/d"])
        with ProcessPoolExecutor(1) as pool:
            squares += pool.map(len, ["abc"])
        queue = multiprocessing.Queue()
        child = multiprocessing.Process(target=lambda: queue.put(square(3)))
        child.start()
        squares.append(queue.get())
        child.join()
        return [*squares, subprocess.run(["echo", "hi"], capture_output=True, text=True, check=True).stdout]

    assert launch(work, 1).results == [["b", "d", 3, 9, "hi\n"]]


def test_a_function_may_choose_how_its_children_start():
    def choose():
        multiprocessing.set_start_method("spawn")
        return multiprocessing.get_start_method()

    assert launch(choose, 1).results == ["spawn"]


@pytest.mark.parametrize("ends", ["return", "raise"])
def test_a_forked_child_that_returns_is_not_the_rank(ends):
    def fork():
        child = os.fork()
        if child == 0 and ends == "raise":
            raise ValueError("the child's own error")
        if child:
            os.waitpid(child, 0)
        return child > 0

    run = launch(fork, 2)
    assert run.results == [True, True]
    assert ("the child's own error" in run.log(0)) == (ends == "raise")


def test_a_killed_rank_is_noticed_though_its_child_lives_on():
    def die():
        if os.fork() == 0:
            time.sleep(LONG_S)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RankFailed, match="killed by SIGKILL") as failed:
        launch(die, 1, timeout_s=LONG_S)
    assert failed.value.run.wall_s < LONG_S / 2


def test_a_child_that_a_rank_leaves_behind_ends_with_the_launch():
    pids = launch(lambda: subprocess.Popen(["sleep", str(LONG_S)]).pid, 2).results
    seconds_until(lambda: not any(_runs(pid) for pid in pids), LONG_S / 2)


def _runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
