"""Ranks that run alone, so that their calls can be compared: do all send and receive alike?

A witness sends into nothing and receives zeros at once. All ranks are asked if that takes few enough calls. Otherwise a sample is
asked: the last, the middle, neighbors of powers of two, ranks whose number the function compares with its own, and ranks drawn
from the run's seed; an unasked rank may then differ, and the run says so. `symmetry.py` draws the conclusions.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from greenlet import greenlet

from worldsize.engines.payload import Payload
from worldsize.errors import NotYet, RunTimedOut
from worldsize.simulate.early_ends import Abandoned
from worldsize.simulate.fabric import SimulatedFabric
from worldsize.simulate.process_state import ProcessState
from worldsize.simulate.symmetry import Call, NotSymmetric
from worldsize.simulate.watch import TimeIsUp

MOST_WITNESSED_CALLS = 400_000  # of a sample together
MOST_CALLS_OF_ONE = 800_000  # of a single rank
CALLS_PER_MESSAGE = 3  # all ranks are asked if that takes at most so many calls for each message that may be simulated
_FEW = 10  # ranks that are asked even where `most_messages` would allow fewer
_MOST_NAMED = 16
_MOST_NAMING = 8  # ranks that record the numbers they compare their own with
_MOST_LISTED = 12


class _TooManyCalls(Exception):
    """A witness has reached its limit of calls."""


class _Taken:
    """The handle of a witness's isend."""

    waited = True

    def wait(self) -> None: ...


_TAKEN = _Taken()


class WitnessWorld:
    """A world without time in which ranks run alone, one after another; it notes each send and fills in each receive."""

    switches = 0
    closing = False

    def __init__(self, world_size: int, most: int) -> None:
        self.world_size = world_size
        self.current: int | None = None
        self.calls: list[Call] = []
        self.fill: Callable[[Any], None] = _zeros
        self.clock_s = self.unwaited = Counter()  # 0 for every rank
        self.asked = 0
        self._most = most

    def now(self, rank: int) -> float:
        return 0.0

    def progress(self) -> str:
        return f"{self.asked:,} of {self.world_size:,} ranks asked alone"

    def pass_time(self, rank: int, seconds: float) -> None: ...

    def _note(self, call: Call) -> None:
        if len(self.calls) >= self._most:
            raise _TooManyCalls
        self.calls.append(call)

    def post(self, rank: int, x: Any, to: int, tag: int) -> _Taken:
        self._note(("send", (to - rank) % self.world_size, tag, x.nbytes))
        return _TAKEN

    def take(self, rank: int, out: Any, frm: int | None, tag: int, land: Callable) -> tuple[int, int, float]:
        if frm is None:
            raise NotSymmetric(f"rank {rank:,} receives from anyone, and the first sender differs from rank to rank")
        self._note(("recv", (rank - frm) % self.world_size, tag, out.nbytes))
        self.fill(out)
        return frm, out.nbytes, 0.0

    def compute(self, rank: int, seconds: float) -> None:
        self._note(("compute", 0, 0, seconds))


def _counted(compare: Callable[[int, Any], bool]) -> Callable[[_ComparedRank, Any], bool]:
    def compared(rank: _ComparedRank, other: Any) -> bool:
        if rank.seen is not None and isinstance(other, int):
            rank.seen[int(other)] += 1
        return compare(rank, other)

    return compared


class _ComparedRank(int):
    """A rank's number that counts in `seen` the numbers it is compared with, because special ranks are often named that way."""

    seen: Counter | None = None

    __eq__, __ne__ = _counted(int.__eq__), _counted(int.__ne__)
    __lt__, __le__ = _counted(int.__lt__), _counted(int.__le__)
    __gt__, __ge__ = _counted(int.__gt__), _counted(int.__ge__)
    __hash__ = int.__hash__


@dataclass
class Witnesses:
    """The witnesses' results: the `calls` of each representative, and the number of ranks `asked` to match them."""

    calls: dict[int, list[Call]] = field(default_factory=dict)
    asked: int = 0
    evidence: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """The mean number of messages that a representative sends, rounded up."""
        sent = [sum(what == "send" for what, *_ in calls) for calls in self.calls.values()]
        return math.ceil(sum(sent) / len(sent)) if sent else 0


class Asked(Protocol):
    """The part of a simulation's setting that its witnesses, ranks alone, need."""

    world_size: int
    seed: int
    timeout_s: float
    node_ranks: int
    most_messages: int


