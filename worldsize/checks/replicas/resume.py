"""Check of a training that saves on one rank, loads on all, and resumes where the last run ended.

The check scripts everything shared (the training of an epoch, the file, the barrier), runs three ranks one after the
other and compares their events with rank 0's; a rank other than 0 reads the file as of its last barrier, the oldest state it may
find. Saving on one process and loading on all is from the tutorial of PyTorch's DistributedDataParallel.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import differing, kind_in_words
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count as counted

SAVES = "rank 0 alone saves, a whole checkpoint after every epoch"
WAITS = "every rank waits until the file is there"
RESUMES = "a new start goes on where the last one ended"
KEYS = ("epoch", "model", "optimizer")
PLANS = ((0, 3), (2, 5), (3, 4), (4, 4), (5, 3))  # (epochs in the file, epochs asked for)
# float64 lists travel unchanged; the states of another training differ by far more
CLOSE = {"tolerance": 1e-5, "near_zero": 1e-9}


@dataclass(frozen=True)
class RankEvent:
    """An action of a rank of a training that resumes, and its object: the epoch that it trained, the checkpoint that it saved."""

    kind: Literal["train", "save", "wait", "load", "end"]
    what: Any = None


WAIT, LOAD = RankEvent("wait"), RankEvent("load")


@dataclass
class RankScript:
    """The surroundings of a rank that resumes. `begun` is the file's content at the start, `events` the rank's actions.

    `made` are the checkpoints that its epochs would give.
    """

    rank: int
    begun: dict | None
    rank_0: RankScript | None = None
    events: list[RankEvent] = field(default_factory=list)
    trained_on: list[tuple] = field(default_factory=list)
    made: list[dict] = field(default_factory=list)

    def train_epoch(self, model: Any, optimizer: Any, epoch: Any) -> list[Any]:
        number = int(epoch) if isinstance(epoch, (int, float, np.number)) else str(epoch)
        self.events.append(RankEvent("train", number))
        self.trained_on.append((copy.deepcopy(model), copy.deepcopy(optimizer)))
        new_model, new_optimizer = trained(model, optimizer, epoch)
        self.made.append({"epoch": epoch + 1, "model": new_model[:], "optimizer": new_optimizer[:]})
        return [new_model, new_optimizer]

    def save(self, checkpoint: Any) -> None:
        self.events.append(RankEvent("save", copy.deepcopy(checkpoint)))  # the function may change its states later

    def load(self) -> Any:
        self.events.append(LOAD)
        written = self.events
        if self.rank_0 is not None:  # only writes before rank 0's barrier of the same number are certain
            theirs, barriers = self.rank_0.events, len(self.all_of("wait"))
            waits = [place for place, event in enumerate(theirs) if event.kind == "wait"]
            written = theirs[: waits[barriers - 1]] if 0 < barriers <= len(waits) else []

        saved = [self.begun, *(event.what for event in written if event.kind == "save")]
        return copy.deepcopy(saved[-1])

    def barrier(self) -> None:
        self.events.append(WAIT)

    def all_of(self, *kinds: str) -> list[RankEvent]:
        return [event for event in self.events if event.kind in kinds]

    @property
    def loaded_last(self) -> bool:
        """Return whether nothing was trained or saved after the last load; barriers may follow."""
        return self.all_of("train", "save", "load")[-1:] == [LOAD]


def trained(model: Any, optimizer: Any, epoch: Any) -> tuple[list[float], list[float]]:
    """Train a scripted epoch before or after a resume and return the new model and optimizer state.

    Momentum remembers earlier epochs and the weights depend on all three arguments, so they show where a training resumed.
    """
    momentum = [0.5 * m + epoch + 1 for m in optimizer]
    return [w - 0.1 * m for w, m in zip(model, momentum, strict=True)], momentum


@exercise({SAVES: 0.5, WAITS: 0.5, RESUMES: 0.5}, seen=dict.fromkeys((SAVES, WAITS, RESUMES), evidence.CALLS))
def train_resumable(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a training that can resume from a checkpoint.

    `train_resumable(rank, epochs, model, optimizer, train_epoch, save, load, barrier)` returns the last checkpoint.

    `model` and `optimizer` are states to begin with, and `train_epoch(model, optimizer, epoch)` returns new ones.
    `load()` returns None if there is no file yet. A checkpoint is a dict with "epoch", "model" and "optimizer".
    """
    def three(low: float, high: float) -> list[float]:
        return [arena.draws.uniform(low, high) for _ in range(3)]

    cases = []
    for done, epochs in PLANS:
        start = three(1, 2), [0.0] * 3
        begun, held = None, "no file yet"
        if done:  # by an earlier training, whose states do not follow from the function's arguments
            begun = {"epoch": done, "model": three(5, 9), "optimizer": three(5, 9)}
            held = f"a file with {counted(done, 'epoch')}"

        first = RankScript(0, begun)
        for script in (first, RankScript(1, begun, rank_0=first), RankScript(2, begun, rank_0=first)):
            given = (*copy.deepcopy(start), script.train_epoch, script.save, script.load, script.barrier)
            name = f"rank {script.rank}, {counted(epochs, 'epoch')}, {held}"
            run = partial(arena.call, fn, script.rank, epochs, *given)
            cases.append(Case(name, run, partial(_examine, script=script, epochs=epochs, start=start)))
    return cases


