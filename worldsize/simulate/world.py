"""Simulated time: ranks are greenlets of one thread, each with its own clock; a heap decides whose turn it is.

A rank runs until it must wait. Running ahead is exact where every receive names its source: a link's clocks belong to that link,
so no other rank can change when its messages pass. To receive from anyone, or to use a network card shared by a node, a rank
first waits until its clock is the earliest of all, so that no earlier message can still come (conservative simulation: K. M.
Chandy and J. Misra, IEEE TSE SE-5, 1979). Ranks at the same moment go in order of their numbers, so every run is the same. See
also `process_state` (per-rank process state), `api` (the public interface) and `symmetry`.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from traceback import walk_stack
from typing import Any, NoReturn

from greenlet import GreenletExit, greenlet
from typing_extensions import override

from worldsize.engines.ranks.rank_failure import failure_of
from worldsize.fabric.interface import Handle
from worldsize.failures import Failure, Frame, Standing, Wait, is_package
from worldsize.simulate.columns import NEVER, MessageColumns
from worldsize.simulate.early_ends import Abandoned, SimulatedFailure, TooManyMessages, WaitsInBackward
from worldsize.simulate.interleaving import Interleaving
from worldsize.simulate.topology import Clocks
from worldsize.trace import Span

ANYONE = None


class Sent(Handle):
    """A message on its way in simulated time, which is also the handle of its isend."""

    def __init__(
        self, world: World, rank: int, to: int, tag: int, number: int, x: Any, first_s: float, last_s: float
    ) -> None:
        self.rank = rank
        self.to = to
        self.tag = tag
        self.number = number
        self.x = x
        self.first_s = first_s  # when its first byte leaves
        self.last_s = last_s  # when its last byte has left
        self.taken_s = NEVER
        self.awaited = False
        self._world = world

    @override
    def wait(self) -> None:
        world = self._world
        if world is not None:
            self._world = None
            world.wait_until_taken(self)

    @property
    @override
    def waited(self) -> bool:
        return self._world is None


class World:
    """The shared state of one simulation of `len(slowness)` ranks: the world size, if all ranks are simulated.

    `limit` is the number of messages after which the simulation gives up. A message takes `step_s` of its sender's and of its
    receiver's time, beside the link's time, so that successive calls of a rank have distinct moments. `interleaving` is None
    where ranks at the same moment go in order of their numbers. If not `stops_at_failure`, the other ranks go on after a
    failure until none can.
    """

    def __init__(
        self, world_size: int, clocks: Clocks, slowness: list[float], dies_s: list[float], limit: int,
        step_s: float = 0.0, interleaving: Interleaving | None = None, stops_at_failure: bool = True,
    ) -> None:  # fmt: skip
        ranks = len(slowness)
        self.world_size = world_size
        self.clock_s = [0.0] * ranks
        self._key_of_turn = lambda: 0.0  # one key for all: the lower rank goes first
        if interleaving is not None:
            draws = random.Random(interleaving.seed)
            self._key_of_turn = draws.random
            self.clock_s = [draws.uniform(0.0, interleaving.late_s) for _ in range(ranks)]

        self.columns = MessageColumns()
        self.spans: list[Span] = []
        self.unwaited = [0] * ranks
        self.current: int | None = None
        self.switches = 0
        self.failure: Failure | None = None
        self.failures: list[Failure] = []
        self.abandoned: Abandoned | None = None
        self.first_error: BaseException | None = None
        self.ended: set[int] = set()
        self.closing = False

        self._clocks = clocks
        self._has_cards = clocks.node_ranks > 0
        self._slowness = slowness
        self._dies_s = dies_s
        self._limit = limit
        self._step_s = step_s
        self._stops_at_failure = stops_at_failure
        self._inbox: list[dict[tuple[int, int], deque[Sent]]] = [defaultdict(deque) for _ in range(ranks)]
        self._from_anyone: list[dict[int, list]] = [{} for _ in range(ranks)]  # by tag: (first byte, key, source) heaps
        self._waits: list[tuple[str, int | None, int] | None] = [None] * ranks
        self._wanted: list[tuple[int | None, int] | None] = [None] * ranks  # the inbox key of the message that a rank waits for
        self._turns: list[tuple[float, float, int]] = []  # (moment, key, rank)
        self._due_s = [NEVER] * ranks

    # ---- calls of a rank -------------------------------------------------------------------------

    def now(self, rank: int) -> float:
        return self.clock_s[rank]

    def pass_time(self, rank: int, seconds: float) -> None:
        """Advance the simulated clock of `rank`, as `time.sleep` does. Raises SimulatedFailure if the rank dies on the way."""
        self.clock_s[rank] += seconds
        if self.clock_s[rank] > self._dies_s[rank]:
            self.clock_s[rank] = self._dies_s[rank]
            raise SimulatedFailure(f"rank {rank} fails at {self._dies_s[rank]:.6g} s, a time drawn from its failure rate")

    def compute(self, rank: int, seconds: float) -> None:
        start_s = self.clock_s[rank] = self.clock_s[rank] + self._step_s
        self.pass_time(rank, seconds * self._slowness[rank])
        label = f"{seconds:g} s declared"
        self.spans.append(Span(rank, "compute", start_s, self.clock_s[rank], label=label, declared=True))

    def post(self, rank: int, x: Any, to: int, tag: int) -> Sent:
        clock, columns = self._clocks.own[rank], self.columns
        self.clock_s[rank] += self._step_s
        if self._has_cards and self._clocks.shared(rank, to):
            clock = self._clocks.card(rank)
            self._until_earliest(rank, self.clock_s[rank])

        now_s, number, size_bytes = self.clock_s[rank], len(columns.src), x.nbytes
        if number >= self._limit:
            self.abandon(TooManyMessages(self._limit))

        first_s, last_s = clock.leave(size_bytes, now_s)
        columns.src.append(rank)
        columns.dst.append(to)
        columns.tag.append(tag)
        columns.size_bytes.append(size_bytes)
        columns.start_s.append(now_s)
        columns.wait_s.append(NEVER)
        columns.left_s.append(NEVER)
        columns.recv_start_s.append(NEVER)
        columns.end_s.append(NEVER)

        message = Sent(self, rank, to, tag, number, x, first_s, last_s)
        self.unwaited[rank] += 1
        receiver, key = self._address(rank, to, tag)
        self._inbox[receiver][key].append(message)

        if self._from_anyone[receiver]:  # the receiver takes from anyone
            enters_s, heap = self._enters_s(rank, to, first_s), self._from_anyone[to].get(tag)
            if heap is not None:
                heappush(heap, (enters_s, self._key_of_turn(), rank))
            if self._wanted[to] == (ANYONE, tag):
                self._turn(to, max(self.clock_s[to], enters_s))

        if self._wanted[receiver] == key:
            self._turn(receiver, max(self.clock_s[receiver], now_s))
        return message

    def _address(self, rank: int, to: int, tag: int) -> tuple[int, tuple[int, int]]:
        """Return the simulated receiver whose inbox takes a message of `rank`, and the key in that inbox."""
        return to, (rank, tag)

    def _key(self, rank: int, frm: int, tag: int) -> tuple[int, int]:
        """Return the key of the next simulated message from `frm` in the inbox of `rank`."""
        return frm, tag

    def _enters_s(self, src: int, dst: int, first_s: float) -> float:
        """Return the simulated moment at which the first byte reaches the receiver."""
        clock = self._clocks.card(dst) if self._clocks.shared(src, dst) else self._clocks.own[dst]
        return first_s + clock.latency_s

    def take(self, rank: int, out: Any, frm: int | None, tag: int, land: Callable[[Sent, Any], None]) -> tuple[int, int, float]:
        """Wait for a message and have `land` put it into `out`. Returns (source, bytes, when its first byte left)."""
        began_s = self.clock_s[rank] = self.clock_s[rank] + self._step_s
        if frm is ANYONE:
            frm = self._first_come(rank, tag)

        key = self._key(rank, frm, tag)
        queue = self._inbox[rank][key]
        if not queue:
            self._wanted[rank] = key
            self._block(rank, ("recv", frm, tag))
            self._wanted[rank] = None

        message = queue.popleft()

        columns, number = self.columns, message.number
        sent_s = columns.start_s[number]
        message.taken_s = taken_s = began_s if began_s > sent_s else sent_s
        if message.awaited:
            self._turn(message.rank, max(taken_s, message.last_s))

        size_bytes = columns.size_bytes[number]
        land(message, out)
        message.x = None

        clock = self._clocks.own[rank]
        if self._has_cards and self._clocks.shared(frm, rank):
            clock = self._clocks.card(rank)
            self._until_earliest(rank, max(taken_s, self._enters_s(frm, rank, message.first_s)))

        arrived_s = clock.arrive(size_bytes, message.first_s)
        self.clock_s[rank] = now_s = (taken_s if taken_s > arrived_s else arrived_s) + self._step_s
        columns.recv_start_s[number] = began_s
        columns.end_s[number] = now_s
        if now_s > self._dies_s[rank]:
            self.pass_time(rank, 0.0)
        return frm, size_bytes, message.first_s

    def _first_come(self, rank: int, tag: int) -> int:
        """Return the source of the world's earliest message with this tag, once no other rank can send an earlier one."""
        heap = self._from_anyone[rank].get(tag)
        if heap is None:
            heap = self._from_anyone[rank][tag] = []
            for (source, of_tag), queue in self._inbox[rank].items():
                if of_tag == tag:
                    heap += [(self._enters_s(source, rank, m.first_s), self._key_of_turn(), source) for m in queue]
            heap.sort()

        began_s = self.clock_s[rank]
        while True:
            self._forget_taken(rank, tag, heap)
            if heap:
                self._turn(rank, max(began_s, heap[0][0]))

            self._wanted[rank] = (ANYONE, tag)
            self._block(rank, ("recv", ANYONE, tag))
            self._wanted[rank] = None
            self._forget_taken(rank, tag, heap)
            if heap and max(began_s, heap[0][0]) <= self._moment_s:
                return heappop(heap)[2]

    def _forget_taken(self, rank: int, tag: int, heap: list[tuple[float, float, int]]) -> None:
        """Drop from the world's `heap` the messages that were meanwhile received by their source's name."""
        while heap:
            enters_s, _, source = heap[0]
            queue = self._inbox[rank][source, tag]
            if queue and self._enters_s(source, rank, queue[0].first_s) == enters_s:
                return
            heappop(heap)

    def wait_until_taken(self, message: Sent) -> None:
        rank = message.rank
        self.unwaited[rank] -= 1
        self.columns.wait_s[message.number] = self.clock_s[rank]
        # NaN (`NEVER`) differs from itself: the message is not taken yet
        if message.taken_s != message.taken_s:
            message.awaited = True
            self._block(rank, ("send", message.to, message.tag))

        self.clock_s[rank] = left_s = max(self.clock_s[rank], message.taken_s, message.last_s)
        self.columns.left_s[message.number] = left_s

    # ---- turns -----------------------------------------------------------------------------------

    def _turn(self, rank: int, at_s: float) -> None:
        if not self._due_s[rank] <= at_s:  # not due yet, or due later
            self._due_s[rank] = at_s
            heappush(self._turns, (at_s, self._key_of_turn(), rank))

    def _block(self, rank: int, wait: tuple[str, int | None, int] | None) -> None:
        if self.closing:
            raise GreenletExit
        torch = sys.modules.get("torch")
        if torch is not None and torch._C._current_graph_task_id() != -1:
            self.abandon(WaitsInBackward())
        self._waits[rank] = wait
        self._hub.switch()
        self._waits[rank] = None

    def _until_earliest(self, rank: int, at_s: float) -> None:
        """Let every rank of the world go first whose moment is before `at_s`."""
        while self._turns and self._turns[0] < (at_s, 0.0, rank):
            self._turn(rank, at_s)
            self._block(rank, None)

    def run(self, work: Callable[[int], None], process_state: Any, ranks: range) -> None:
        """Run `work(rank)` for every rank of this world until all have ended, or the run has failed or is stuck.

        Afterwards `failure` holds the first failure, and `waits()` the blocked calls. Raises an `Abandoned` if a rank called
        `abandon`.
        """
        self._hub = greenlet.getcurrent()
        self._ranks = {rank: greenlet(self._rank_main) for rank in ranks}
        for rank in ranks:
            self._turn(rank, self.clock_s[rank])

        turns = self._turns
        while turns:
            self._moment_s, _, rank = heappop(turns)
            if self._due_s[rank] != self._moment_s:
                continue  # a stale entry: the rank had its turn earlier
            if self.failure is not None and self._stops_at_failure and self._moment_s > self.failure.at_s:
                break

            self._due_s[rank] = NEVER
            self.current = rank
            self.switches += 1
            process_state.enter(rank)
            coroutine = self._ranks[rank]

            if coroutine:
                coroutine.switch()
            else:
                coroutine.switch(work, rank)
            process_state.leave(rank)
            self.current = None
            if self.abandoned is not None:  # the rank's function caught the exception and went on
                raise self.abandoned

    def _rank_main(self, work: Callable[[int], None], rank: int) -> None:
        try:
            work(rank)
        except (Abandoned, GreenletExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not self.closing:  # errors while a rank is being closed are no failures of the run
                failure = replace(failure_of(rank, error), at_s=self.clock_s[rank])
                self.failures.append(failure)
                if self.failure is None or failure.at_s < self.failure.at_s:
                    self.failure, self.first_error = failure, error

        self.ended.add(rank)

    def abandon(self, reason: Exception) -> NoReturn:
        """End this world's simulation from inside a rank's turn, even if the rank's function catches every exception."""
        self.abandoned = Abandoned(reason)
        raise self.abandoned

    def progress(self) -> str:
        """Return the simulated world's progress in words."""
        return f"{len(self.columns):,} messages, {len(self.ended):,} of {len(self.clock_s):,} ranks done"

    def close(self, process_state: Any) -> None:
        """End the world's unfinished ranks: each leaves its function from where it waits."""
        self.closing = True
        for rank, coroutine in self._ranks.items():
            if coroutine:
                self.current = rank
                process_state.enter(rank)
                try:
                    coroutine.throw(GreenletExit)
                except (Abandoned, KeyboardInterrupt) as stop:  # raised by the cleanup code of the rank's function
                    process_state.watch.keep(stop)
                process_state.leave(rank)
        self.current = None

    def standings(self) -> tuple[Standing, ...]:
        """Return the world's standings of the ranks that have begun and not ended."""
        waits = {wait.rank: wait for wait in self.waits()}
        places = []
        for rank, coroutine in self._ranks.items():
            if rank in self.ended or coroutine.gr_frame is None:
                continue

            frames = [Frame(f.f_code.co_filename, line, f.f_code.co_name) for f, line in walk_stack(coroutine.gr_frame)]
            frames.reverse()
            own = next((place for place, frame in enumerate(frames) if not is_package(frame)), 0)  # the rank's function
            places.append(Standing(rank, waits.get(rank), tuple(frames[own:])))
        return tuple(places)

    def waits(self) -> tuple[Wait, ...]:
        """Return the world's blocked calls of the ranks that have not ended."""
        calls = []
        for rank in sorted(self._ranks.keys() - self.ended):
            wait = self._waits[rank]
            if wait is not None:
                op, peer, tag = wait
                calls.append(Wait(rank, op, peer, tag, peer_ended=peer in self.ended))
        return tuple(calls)
