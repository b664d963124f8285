"""The fabric over real processes, bare and shaped: the conformance suite, and what only a shaped link does."""

import numpy as np
import pytest
import torch

from tests.support.conformance import RUNS, SUITE
from worldsize.errors import Deadlock
from worldsize.fabric import collectives
from worldsize.launch import launch
from worldsize.links import Link, Nodes

FAST = Link("10 GB/s", "10 us")
# on real processes each rule is tried at one size in the usual suite; in simulated time, which is cheap, at all
SIZES = [pytest.param(None, 3, id="local-3"), pytest.param(FAST, 2, id="shaped-2")]
SIZES += [pytest.param(None, n, id=f"local-{n}", marks=pytest.mark.soak) for n in (2, 4)]
SIZES += [pytest.param(FAST, n, id=f"shaped-{n}", marks=pytest.mark.soak) for n in (3, 4)]


@pytest.mark.parametrize(("link", "world_size"), SIZES)
@pytest.mark.parametrize("rule", [*SUITE, *RUNS], ids=lambda rule: rule.__name__)
def test_conformance(rule, world_size, link):
    rule(lambda fn, n, *args: launch(fn, n, args=args, link=link, timeout_s=30), world_size)


def test_numpy_arrays_travel_as_tensors_do():
    def numpy_both_ways(fabric):
        if fabric.rank == 0:
            fabric.send(np.arange(6.0), 1)
        else:
            out = np.zeros(6)
            fabric.recv(out, 0)
            return out.tolist()

    assert launch(numpy_both_ways, 2)[1] == [0, 1, 2, 3, 4, 5]


def test_an_isend_that_nobody_waited_for_is_noted():
    def forgetful(fabric):
        if fabric.rank == 0:
            fabric.isend(torch.zeros(1), 1)
        else:
            fabric.recv(torch.zeros(1), 0)

    assert "rank 0 ended without waiting for an isend" in launch(forgetful, 2).notes[0]


def test_a_second_wait_returns_at_once():
    def twice(fabric):
        if fabric.rank == 0:
            handle = fabric.isend(torch.zeros(1), 1)
            handle.wait()
            handle.wait()
        else:
            fabric.recv(torch.zeros(1), 0)

    assert launch(twice, 2).state == "done"


SLOW = Link("20 MB/s", "10 ms")
MB = torch.zeros(250_000)


def one_message(fabric):
    if fabric.rank == 0:
        fabric.send(MB, 1)
    elif fabric.rank == 1:
        fabric.recv(torch.empty_like(MB), 0)


def test_a_shaped_message_takes_at_least_latency_and_size_over_bandwidth():
    (transfer,) = launch(one_message, 2, link=SLOW).trace.transfers
    assert transfer.end_s - transfer.start_s >= SLOW.seconds(1e6)


def test_a_shaped_receiver_takes_one_message_after_the_other():
    def fan_in(fabric):
        if fabric.rank:
            fabric.send(MB, 0)
        else:
            for _ in range(fabric.world_size - 1):
                fabric.recv(torch.empty_like(MB))

    transfers = launch(fan_in, 4, link=SLOW).trace.transfers
    took = max(t.end_s for t in transfers) - min(t.start_s for t in transfers)
    assert took >= 3 * 1e6 / SLOW.bandwidth_bytes_per_s


def test_a_shaped_sender_sends_one_message_after_the_other():
    def fan_out(fabric):
        if fabric.rank == 0:
            for handle in [fabric.isend(MB, to) for to in range(1, fabric.world_size)]:
                handle.wait()
        else:
            fabric.recv(torch.empty_like(MB), 0)

    transfers = launch(fan_out, 4, link=SLOW).trace.transfers
    took = max(t.end_s for t in transfers) - min(t.start_s for t in transfers)
    assert took >= 3 * 1e6 / SLOW.bandwidth_bytes_per_s + SLOW.latency_s


def test_a_shaped_link_is_full_duplex():
    """The two ways overlap, which on one wire they would not."""

    def both_ways(fabric):
        collectives.all_reduce(fabric, torch.zeros(2))  # both are there, so that neither begins late
        out = torch.empty_like(MB)
        handle = fabric.isend(MB, 1 - fabric.rank)
        fabric.recv(out, 1 - fabric.rank)
        handle.wait()

    slow = Link("4 MB/s", 0)
    transfers = [t for t in launch(both_ways, 2, link=slow).trace.transfers if t.size_bytes == MB.nbytes]
    assert len(transfers) == 2
    assert min(t.end_s for t in transfers) > max(t.start_s for t in transfers)


def test_on_nodes_a_message_takes_the_link_inside_or_the_one_between():
    """The later message, to the rank of the same node, is there first: it does not queue for the card to other nodes."""

    def to_both(fabric):
        if fabric.rank == 0:
            for handle in [fabric.isend(MB, to) for to in (2, 1)]:
                handle.wait()
        elif fabric.rank < 3:
            fabric.recv(torch.empty_like(MB), 0)

    inside, between = Link("20 MB/s", "10 ms"), Link("1 MB/s", "1 s")
    transfers = launch(to_both, 4, nodes=Nodes(2, inside, between, cards=2)).trace.transfers
    near, far = sorted(transfers, key=lambda t: t.dst)
    assert near.end_s - near.start_s >= inside.seconds(1e6)
    assert far.end_s - far.start_s >= between.seconds(1e6)
    assert near.end_s < far.end_s


def test_a_long_message_that_outlives_its_sender_is_not_taken_for_a_deadlock():
    def slow_arrival(fabric):
        if fabric.rank == 0:
            fabric.send(torch.zeros(10), 1)
        else:
            fabric.recv(torch.empty(10), 0)
        return True

    assert launch(slow_arrival, 2, link=Link("1 GB/s", "800 ms")).results == [True, True]


def test_a_wait_that_never_ended_is_in_the_record_of_a_run_that_broke_off():
    def one_waits(fabric):
        if fabric.rank == 0:
            fabric.compute(0.2)
        else:
            fabric.recv(torch.zeros(1), 0)

    with pytest.raises(Deadlock) as caught:
        launch(one_waits, 2)
    (wait,) = [span for span in caught.value.run.trace.spans if span.rank == 1 and span.kind == "wait"]
    assert (wait.label, wait.ended) == ("recv from rank 0", False) and wait.end_s > wait.start_s