def _examine(ended: ArenaResult, script: RankScript, epochs: int, start: tuple) -> dict[str, Complaint]:
    # the checkpoint to begin with, and the one after each epoch
    held = [script.begun or {"epoch": 0, "model": start[0], "optimizer": start[1]}]
    for epoch in range(held[0]["epoch"], epochs):
        model, optimizer = trained(held[-1]["model"], held[-1]["optimizer"], epoch)
        held.append({"epoch": epoch + 1, "model": model, "optimizer": optimizer})

    resumes = _wrong_training(script, held, start)
    if resumes and len(held) == 1:  # no epoch was left, so judge the rest by the epochs that it trained
        held += script.made

    saves, end = _wrong_saves(script, held), _wrong_end(ended.returned[0], script, held)
    if resumes:  # its checkpoints may be others for this reason alone
        saves = saves if script.rank else saves and UNEXAMINED
        end = end and UNEXAMINED
    elif _wrong_saves(script.rank_0 or script, held):  # then what load() gives is wrong, however long a rank waits
        end = end and UNEXAMINED
    return {RESUMES: resumes, SAVES: saves, WAITS: _wrong_meeting(script) or end}


def _wrong_saves(script: RankScript, held: list[dict]) -> Complaint:
    saved = script.all_of("save")
    if script.rank:
        if not saved:
            return None
        return f"rank {script.rank} saved: the ranks would write into one file at once. Only rank 0 saves."

    if len(saved) > len(held) - 1:
        return f"rank 0 saved {counted(len(saved), 'time')}, expected {len(held) - 1}: once after each epoch, and not otherwise."
    if not saved and len(held) > 1:
        return f"rank 0 never saved, expected {counted(len(held) - 1, 'time')}: rank 0 saves, after every epoch, and nobody else."
    if len(saved) < len(held) - 1:
        return (
            f"rank 0 saved {counted(len(saved), 'time')}, expected {len(held) - 1}: save after every epoch, so that at "
            f"most one epoch can be lost."
        )

    for event, before, right in zip(saved, held, held[1:], strict=False):
        complaint = _wrong_checkpoint(event.what, before, right)
        if complaint:
            return complaint

    return None


def _wrong_checkpoint(got: Any, before: dict, right: dict) -> Complaint:
    lacks = _lacks(got)
    if lacks:
        names = ", ".join(map(str, got)) if isinstance(got, dict) else f"a {type(got).__name__}"
        more = " Without the optimizer's state its momentum restarts at zero." * (lacks == ["optimizer"])
        return f'a checkpoint needs "epoch", "model" and "optimizer", got {names}.{more}'

    for key in ("model", "optimizer"):
        if not _same_numbers(got[key], right[key]):
            complaint = f'after epoch {right["epoch"] - 1} the checkpoint\'s "{key}" is not what train_epoch returned.'
            if _same_numbers(got[key], before[key]):
                complaint += " This is the state before the epoch: save after the epoch."
            return complaint

    if not _same_numbers(got["epoch"], right["epoch"]):
        return (
            f'after epoch {right["epoch"] - 1} the checkpoint says "epoch": {got["epoch"]}; expected {right["epoch"]}, the '
            f"number of finished epochs: a new start goes on from there."
        )
    return None


