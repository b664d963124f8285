"""Lab 06's checks: what a neighbour's answer earns, and rounds that no clock decides."""

import random

import pytest

from tests.checks.mutants import all_gather, parameter_server, reduce_scatter, ring_all_reduce, sharded_parameter_server
from worldsize.checks import run_check
from worldsize.checks.collectives.all_reduce import LARGE, MANY, SIZES
from worldsize.checks.kit.transfers import rounds
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.fabric import SMALL_BYTES
from worldsize.trace import Trace, Transfer

# An exercise, and what a student has at hand from the one before it or from the text.
PASTED = [
    ("parameter_server", parameter_server.is_a_ring),
    ("parameter_server", sharded_parameter_server.in_place_with_tensor_split),
    ("sharded_parameter_server", sharded_parameter_server.is_one_server),
    ("sharded_parameter_server", sharded_parameter_server.is_a_ring),
    ("reduce_scatter", reduce_scatter.straight_to_the_owner),
    ("reduce_scatter", reduce_scatter.whole_tensors_round_the_ring),
    ("all_gather", all_gather.straight_to_everyone),
    ("all_gather", all_gather.gathers_and_broadcasts),
    ("ring_all_reduce", ring_all_reduce.is_one_server),
    ("ring_all_reduce", ring_all_reduce.straight_to_the_owner_and_back),
    ("ring_all_reduce", ring_all_reduce.whole_tensors_round_the_ring),
]


@pytest.mark.parametrize(("exercise", "fn"), [pytest.param(*row, id=f"{row[0]}-{row[1].__name__}") for row in PASTED])
def test_a_pasted_neighbour_earns_at_most_a_third(exercise, fn):
    verdict = run_check(exercise, SimulatedArena(1), fn)
    assert verdict.points <= verdict.possible / 3, str(verdict)


def test_one_message_is_larger_than_what_a_wire_copies():
    assert 4 * LARGE.elements // LARGE.world_size > SMALL_BYTES


def test_one_world_is_larger_than_eight_and_no_power_of_two():
    assert MANY in SIZES and MANY.world_size == 9 and MANY.elements % 9 == 0


def _on_clocks(n: int, calls: dict[int, list[tuple[str, int]]], seed: int) -> Trace:
    """A trace of ranks that make these calls in this order, each at moments drawn at random: `calls[rank]` are
    ("send", to) and ("recv", from)."""
    draw = random.Random(seed)
    moments: dict[tuple[str, int, int], list[float]] = {}
    for rank, own in calls.items():
        at_s = draw.uniform(0, 50)
        for op, peer in own:
            at_s += draw.choice((1e-9, 0.1, 30.0))
            link = (rank, peer) if op == "send" else (peer, rank)
            moments.setdefault((op, *link), []).append(at_s)

    transfers = []
    for (op, src, dst), posted in moments.items():
        if op == "send":
            taken = moments["recv", src, dst]
            transfers += [Transfer(src, dst, 8, a, b) for a, b in zip(posted, taken, strict=True)]
    return Trace(n, tuple(sorted(transfers, key=lambda t: t.start_s)))


def _ring(n: int, order=("send", "recv")) -> dict[int, list[tuple[str, int]]]:
    peers = {rank: {"send": (rank + 1) % n, "recv": (rank - 1) % n} for rank in range(n)}
    return {rank: [(op, peers[rank][op]) for _ in range(n - 1) for op in order] for rank in range(n)}


@pytest.mark.parametrize("seed", range(20))
def test_a_ring_takes_a_round_a_step_whatever_the_clocks_say(seed):
    assert rounds(_on_clocks(9, _ring(9), seed)) == 8


@pytest.mark.parametrize("seed", range(20))
def test_ranks_that_receive_before_they_send_pass_a_message_on_one_by_one_whatever_the_clocks_say(seed):
    n = 9
    calls = _ring(n, ("recv", "send"))
    calls[0] = _ring(n)[0]
    assert rounds(_on_clocks(n, calls, seed)) == n * (n - 1)


@pytest.mark.parametrize("seed", range(20))
def test_all_to_all_takes_a_round_for_each_other_rank_whatever_the_clocks_say(seed):
    n = 9
    calls = {}
    for rank in range(n):
        others = [(rank + k) % n for k in range(1, n)]
        calls[rank] = [*(("send", to) for to in others), *(("recv", frm) for frm in others)]
    assert rounds(_on_clocks(n, calls, seed)) == n - 1


def test_messages_that_meet_at_one_rank_queue_there():
    assert rounds(Trace(4, tuple(Transfer(src, 0, 8, 0.0, float(src)) for src in (1, 2, 3)))) == 3


def test_a_run_without_messages_takes_no_round():
    assert rounds(Trace(3)) == 0
