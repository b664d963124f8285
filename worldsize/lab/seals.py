"""Forecasts sealed before the truth is opened: numbers, and a digest of them and of the code that made them.

Until a seal is opened a new seal replaces it; later seals are further attempts, kept beside the first, which stays the
forecast. A seal does not prevent cheating: as a preregistration does, it records what was known when (B. Nosek and others, "The
preregistration revolution", PNAS 115, 2018). Nothing is secret, since the file is the student's own.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from worldsize import units

SECTION = "seals"
DIGITS = 12


@dataclass(frozen=True)
class Seal:
    """Rows of forecast numbers with the moment and the digest; `opened` is the moment of opening, or ""."""

    numbers: tuple[tuple[float, ...], ...]
    digest: str
    at: str
    opened: str = ""


def seals_in(state: dict[str, Any], id: str) -> list[Seal]:
    """Return the seals that a lab's state keeps for `id`, oldest first; damaged seals are left out."""
    seals = []
    section = state.get(SECTION)

    for entry in section.get(id, []) if isinstance(section, dict) else []:
        try:
            rows = tuple(tuple(map(float, row)) for row in entry["numbers"])
            seals.append(Seal(rows, str(entry["digest"]), str(entry["at"]), str(entry["opened"])))
        except (KeyError, TypeError, ValueError):
            continue
    return seals


def words(seal: Seal, before: Sequence[Seal]) -> str:
    """Return a lab's sentence about a newly sealed forecast; `before` are the seals that it kept already."""
    summary = f"{units.count(len(seal.numbers), 'forecast')}, digest {seal.digest}"
    for previous in before:
        if previous.digest == seal.digest:
            return f"already sealed at {previous.at}: {summary}"

    if any(previous.opened for previous in before):
        return f"another attempt, made when the truth was open: {summary}. Your first forecast, {before[0].digest}, still counts"
    return f"sealed at {seal.at}: {summary}"


def refused(why: str, before: Sequence[Seal], taken_back: Sequence[Seal]) -> str:
    """Return a lab's text after a refusal to seal: the reason `why`, and the fate of earlier seals."""
    sentences = [why]
    if any(seal.opened for seal in before):
        sentences.append(f"Nothing is sealed. Your first forecast, {before[0].digest}, is open and still counts.")
    else:
        sentences.append("Nothing is sealed, and the measurements stay closed.")

    sentences += [f"The unopened forecast sealed at {seal.at} is withdrawn." for seal in taken_back]
    return "\n".join(sentences)


def with_seal(state: dict[str, Any], id: str, seal: Seal) -> None:
    """Put a seal into a lab's state; it replaces seals that are not opened yet."""
    withdrawn(state, id)
    _put(state, id, [*seals_in(state, id), seal])


def withdrawn(state: dict[str, Any], id: str) -> list[Seal]:
    """Remove the unopened seals of `id` from a lab's state, and return them."""
    kept, removed = [], []
    for seal in seals_in(state, id):
        if seal.opened:
            kept.append(seal)
        else:
            removed.append(seal)
    _put(state, id, kept)
    return removed


def opened(state: dict[str, Any], id: str) -> None:
    """Note in a lab's state that the seals of `id` are now open."""
    seals = []
    for seal in seals_in(state, id):
        if not seal.opened:
            seal = replace(seal, opened=_now())
        seals.append(seal)
    _put(state, id, seals)


def sealed_now(id: str, numbers: Sequence[Sequence[float]], functions: Sequence[Callable]) -> Seal:
    """Return the seal of these rows and of the functions' sources. Raises ValueError unless every row has finite numbers."""
    try:
        rows = tuple(tuple(map(float, row)) for row in numbers)
    except (TypeError, ValueError):
        rows = ()

    if not rows or not all(map(math.isfinite, sum(rows, ()))):
        raise ValueError(
            f"lab.seal({id!r}): expected rows of finite numbers, such as [(low, middle, high), …], got {numbers!r:.80}. "
            f"Seal what your forecast returns."
        )

    sources = []
    for fn in functions:
        try:
            sources.append(inspect.getsource(fn))
        except (OSError, TypeError):  # no cell shows its source
            sources.append(repr(getattr(getattr(fn, "__code__", None), "co_code", b"")))
    text = json.dumps([rows, sources])
    return Seal(rows, hashlib.sha256(text.encode()).hexdigest()[:DIGITS], _now())


def _put(state: dict[str, Any], id: str, seals: list[Seal]) -> None:
    if not isinstance(state.get(SECTION), dict):
        state[SECTION] = {}
    state[SECTION][id] = [asdict(one) for one in seals]


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
