"""Check lab 02's fit: α and B of T = α + m/B from measured times.

Times without noise must give both numbers back, on links of every scale. From times off the line, the fit must be right at
sizes that were not given. Left out: the machine's own times, which follow no line.
R. Hockney, Parallel Computing 20, 1994: the model.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import compress, product

import numpy as np
from typing_extensions import override

from worldsize import units
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, shown
from worldsize.checks.verdict import Complaint

EXACT_LINE = "times without noise give α and B back"
ANY_SCALE = "links of any speed, sizes in any order"
LEFT_OUT = "times up to 20 % off: at most 15 % off at sizes left out"
# Luck decides nothing. Errors where the line is asked, in every corner of the ranges drawn from:
# - the first and last time off by ENDS_OFF, the others by up to REST_OFF, α = m/B from 10 kB to 250 kB: least relative errors at
#   most 13.3 % (of the logarithm 12.3 %); weights 1/√seconds at least 17.4 %, 1/√size 17.8 %, 1/size 19.6 %; plain least
#   squares nine times the time and more
# - LEANING, α = m/B from 10 kB to 50 kB: least relative errors at most 10.7 %; weights that hardly differ among small times,
#   1/(seconds + their median), at least 27 %
EXACT = 1e-4  # relative
HELD_OUT = 0.15
ENDS_OFF = 0.2  # the smallest and the largest time
REST_OFF = 0.02
SIZES = np.geomspace(100, 1e10, 9)
# up to the sixth size all times are too long, then all are too short
LEANING = 1 + np.array([ENDS_OFF, *[REST_OFF] * 5, -REST_OFF, -REST_OFF, -ENDS_OFF])
ASKED = np.round(np.geomspace(150, 0.8e10, 17))  # none is among SIZES

_close = partial(close, tolerance=EXACT, near_zero=0.0)  # near_zero 0: α may be millionths of a second


@dataclass(frozen=True)
class Truth:
    """The link behind the times: `alpha_s`, and `bandwidth` in bytes a second."""

    alpha_s: float
    bandwidth: float

    def seconds(self, sizes: np.ndarray) -> np.ndarray:
        return self.alpha_s + sizes / self.bandwidth

    @override
    def __str__(self) -> str:
        return f"α = {units.seconds(self.alpha_s)}, B = {units.size(self.bandwidth)}/s"


@exercise({EXACT_LINE: 0.25, ANY_SCALE: 0.25, LEFT_OUT: 1.0})
def fit_alpha_beta(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a fit of alpha and beta to measured times.

    `fit_alpha_beta(sizes, seconds)` returns (α in seconds, B in bytes a second) of the line through the times.
    """
    return _cases(arena, fn, np.random.default_rng(arena.draws.getrandbits(64)))


def _cases(arena: Arena, fn: Callable, generator: np.random.Generator) -> Iterator[Case]:
    truth = Truth(generator.uniform(1e-3, 5e-3), generator.uniform(10e6, 50e6))
    yield _case(arena, fn, f"no noise, {truth}", np.geomspace(1e3, 1e7, 9), truth, EXACT_LINE)
    two = generator.uniform(1e3, 2e3), generator.uniform(1e6, 2e6)
    yield _case(arena, fn, f"two sizes alone, {truth}", np.array(two), truth, EXACT_LINE)

    for alpha_s, bandwidth, most in ((0.3, 5e3, 1e6), (2e-6, 4e10, 1e10)):
        truth = Truth(alpha_s * generator.uniform(0.8, 1.2), bandwidth * generator.uniform(0.8, 1.2))
        sizes = generator.permutation(np.repeat(np.geomspace(most / 1e7, most, 11), 2))
        yield _case(arena, fn, f"no noise, {truth}, sizes mixed", sizes, truth, ANY_SCALE)

    truth = Truth(generator.uniform(1e-3, 2e-3), generator.uniform(10e6, 25e6))
    yield _case(arena, fn, f"times off by up to {ENDS_OFF:.0%}, {truth}", SIZES, truth, LEFT_OUT, LEANING)

    for first, last in product((1 + ENDS_OFF, 1 - ENDS_OFF), repeat=2):
        truth = Truth(generator.uniform(1e-3, 5e-3), generator.uniform(10e6, 50e6))
        noise = generator.uniform(1 - REST_OFF, 1 + REST_OFF, len(SIZES))
        noise[0], noise[-1] = first, last
        yield _case(arena, fn, f"times off by up to {ENDS_OFF:.0%}, {truth}", SIZES, truth, LEFT_OUT, noise)


