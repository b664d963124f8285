"""The check of a forecast with its interval: from a ring's steps on 2 and 4 ranks to one more step on 8.

A machine of the check is α and m/B with a scatter, so a ring's step is T(n) = 2(n − 1)(α + m/(nB)) and T(8) = 3.5 (T(4) − T(2)).
Whether the next step lies in the interval is not drawn: the machine is known, so its chance is computed, and the mean over
machines is the true coverage. Left out: machines that are no line, and steps whose scatter has a long tail.

An interval of the next step has two parts (G. Hahn, W. Meeker, "Statistical intervals", 1991, section 2.3): the step's own
scatter, and the error of what is taken for its mean. With few steps the second is the larger, with many the first.

Luck decides nothing: machines are drawn, but the deviations from the mean are the same numbers in every check, and relative
to the step the coverage of an interval depends on a machine's α over m/B alone, whose range is narrow. Over 1,000 checks the
reference's coverage stayed between 0.880 and 0.886, 0.899 and 0.903, 0.889 and 0.891, 0.904 and 0.905 in the four groups of
machines; the limits are 0.77 and 0.96 with few steps, 0.85 and 0.935 with many. An answer that draws numbers of its own (a
bootstrap of 2,000) has a standard deviation of 0.004 there, at least 10 of which lie between it and a limit: 1e-23.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from worldsize import units
from worldsize.checks.arena import Arena
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, number, shown
from worldsize.checks.verdict import Complaint, Verdict

FORECAST = {
    "exact where no step scatters": 0.25,
    "the next step lies in the interval 9 times of 10, with few steps and with many": 0.75,
}
EXACT = 1e-6
NOMINAL = 0.9
Q = NormalDist().inv_cdf(0.5 + NOMINAL / 2)  # 1.645 standard deviations each way
MACHINES = 16  # of each kind
FIXED = 16  # one set of deviations for every check
MOST_WIDE = 1.6  # times the narrowest interval that would do


@dataclass(frozen=True)
class Steps:
    """A kind of measurement: how many steps on 2 and on 4 ranks, α over m/B, and which coverage is near enough to 90 %."""

    name: str
    on_two: int
    on_four: int
    latency: tuple[float, float]
    least: float
    most: float


LATENCY, BANDWIDTH = (1.0, 3.0), (0.002, 0.01)
KINDS = (
    Steps("few steps, mostly bandwidth", 7, 6, BANDWIDTH, 0.77, 0.96),
    Steps("few steps, mostly latency", 6, 7, LATENCY, 0.77, 0.96),
    Steps("many steps, mostly bandwidth", 40, 48, BANDWIDTH, 0.85, 0.935),
    Steps("many steps, mostly latency", 48, 40, LATENCY, 0.85, 0.935),
)


@dataclass(frozen=True)
class Machine:
    """Seconds of a ring's step: `alpha_s` a message, `bytes_s` for the whole tensor over a link; `scatter` is relative."""

    alpha_s: float
    bytes_s: float
    scatter: float = 0.0

    def step_s(self, n: int) -> float:
        return 2 * (n - 1) * (self.alpha_s + self.bytes_s / n)

    def inside(self, low: float, high: float) -> float:
        """The chance that a step on 8 ranks lies between the two."""
        step = NormalDist(self.step_s(8), self.scatter * self.step_s(8))
        return max(0.0, step.cdf(high) - step.cdf(low))


@dataclass(frozen=True)
class Measured:
    """A machine, and the deviations of its steps in units of its scatter, on 2 and on 4 ranks."""

    machine: Machine
    deviations: tuple[np.ndarray, np.ndarray]

    def steps(self) -> dict[int, list[float]]:
        m = self.machine
        return {n: (m.step_s(n) * (1 + m.scatter * d)).tolist() for n, d in zip((2, 4), self.deviations, strict=True)}

    def parts(self) -> tuple[float, float]:
        """Standard deviations, seconds: of one step on 8 ranks, and of 3.5 (mean on 4 − mean on 2), both as measured."""
        two, four = map(np.array, self.steps().values())
        squares = ((two / two.mean() - 1) ** 2).sum() + ((four / four.mean() - 1) ** 2).sum()
        scatter = np.sqrt(squares / (len(two) + len(four) - 2))
        line_s = 3.5 * scatter * np.hypot(two.mean() / len(two) ** 0.5, four.mean() / len(four) ** 0.5)
        return float(scatter * 3.5 * (four.mean() - two.mean())), float(line_s)


