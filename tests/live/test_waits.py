"""A wait is the same to whoever looks: what a rank is said to do while it waits, and what its trace says afterwards."""

import time
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist

from worldsize import report
from worldsize.engines.job import Progress
from worldsize.fabric.background import Background
from worldsize.failures import Wait
from worldsize.figures import rank_timeline
from worldsize.launch import launch
from worldsize.launch.run import Observer, observe, unobserved
from worldsize.live.run_state import RunState
from worldsize.simulate import simulate
from worldsize.trace import Collective, Event, RankRecord, Span, Trace, merge, waits

LATE_S = 1.5
SEEN_S = 0.45  # ten looks a second, and a collective is said to be waited in after 0.3 s


def blocking_send(fabric):
    if fabric.rank == 0:
        fabric.send(torch.ones(3), 1)
    else:
        fabric.compute(LATE_S)
        fabric.recv(torch.zeros(3), 0)


def late_wait_for_an_isend(fabric):
    if fabric.rank == 0:
        handle = fabric.isend(torch.ones(3), 1)
        fabric.compute(LATE_S)
        handle.wait()
    else:
        fabric.recv(torch.zeros(3), 0)
        fabric.compute(LATE_S)


def early_wait_for_an_isend(fabric):
    if fabric.rank == 0:
        handle = fabric.isend(torch.ones(3), 1)
        fabric.compute(LATE_S / 3)
        handle.wait()
    else:
        fabric.compute(2 * LATE_S)
        fabric.recv(torch.zeros(3), 0)


def late_sender(fabric):
    if fabric.rank == 0:
        fabric.compute(LATE_S)
        fabric.send(torch.ones(3), 1)
    else:
        fabric.recv(torch.zeros(3), 0)


def from_anyone(fabric):
    if fabric.rank == 0:
        fabric.recv(torch.zeros(3))
    else:
        fabric.compute(LATE_S)
        fabric.send(torch.ones(3), 0)


def late_at_a_barrier(fabric):
    dist.init_process_group("gloo")
    fabric.compute(LATE_S * fabric.rank)
    dist.barrier()


def late_at_an_asynchronous_sum(fabric):
    dist.init_process_group("gloo")
    fabric.compute(LATE_S * fabric.rank)
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()


def asynchronous_sum_beside_work(fabric):
    dist.init_process_group("gloo")
    work = dist.all_reduce(torch.ones(3), async_op=True)
    fabric.compute(LATE_S)
    work.wait()


def late_at_the_rendezvous(fabric):
    fabric.compute(LATE_S * fabric.rank)
    dist.init_process_group("gloo")


def late_at_plain_point_to_point(fabric):
    dist.init_process_group("gloo")
    if fabric.rank == 0:
        dist.recv(torch.zeros(3), 1)
    else:
        fabric.compute(LATE_S)
        dist.send(torch.ones(3), 0)


def background_sum_beside_work(fabric):
    work = Background(fabric).start(torch.ones(3))
    fabric.compute(LATE_S)
    work.wait()


def late_at_a_background_sum(fabric):
    fabric.compute(LATE_S * fabric.rank)
    Background(fabric).start(torch.ones(3)).wait()


def a_marked_wait(fabric):
    if fabric.rank == 0:
        with report.span("for the disk", kind="wait"):
            time.sleep(LATE_S)


PROGRAMS = {  # how long rank 0 and rank 1 wait
    blocking_send: (LATE_S, 0), late_wait_for_an_isend: (0, 0), early_wait_for_an_isend: (5 / 3 * LATE_S, 0),
    late_sender: (0, LATE_S), from_anyone: (LATE_S, 0), late_at_a_barrier: (LATE_S, 0),
    late_at_an_asynchronous_sum: (LATE_S, 0), asynchronous_sum_beside_work: (0, 0), late_at_the_rendezvous: (LATE_S, 0),
    late_at_plain_point_to_point: (LATE_S, 0), background_sum_beside_work: (0, 0), late_at_a_background_sum: (LATE_S, 0),
    a_marked_wait: (LATE_S, 0),
}  # fmt: skip


