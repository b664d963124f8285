"""Check a forecast with its interval: from a ring's steps on 2 and 4 ranks to the next step on 8.

A machine has α and m/B with a scatter: a ring's step takes T(n) = 2(n − 1)(α + m/(nB)), so T(8) = 3.5 (T(4) − T(2)). The
machine is known, so the chance that the next step lies in an interval is computed; the mean over machines is the true
coverage. Left out: machines that follow no line, and scatter with a long tail.
G. Hahn, W. Meeker, "Statistical intervals", 1991, section 2.3: an interval of the next step has two parts, the step's own
scatter and the error of its estimated mean.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist
from typing import Any

import numpy as np

from worldsize import units
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, number, shown
from worldsize.checks.verdict import Complaint

PREDICTED = "exact where no step scatters"
COVERED = "the next step lies in the interval 9 times of 10, with few steps and with many"
ONE_STEP_ALONE = (
    "The intervals hold the scatter of one step alone. The forecast errs too, by 3.5 times the errors of both means, and a mean "
    "of few steps errs more."
)
FEW_ARE_UNSURE = (
    "They reach 1.645 standard deviations each way, which suits a known s. Your s comes from few steps: take the factor "
    "1.645 + 1.5/(N − 2)."
)
EXACT = 1e-6
NOMINAL = 0.9
Q = NormalDist().inv_cdf(0.5 + NOMINAL / 2)  # 1.645 standard deviations each way
MACHINES, SCATTER, ACROSS = 21, 13, 8  # machines of each kind; steps of a lattice, which spreads three quantiles evenly
FIXED = 16  # seed: the same deviations in every check
MOST_WIDE = 1.6  # times the narrowest interval that is wide enough
ALIKE = 0.02  # relative distance to the half-widths of a known slip


@dataclass(frozen=True)
class Steps:
    """A forecast's measurements: the steps on 2 and on 4 ranks, the range of α over m/B, and a coverage near enough to 90 %."""

    name: str
    on_two: int
    on_four: int
    latency: tuple[float, float]
    least: float
    most: float


LATENCY, BANDWIDTH = (1.0, 3.0), (0.002, 0.01)
# Luck decides nothing. The deviations are the same in every check, at evenly spaced quantiles of their means and scatter, so a
# coverage depends on a machine's α over m/B alone, whose range is narrow. Over 200 checks the reference's coverage was 0.891 to
# 0.896 with five steps on both, 0.894 to 0.900 with five on one, 0.899 to 0.902 with many; its standard deviation was at most
# 0.001, and each limit at least 21 of them away. Wrong answers lie as far beyond a limit: with 1.645 as the factor 16, with
# variances subtracted 47, with one k for both means 53, with s of 2 ranks alone 69, of 4 alone 48. By the normal distribution
# 16 pass with a chance of 1e-57. An answer that draws 2,000 numbers of its own has a standard deviation of at most 0.003, so
# a right one is refused less than once in a million checks: 1e-9 with six of them to the nearest limit.
KINDS = (
    Steps("few steps, mostly bandwidth", 5, 5, BANDWIDTH, 0.875, 0.945),
    Steps("few steps, mostly latency", 5, 5, LATENCY, 0.875, 0.945),
    Steps("few steps on 2 ranks, many on 4", 5, 24, BANDWIDTH, 0.835, 0.945),
    Steps("many steps on 2 ranks, few on 4", 24, 5, BANDWIDTH, 0.835, 0.945),
    Steps("many steps, mostly bandwidth", 40, 48, BANDWIDTH, 0.86, 0.925),
    Steps("many steps, mostly latency", 48, 40, LATENCY, 0.86, 0.925),
)


@dataclass(frozen=True)
class Machine:
    """A forecast's machine, a ring: `alpha_s` a message, `bytes_s` for the whole tensor over a link; `scatter` is relative."""

    alpha_s: float
    bytes_s: float
    scatter: float = 0.0

    def step_s(self, n: int) -> float:
        return 2 * (n - 1) * (self.alpha_s + self.bytes_s / n)

    def inside(self, low: float, high: float) -> float:
        """Return a forecast's chance that a step on 8 ranks lies between `low` and `high`."""
        step = NormalDist(self.step_s(8), self.scatter * self.step_s(8))
        return max(0.0, step.cdf(high) - step.cdf(low))


