"""Ranks that stand for others: where all nodes do the same, one node is simulated, and its times are those of all.

If a program and its links do not change when every rank r is called r + k, then rank r does at every moment what rank
r % k does. So the function runs on ranks 0 to k - 1 alone, with the true world size; a message to rank `to` goes to the
representative `to % k`, which takes it for the one that the rank at the same distance before it has sent (a quotient of
the run by that symmetry). Times are exact to the last bit; values are not: a representative gets its own node's numbers.

That a program is symmetric cannot be proved by running it. It is tried: `evidence` has what was, and what speaks against
it is raised as NotSymmetric. Left out: the simulation itself (`world`), and ranks of unequal speed (`replay`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from worldsize.engines.payload import Payload
from worldsize.errors import NotYet
from worldsize.simulate.fabric import SimulatedFabric
from worldsize.simulate.own_state import OwnState
from worldsize.simulate.world import Abandoned, Sent, World

MOST_WITNESSED_CALLS = 400_000  # of all witnesses together
MOST_WITNESSES = 10
_SMALL_WORLD = 64

Call = tuple[str, int, int, float]  # what, distance to the other rank, tag, bytes or seconds


class NotSymmetric(ValueError):
    """Ranks do not do the same; the message says where they part."""


class SymmetricWorld(World):
    """A world of `world_size` ranks of which the first `len(slowness)` are simulated and stand for the others.

    `calls[r]` is what representative r did, its waits too: of those the first number is that of the message.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.calls: list[list[Call]] = [[] for _ in self.clock_s]

    def _address(self, rank: int, to: int, tag: int) -> tuple[int, tuple[int, int]]:
        return to % len(self.clock_s), ((to - rank) % self.world_size, tag)

    def _key(self, rank: int, frm: int, tag: int) -> tuple[int, int]:
        return (rank - frm) % self.world_size, tag

    def post(self, rank: int, x: Any, to: int, tag: int) -> Sent:
        self.calls[rank].append(("send", (to - rank) % self.world_size, tag, x.nbytes))
        return super().post(rank, x, to, tag)

    def take(self, rank: int, out: Any, frm: int | None, tag: int, land: Callable[[Sent, Any], None]) -> tuple[int, int, float]:
        if frm is None:
            raise NotSymmetric(f"rank {rank} receives from anyone: who comes first differs from rank to rank")
        self.calls[rank].append(("recv", (rank - frm) % self.world_size, tag, out.nbytes))
        _, size_bytes, first_s = super().take(rank, out, frm, tag, land)
        return frm, size_bytes, first_s

    def wait_until_taken(self, message: Sent) -> None:
        self.calls[message.rank].append(("wait", message.number, 0, 0))
        super().wait_until_taken(message)

    def compute(self, rank: int, seconds: float) -> None:
        self.calls[rank].append(("compute", 0, 0, seconds))
        super().compute(rank, seconds)


class _TooManyCalls(Exception):
    """A witness has done as much as it may."""


class _Taken:
    """The handle of a witness's isend."""

    waited = True

    def wait(self) -> None: ...


class WitnessWorld:
    """A rank alone: what it sends is noted, and what it receives is `fill`ed in at once. It has no time."""

    switches = 0

    def __init__(self, world_size: int, rank: int, fill: Callable[[Any], None], most: int) -> None:
        self.world_size = world_size
        self.current = rank
        self.calls: list[Call] = []
        self.clock_s = _Zeros()
        self.unwaited = _Zeros()
        self._fill = fill
        self._most = most

    def now(self, rank: int) -> float:
        return 0.0

    def progress(self) -> str:
        return f"rank {self.current:,} alone, {len(self.calls):,} calls"

    def pass_time(self, rank: int, seconds: float) -> None: ...

    def post(self, rank: int, x: Any, to: int, tag: int) -> _Taken:
        self._note(("send", (to - rank) % self.world_size, tag, x.nbytes))
        return _Taken()

    def take(self, rank: int, out: Any, frm: int | None, tag: int, land: Callable) -> tuple[int, int, float]:
        if frm is None:
            raise NotSymmetric(f"rank {rank} receives from anyone: who comes first differs from rank to rank")
        self._note(("recv", (rank - frm) % self.world_size, tag, out.nbytes))
        self._fill(out)
        return frm, out.nbytes, 0.0

    def compute(self, rank: int, seconds: float) -> None:
        self._note(("compute", 0, 0, seconds))

    def _note(self, call: Call) -> None:
        if len(self.calls) >= self._most:
            raise _TooManyCalls
        self.calls.append(call)


class _Zeros:
    def __getitem__(self, rank: int) -> int:
        return 0


@dataclass
class Witnesses:
    """What ranks do alone, as far as they were asked: `same` for those that do what their representative does."""

    calls: dict[int, list[Call]] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """How many messages a rank sends, the mean over the representatives."""
        sent = [sum(what == "send" for what, *_ in calls) for calls in self.calls.values()]
        return math.ceil(sum(sent) / len(sent)) if sent else 0


