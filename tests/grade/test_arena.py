"""The sandbox arena: it answers a check as the notebook's arena does, with plain values and exact types."""

import socket
from contextlib import closing, suppress

import numpy as np
import pytest
import torch

from tests.support.graded_arena import arena_of
from worldsize.checks.arena import ByRank
from worldsize.grade.isolation.bubblewrap import UNSAFE
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.outside.arena import Submitted
from worldsize.grade.outside.boxes import Sandbox
from worldsize.links import Link

FUNCTIONS = """
from worldsize.notebook import *
import torch.distributed as dist

def swaps(fabric, x):
    got = torch.empty_like(x)
    handle = fabric.isend(x, 1 - fabric.rank)
    fabric.recv(got, 1 - fabric.rank)
    handle.wait()
    return got

def forgets_to_wait(fabric, x):
    if fabric.rank == 1:
        fabric.isend(x, 0)
    else:
        fabric.recv(x, 1)

def changes_what_it_sends(fabric, x):
    handle = fabric.isend(x, 1 - fabric.rank)
    fabric.recv(x, 1 - fabric.rank)
    handle.wait()

def doubles(fabric, x):
    x *= 2

def scales(fabric, x, factor, shifts):
    return x * factor + shifts[0]

def stub(*_):
    raise NotYet("Exercise 6.2: the ring")

LINK = Link("1 GB/s", "500 ms")

def times_a_link(size_bytes):
    return LINK.seconds(size_bytes)

def raises(fabric, x):
    if fabric.rank == 1:
        raise KeyError("chunk 5")
    fabric.recv(x, 1)

def raises_after_another(fabric, x):
    try:
        raises(fabric, x)
    except KeyError as error:
        raise RuntimeError("no step") from error

def loops(fabric, x):
    while True:
        pass

def over_a_group(x):
    dist.all_reduce(x)
    return x

def same(value):
    return value

def calls(step, clock, times):
    begin = clock()
    for _ in range(times):
        step(torch.ones(2))
    return clock() - begin

def catches(step):
    try:
        step()
    except ValueError as error:
        return str(error)

def asks_rank_one(fabric, x):
    fabric.send(x, 1)
    fabric.recv(x, 1)
    return x

def leaves(*_):
    import os
    os._exit(3)

def crashes(*_):
    import ctypes
    ctypes.string_at(0)

def hoards(*_):
    kept = []
    while True:
        kept.append(bytearray(10_000_000))

class Liar(float):
    def __eq__(self, other):
        return True
    __hash__ = None

def lies(x):
    return [Liar(1.0), {"a": Liar(2.0)}]
"""


def inputs() -> list[np.ndarray]:
    return [np.arange(3, dtype="float64"), np.arange(3, dtype="float64") + 10]


@pytest.fixture
def arena(sandbox):
    return arena_of(sandbox, FUNCTIONS, limits=Limits(memory_bytes=500_000_000))


def answers_with_three_times(fabric, x):
    asked = torch.empty_like(x)
    fabric.recv(asked, frm=0)
    fabric.send(3 * asked, to=0)


def test_a_rank_that_waited_for_no_isend_is_seen_from_outside(arena):
    assert arena.ranks(Submitted("forgets_to_wait"), inputs()).unwaited == (1,)
    assert arena.ranks(Submitted("swaps"), inputs()).unwaited == ()


def test_a_tensor_that_changes_while_it_is_sent_is_an_error(arena):
    assert "changed the tensor of its isend to rank" in arena.ranks(Submitted("changes_what_it_sends"), inputs()).message


def test_what_ranks_return_comes_back_as_arrays(arena):
    ended = arena.ranks(Submitted("swaps"), inputs())
    assert [got.tolist() for got in ended.returned] == [[10, 11, 12], [0, 1, 2]]


def test_inputs_come_back_as_the_function_left_them(arena):
    assert [got.tolist() for got in arena.ranks(Submitted("doubles"), inputs()).inputs] == [[0, 2, 4], [20, 22, 24]]


def test_further_arguments_go_to_every_rank(arena):
    ended = arena.ranks(Submitted("scales"), inputs(), 2, [1, 2])
    assert [got.tolist() for got in ended.returned] == [[1, 3, 5], [21, 23, 25]]


def test_an_argument_by_rank_is_each_ranks_own(arena):
    ended = arena.ranks(Submitted("scales"), inputs(), 2, ByRank(([1], [5])))
    assert [got.tolist() for got in ended.returned] == [[1, 3, 5], [25, 27, 29]]


def test_messages_are_recorded(arena):
    transfers = arena.ranks(Submitted("swaps"), inputs()).trace.transfers
    assert sorted((t.src, t.dst, t.size_bytes) for t in transfers) == [(0, 1, 24), (1, 0, 24)]


def test_a_link_shapes_the_messages(arena):
    ended = arena.ranks(Submitted("swaps"), inputs(), link=Link("1 GB/s", "100 ms"))
    assert min(t.end_s - t.start_s for t in ended.trace.transfers) >= 0.1


def test_a_stub_is_not_yet(arena):
    ended = arena.ranks(Submitted("stub"), inputs())
    assert (ended.state, ended.message) == ("not yet", "Exercise 6.2: the ring")


def test_a_link_that_a_cell_makes_is_a_real_one(arena):
    """Pictures and launches have stubs in a sandbox."""
    assert arena.call(Submitted("times_a_link"), 2e9).returned == (2.5,)