def listen(call: Payload, setting: Asked) -> Witnesses:
    """Run ranks alone and compare their calls. Raises NotSymmetric if two that should be alike differ.

    The number of ranks asked depends on how many calls they make, never on seconds. Raises RunTimedOut.
    """
    witnesses, n, node_ranks = Witnesses(), setting.world_size, setting.node_ranks
    with _alone(call, setting) as ask:
        for rank in range(node_ranks):
            witnesses.calls[rank] = ask(rank)

        if ask(0, _random_numbers) != witnesses.calls[0]:
            raise NotSymmetric("rank 0 makes different calls when it receives different numbers")

        compare = partial(_same_calls, witnesses.calls, call, n)
        longest = max(len(calls) for calls in witnesses.calls.values()) or 1
        asks_all = n * longest <= CALLS_PER_MESSAGE * setting.most_messages
        sample = max(2, min(_FEW, MOST_WITNESSED_CALLS // longest), min(MOST_WITNESSED_CALLS, setting.most_messages) // longest)
        others = _compare_some(ask, compare, setting, n if asks_all else sample)

    witnesses.asked = node_ranks + len(others)
    asked = sorted({*range(node_ranks), *others})
    if asks_all:
        who = f"all {n:,} ranks"
    elif len(asked) > _MOST_LISTED:
        who = f"{len(asked):,} of {n:,} ranks"
    else:
        who = f"ranks {', '.join(f'{rank:,}' for rank in asked)}"

    witnesses.evidence = [
        f"the same calls (send or receive, distance, tag, bytes; {longest:,} at most) on {who}, each run alone",
        "the same calls of rank 0 whether it receives zeros or random numbers",
    ]
    return witnesses


def _compare_some(ask: Callable, compare: Callable, setting: Asked, count: int) -> list[int]:
    """Ask about `count` ranks, the likeliest to differ first, and return their numbers."""
    n, seen = setting.world_size, Counter()
    asked: dict[int, None] = {}

    def go_on(ranks: list[int]) -> None:
        for rank in ranks:
            if len(asked) >= count or not setting.node_ranks <= rank < n or rank in asked:
                continue

            asked[rank] = None
            if len(asked) > _MOST_NAMING:
                compare(rank, ask(rank))
                continue
            try:
                compare(rank, ask(rank, seen=seen))
            except NotSymmetric:
                compare(rank, ask(rank))  # a counting rank is not quite an int: only a plain int is evidence

    drawn = np.random.default_rng([setting.seed, n]).permutation(n).tolist()
    power = 2 ** int(math.log2(n - 1)) if n > 2 else 1  # the largest power of two below n
    go_on([n - 1, drawn[0], n // 2, power, power - 1, power + 1, n - setting.node_ranks])
    go_on([rank + beside for rank, _ in seen.most_common(_MOST_NAMED) for beside in (0, 1, -1)])
    go_on(drawn)
    return list(asked)


def _zeros(out: Any) -> None:
    if isinstance(out, np.ndarray):
        out.fill(0)
    else:
        out.detach().zero_()


def _random_numbers(out: Any) -> None:
    if not isinstance(out, np.ndarray) and out.device.type == "meta":
        return  # it has no values, and drawing them would take longer than all else

    numbers = np.random.default_rng(0).integers(1, 100, out.shape)
    if isinstance(out, np.ndarray):
        out[...] = numbers
    else:
        import torch

        out.detach().copy_(torch.from_numpy(numbers))


@contextmanager
def _alone(call: Payload, setting: Asked) -> Iterator[Callable[..., list[Call]]]:
    """Yield `ask(rank)`, which returns the calls of `rank` alone. Each rank runs in a greenlet, so that the watch can end it."""
    world = WitnessWorld(setting.world_size, MOST_CALLS_OF_ONE)
    process_state = ProcessState(world, setting.seed, keeps_generators=True)

    def ask(rank: int, fill: Callable[[Any], None] = _zeros, seen: Counter | None = None) -> list[Call]:
        fabric = SimulatedFabric(world, rank)
        if seen is not None:
            fabric.rank = _ComparedRank(rank)
            fabric.rank.seen = seen

        args, kwargs = copy.deepcopy((call.args, call.kwargs))
        world.current, world.calls, world.fill = rank, [], fill
        try:
            process_state.enter(rank)
            greenlet(call.fn).switch(fabric, *args, **kwargs)
        except (NotYet, NotSymmetric, KeyboardInterrupt):
            raise
        except _TooManyCalls:
            raise NotSymmetric(
                f"rank {rank:,} alone makes more than {MOST_CALLS_OF_ONE:,} calls: too many to compare"
            ) from None
        except BaseException as error:
            reason = error.reason if isinstance(error, Abandoned) else error
            if isinstance(reason, TimeIsUp):
                raise RunTimedOut(
                    f"after timeout_s={setting.timeout_s:g} real s a simulation had {world.progress()}. Allow more time."
                ) from None
            raise NotSymmetric(
                f"rank {rank:,} alone, receiving zeros, fails with {type(reason).__name__}: {reason}"
            ) from None
        finally:
            world.current = None
            process_state.logs.clear()
            process_state.buffers.clear()

        world.asked += 1
        return world.calls

    with process_state.installed(call.fn, setting.timeout_s):
        yield ask


def _same_calls(expected: dict[int, list[Call]], call: Payload, n: int, rank: int, theirs: list[Call]) -> None:
    """Raise NotSymmetric at the first call in which `rank` differs from its representative, and describe it."""
    representative = rank % len(expected)
    own = expected[representative]
    if own == theirs:
        return

    for number, (a, b) in enumerate(zip(own, theirs, strict=False), start=1):
        if a != b:
            advice = _lengths(call, n) if a[:3] == b[:3] else ""
            raise NotSymmetric(
                f"call {number} of rank {representative} is {_words(a)}, but of rank {rank:,} {_words(b)}.{advice}"
            )
    raise NotSymmetric(f"rank {representative} makes {len(own):,} calls, rank {rank:,} {len(theirs):,}")


def _words(call: Call) -> str:
    what, distance, tag, amount = call
    if what == "compute":
        return f"{amount:g} s of work"
    way = "to the rank +" if what == "send" else "from the rank -"
    return f"{what} {way}{distance:,} (tag {tag}, {amount:,} bytes)"


def _lengths(call: Payload, n: int) -> str:
    """Return advice if an argument's length is not divisible by the world size: the nearest length that is."""
    for place, value in enumerate(call.args):
        length = getattr(value, "shape", (0,))
        if length and length[0] % n:
            nearest = max(1, round(length[0] / n)) * n
            return (
                f" args[{place}] has {length[0]:,} elements, which {n:,} ranks do not divide evenly: take {nearest:,}, so that "
                f"all parts are equal."
            )
    return ""