def _lacks(got: Any) -> list[str]:
    """Return the keys that a checkpoint to resume from lacks: all of them if `got` is no dict."""
    if not isinstance(got, dict):
        return list(KEYS)
    return [key for key in KEYS if key not in got]


def _wrong_training(script: RankScript, held: list[dict], start: tuple) -> Complaint:
    done = held[0]["epoch"]
    epochs = [event.what for event in script.all_of("train")]
    expected = list(range(done, held[-1]["epoch"]))
    if epochs != expected:
        complaint = f"rank {script.rank} trained the epochs {epochs}, expected {expected}"
        if not expected:
            return f"{complaint}: the file is already complete ({counted(done, 'epoch')}). Train none, and return the checkpoint."
        if done and epochs == list(range(len(expected))):
            return f"{complaint}: so many are left, but they are numbered from {done}, the number of finished epochs."
        if done and epochs[:1] == [0]:
            if script.all_of("load", "train")[0] != LOAD:
                return f"{complaint}: it started over, since it did not call load() before it trained. Every rank loads."
            return f"{complaint}: it started over, although load() returned a checkpoint of {counted(done, 'epoch')}."
        if not epochs:
            return f"{complaint}: all ranks train, so train_epoch stands outside any `if rank == 0`."
        if len(set(epochs)) < len(epochs):
            return (
                f"{complaint}: an epoch came twice. Does a rank read the file before rank 0 has written it? A barrier stands "
                f"between them."
            )
        if epochs[0] == expected[0]:
            inside = " Does return stand inside the loop?" * (len(epochs) == 1)
            return f"{complaint}: the first is right, the last one is epochs - 1.{inside}"
        return f"{complaint}: the first epoch to train is the number of finished epochs."

    for k, states in enumerate(script.trained_on):
        for name, got, fresh in zip(("model", "optimizer"), states, start, strict=True):
            if not _same_numbers(got, held[k][name]):
                why, source = "another", "load() returned"
                if _same_numbers(got, fresh):
                    why = "the initial"
                if k:
                    source = "the epoch before returned"
                return f"rank {script.rank} trained epoch {expected[k]} with {why} {name}, not with the one that {source}."

    return None


def _wrong_meeting(script: RankScript) -> Complaint:
    """Return a complaint if another rank's barriers differ from rank 0's, so that both would wait forever; else None."""
    if script.rank_0 is None:
        return None

    theirs, own = script.rank_0.all_of("train", "wait"), script.all_of("train", "wait")
    for one, other in zip_longest(theirs, own, fillvalue=RankEvent("end")):
        if one != other:
            return (
                f"rank 0 {_doing(one)} while rank {script.rank} {_doing(other)}: one would wait for ever. "
                f"Call barrier() on all ranks, outside any `if rank == 0`."
            )

    return None


def _doing(event: RankEvent) -> str:
    return {"wait": "waits at barrier()", "end": "is done"}.get(event.kind, f"trains epoch {event.what}")


def _wrong_end(got: Any, script: RankScript, held: list[dict]) -> Complaint:
    last = held[-1]

    if _lacks(got):
        came = kind_in_words(got)
        if got is None and script.rank and script.loaded_last:
            came = (
                "None. It read the file before rank 0 had written it for certain: call barrier() on all ranks after save, then "
                "load."
            )
        elif isinstance(got, dict):
            came = "another dict"
        return f"rank {script.rank}: expected the last checkpoint, as load() returns it, got {came}"

    if all(_same_numbers(got[key], last[key]) for key in KEYS):
        if script.loaded_last or len(held) == 1:
            return None
        return f"rank {script.rank}: it returned its own states. Read the file again at the end: load() on every rank."
    return (
        f"rank {script.rank} did not return the last checkpoint: got epoch {got['epoch']}, expected {last['epoch']}. Did it read "
        f"the file before rank 0 had written it for certain? Call barrier() on all ranks after save, then load."
    )


def _same_numbers(got: Any, right: Any) -> bool:
    try:
        return not differing(np.asarray(got, float), np.asarray(right, float), **CLOSE).size
    except (TypeError, ValueError):
        return False