def forecast(arena: Arena, fn: Callable) -> Verdict:
    """Check of a forecast for 8 ranks from steps on 2 and 4.

    `forecast(measured)` returns (low, middle, high), in seconds; `measured` has the seconds of each step by ranks.
    """
    return judge("forecast", FORECAST, _cases(arena, fn, np.random.default_rng(arena.draws.getrandbits(64))))


def _cases(arena: Arena, fn: Callable, generator: np.random.Generator) -> Iterator[Case]:
    exact, covers = FORECAST
    still = [_still(generator, kind) for kind in (LATENCY, BANDWIDTH, (0.1, 0.5))]
    yield _case(arena, fn, "steps without scatter", still, lambda found: {exact: _not_exact(found, still)})

    groups = {kind: _machines(kind, generator) for kind in KINDS}
    every = [one for group in groups.values() for one in group]
    yield _case(
        arena, fn, f"{len(every)} machines", every,
        lambda found: {covers: _not_covered(found, groups)},
    )  # fmt: skip


def _case(arena: Arena, fn: Callable, name: str, measured: Sequence[Measured], examine: Callable) -> Case:
    asked = [(one.steps(),) for one in measured]

    def read(ended: Any) -> dict[str, Complaint]:
        returned = ended.returned[0]["returned"]
        for got in returned:
            complaint = _no_interval(got)
            if complaint:
                return dict.fromkeys(FORECAST, complaint)
        return examine([tuple(map(float, map(number, got))) for got in returned])

    return Case(name, lambda: arena.ranks(fn, [asked], driver=on_ranks.answers), read)


# ---- machines --------------------------------------------------------------------------------


def _still(generator: np.random.Generator, latency: tuple[float, float]) -> Measured:
    return Measured(_machine(generator, latency, 0.0), (np.zeros(6), np.zeros(5)))


def _machine(generator: np.random.Generator, latency: tuple[float, float], scatter: float) -> Machine:
    bytes_s = generator.uniform(0.05, 0.2)
    return Machine(bytes_s * generator.uniform(*latency), bytes_s, scatter)


def _machines(kind: Steps, generator: np.random.Generator) -> list[Measured]:
    """Machines whose forecasts from means err as chance would have it: as often high as low, by the normal quantiles."""
    always = np.random.default_rng([FIXED, kind.on_two, kind.on_four])
    found = []
    for k in always.permutation(MACHINES):
        machine = _machine(generator, kind.latency, generator.uniform(0.03, 0.06))
        along, across = NormalDist().inv_cdf((k + 0.5) / MACHINES), always.standard_normal()
        two_s, four_s = machine.step_s(2) / kind.on_two**0.5, machine.step_s(4) / kind.on_four**0.5
        means = np.array([[-two_s, four_s], [four_s, two_s]]) @ (along, across) / np.hypot(two_s, four_s)

        deviations = []
        for n, mean in zip((kind.on_two, kind.on_four), means, strict=True):
            drawn = always.standard_normal(n)
            deviations.append(generator.permutation(drawn - drawn.mean() + mean / n**0.5))
        found.append(Measured(machine, tuple(deviations)))
    return found


# ---- what is wrong ---------------------------------------------------------------------------


def _no_interval(got: Any) -> Complaint:
    numbers = got.tolist() if isinstance(got, np.ndarray) and got.shape == (3,) else got
    if not isinstance(numbers, tuple | list) or len(numbers) != 3:
        return f"expected three numbers, (low, middle, high) in seconds, got {shown(got)}"

    for name, value in zip(("low", "middle", "high"), map(number, numbers), strict=True):
        if isinstance(value, str) or not np.isfinite(value):
            return f"expected {name} as a finite number of seconds, got {shown(numbers)}"

    low, middle, high = map(number, numbers)
    if max(low - middle, middle - high) > EXACT * abs(middle):
        return f"expected low ≤ middle ≤ high, got ({low:.4g}, {middle:.4g}, {high:.4g})"
    return None


