"""The arena of a notebook: how a student's function ends there, and what comes back."""

import importlib
import random
import secrets
import signal
import sys
import threading
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from worldsize.arrays import plain
from worldsize.checks import run_check
from worldsize.checks.arena import ByRank, LaunchArena
from worldsize.checks.drivers import on_ranks
from worldsize.errors import NotYet
from worldsize.launch import last_run, launch
from worldsize.links import Link


@pytest.fixture(scope="module")
def arena():
    return LaunchArena(timeout_s=4)


def inputs(n=2):
    return [np.arange(3.0) + 10 * rank for rank in range(n)]


# what students write


def doubles(fabric, x):
    x *= 2
    return x.sum()


def swaps(fabric, x):
    out = torch.empty_like(x)
    handle = fabric.isend(x, 1 - fabric.rank)
    fabric.recv(out, 1 - fabric.rank)
    handle.wait()
    return out


def scales(fabric, x, factor, parts):
    return x * factor + sum(parts)


def points_elsewhere(fabric, tensors):
    tensors[0] = tensors[0] + 1
    tensors[1].data = tensors[1] + 1
    tensors[2] += 1


def plays_a_part(fabric, tensors):
    return fabric.rank


def asks_rank_one(fabric, x):
    fabric.send(x, to=1)
    fabric.recv(x, frm=1)
    return x


def answers_with_three_times(fabric, x):
    asked = torch.empty_like(x)
    fabric.recv(asked, frm=0)
    fabric.send(3 * asked, to=0)


def is_a_stub(fabric, x):
    raise NotYet("Exercise 6.2: the ring")


def raises(fabric, x):
    if fabric.rank == 1:
        raise KeyError("chunk 5")


def both_receive(fabric, x):
    fabric.recv(x, 1 - fabric.rank)


def sends_and_loops(fabric, x):
    swaps(fabric, x)
    while True:
        x += 0


def over_a_group(x):
    dist.all_reduce(x)
    return x


# plain functions


def test_a_plain_function_returns_its_value(arena):
    assert arena.call(divmod, 7, 2).returned == ((3, 1),)


def test_a_plain_stub_is_not_yet(arena):
    ended = arena.call(is_a_stub, None, None)
    assert (ended.state, ended.message) == ("not yet", "Exercise 6.2: the ring")


def test_what_a_plain_function_does_to_its_arguments_stays_its_own(arena):
    numbers, nested, array = [3, 1, 2], {"layers": [[1], [2]]}, np.arange(3.0)

    def spoils(numbers, nested, array):
        numbers.sort()
        nested["layers"][0].append(9)
        array += 1
        return numbers.pop()

    ended = arena.call(spoils, numbers, nested, array)
    after = (ended.inputs[0], ended.inputs[1], ended.inputs[2].tolist())
    assert ended.returned == (3,) and after == ((1, 2), {"layers": ((1, 9), (2,))}, [1, 2, 3])
    assert (numbers, nested, array.tolist()) == ([3, 1, 2], {"layers": [[1], [2]]}, [0, 1, 2])


def test_a_plain_function_that_does_not_end_is_a_timeout():
    def loops(caught):
        while True:
            try:
                caught += 0
            except Exception:
                caught = 0

    ended = LaunchArena(timeout_s=0.3).call(loops, 0)
    assert (ended.state, ended.message) == ("timeout", "after timeout_s=0.3 s the function's process had not ended")


def test_a_plain_function_that_sleeps_too_long_is_woken():
    assert LaunchArena(timeout_s=0.3).call(time.sleep, 60).state == "timeout"


def test_somebody_elses_alarm_goes_on_after_a_plain_call(arena):
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(True))
    left = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        arena.call(len, "abc")
        assert 900 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000 and rung == []
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)


SLOW_IMPORT = """
import time
time.sleep(1.5)  # a library that takes longer to import than the call may take
whole = True
"""


def test_the_import_of_a_library_is_not_broken_off_and_takes_no_time_of_a_call(tmp_path, monkeypatch):
    (tmp_path / "slow_library.py").write_text(SLOW_IMPORT)
    monkeypatch.syspath_prepend(tmp_path)
    ended = LaunchArena(timeout_s=1.0).call(lambda: importlib.import_module("slow_library").whole)
    assert (ended.state, ended.returned) == ("done", (True,))


