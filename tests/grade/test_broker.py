"""The grader's broker: the conformance suite of every fabric, and what only a broker between sandboxes has to do."""

import ast
import inspect
import json
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support import conformance
from tests.support.graded_arena import arena_of
from worldsize.grade.isolation.limits import Limits, Meter
from worldsize.grade.outside.arena import SandboxArena, Submitted
from worldsize.grade.outside.broker import Broker
from worldsize.links import Link

FAST = Link("10 GB/s", "10 us")
OVER = "def over(fabric, _, name, *args):\n    return repr(globals()[name](fabric, *args))"
# a rank that takes what does not fit learns its kind, so here it does not go on
RULES = [rule for rule in conformance.SUITE if rule is not conformance.a_mismatch_is_a_value_error_with_both_kinds]
CELLS = [["Set-up 1", inspect.getsource(conformance)], ["Exercise 1.1", OVER]]


def _ways() -> list[object]:
    """(link, world size): every size and both kinds in the usual suite, each pair of them in the soak."""
    usual = [(None, 3), (FAST, 2)]
    return [
        pytest.param(link, n, id=f"{n}-{name}", marks=[pytest.mark.soak] * ((link, n) not in usual))
        for link, name in ((None, "broker"), (FAST, "shaped"))
        for n in (2, 3, 4)
    ]


@pytest.mark.parametrize(("link", "world_size"), _ways())
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_conformance(sandbox, rule, world_size, link):
    def run(fn, n, *args):
        ended = SandboxArena(sandbox, Meter(sandbox.limits), CELLS, 1).ranks(
            Submitted("over"), [None] * n, fn.__name__, *args, link=link
        )
        assert ended.state == "done", ended.message
        return SimpleNamespace(results=[ast.literal_eval(said) for said in ended.returned], trace=ended.trace)

    rule(run, world_size)


def test_a_deadlock_is_known_at_once_and_says_who_waits_for_whom(sandbox):
    both = "def both(fabric, x):\n    fabric.recv(x, 1 - fabric.rank)"
    ended = arena_of(sandbox, both).ranks(Submitted("both"), [np.zeros(1)] * 2)
    assert (ended.state, ended.message) == (
        "deadlock", "deadlock: rank 0 waits for 1 (recv), rank 1 waits for 0 (recv)",
    )  # fmt: skip


def test_a_rank_that_waits_for_one_that_has_ended_is_told_so(sandbox):
    leaves = "def leaves(fabric, x):\n    return fabric.recv(x, 0) if fabric.rank else x"
    ended = arena_of(sandbox, leaves).ranks(Submitted("leaves"), [np.zeros(1)] * 2)
    assert ended.message == "deadlock: rank 1 waits for 0 (recv), which has ended"


THREADS = """
import threading
def exchange(fabric, x):
    got = torch.empty_like(x)
    sender = threading.Thread(target=fabric.send, args=(x, 1 - fabric.rank))
    sender.start()
    fabric.recv(got, 1 - fabric.rank)
    sender.join()
    return got
"""


def test_a_rank_may_send_in_one_thread_and_receive_in_another(sandbox):
    ended = arena_of(sandbox, THREADS).ranks(Submitted("exchange"), [np.full(2, r, "float32") for r in range(2)])
    assert [got.tolist() for got in ended.returned] == [[1, 1], [0, 0]]


def test_a_large_message_passes_whole(sandbox):
    sends = "def sends(fabric, x):\n    fabric.send(x, 1) if fabric.rank == 0 else fabric.recv(x, 0)"
    x = np.arange(2_000_000, dtype="float64")
    ended = arena_of(sandbox, sends).ranks(Submitted("sends"), [x, np.zeros_like(x)])
    assert np.array_equal(ended.inputs[1], x)
    assert ended.trace.total_bytes() == x.nbytes


PEEKS = """
def peeks(fabric, x):
    if fabric.rank == 0:
        fabric.isend(torch.empty(0, 7), 1)
        return x
    try:
        fabric.recv(torch.empty(1), 0)
    except ValueError as error:
        said = str(error)
    if fabric.world_size == 3:
        while True:
            pass
    return said
"""


@pytest.mark.parametrize("world_size", [2, 3, pytest.param(4, marks=pytest.mark.soak)])
def test_a_message_that_does_not_fit_ends_the_run_whatever_its_receiver_does_then(sandbox, world_size):
    ended = arena_of(sandbox, PEEKS).ranks(Submitted("peeks"), [np.zeros(1, "float32")] * world_size)
    assert ended.state == "raised", ended
    assert "expected float32[1], which is what `out` is, got float32[0, 7]" in ended.message


def test_a_message_that_does_not_fit_is_in_the_record(sandbox):
    ended = arena_of(sandbox, PEEKS).ranks(Submitted("peeks"), [np.zeros(1, "float32")] * 2)
    assert [(t.src, t.dst, t.size_bytes) for t in ended.trace.transfers] == [(0, 1, 0)]


def cost_of_a_frame(many: int) -> float:
    """CPU seconds of the broker for each message, with `many` requests and then `many` messages that wait."""
    answers = SimpleNamespace(answer=lambda *_: None)
    broker = Broker([answers, answers], Meter(Limits()))
    kind = {"dtype": 0, "shape": [1]}

    began_s = time.thread_time()
    for k in range(many):
        broker.take_in(1, {"op": "take", "from": 0, "tag": k, "ask": k, **kind}, b"")
        broker.deadlock()
    for k in reversed(range(many)):
        broker.take_in(0, {"op": "post", "to": 1, "tag": k, "post": k, **kind}, bytes(4))
    for k in range(many):
        broker.take_in(1, {"op": "post", "to": 0, "tag": 1, "post": k, **kind}, bytes(4))
        broker.take_in(1, {"op": "wait", "post": k, "ask": k}, b"")
    for k in range(many):
        broker.take_in(0, {"op": "take", "from": None, "tag": 1, "ask": k, **kind}, b"")
    assert len(broker.trace().transfers) == 2 * many
    return (time.thread_time() - began_s) / many