class Looks(Observer):
    """What is said of each rank while it runs: when, and whether it waits."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[float, bool]]] = [[], []]
        self.absent: list[str] = []

    def started(self, run) -> None:
        self.run_state = RunState(run.world_size)

    def progressed(self, run, progress) -> None:
        self.run_state.progressed(progress)
        self.seen[progress.rank].append((progress.at_s, progress.state == "waiting"))
        self.absent.append(self.run_state.absent())

    def waited_s(self, rank: int) -> float:
        return sum(later - at for (at, waits), (later, _) in pairwise(self.seen[rank]) if waits)


def launched(program):
    looks = Looks()
    with unobserved():
        observe(looks)
        return launch(program, 2), looks


def waited_s(trace: Trace) -> list[float]:
    return [sum(end - start for start, end in intervals) for intervals in waits(trace)]


@pytest.mark.soak
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_rank_is_said_to_wait_as_long_while_it_runs_as_afterwards(program):
    run, looks = launched(program)
    for rank, (after_s, due_s) in enumerate(zip(waited_s(run.trace), PROGRAMS[program], strict=True)):
        assert after_s == pytest.approx(due_s, abs=SEEN_S)
        assert looks.waited_s(rank) == pytest.approx(after_s, abs=SEEN_S)


@pytest.mark.soak
def test_who_has_not_come_to_the_rendezvous_is_said_within_a_second():
    run, looks = launched(late_at_the_rendezvous)
    first = next(at for at, waiting in looks.seen[0] if waiting)
    (began, _), *_ = waits(run.trace)[0]
    assert first - began < 1
    assert "rank 1 has not reached init_process_group, where rank 0 waits" in looks.absent


IN_SIMULATED_TIME = (blocking_send, late_wait_for_an_isend, early_wait_for_an_isend, late_sender, from_anyone)


@pytest.mark.parametrize("program", IN_SIMULATED_TIME, ids=lambda program: program.__name__)
def test_a_simulated_rank_waits_as_long_as_the_program_says(program):
    assert waited_s(simulate(program, 2).trace) == pytest.approx(PROGRAMS[program], abs=1e-3)


@pytest.mark.parametrize("program", IN_SIMULATED_TIME, ids=lambda program: program.__name__)
def test_the_headline_s_waits_can_be_read_off_the_bars_in_the_first_track(program):
    trace = simulate(program, 2).trace
    for rank, due_s in enumerate(waited_s(trace)):
        drawn = [(bar.start_s, bar.end_s) for bar in rank_timeline.bars(trace) if (bar.rank, bar.kind) == (rank, "wait")]
        assert rank_timeline.covered_s(drawn) == pytest.approx(due_s)


def test_a_send_is_a_wait_from_when_the_rank_began_to_wait_for_it():
    sends = (Event("send", 1, 0, 8, 1.0, 4.0, wait_start_s=3.0), Event("send", 1, 0, 8, 1.5, 6.0))
    assert waits(merge([RankRecord(0, sends), RankRecord(1)], 2)) == [[(3.0, 4.0)], []]


def test_what_another_thread_receives_beside_the_rank_is_no_wait():
    received = (Event("recv", 0, 0, 8, 1.0, 4.0), Event("recv", 0, 0, 8, 5.0, 6.0, wait_start_s=5.0))
    assert waits(merge([RankRecord(0), RankRecord(1, received)], 2)) == [[], [(5.0, 6.0)]]


def test_a_collective_that_returned_at_once_is_no_wait():
    sums = (Collective("all_reduce", 8, 0, 1.0, 2.0), Collective("all_reduce", 8, 0, 3.0, 9.0, blocking=False))
    assert waits(Trace(1, (), (), sums)) == [[(1.0, 2.0)]]


def test_waits_that_overlap_count_once():
    spans = (Span(0, "wait", 1.0, 3.0), Span(0, "recv", 2.0, 4.0), Span(0, "compute", 0.0, 9.0))
    assert waits(Trace(1, (), spans)) == [[(1.0, 4.0)]]


def test_nobody_is_missing_where_all_have_come_or_none_has():
    state = RunState(3)
    assert state.absent() == ""
    for row in state.rows:
        row.meets = "init_process_group"
    assert state.absent() == ""
    state.rows[2].meets = "barrier"
    assert state.absent() == "rank 2 has not reached init_process_group, where ranks 0, 1 wait"


def in_a_row(waits: dict[int, int | None], world_size: int, looks: int = 30) -> RunState:
    """The state after so many looks at ranks that wait for others (None: for any), and otherwise run."""
    state = RunState(world_size)
    for _ in range(looks):
        for rank in range(world_size):
            wait = Wait(rank, "recv", waits[rank]) if rank in waits else None
            state.progressed(Progress(rank, 0.0, state="waiting" if wait else "running", wait=wait))
        state.news()
    return state


@pytest.mark.parametrize(
    ("waits", "world_size", "said"),
    [
        ({0: 3, 1: 0, 2: 1}, 4, "most ranks wait for rank 3"),
        ({0: 3, 1: 3}, 4, "most ranks wait for rank 3"),
        ({0: 3}, 4, ""),
        ({0: 1, 1: 0, 2: 0}, 4, ""),
        ({0: None, 1: None, 2: None}, 4, ""),
        ({0: 1}, 2, "the other rank waits for rank 1"),
        ({}, 1, ""),
    ],
    ids=["a chain", "two of three", "one of three", "a circle", "for any", "two ranks", "alone"],
)
def test_the_view_says_for_whom_most_ranks_have_waited_lately(waits, world_size, said):
    assert in_a_row(waits, world_size).held_up() == said


def test_one_look_at_a_wait_says_nothing_yet():
    assert in_a_row({0: 3, 1: 3, 2: 3}, 4, looks=1).held_up() == ""