@dataclass(frozen=True)
class Measured:
    """A machine to forecast, and the deviations of its steps on 2 and on 4 ranks, in units of its scatter."""

    machine: Machine
    deviations: tuple[np.ndarray, np.ndarray]

    def steps(self) -> dict[int, list[float]]:
        m = self.machine
        return {n: (m.step_s(n) * (1 + m.scatter * d)).tolist() for n, d in zip((2, 4), self.deviations, strict=True)}

    def parts(self) -> tuple[float, float]:
        """Return standard deviations in seconds, as measured: of a step on 8 ranks, and of 3.5 (mean on 4 − mean on 2)."""
        two, four = map(np.array, self.steps().values())
        squares = ((two / two.mean() - 1) ** 2).sum() + ((four / four.mean() - 1) ** 2).sum()
        scatter = np.sqrt(squares / (len(two) + len(four) - 2))
        line_s = 3.5 * scatter * np.hypot(two.mean() / len(two) ** 0.5, four.mean() / len(four) ** 0.5)
        return float(scatter * 3.5 * (four.mean() - two.mean())), float(line_s)


@exercise({PREDICTED: 0.25, COVERED: 0.75})
def forecast(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a forecast for 8 ranks from steps on 2 and 4.

    `forecast(measured)` returns (low, middle, high), in seconds; `measured` has the seconds of each step by ranks.
    """
    return _cases(arena, fn, np.random.default_rng(arena.draws.getrandbits(64)))


def _cases(arena: Arena, fn: Callable, generator: np.random.Generator) -> Iterator[Case]:
    still = []
    for latency in (LATENCY, BANDWIDTH, (0.1, 0.5)):
        still.append(Measured(_machine(generator, latency, 0.0), (np.zeros(6), np.zeros(5))))
    yield Case(
        "steps without scatter",
        lambda: _run(arena, fn, still),
        lambda ended: {PREDICTED: _examine(ended, still, lambda intervals: _not_exact(intervals, still))},
    )

    groups = {kind: _machines(kind, generator) for kind in KINDS}
    every = list(chain(*groups.values()))
    yield Case(
        f"{len(every)} machines",
        lambda: _run(arena, fn, every),
        lambda ended: {COVERED: _examine(ended, every, lambda intervals: _not_covered(intervals, groups))},
    )


def _run(arena: Arena, fn: Callable, measured: Sequence[Measured]) -> ArenaResult:
    return arena.ranks(fn, [[(one.steps(),) for one in measured]], driver=on_ranks.answers)


def _examine(
    ended: ArenaResult, measured: Sequence[Measured], judged: Callable[[list[tuple]], Complaint]
) -> Complaint:
    """Return the complaint of `judged` on the forecast's intervals, or one about the first result that is no interval.

    The lab hands the same steps to several forecasts, so they must stay as they are.
    """
    returned = ended.returned[0]["returned"]
    for got in returned:
        complaint = _no_interval(got)
        if complaint:
            return complaint
    for (after,), one in zip(ended.inputs[0], measured, strict=True):
        complaint = changed(after, one.steps(), "measured")
        if complaint:
            return complaint
    return judged([tuple(map(float, map(number, got))) for got in returned])


def _machine(generator: np.random.Generator, latency: tuple[float, float], scatter: float) -> Machine:
    bytes_s = generator.uniform(0.05, 0.2)
    return Machine(bytes_s * generator.uniform(*latency), bytes_s, scatter)


def _machines(kind: Steps, generator: np.random.Generator) -> list[Measured]:
    """Draw machines for forecasts. Their means and their scatter err as chance would have it: as often high as low."""
    always = np.random.default_rng([FIXED, kind.on_two, kind.on_four])
    counts, machines = (kind.on_two, kind.on_four), []
    freedom = sum(counts) - 2
    spread = 2 / (9 * freedom)
    for k in range(MACHINES):
        machine = _machine(generator, kind.latency, generator.uniform(0.03, 0.06))
        along, across = (NormalDist().inv_cdf((k * step % MACHINES + 0.5) / MACHINES) for step in (1, ACROSS))
        two_s, four_s = machine.step_s(2) / kind.on_two**0.5, machine.step_s(4) / kind.on_four**0.5
        means = np.array([[-two_s, four_s], [four_s, two_s]]) @ (along, across) / np.hypot(two_s, four_s)

        drawn = [always.standard_normal(n) for n in counts]
        around = [d - d.mean() for d in drawn]
        # a quantile of the sum of squares: E. Wilson, M. Hilferty, "The distribution of chi-square", PNAS 17, 1931
        quantile = NormalDist().inv_cdf((k * SCATTER % MACHINES + 0.5) / MACHINES)
        squares = freedom * (1 - spread + quantile * spread**0.5) ** 3
        scale = np.sqrt(squares / sum((d**2).sum() for d in around))
        deviations = [scale * d + mean / n**0.5 for d, mean, n in zip(around, means, counts, strict=True)]
        machines.append(Measured(machine, tuple(map(generator.permutation, deviations))))
    return machines


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


def _not_exact(intervals: Sequence[tuple], measured: Sequence[Measured]) -> Complaint:
    for (_, middle, _), measurement in zip(intervals, measured, strict=True):
        expected = measurement.machine.step_s(8)
        if close(middle, expected, EXACT):
            continue

        two_s, four_s = measurement.machine.step_s(2), measurement.machine.step_s(4)
        took = f"every step on 2 ranks took {units.seconds(two_s)}, on 4 ranks {units.seconds(four_s)}"
        complaint = f"{took}: expected {units.seconds(expected)} on 8 ranks, got {units.seconds(middle)}."
        laws = {
            "That is 1,000 times as much: return seconds, not milliseconds.": 1000 * expected,
            "That is a straight line through the times on 2 and on 4 ranks; m/n shrinks as n grows.": 3 * four_s - 2 * two_s,
            "That adds for each doubling what the last one added; the messages of a ring double in number.": 2 * four_s - two_s,
            "That multiplies by what the last doubling did: which of the two, α or m/B, would do so?": four_s**2 / two_s,
            "That is the time on 4 ranks.": four_s,
            "That is twice the time on 4 ranks.": 2 * four_s,
            "That takes all for latency: 14 messages for 6. The link's bytes count too.": four_s * 14 / 6,
            "That takes all for bytes: 2(n − 1)/n of the tensor. The messages' latency counts too.": four_s * 1.75 / 1.5,
        }
        for law, seconds in laws.items():
            if close(middle, seconds, EXACT):
                return f"{complaint} {law}"
        return f"{complaint} Two times and two unknowns, α and m/B: T(n) = 2(n − 1)(α + m/(nB))."

    return None


def _not_covered(intervals: Sequence[tuple], groups: dict[Steps, list[Measured]]) -> Complaint:
    rest, every = list(intervals), list(chain(*groups.values()))
    for kind, group in groups.items():
        own, rest = rest[: len(group)], rest[len(group) :]
        chances, wide_as_needed = [], []
        for measurement, (low, _, high) in zip(group, own, strict=True):
            chances.append(measurement.machine.inside(low, high))
            wide_as_needed.append((high - low) / 2 / (Q * float(np.hypot(*measurement.parts()))))

        covered, wide = float(np.mean(chances)), float(np.mean(wide_as_needed))
        where = f"{kind.name} ({kind.on_two} on 2 ranks, {kind.on_four} on 4)"
        complaint = f"{where}: {covered:.0%} of the next steps on 8 ranks lie in the intervals; expected about {NOMINAL:.0%}"
        if covered > kind.most:
            return f"{complaint}. The intervals are {wide:.2g} times as wide as needed. {_made_of(intervals, every)}".rstrip()
        if covered < kind.least:
            why = _made_of(intervals, every)
            if not why and kind.latency == LATENCY:
                why = "Here a step on 8 ranks takes over twice as long as on 4: does your scatter grow with it?"
            enough = 1 + 1.5 / (kind.on_two + kind.on_four - 2) / Q
            if not why and wide >= 0.99 * enough:
                why = "They are wide enough, but lie elsewhere: low and high are as far from 3.5 (mean on 4 − mean on 2)."
            more = "Two things err: the next step, and 3.5 (mean on 4 − mean on 2), which errs more with fewer steps. So does s."
            return f"{complaint}. {why or more}"
        if wide > MOST_WIDE:
            return f"{where}: the intervals are on average {wide:.2g} times as wide as needed; some are far wider"
    return None


def _made_of(intervals: Sequence[tuple], measured: Sequence[Measured]) -> str:
    """Return words for the parts and the factor that a forecast interval's width shows; empty where none fits."""
    parts = np.array([one.parts() for one in measured])
    half = np.array([(high - low) / 2 for low, _, high in intervals])
    if not (half > 0).all():
        return ""

    shares = half / np.array([middle for _, middle, _ in intervals])
    if np.ptp(shares) < ALIKE / 1000:
        return "They reach the same share of the middle each way, whatever the steps scatter: take s from the steps."
    slips = list(map(_slips, measured))
    apart = {words: max(np.abs(own / slip[words] - 1).min() for own, slip in zip(half, slips, strict=True)) for words in slips[0]}
    nearest = min(apart, key=apart.__getitem__)  # s over N with the right factor is within 1.3 % of s over N − 2 with 1.645
    if apart[nearest] < ALIKE:
        return nearest

    squares = np.linalg.lstsq((parts / half[:, None]) ** 2, np.ones(len(half)), rcond=None)[0]
    of_step, of_line = np.sqrt(np.maximum(squares, 0))
    off = np.abs(parts**2 @ squares / half**2 - 1)
    if off.max() > 0.3:
        return ""

    if of_line < 0.3 < of_step:
        return ONE_STEP_ALONE
    if of_step < 0.3 < of_line:
        return "They hold the error of the means alone. The next step scatters as the measured ones did."
    if max(of_step, of_line) < 1.25:
        return "The intervals reach about one standard deviation each way, which covers 68 %: 90 % needs 1.64."
    if min(of_step, of_line) > 1.8:
        return "The intervals reach two standard deviations each way or more, which covers 95 %: 90 % needs 1.64."
    return ""


def _slips(measurement: Measured) -> dict[str, np.ndarray]:
    """Return {words: the half-widths of a known slip in a forecast}: with 1.645, and with 1.645 + 1.5/(N − 2)."""
    two, four = map(np.array, measurement.steps().values())
    k, freedom = np.array([len(two), len(four)]), len(two) + len(four) - 2
    means, squares = np.array([two.mean(), four.mean()]), np.array([(x / x.mean() - 1) @ (x / x.mean() - 1) for x in (two, four)])
    scatter, middle = np.sqrt(squares.sum() / freedom), 3.5 * (means[1] - means[0])

    def half(s: float = scatter, counts: Any = k, factor: float = 3.5) -> float:
        return s * float(np.hypot(middle, factor * np.hypot(*(means / np.sqrt(counts)))))

    a, b = scatter * 3.5 * means / np.sqrt(k)
    of_one = np.sqrt(squares / (k - 1))
    of_means = 3.5 * np.hypot(*(of_one * means / np.sqrt(k)))  # each by the scatter of its own steps
    slips = {
        ONE_STEP_ALONE: [scatter * middle],
        "They hold the error of the means alone. The next step scatters as the measured ones did.": [float(np.hypot(a, b))],
        "The next step's scatter is a step's on 4 ranks, in seconds. On 8 it takes longer: does your scatter grow with it?": [
            float(np.hypot(np.std(four, ddof=1), line)) for line in (of_means, np.hypot(a, b))
        ],
        "Both means were treated as means of equally many steps. A mean of k steps scatters by s/√k, with its own ranks' k.": [
            half(counts=n) for n in (k[0], k[1], k.sum(), k.mean())
        ],
        "Each mean's error was taken for a single step's. A mean of k steps scatters by s/√k.": [half(counts=1)],
        "The next step's scatter comes from the steps on 4 ranks alone. All scatter by the same share: take it from both.": [
            float(np.hypot(of_one[1] * middle, line)) for line in (of_means, np.hypot(a, b))
        ],
        "The variances of the two means were subtracted. Subtract the means; their errors add up as squares.": [
            float(np.hypot(scatter * middle, np.sqrt(abs(b**2 - a**2))))
        ],
        "Errors were added up as they are. They know nothing of each other, so they add up as squares: √(a² + b²).": [
            scatter * middle + float(np.hypot(a, b)), scatter * middle + float(a + b), float(np.hypot(scatter * middle, a + b)),
        ],
        "The error of the means has not grown by the factor 3.5 that takes them to 8 ranks.": [half(factor=1.0)],
        "s comes from the steps on 2 ranks alone. All steps scatter by the same share: take it from both.": [half(s=of_one[0])],
        "s comes from the steps on 4 ranks alone. All steps scatter by the same share: take it from both.": [half(s=of_one[1])],
        "s is divided by the number of steps. Two means were taken from them: divide by N − 2.": [
            half(s=scatter * (freedom / k.sum()) ** 0.5)
        ],
    }  # fmt: skip
    found = {
        FEW_ARE_UNSURE: np.array([Q * half()]),
        "The factor is that of ten steps, whatever N is: it is 1.645 + 1.5/(N − 2).": np.array([(Q + 1.5 / 8) * half()]),
    }
    for words, halves in slips.items():
        found[words] = np.outer(halves, (Q, Q + 1.5 / freedom))
    return found
