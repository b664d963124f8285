"""The check of a training that saves on one rank, loads on all, and goes on where it ended.

The check plays everything that is shared: the training of an epoch, the file, and the barrier. It asks two ranks, one
after the other, and puts what they did side by side; a rank other than 0 reads the file as it must have been at its
last barrier, which is the oldest that it may find. Left out: a file that is cut off in the middle (Lab 15).
Save on one process, load on all: the tutorial of PyTorch's DistributedDataParallel.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.verdict import Verdict
from worldsize.units import count as counted

POINTS = {
    "rank 0 alone saves, a whole checkpoint after every epoch": 0.5,
    "every rank waits until the file is there": 0.5,
    "a new start goes on where the last one ended": 0.5,
}
SAVES, WAITS, RESUMES = POINTS
KEYS = ("epoch", "model", "optimizer")
PLANS = ((0, 3), (2, 5), (3, 4))  # (epochs that the file holds, epochs asked for)


@dataclass
class RankScript:
    """One rank's surroundings. `events` are what it did: ("train", epoch), ("save", what), ("wait",), ("load",)."""

    rank: int
    begun: dict | None
    rank_0: RankScript | None = None
    events: list[tuple] = field(default_factory=list)
    trained_on: list[tuple] = field(default_factory=list)

    def train_epoch(self, model: Any, optimizer: Any, epoch: Any) -> list[Any]:
        self.events.append(("train", _whole(epoch)))
        self.trained_on.append((copy.deepcopy(model), copy.deepcopy(optimizer)))
        return list(trained(model, optimizer, epoch))

    def save(self, checkpoint: Any) -> None:
        self.events.append(("save", copy.deepcopy(checkpoint)))

    def load(self) -> Any:
        self.events.append(("load",))
        return copy.deepcopy(self._file())

    def barrier(self) -> None:
        self.events.append(("wait",))

    def _file(self) -> Any:
        if self.rank == 0 or self.rank_0 is None:
            written = self.events
        else:  # what rank 0 has written for certain when this rank has passed so many barriers
            written = _until(self.rank_0.events, sum(e == ("wait",) for e in self.events))
        return next((e[1] for e in reversed(written) if e[0] == "save"), self.begun)

    def shared(self) -> list[tuple]:
        """The events at which ranks meet."""
        return [e for e in self.events if e[0] in ("train", "wait")]


def trained(model: Any, optimizer: Any, epoch: Any) -> tuple[list[float], list[float]]:
    """Where a training resumes is told by its weights: the scripted epoch has momentum that remembers.

    The scripted training of an epoch: momentum that remembers, weights that depend on all three.
    """
    momentum = [0.5 * m + epoch + 1 for m in optimizer]
    return [w - 0.1 * m for w, m in zip(model, momentum, strict=True)], momentum


def train_resumable(arena: Arena, fn: Callable) -> Verdict:
    """Check of a training that can resume from a checkpoint.

    `train_resumable(rank, epochs, model, optimizer, train_epoch, save, load, barrier)` returns the last checkpoint.

    model and optimizer are states to begin with, `train_epoch(model, optimizer, epoch)` returns new ones, and `load()`
    is None where there is no file yet. A checkpoint is a dict with "epoch", "model" and "optimizer".
    """

    def cases() -> Iterator[Case]:
        for done, epochs in PLANS:
            start, begun = _states(arena.draws), _begun(done, arena.draws)
            first = RankScript(0, begun)
            for rank in (0, 1):
                script = first if rank == 0 else RankScript(rank, begun, first)
                held = f"a file with {counted(done, 'epoch')}" if done else "no file yet"
                yield Case(
                    f"rank {rank}, {counted(epochs, 'epoch')}, {held}",
                    lambda script=script, epochs=epochs, start=start: _run(arena, fn, script, epochs, start),
                    lambda ended, script=script, epochs=epochs, start=start: _examine(ended, script, epochs, start),
                )

    return judge("train_resumable", POINTS, cases())


def _states(draws: random.Random) -> tuple[list[float], list[float]]:
    return [draws.uniform(1, 2) for _ in range(3)], [0.0] * 3


def _begun(done: int, draws: random.Random) -> dict | None:
    """A file that some earlier training left: its states follow from nothing that the function is given."""
    if not done:
        return None
    model, optimizer = ([draws.uniform(5, 9) for _ in range(3)] for _ in range(2))
    return {"epoch": done, "model": model, "optimizer": optimizer}


def _run(arena: Arena, fn: Callable, script: RankScript, epochs: int, start: tuple) -> ArenaResult:
    model, optimizer = copy.deepcopy(start)
    return arena.call(
        fn, script.rank, epochs, model, optimizer, script.train_epoch, script.save, script.load, script.barrier
    )


def _examine(ended: ArenaResult, script: RankScript, epochs: int, start: tuple) -> dict[str, str | None]:
    held = _right(script.begun, epochs, start)
    return {
        RESUMES: _wrong_training(script, held, start),
        SAVES: _wrong_saves(script, held),
        WAITS: _wrong_meeting(script) or _wrong_end(ended.returned[0], script, held),
    }


def _right(begun: dict | None, epochs: int, start: tuple) -> list[dict]:
    """The checkpoint to begin with, and the one after each epoch."""
    held = [begun or {"epoch": 0, "model": start[0], "optimizer": start[1]}]
    for epoch in range(held[0]["epoch"], epochs):
        model, optimizer = trained(held[-1]["model"], held[-1]["optimizer"], epoch)
        held.append({"epoch": epoch + 1, "model": model, "optimizer": optimizer})
    return held


# ---- what it saved ---------------------------------------------------------------------------