def _case(
    arena: Arena, fn: Callable, name: str, sizes: np.ndarray, truth: Truth, what: str, noise: np.ndarray | None = None
) -> Case:
    sizes = np.maximum(1, np.round(sizes))
    seconds = truth.seconds(sizes)
    if noise is not None:
        seconds = seconds * noise

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        complaint = _no_pair(ended.returned[0])
        if complaint:
            return {what: complaint}

        found = Truth(*map(float, ended.returned[0]))
        if noise is None:
            spoilt = map(changed, ended.inputs, (sizes, seconds), ("sizes", "seconds"))
            return {what: _not_exact(found, truth, sizes) or first_complaint(spoilt)}
        return {what: _off_where_left_out(found, truth)}

    return Case(name, lambda: arena.call(fn, sizes.copy(), seconds.copy()), examine)


def _no_pair(got: object) -> Complaint:
    numbers = got
    if isinstance(got, np.ndarray) and got.shape == (2,):
        numbers = got.tolist()
    wrong = f"expected two finite numbers, (α in seconds, B in bytes a second), got {shown(got)}"
    if not isinstance(numbers, tuple | list) or len(numbers) != 2:
        return wrong

    for value in numbers:
        is_one = isinstance(value, (int, float, np.number))
        if isinstance(value, np.ndarray):
            is_one = value.size == 1
        if not is_one or not np.isfinite(value).all():
            return wrong
    return None


def _not_exact(line: Truth, truth: Truth, sizes: np.ndarray) -> Complaint:
    if _is_close(line, truth):
        return None

    got = f"got α = {line.alpha_s:.4g} s, B = {line.bandwidth:.4g} bytes/s"
    complaint = f"expected α = {truth.alpha_s:.4g} s, B = {truth.bandwidth:.4g} bytes/s, {got}. "
    slips = {
        "The two are swapped: α comes first.": _is_close(Truth(line.bandwidth, line.alpha_s), truth),
        "That is 1/B, the seconds for one byte: invert it.": _close(line.bandwidth, 1 / truth.bandwidth),
        "A line through zero has no α: fit both at once.": line.alpha_s == 0,
        "That α is the time of the smallest message, bytes and all: fit both at once.":
            _close(line.alpha_s, float(truth.seconds(sizes).min())),
        "Return α in seconds.": _is_multiple(truth.alpha_s, line.alpha_s, 1e-3, 1e-6),
        "Return B in bytes a second, not in kB, MB or GB.":
            _is_multiple(truth.bandwidth, line.bandwidth, 1e3, 2**10, 1e6, 2**20, 1e9, 2**30),
        "Return B in bytes a second, not in bits.": _is_multiple(line.bandwidth, truth.bandwidth, 8, 8e-6, 8e-9),
    }  # fmt: skip
    return complaint + next(compress(slips, slips.values()), "Without noise, every point lies on the line.")


def _is_multiple(value: float, of: float, *factors: float) -> bool:
    return any(_close(factor * of, value) for factor in factors)


def _is_close(line: Truth, truth: Truth) -> bool:
    return _close(line.alpha_s, truth.alpha_s) and _close(line.bandwidth, truth.bandwidth)


def _off_where_left_out(line: Truth, truth: Truth) -> Complaint:
    """Complain about errors at sizes between the fitted ones, relative to the line without noise."""
    sizes = ASKED
    wanted_s, said_s = truth.seconds(sizes), np.full(len(sizes), np.inf)
    if line.bandwidth:
        said_s = line.seconds(sizes)

    errors = np.abs(said_s / wanted_s - 1)
    worst = int(np.argmax(errors))
    if errors[worst] <= HELD_OUT:
        return None

    complaint = (
        f"for a message of {units.size(sizes[worst])}, which was left out, your line says {units.seconds(float(said_s[worst]))}; "
        f"expected about {units.seconds(float(wanted_s[worst]))}, at most {HELD_OUT:.0%} off. "
    )
    if line.alpha_s < 0:
        complaint += "Its α is below zero: a message would arrive before it was sent. "
    complaint += f"Two of the times are {ENDS_OFF:.0%} off, the smallest and the largest. "
    small, large = errors[:4].max(), errors[-4:].max()
    if small > 2 * large:
        return f"{complaint}Your line misses the small sizes most: why do the large ones weigh more?"
    if large > 2 * small:
        return f"{complaint}Your line misses the large sizes most: why do the small ones weigh more?"
    return f"{complaint}One of these times tilts the whole line: should one size count more than the others?"