class Asked(Protocol):
    """What of a simulation's setting its witnesses need."""

    world_size: int
    seed: int
    timeout_s: float
    node_ranks: int


def listen(call: Payload, setting: Asked) -> Witnesses:
    """Let some ranks run alone and compare what they do. Raises NotSymmetric where two that should be alike are not."""
    found, world_size, node_ranks = Witnesses(), setting.world_size, setting.node_ranks
    representatives = list(range(node_ranks))
    for rank in representatives:
        found.calls[rank] = _alone(call, setting, rank, _zeros)

    longest = max(len(calls) for calls in found.calls.values()) or 1
    count = max(2, min(MOST_WITNESSES, MOST_WITNESSED_CALLS // longest))
    others = _spread(world_size, node_ranks)[:count]
    for rank in others:
        theirs = _alone(call, setting, rank, _zeros)
        _same_calls(found.calls[rank % node_ranks], theirs, rank % node_ranks, rank, call, world_size)

    drawn = _alone(call, setting, 0, _random_numbers)
    if drawn != found.calls[0]:
        raise NotSymmetric("what rank 0 sends depends on the numbers that it receives")

    ranks = ", ".join(f"{rank:,}" for rank in sorted({*representatives[:3], *others}))
    found.evidence = [
        f"the same calls (send or receive, distance, tag, bytes; {longest:,} at most) on ranks {ranks}, each run alone",
        "the same calls of rank 0 whether it receives zeros or random numbers",
    ]
    return found


def _spread(n: int, node_ranks: int) -> list[int]:
    """Ranks to ask: the last node, the middle, the neighbours of powers of two, and some by chance."""
    draw = np.random.default_rng(n)
    power = 2 ** int(math.log2(n - 1)) if n > 2 else 1
    wanted = [n - 1, n // 2, power, power - 1, power + 1, n - node_ranks, *draw.integers(0, n, 8).tolist()]
    return list(dict.fromkeys(rank for rank in wanted if node_ranks <= rank < n))


def _alone(call: Payload, setting: Asked, rank: int, fill: Callable[[Any], None]) -> list[Call]:
    world = WitnessWorld(setting.world_size, rank, fill, 2 * MOST_WITNESSED_CALLS)
    own_state = OwnState(world, setting.seed, keeps_generators=True)
    args, kwargs = copy.deepcopy((call.args, call.kwargs))
    try:
        with own_state.installed(call.fn, setting.timeout_s):
            own_state.enter(rank)
            call.fn(SimulatedFabric(world, rank), *args, **kwargs)
    except (NotYet, NotSymmetric):
        raise
    except _TooManyCalls:
        raise NotSymmetric(f"rank {rank} alone makes more than {2 * MOST_WITNESSED_CALLS:,} calls: too many to compare") from None
    except (Exception, Abandoned) as error:
        raise NotSymmetric(f"rank {rank} alone, receiving zeros, fails with {type(error).__name__}: {error}") from None
    return world.calls


def _zeros(out: Any) -> None:
    if isinstance(out, np.ndarray):
        out.fill(0)
    else:
        out.detach().zero_()


def _random_numbers(out: Any) -> None:
    numbers = np.random.default_rng(0).integers(1, 100, out.shape)
    if isinstance(out, np.ndarray):
        out[...] = numbers
    elif out.device.type != "meta":
        import torch

        out.detach().copy_(torch.from_numpy(numbers))


def _same_calls(one: list[Call], other: list[Call], rank: int, other_rank: int, call: Payload, n: int) -> None:
    """Raises NotSymmetric at the first difference, and says what it is."""
    if one == other:
        return

    for number, (a, b) in enumerate(zip(one, other, strict=False), start=1):
        if a != b:
            advice = _lengths(call, n) if a[:3] == b[:3] else ""
            raise NotSymmetric(f"call {number} of rank {rank} is {_words(a)}, of rank {other_rank:,} {_words(b)}.{advice}")
    raise NotSymmetric(f"rank {rank} makes {len(one):,} calls, rank {other_rank:,} {len(other):,}")


def _words(call: Call) -> str:
    what, distance, tag, amount = call
    if what == "compute":
        return f"{amount:g} s of work"
    way = "to the rank +" if what == "send" else "from the rank -"
    return f"{what} {way}{distance:,} (tag {tag}, {amount:,} bytes)"


def _lengths(call: Payload, n: int) -> str:
    """Whether an argument has a length that the world size does not divide, and the nearest that it does."""
    for place, value in enumerate(call.args):
        length = getattr(value, "shape", (0,))
        if length and length[0] % n:
            nearest = max(1, round(length[0] / n)) * n
            return (
                f" args[{place}] has {length[0]:,} elements, which {n:,} ranks do not divide evenly: take {nearest:,} and all "
                f"parts are alike."
            )
    return ""


def small_world(world_size: int, node_ranks: int) -> int | None:
    """A world size at which all ranks are quickly simulated, and which divides what the large one does; None if there is none."""
    for n in range(min(_SMALL_WORLD, world_size - 1), 1, -1):
        if world_size % n == 0 and n % node_ranks == 0 and n > node_ranks:
            return n
    return None

