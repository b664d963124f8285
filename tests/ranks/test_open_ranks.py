"""Ranks that stay: what they keep, what goes to them and comes back, and how they are opened and closed."""

import os
import threading

import numpy as np
import psutil
import pytest
import torch

from tests.support.daemons import until
from tests.support.processes import LONG_S, ranks_alive
from worldsize.errors import Deadlock, RankFailed, RunTimedOut
from worldsize.launch import last_run, launch
from worldsize.links import Link
from worldsize.ranks import open_ranks

SIZES = [1, 2, 3, 4, 7]


def pid_of(world, rank: int) -> int:
    return world["__import__('os').getpid()"][rank]


@pytest.mark.parametrize("world_size", SIZES)
def test_every_rank_has_its_number_a_default_group_and_a_fabric(opened, world_size):
    world = opened(world_size)
    world.run("x = torch.arange(3.0) + rank\ndist.all_reduce(x)")
    world.run(
        "y = torch.full((2,), float(rank))\n"
        "if world_size > 1:\n"
        "    handle = fabric.isend(y.clone(), (rank + 1) % world_size)\n"
        "    fabric.recv(y, (rank - 1) % world_size)\n"
        "    handle.wait()"
    )
    total = sum(range(world_size))
    for rank in range(world_size):
        assert world["x"][rank].tolist() == [total, world_size + total, 2 * world_size + total]
        assert world["y"][rank].tolist() == [(rank - 1) % world_size] * 2
    assert world["(rank, world_size, fabric.rank, dist.get_rank())"] == [
        (r, world_size, r, r) for r in range(world_size)
    ]


def test_a_rank_keeps_what_it_has_from_one_text_to_the_next(four):
    before = [pid_of(four, rank) for rank in range(4)]
    four.run("kept = [rank]")
    four.run("kept.append(kept[0] * 10)")
    assert four["kept"] == [[rank, rank * 10] for rank in range(4)]
    assert [pid_of(four, rank) for rank in range(4)] == before


def test_no_descriptor_is_left_of_a_text_that_is_over(four):
    counted = "len(__import__('os').listdir('/dev/fd'))"
    before = four[counted]
    for _ in range(5):
        four.run("x = 1")
    assert four[counted] == before


def test_no_descriptor_is_left_of_groups_that_were_cut(opened):
    world = opened(2)
    counted = "len(__import__('os').listdir('/dev/fd'))"
    found = []
    for _ in range(4):
        with pytest.raises(RunTimedOut):
            world.run("dist.recv(torch.ones(1), 1 - rank)", timeout_s=0.1)
        world.run("x = torch.ones(1); dist.all_reduce(x)")
        found.append(max(world[counted]))
    assert max(found) <= found[0] + 2, found


def test_each_text_is_a_run_of_its_own(four):
    first = four.run("print('one', rank); dist.barrier()")
    second = four.run(
        "if rank == 0:\n    fabric.send(torch.ones(5), 1)\nif rank == 1:\n    fabric.recv(torch.ones(5), 0)"
    )
    assert [first.log(rank) for rank in range(4)] == [f"one {rank}\n" for rank in range(4)]
    assert second.log() == "" and last_run() is second
    assert [(t.src, t.dst, t.size_bytes) for t in second.trace.transfers] == [(0, 1, 20)]
    assert sorted((each.op, each.rank) for each in first.trace.collectives) == [("barrier", rank) for rank in range(4)]
    assert first.trace.transfers == () and second.trace.collectives == ()
    assert 0 <= second.trace.transfers[0].start_s <= second.trace.transfers[0].end_s <= second.wall_s


@pytest.mark.parametrize("ranks", [[0], [2], [1, 3]])
def test_a_text_runs_on_the_ranks_that_are_named_alone(four, ranks):
    four.run("mark = 'none'")
    four.run("mark = 'named'", ranks)
    assert four["mark"] == ["named" if rank in ranks else "none" for rank in range(4)]


def test_values_are_pushed_as_copies_and_come_back_by_rank(four):
    given = {"array": np.arange(4), "tensor": torch.ones(2, dtype=torch.bfloat16), "text": "ü"}
    four.push(given=given)
    four.run("given['array'] += rank")
    assert [found["array"].tolist() for found in four["given"]] == [[r, r + 1, r + 2, r + 3] for r in range(4)]
    assert given["array"].tolist() == [0, 1, 2, 3]
    assert four["given['tensor'].dtype"] == [torch.bfloat16] * 4 and four["given['text']"] == ["ü"] * 4


def test_a_class_of_the_ranks_comes_back_as_an_object(four):
    four.run("class Point:\n    def __init__(self, x):\n        self.x = x\npoint = Point(rank)")
    assert [found.x for found in four["point"]] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda w: w.push(), "push: expected values by name"),
        (lambda w: w.push(lock=threading.Lock()), "push: `lock` .* cannot be sent"),
        (lambda w: w.run("1", [4]), "run: expected ranks from 0 to 3, got 4"),
        (lambda w: w.run("1", [True]), "run: expected ranks from 0 to 3, got True"),
        (lambda w: w.run("1", timeout_s=0), "run: expected timeout_s"),
        (lambda w: w.run("1", link="fast"), "run: expected link"),
    ],
)
def test_what_cannot_be_done_is_said_and_the_ranks_stay(four, call, words):
    with pytest.raises(ValueError, match=words):
        call(four)
    assert four["rank"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"world_size": 0}, "open_ranks: expected a world_size from 1"),
        ({"world_size": 2, "timeout_s": -1}, "open_ranks: expected timeout_s"),
        ({"world_size": 2, "device": "tpu"}, "open_ranks: expected device"),
        ({"world_size": 2, "seed": -3}, "open_ranks: expected seed"),
        ({"world_size": 2, "device": "cuda"}, "expected device"),
    ],
)
def test_ranks_that_cannot_be_opened_are_refused(arguments, words):
    if arguments.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    before = ranks_alive()
    with pytest.raises(ValueError, match=words):
        open_ranks(**arguments)
    assert ranks_alive() == before