def _wrong_saves(script: RankScript, held: list[dict]) -> str | None:
    saved = [e[1] for e in script.events if e[0] == "save"]
    if script.rank:
        return f"rank {script.rank} saved: the ranks would write into one file at once. Rank 0 alone saves." if saved else None
    if len(saved) != len(held) - 1:
        return (
            f"rank 0 saved {counted(len(saved), 'time')}, expected {len(held) - 1}: after every epoch, so that no more than "
            f"one epoch can be lost."
        )
    return next((w for got, right in zip(saved, held[1:], strict=True) if (w := _wrong_checkpoint(got, right, held))), None)


def _wrong_checkpoint(got: Any, right: dict, held: list[dict]) -> str | None:
    if not isinstance(got, dict) or any(key not in got for key in KEYS):
        names = ", ".join(map(str, got)) if isinstance(got, dict) else f"a {type(got).__name__}"
        lacks = [key for key in KEYS if isinstance(got, dict) and key not in got]
        more = " Without the optimizer's state its momentum begins at zero again." if lacks == ["optimizer"] else ""
        return f'a checkpoint needs "epoch", "model" and "optimizer", got {names}.{more}'
    for key in ("model", "optimizer"):
        if not _same(got[key], right[key]):
            before = held[right["epoch"] - held[0]["epoch"] - 1]
            why = "This is what it was before the epoch: save after it." if _same(got[key], before[key]) else ""
            return f'after epoch {right["epoch"] - 1} the checkpoint\'s "{key}" is not what train_epoch returned. {why}'.strip()
    if not _same(got["epoch"], right["epoch"]):
        return (
            f'after epoch {right["epoch"] - 1} the checkpoint says "epoch": {got["epoch"]}; expected {right["epoch"]}, how many '
            f"are done, or a new start would train one of them again."
        )
    return None


# ---- how it went on --------------------------------------------------------------------------


def _wrong_training(script: RankScript, held: list[dict], start: tuple) -> str | None:
    done, epochs = held[0]["epoch"], [e[1] for e in script.events if e[0] == "train"]
    expected = list(range(done, held[-1]["epoch"]))
    if epochs != expected:
        complaint = f"rank {script.rank} trained the epochs {epochs}, expected {expected}"
        if done and epochs[:1] == [0]:
            return f"{complaint}: it began anew, although load() gave a checkpoint of {counted(done, 'epoch')}."
        return f"{complaint}: the first epoch to train is the number of epochs that are done."
    for k, (model, optimizer) in enumerate(script.trained_on):
        for name, got, right in (("model", model, held[k]), ("optimizer", optimizer, held[k])):
            if not _same(got, right[name]):
                fresh = _same(got, start[name == "optimizer"])
                why = "the one that it was given at the start" if fresh else "another"
                source = "load() gave" if not k else "the epoch before left"
                return f"rank {script.rank} trained epoch {expected[k]} with {why}, not with the {name} that {source}."
    return None


# ---- where it waited -------------------------------------------------------------------------


def _wrong_meeting(script: RankScript) -> str | None:
    """Rank 1's meetings against rank 0's: where they differ, both would wait for ever."""
    if script.rank_0 is None:
        return None
    theirs, own = script.rank_0.shared(), script.shared()
    for k in range(max(len(theirs), len(own))):
        one, other = ([*events, *[("end",)] * (k + 1)][k] for events in (theirs, own))
        if one != other:
            return (
                f"rank 0 {_doing(one)} while rank {script.rank} {_doing(other)}: both would wait for ever. "
                f"barrier() is for all ranks, outside of any `if rank == 0`."
            )
    return None


def _doing(event: tuple) -> str:
    return {"wait": "waits at barrier()", "end": "is done"}.get(event[0], f"trains epoch {event[-1]}")


def _wrong_end(got: Any, script: RankScript, held: list[dict]) -> str | None:
    last = held[-1]
    if not isinstance(got, dict) or any(key not in got for key in KEYS):
        kind = "None" if got is None else "another dict" if isinstance(got, dict) else f"a {type(got).__name__}"
        return f"rank {script.rank}: expected the last checkpoint, as load() gives it, got {kind}{_why_none(got, script)}"
    if all(_same(got[key], last[key]) for key in KEYS):
        if script.events[-1:] == [("load",)] or len(held) == 1:
            return None
        return f"rank {script.rank}: it returned its own states. Read the file again at the end: load() on every rank."
    return (
        f"rank {script.rank} returned the checkpoint of epoch {got['epoch']}, expected that of {last['epoch']}. It read the "
        f"file before rank 0 had written it for certain: all wait at barrier() after save, and then load."
    )


def _why_none(got: Any, script: RankScript) -> str:
    if got is None and script.rank and script.events[-1:] == [("load",)]:
        return ". It read the file before rank 0 had written it for certain: all wait at barrier() after save, and then load."
    return " (does the function return it?)" if got is None else ""


# ---- small things ----------------------------------------------------------------------------


def _until(events: list[tuple], barriers: int) -> list[tuple]:
    """The events up to the barrier of that number, counted from 1; none for 0."""
    passed = 0
    for k, event in enumerate(events):
        if passed == barriers:
            return events[:k]
        passed += event == ("wait",)
    return events if passed >= barriers and barriers else []


def _same(got: Any, right: Any) -> bool:
    try:
        return bool(np.allclose(np.asarray(got, float), np.asarray(right, float), atol=1e-9))
    except (TypeError, ValueError):
        return False


def _whole(epoch: Any) -> Any:
    return int(epoch) if isinstance(epoch, (int, float, np.number)) else str(epoch)