def _not_exact(found: Sequence[tuple], measured: Sequence[Measured]) -> Complaint:
    for (_, middle, _), one in zip(found, measured, strict=True):
        expected = one.machine.step_s(8)
        if close(middle, expected, EXACT):
            continue

        two_s, four_s = one.machine.step_s(2), one.machine.step_s(4)
        took = f"every step on 2 ranks took {units.seconds(two_s)}, on 4 ranks {units.seconds(four_s)}"
        complaint = f"{took}: expected {units.seconds(expected)} on 8 ranks, got {units.seconds(middle)}."
        return complaint + _other_law(middle, two_s, four_s)

    return None


def _other_law(middle: float, two_s: float, four_s: float) -> str:
    laws = {
        "That is a straight line through the times on 2 and on 4 ranks; m/n shrinks as n grows.": 3 * four_s - 2 * two_s,
        "That adds for each doubling what the last one added; the messages of a ring double in number.": 2 * four_s - two_s,
        "That multiplies by what the last doubling did: which of the two, α or m/B, would do so?": four_s**2 / two_s,
        "That is the time on 4 ranks.": four_s,
        "That is twice the time on 4 ranks.": 2 * four_s,
        "That takes all for latency: 14 messages for 6. The link's bytes count too.": four_s * 14 / 6,
        "That takes all for bytes: 2(n − 1)/n of the tensor. The messages' latency counts too.": four_s * 1.75 / 1.5,
    }
    for words, seconds in laws.items():
        if close(middle, seconds, EXACT):
            return f" {words}"
    return " Two times and two unknowns, α and m/B: T(n) = 2(n − 1)(α + m/(nB))."


def _not_covered(found: Sequence[tuple], groups: dict[Steps, list[Measured]]) -> Complaint:
    rest, every = list(found), [one for group in groups.values() for one in group]
    for kind, group in groups.items():
        own, rest = rest[: len(group)], rest[len(group) :]
        covered = float(np.mean([m.machine.inside(low, high) for m, (low, _, high) in zip(group, own, strict=True)]))
        wide = float(np.mean([_half(one) / _needed(m) for m, one in zip(group, own, strict=True)]))
        where = f"{kind.name} ({kind.on_two} on 2 ranks, {kind.on_four} on 4)"
        said = f"{where}: of the next steps on 8 ranks {covered:.0%} lie in the intervals; expected about {NOMINAL:.0%}"
        if covered > kind.most:
            return f"{said}. They are {wide:.2g} times as wide as they have to be. {_made_of(found, every)}".rstrip()
        if covered < kind.least:
            return f"{said}. {_made_of(found, every) or _too_narrow(kind)}"
        if wide > MOST_WIDE:
            return f"{where}: the intervals are on average {wide:.2g} times as wide as they have to be; some are far wider"
    return None


def _half(interval: tuple) -> float:
    low, _, high = interval
    return (high - low) / 2


def _needed(one: Measured) -> float:
    return Q * float(np.hypot(*one.parts()))


def _made_of(found: Sequence[tuple], measured: Sequence[Measured]) -> str:
    """Which of the two parts an interval is made of, and by which factor, as its width tells; empty where neither fits."""
    parts = np.array([one.parts() for one in measured])
    half = np.array([_half(one) for one in found])
    if not (half > 0).all():
        return ""

    squares = np.linalg.lstsq((parts / half[:, None]) ** 2, np.ones(len(half)), rcond=None)[0]
    of_step, of_line = np.sqrt(np.maximum(squares, 0))
    off = np.abs(parts**2 @ squares / half**2 - 1)
    if off.max() > 0.3:
        return ""

    if of_line < 0.3 < of_step:
        return (
            "They hold the scatter of one step alone. The forecast itself errs too: by 3.5 times the errors of both means, "
            "and a mean of few steps errs by more."
        )
    if of_step < 0.3 < of_line:
        return "They hold the error of the means alone. The next step scatters as the measured ones did."
    if max(of_step, of_line) < 1.25:
        return "They reach about one standard deviation each way, which holds 68 %: 90 % needs 1.64."
    if min(of_step, of_line) > 1.8:
        return "They reach two standard deviations each way or more, which holds 95 %: 90 % needs 1.64."
    return ""


def _too_narrow(kind: Steps) -> str:
    if kind.latency == LATENCY:
        return "There a step on 8 ranks takes over twice as long as on 4: does your scatter grow with it?"
    return "Two things err: the next step, and 3.5 (mean on 4 − mean on 2), which errs the more, the fewer steps there are."