def test_a_frame_costs_the_grader_the_same_however_many_messages_wait():
    """Processor time of this thread, whatever else runs: a search among eight times as many would take eight times as long."""
    few, lots = (min(cost_of_a_frame(many) for _ in range(3)) for many in (500, 4000))
    assert lots < 4 * few


def test_declared_work_takes_its_time_by_the_graders_clock(sandbox):
    two = "def two(fabric, x):\n    fabric.compute(0.05)\n    fabric.compute(0.02)"
    ended = arena_of(sandbox, two).ranks(Submitted("two"), [np.zeros(1)])
    first, second = ended.trace.spans
    assert (first.end_s - first.start_s, second.end_s - second.start_s) == pytest.approx((0.05, 0.02))
    assert second.start_s >= first.end_s and first.declared and second.declared


def test_a_rank_declares_no_two_pieces_of_work_at_the_same_time(sandbox):
    both = """
import threading
def both(fabric, x):
    threads = [threading.Thread(target=fabric.compute, args=(0.05,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
    spans = arena_of(sandbox, both).ranks(Submitted("both"), [np.zeros(1)]).trace.spans
    assert len(spans) == 3 and all(before.end_s <= after.start_s for before, after in pairwise(spans))


FLOODS = """
def floods(fabric, x):
    if fabric.rank == 0:
        handles = [fabric.isend(torch.zeros(1_000_000), 1) for _ in range(1000)]
    fabric.recv(x, 1 - fabric.rank, tag=9)
"""


def test_messages_that_nobody_takes_are_too_many_at_some_point(sandbox):
    ended = arena_of(sandbox, FLOODS).ranks(Submitted("floods"), [np.zeros(1, "float32")] * 2)
    assert "are in transit and not yet received" in ended.message


# finds its line to the broker as any submission can: among its open descriptors
RAW = """
import fcntl, os, stat, struct
def writable():
    for number in range(3, 1000):
        try:
            if stat.S_ISFIFO(os.fstat(number).st_mode) and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_WRONLY:
                yield number
        except OSError:
            pass
def raw(fabric, x):
    if fabric.rank == 0:
        text = %r
        (line,) = writable()
        os.write(line, struct.pack("!QQ", len(text), 0) + text)
    fabric.recv(x, 1 - fabric.rank)
"""


FRAMES = {
    "no frame": [b"no json", b"[]", b"[" * 3000, b'{"op": []}', b'{"op": "ended"}', b'{"op": "computed"}'],
    "no message": [
        b'{"op": "post", "to": 1, "tag": 0, "post": 1, "dtype": 0, "shape": [1000000]}',
        b'{"op": "post", "to": 0, "tag": 0, "post": 1, "dtype": 0, "shape": [1]}',
        b'{"op": "post", "to": 1, "tag": 0, "post": 1, "dtype": 0, "shape": [-1]}',
    ],
    "no wait": [b'{"op": "wait", "post": 7}', b'{"op": "wait", "post": []}'],
    "no value": [
        b'{"op": "done", "returned": ["a", "|O8", [1], 0]}', b'{"op": "done", "returned": ["a", "<f8", [999], 0]}',
        b'{"op": "done", "returned": {"__class__": "x"}}', b'{"op": "done", "returned": ["a", [], [1], 0]}',
        b'{"op": "call", "number": 0, "args": ["l"]}',
    ],
    "no work": [
        b'{"op": "compute", "seconds": NaN, "ask": 1}', b'{"op": "compute", "seconds": -1, "ask": 1}',
        b'{"op": "compute", "seconds": 1e9, "ask": 1}', b'{"op": "compute", "seconds": true, "ask": 1}',
    ],
}  # fmt: skip


def _frames() -> list[object]:
    """The first of each kind in the usual suite."""
    return [
        pytest.param(frame, id=f"{kind}-{place}", marks=[pytest.mark.soak] * (place > 0))
        for kind, frames in FRAMES.items()
        for place, frame in enumerate(frames)
    ]


@pytest.mark.parametrize("frame", _frames())
def test_a_frame_that_no_honest_rank_sends_fails_the_rank_and_nothing_else(sandbox, frame):
    ended = arena_of(sandbox, RAW % frame).ranks(Submitted("raw"), [np.zeros(1)] * 2)
    assert ended.state == "raised" and "ProtocolError" in ended.message, ended


def test_a_message_number_that_is_used_twice_is_refused_for_that(sandbox):
    twice = "def twice(fabric, x):\n    wire = fabric._wire._inner\n    for _ in range(2):\n        wire._posts = 0\n"
    twice += "        fabric.isend(x, 1 - fabric.rank)\n    fabric.recv(x, 1 - fabric.rank)"
    ended = arena_of(sandbox, twice).ranks(Submitted("twice"), [np.zeros(1, "float32")] * 2)
    assert "ProtocolError: expected a message number that no other message has" in ended.message


def test_a_traceback_that_names_a_file_of_the_grader_brings_none_of_it_into_the_words(sandbox, tmp_path):
    secret = tmp_path / "answers.txt"
    secret.write_text("the answer is forty-two\n")
    frame = {"op": "failed", "kind": "raised", "type": "KeyError", "message": "x", "frames": [[str(secret), 1, "f", ""]]}
    ended = arena_of(sandbox, RAW % json.dumps(frame).encode()).ranks(Submitted("raw"), [np.zeros(1)] * 2)
    assert ended.state == "raised" and "answers.txt" in ended.message and "forty-two" not in ended.message, ended
