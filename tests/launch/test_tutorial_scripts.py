"""Scripts as tutorials have them: `setup(rank, world_size)` with an address and a port, under `launch` and on ranks that stay."""

import os

import pytest
import torch
import torch.distributed as dist

from tests.support.processes import LONG_S
from worldsize.errors import RankFailed
from worldsize.launch import launch
from worldsize.ranks import open_ranks


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def demo(rank, world_size):
    setup(rank, world_size)
    x = torch.ones(1)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return rank, x.item()


def steps(rank, world_size, count):
    return rank, world_size, count


@pytest.mark.parametrize("args", [(), (3,)])
def test_the_tutorials_function_runs_unedited(args):
    assert launch(demo, 3, args=args, timeout_s=LONG_S).results == [(0, 3.0), (1, 3.0), (2, 3.0)]


def test_a_group_may_be_made_again_and_by_address():
    def twice():
        rank = int(os.environ["RANK"])
        first = demo(rank, 2)
        dist.init_process_group("gloo", init_method="tcp://localhost:12356", rank=rank, world_size=2)
        x = torch.ones(1)
        dist.all_reduce(x)
        return first[1], x.item()

    assert launch(twice, 2, timeout_s=LONG_S).results == [(2.0, 2.0), (2.0, 2.0)]


def test_a_group_of_some_ranks_meets_at_the_chosen_place():
    def one_group_of_two():
        rank = int(os.environ["RANK"])
        if rank < 2:
            setup(rank, 2)
            x = torch.ones(1)
            dist.all_reduce(x)
            return x.item()

    assert launch(one_group_of_two, 3, timeout_s=LONG_S).results == [2.0, 2.0, None]


def test_rank_and_number_of_ranks_stand_before_the_given_arguments():
    assert launch(steps, 2, args=(7,)).results == [(0, 2, 7), (1, 2, 7)]
    assert launch(steps, 2, args=(2, 7)).results == [(0, 2, 7), (1, 2, 7)]
    assert launch(steps, 2, kwargs={"count": 7}).results == [(0, 2, 7), (1, 2, 7)]
    assert launch(steps, 2, args=(5, 6, 7)).results == [(5, 6, 7), (5, 6, 7)]
    assert launch(lambda rank: rank, 2).results == [0, 1]
    with pytest.raises(RankFailed, match="missing 1 required positional argument: 'x'"):
        launch(lambda x: x, 1)


def test_the_tutorials_cell_runs_on_ranks_that_stay_again_and_again():
    with open_ranks(2, timeout_s=LONG_S) as world:
        text = (
            "import os\nos.environ['MASTER_ADDR'], os.environ['MASTER_PORT'] = 'localhost', '12355'\n"
            "dist.init_process_group('gloo', rank=rank, world_size=world_size)\n"
            "x = torch.ones(1)\ndist.all_reduce(x)"
        )
        for _ in range(2):
            world.run(text)
            assert [x.item() for x in world["x"]] == [2.0, 2.0]
        with pytest.raises(RankFailed):
            world.run("dist.barrier() if rank else 1 / 0")
        world.run("dist.all_reduce(x)")  # over a new group: the changed port hid no connection to the store
        assert [x.item() for x in world["x"]] == [4.0, 4.0]


def test_variables_that_torch_reads_at_import_count_in_ranks(monkeypatch):
    def settings():
        import logging

        return str(dist.get_debug_level()), logging.getLogger("torch._dynamo").getEffectiveLevel(), torch.get_num_threads()

    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "INFO")
    monkeypatch.setenv("TORCH_LOGS", "dynamo")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run = launch(settings, 1)
    assert run.results == [("DebugLevel.INFO", 20, 1)]
    assert "1 thread each" in run.setup
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "OFF")
    assert launch(settings, 1).results[0][0] == "DebugLevel.OFF"