def test_a_rank_that_raises_is_named_with_its_line(arena):
    ended = arena.ranks(Submitted("raises"), inputs())
    assert ended.state == "raised"
    assert "rank 1 of 2 failed first: KeyError: 'chunk 5'" in ended.message
    assert 'raise KeyError("chunk 5")' in ended.message


def test_an_error_that_another_caused_is_told_with_its_cause(arena):
    ended = arena.ranks(Submitted("raises_after_another"), inputs())
    assert "rank 1 of 2 failed first: RuntimeError: no step" in ended.message
    assert "caused by KeyError: 'chunk 5'" in ended.message


def test_a_function_that_does_not_end_is_a_timeout(sandbox):
    arena = arena_of(sandbox, FUNCTIONS, limits=Limits(case_s=1))
    ended = arena.ranks(Submitted("loops"), inputs())
    assert (ended.state, arena.incidents) == ("timeout", ["timeout"])
    assert ended.message == "after timeout_s=1 s these ranks of 2 were not done: rank 0 running, rank 1 running"


def test_the_time_of_ranks_that_were_ended_counts_for_their_submission(sandbox):
    arena = arena_of(sandbox, FUNCTIONS, limits=Limits(case_s=1))
    arena.ranks(Submitted("loops"), inputs())
    assert arena._meter.cpu_s > 0.5


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("leaves", "ranks 0, 1 of 2 exited with code 3 and no result"),
        ("crashes", "ranks 0, 1 of 2 were killed by SIGSEGV and returned no result"),
        ("nobody", "NameError: expected a function `nobody`, got nothing"),
    ],
)
def test_a_rank_that_ends_without_a_result_is_named(arena, name, words):
    ended = arena.ranks(Submitted(name), inputs())
    assert ended.state == "raised" and words in ended.message, ended.message


def test_a_memory_hog_is_stopped(arena):
    ended = arena.ranks(Submitted("hoards"), inputs())
    assert ended.state == "raised"
    assert "GB of memory" in ended.message or "MemoryError" in ended.message


def test_a_group_of_an_unsafe_grading_needs_no_port_that_another_may_have():
    with socket.socket() as taken, closing(Sandbox(UNSAFE)) as sandbox:
        with suppress(OSError):  # somebody else has it: all the same to us
            taken.bind(("127.0.0.1", 29500))
            taken.listen()
        ended = arena_of(sandbox, FUNCTIONS).group(Submitted("over_a_group"), inputs())
    assert ended.state == "done", ended.message


def test_a_group_of_one_is_a_process_group_too(arena):
    ended = arena.group(Submitted("over_a_group"), inputs()[:1])
    assert ended.state == "done", ended.message


def test_ranks_of_a_group_share_a_process_group(arena):
    ended = arena.group(Submitted("over_a_group"), inputs())
    assert [got.tolist() for got in ended.returned] == [[10, 12, 14], [10, 12, 14]], ended.message


def test_a_check_may_play_some_of_the_ranks_itself(arena):
    ended = arena.ranks(Submitted("asks_rank_one"), inputs(), played={1: answers_with_three_times})
    assert ended.state == "done", ended
    assert ended.returned[0].tolist() == [0, 3, 6] and ended.returned[1] is None
    assert [(t.src, t.dst) for t in ended.trace.transfers] == [(0, 1), (1, 0)]


VALUES = [
    None, True, 7, 2.5, float("inf"), "text", 10**30, (1, "x"), {"a": None, 3: (1, 2)}, np.float32(1.5), np.int64(-3),
    np.arange(6).reshape(2, 3), np.zeros((0, 4)), np.array(3.5), np.array([1 + 2j]), np.array([True, False]),
]  # fmt: skip


def is_as_it_was(got: object, value: object) -> bool:
    if isinstance(value, np.ndarray) and (got.dtype, got.shape) != (value.dtype, value.shape):
        return False
    alike = np.array_equal(got, value) if isinstance(value, (np.ndarray, np.generic)) else got == value
    return type(got) is type(value) and alike


def test_a_plain_value_comes_back_as_it_was(arena):
    (found,) = arena.call(Submitted("same"), tuple(VALUES)).returned
    assert len(found) == len(VALUES)
    assert [value for value, got in zip(VALUES, found, strict=True) if not is_as_it_was(got, value)] == []


def test_a_value_that_claims_to_equal_everything_comes_back_as_a_number(arena):
    (got,) = arena.call(Submitted("lies"), 1).returned
    assert type(got[0]) is float and type(got[1]["a"]) is float
    assert got[0] != 5


def test_a_checks_own_callable_is_called_in_the_grader(arena):
    seen, now = [], [100.0]

    def step(x):
        seen.append(x)
        now[0] += 2.0

    ended = arena.call(Submitted("calls"), step, lambda: now[0], 3)
    assert ended.returned == (6.0,)
    assert [x.tolist() for x in seen] == [[1, 1]] * 3


def test_an_error_of_a_checks_callable_reaches_the_function(arena):
    def step():
        raise ValueError("too many calls")

    assert arena.call(Submitted("catches"), step).returned == ("too many calls",)


def test_words_about_a_plain_function_name_no_rank(arena):
    assert arena.call(Submitted("raises"), 1, 2).message.startswith("AttributeError: ")