def test_a_value_that_is_not_there_is_an_error_of_its_rank(four):
    with pytest.raises(RankFailed, match="NameError: name 'nowhere' is not defined"):
        four["nowhere"]
    with pytest.raises(SyntaxError):
        four["x ="]
    with pytest.raises(TypeError, match="expected the name of a value"):
        four[2]


def test_a_seed_replays_random_numbers_and_ranks_draw_different_ones(opened):
    drawn = []
    for _ in range(2):
        world = opened(2, seed=5)
        world.run("import random, numpy\ndrawn = (torch.rand(1).item(), random.random(), numpy.random.rand())")
        drawn.append(world["drawn"])
        world.close()
    assert drawn[0] == drawn[1] and len({*drawn[0][0], *drawn[0][1]}) == 6


def test_a_link_shapes_the_fabric_of_one_text_or_of_all(opened):
    slow = Link("1 MB/s", "1 ms")
    text = "x = torch.ones(25_000)\nfabric.send(x, 1) if rank == 0 else fabric.recv(x, 0)"
    world = opened(2)
    took_s = [t.end_s - t.start_s for link in (None, slow) for t in world.run(text, link=link).trace.transfers]
    assert took_s[1] >= 0.1 > took_s[0]
    shaped = opened(2, link=slow)
    assert all(t.end_s - t.start_s >= 0.1 for t in shaped.run(text).trace.transfers)


def test_a_launch_meanwhile_has_fresh_ranks_and_changes_nothing(four):
    four.run("kept = rank * 2")
    assert launch(lambda fabric: fabric.rank, 3).results == [0, 1, 2]
    four.run("x = torch.ones(1); dist.all_reduce(x)")
    assert four["kept"] == [0, 2, 4, 6] and four["x.item()"] == [4.0] * 4


def test_two_worlds_at_once_know_nothing_of_each_other(opened):
    one, other = opened(2), opened(3)
    one.run("name = 'one'; x = torch.ones(1); dist.all_reduce(x)")
    other.run("name = 'other'; x = torch.ones(1); dist.all_reduce(x)")
    assert one["(name, x.item())"] == [("one", 2.0)] * 2
    assert other["(name, x.item())"] == [("other", 3.0)] * 3
    one.close()
    assert other["name"] == ["other"] * 3


def test_closed_ranks_leave_nothing_and_say_why_they_do_no_more(opened):
    world = opened(3)
    pids = [pid_of(world, rank) for rank in range(3)]
    world.close()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    with pytest.raises(ValueError, match=r"run: expected open ranks, .*they were closed.*world\.restart\(\)"):
        world.run("1")
    world.close()
    assert not world.is_open


def test_a_restart_opens_as_many_new_ranks_without_what_the_earlier_had(opened):
    world = opened(2)
    world.run("kept = 1")
    before = pid_of(world, 0)
    world.restart()
    assert pid_of(world, 0) != before and world["'kept' in dir()"] == [False, False]
    world.run("x = torch.ones(1); dist.all_reduce(x)")
    assert world["x.item()"] == [2.0, 2.0]


def test_ranks_without_work_end_after_their_time_and_say_so(opened, monkeypatch):
    world = opened(2)
    pids = [pid_of(world, rank) for rank in range(2)]
    monkeypatch.setattr("worldsize.ranks.open_world.IDLE_MIN", 0.001)
    world.run("1")
    until(lambda: not any(map(psutil.pid_exists, pids)), LONG_S, "the ranks have ended")
    until(lambda: not world.is_open, LONG_S, "that is known")
    with pytest.raises(ValueError, match="they were idle for"):
        world.run("1")
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_texts_that_end_and_texts_that_are_freed_leave_no_file_open_in_a_rank(opened):
    world = opened(2)
    world.run("import os\ndef files():\n    return len(os.listdir('/proc/self/fd'))\ndist.barrier()")
    before = world["files()"]
    for _ in range(10):
        with pytest.raises(Deadlock):
            world.run("fabric.recv(torch.ones(1), 1 - rank)")
    for _ in range(20):
        world.run("dist.barrier()")
    until(lambda: world["files()"] == before, LONG_S, "as many files are open as before")  # a peer closes its side a moment later


def test_what_the_ranks_were_opened_with_is_what_they_see(opened, monkeypatch, tmp_path):
    monkeypatch.setenv("WORLDSIZE_TEST_WORD", "seen")
    monkeypatch.chdir(tmp_path)
    world = opened(2)
    found = world["(__import__('os').environ['WORLDSIZE_TEST_WORD'], __import__('os').getcwd())"]
    assert found == [("seen", os.path.realpath(tmp_path))] * 2


def test_a_rank_holds_no_more_files_after_many_texts(four):
    counted = "len(__import__('os').listdir('/dev/fd'))"
    four.run("x = torch.ones(1); dist.all_reduce(x)")
    before = four[counted]
    for _ in range(20):
        four.run("dist.all_reduce(x)")
    assert four[counted] == before