def test_a_function_that_goes_on_for_ever_after_an_import_is_ended(tmp_path, monkeypatch):
    (tmp_path / "quick_library.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    def never_ends():
        importlib.import_module("quick_library")
        while True:
            pass

    assert LaunchArena(timeout_s=0.5).call(never_ends).state == "timeout"


def test_a_plain_function_that_leaves_has_failed(arena):
    ended = arena.call(sys.exit, 3)
    assert (ended.state, ended.message.splitlines()[0]) == (
        "raised", "the function's process exited with code 3 and no result: let the code run to its end instead of exiting",
    )  # fmt: skip


def test_two_arenas_of_one_seed_draw_the_same_whatever_else_draws_meanwhile():
    def asked(seed):
        found = []

        def notes(*args):
            found.append(args)
            random.random(), secrets.randbits(8), np.random.random()  # noqa: NPY002
            return []

        for _ in range(2):
            run_check("balanced_cuts", LaunchArena(seed=seed), notes)
            run_check("fill_buckets", LaunchArena(seed=seed), notes)
        return found

    assert asked(7) == asked(7)
    assert random.Random(7).random() == LaunchArena(seed=7).draws.random() != LaunchArena(seed=8).draws.random()


def test_a_plain_function_that_raises_says_what(arena):
    assert arena.call(divmod, 7, 0).message.startswith("ZeroDivisionError: ")


# ranks


def test_what_ranks_return_comes_back_as_arrays(arena):
    ended = arena.ranks(swaps, inputs())
    assert [got.tolist() for got in ended.returned] == [[10, 11, 12], [0, 1, 2]]


def test_inputs_come_back_as_the_function_left_them(arena):
    ended = arena.ranks(doubles, inputs())
    assert [got.tolist() for got in ended.inputs] == [[0, 2, 4], [20, 22, 24]]


def test_the_callers_arrays_stay_as_they_were(arena):
    mine = inputs()
    arena.ranks(doubles, mine)
    assert [x.tolist() for x in mine] == [[0, 1, 2], [10, 11, 12]]


def test_further_arguments_go_to_every_rank(arena):
    ended = arena.ranks(scales, inputs(), 2, [1, 2])
    assert [got.tolist() for got in ended.returned] == [[3, 5, 7], [23, 25, 27]]


def test_an_argument_by_rank_is_each_ranks_own(arena):
    ended = arena.ranks(scales, inputs(), 2, ByRank(([1], [5])))
    assert [got.tolist() for got in ended.returned] == [[1, 3, 5], [25, 27, 29]]


def test_messages_are_recorded(arena):
    ended = arena.ranks(swaps, inputs())
    assert sorted((t.src, t.dst, t.size_bytes) for t in ended.trace.transfers) == [(0, 1, 24), (1, 0, 24)]


def test_a_link_shapes_the_messages(arena):
    ended = arena.ranks(swaps, inputs(), link=Link("1 GB/s", "100 ms"))
    assert min(t.end_s - t.start_s for t in ended.trace.transfers) >= 0.1


def test_a_stub_is_not_yet(arena):
    ended = arena.ranks(is_a_stub, inputs())
    assert (ended.state, ended.message) == ("not yet", "Exercise 6.2: the ring")


def test_a_rank_that_raises_is_named(arena):
    ended = arena.ranks(raises, inputs())
    assert (ended.state, "rank 1 of 2 failed first: KeyError: 'chunk 5'" in ended.message) == ("raised", True)


def test_a_deadlock_is_named(arena):
    ended = arena.ranks(both_receive, inputs())
    assert ended.state == "deadlock"
    assert ended.message.startswith("deadlock: rank 0 waits for 1 (recv), rank 1 waits for 0 (recv)")


def test_a_function_that_does_not_end_is_a_timeout_with_its_messages(arena):
    ended = arena.ranks(sends_and_loops, inputs())
    assert (ended.state, len(ended.trace.transfers)) == ("timeout", 2)


def test_a_function_that_cannot_travel_is_named(arena):
    lock = threading.Lock()

    def locked(fabric, x):
        return lock.locked()

    ended = arena.ranks(locked, inputs())
    assert (ended.state, "`lock`" in ended.message) == ("raised", True)


def test_words_do_not_point_at_logs_of_another_run(arena):
    assert "last_run()" not in arena.ranks(raises, inputs()).message


def test_the_students_own_last_run_stays(arena):
    mine = launch(doubles, 1, args=(torch.ones(1),))
    arena.ranks(swaps, inputs())
    assert last_run() is mine


def test_ranks_of_a_group_share_a_process_group(arena):
    ended = arena.group(over_a_group, inputs())
    assert [got.tolist() for got in ended.returned] == [[10, 12, 14], [10, 12, 14]]


def test_a_collective_of_the_framework_is_seen(arena):
    ended = arena.group(over_a_group, inputs())
    assert [(c.op, c.rank) for c in sorted(ended.trace.collectives, key=lambda c: c.rank)] == [
        ("all_reduce", 0), ("all_reduce", 1),
    ]  # fmt: skip


# plain values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (slice(2, 4), (2, 4)),
        ([1, (2, "x")], (1, (2, "x"))),
        ({"a": None}, {"a": None}),
        (object(), "<object>"),
    ],
)
def test_values_come_back_plain(value, expected):
    assert plain(value) == expected


def test_a_tensor_comes_back_as_an_array_of_its_own():
    x = torch.ones(2)
    got = plain(x)
    x += 1
    assert got.tolist() == [1, 1]


def test_a_check_may_play_some_of_the_ranks_itself(arena):
    ended = arena.ranks(asks_rank_one, inputs(), played={1: answers_with_three_times})
    assert ended.returned[0].tolist() == [0, 3, 6] and ended.returned[1] is None
    assert [(t.src, t.dst) for t in ended.trace.transfers] == [(0, 1), (1, 0)]


def test_a_driver_sees_the_memory_of_tensors_whatever_the_list_holds_now(arena):
    given = [np.zeros(1), np.zeros(1), np.zeros(1)]
    ended = arena.ranks(points_elsewhere, [given], driver=on_ranks.in_memory)
    (noted,) = ended.returned
    assert [float(x[0]) for x in ended.inputs[0]] == [1, 1, 1]
    assert [float(x[0]) for x in noted["memory"]] == [0, 0, 1]
    assert noted["same"] == (False, True, True)


def test_a_rank_that_the_check_plays_has_no_driver(arena):
    ended = arena.ranks(plays_a_part, [[], []], played={1: plays_a_part}, driver=on_ranks.in_memory)
    assert ended.returned[0]["returned"] == 0
    assert ended.returned[1] == 1


@pytest.mark.parametrize("text", [np.str_("forward"), np.bytes_(b"forward"), b"forward", "forward"])
def test_text_of_any_kind_is_plain_text(text):
    assert (plain([text]), type(plain(text))) == (("forward",), str)
