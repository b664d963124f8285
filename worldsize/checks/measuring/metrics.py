"""Check `metrics_of_all`: recall, precision and average precision of examples that are spread over ranks.

A rank has the scores and labels of its own examples alone. The reference is slow: a threshold for each score that occurs,
as scikit-learn defines average precision, the sum of (R_k − R_{k−1}) P_k. Left out: curves, several classes, approximations
by bins.
J. Davis and M. Goadrich, "The relationship between precision-recall and ROC curves", ICML 2006: why no line joins two
points.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.error_advice import HANG
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint, none_sent, ranks_in_words
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import first_slip, is_row, lone_number, other_than_tuple
from worldsize.checks.verdict import UNEXAMINED, Complaint

COUNTED = "recall and precision are of all ranks' examples"
RANKED = "so is average precision"
EDGES = "also with equal scores, any threshold, ranks without a positive or an example, and 0/0"
NAMES = ("recall", "precision", "average precision")
NEAR = 2e-5  # an answer may compute in float32
TELLS = 2e-3  # metrics that differ by more are told apart

Share = tuple[np.ndarray, np.ndarray]  # a rank's scores and labels
ValueByRank = list[float]


class SpreadCase(NamedTuple):
    """A metrics case: the examples on each rank, about `levels` different scores, and no positive on the `bare` ranks."""

    counts: tuple[int, ...]
    what: str = ""
    levels: int | None = None
    bare: tuple[int, ...] = ()
    dtype: str = "float32"
    found_none: bool = False
    between: bool = False  # the threshold is none of the scores
    far_below: bool = False  # all scores lie far below zero


CASES = (
    SpreadCase((6, 9, 5)), SpreadCase((12, 4)), SpreadCase((7, 5, 8), "scores that float32 cannot tell apart", dtype="float64"),
    SpreadCase((7, 10, 4, 8), "equal scores", levels=4), SpreadCase((9, 6, 11), "no positive on rank 1", bare=(1,)),
    SpreadCase((8, 0, 9), "no example on rank 1"), SpreadCase((0, 13, 5), "no example on rank 0"),
    SpreadCase((15,), "equal scores", levels=5), SpreadCase((10, 3, 25, 140, 61), "equal scores", levels=30, bare=(1,)),
    SpreadCase((5, 8), "no score reaches the threshold", found_none=True), SpreadCase((7, 4), "no positive at all", bare=(0, 1)),
    SpreadCase((6, 11, 8), "a threshold between two scores", between=True),
    SpreadCase((7, 4, 9), "scores far below zero", far_below=True),
)  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """The examples of each rank, and the threshold; `right` gives the three metrics of all examples."""

    shares: tuple[Share, ...]
    threshold: float

    def inputs(self) -> list[dict[str, np.ndarray]]:
        return [{"scores": scores, "labels": labels} for scores, labels in self.shares]

    def together(self) -> Share:
        scores, labels = zip(*self.shares, strict=True)
        return np.concatenate(scores), np.concatenate(labels)

    def right(self) -> tuple[float, float, float]:
        return metrics(*self.together(), self.threshold)

@exercise({COUNTED: 0.25, RANKED: 0.5, EDGES: 0.25})
def metrics_of_all(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check metrics over ranks.

    `metrics_of_all(fabric, scores, labels, threshold)` returns (recall, precision, average precision) of all ranks'
    examples.
    """
    for case in CASES:
        spread = _telling(case, np.random.default_rng(arena.draws.getrandbits(32)))
        name = f"{ranks_in_words(len(case.counts))}, {', '.join(map(str, case.counts))} examples"
        if case.what:
            name += f", {case.what}"

        run = partial(arena.ranks, fn, spread.inputs(), spread.threshold, driver=on_ranks.with_named)
        is_edge = bool(case.what) and case.dtype == "float32"
        yield Case(name, run, partial(_examine, spread=spread, is_edge=is_edge), _ADVICE)


_ADVICE = {
    "ZeroDivisionError": "Count 0/0 as 0: nothing is found, or there is nothing to find.",
    HANG: "Does every rank take part, even one without examples? The others wait for it.",
}


def _telling(case: SpreadCase, generator: np.random.Generator) -> Spread:
    """Draw examples for which every slip gives wrong metrics, unless there is a single rank or nothing to find.

    In the first two cases no two slips give the same metrics, so that the words name the right slip.
    """
    trivial = len(case.counts) == 1 or case.found_none or case.between or len(case.bare) == len(case.counts)

    def tells(spread: Spread) -> bool:
        if case.dtype == "float64":  # a threshold that went through float32 finds other examples
            at_32 = _at(*spread.together(), float(np.float32(spread.threshold)))
            if max(abs(one - other) for one, other in zip(at_32, spread.right(), strict=False)) <= TELLS:
                return False
        return trivial or all(_tells(spread, place, not case.what) for place in range(3))

    return drawn_until(tells, lambda: _drawn(case, generator), f"metrics_of_all, {case}")


def _tells(spread: Spread, place: int, apart: bool) -> bool:
    """Return whether every slip changes this metric; with `apart` no two slips may give the same value."""
    right = np.full(len(spread.shares), spread.right()[place])
    given = [np.array(by_rank) for by_rank in _slips(spread, place).values()]
    pairs = list(product([right], given))
    if apart:
        pairs += combinations(given, 2)
    return all(np.abs(one - other).max() > TELLS for one, other in pairs)


def _drawn(case: SpreadCase, generator: np.random.Generator) -> Spread:
    """Draw metrics' scores as logits. Each rank's scores have their own offset, so the joint order is not a rank's order."""
    shares = []
    for rank, count in enumerate(case.counts):
        labels = generator.random(count) < generator.uniform(0.25, 0.6)
        if count:
            labels[generator.integers(count)] = True
        labels &= rank not in case.bare

        scores = generator.normal(size=count) + 1.2 * labels + generator.uniform(-1.0, 0.5)
        if case.levels:
            scores = np.round(scores * case.levels / 4) * 4 / case.levels
        if case.dtype == "float64":
            scores = 1 + 1e-10 * scores
        if case.far_below:
            scores = 1e12 * (scores - 9)
        shares.append((scores.astype(case.dtype), labels))

    scores, labels = (np.concatenate(part) for part in zip(*shares, strict=True))
    if case.found_none:
        return Spread(tuple(shares), float(np.nextafter(scores.max(), np.inf, dtype=scores.dtype)))

    chosen = np.flatnonzero(labels) if labels.any() else np.arange(len(labels))
    middle = chosen[np.argsort(scores[chosen])][len(chosen) // 4 : 3 * len(chosen) // 4 + 1]
    threshold = float(scores[generator.choice(middle)])
    if case.between:
        threshold = (threshold + float(scores[scores < threshold].max(initial=threshold - 1))) / 2
    return Spread(tuple(shares), threshold)


def metrics(scores: np.ndarray, labels: np.ndarray, threshold: float) -> tuple[float, float, float]:
    """Return metrics: recall and precision of scores >= threshold, and average precision: the slow reference."""
    before, area = 0.0, 0.0
    for each in np.unique(scores)[::-1]:
        recall, precision = _at(scores, labels, each)
        area += (recall - before) * precision
        before = recall
    return *_at(scores, labels, threshold), area


def _at(scores: np.ndarray, labels: np.ndarray, threshold: float) -> tuple[float, float]:
    found = scores >= threshold
    hits = int((found & labels).sum())
    return hits / max(1, int(labels.sum())), hits / max(1, int(found.sum()))


def _examine(ended: ArenaResult, spread: Spread, is_edge: bool) -> dict[str, Complaint]:
    complaint = _wrong_form(ended.returned)
    for rank, given in enumerate(spread.inputs()):
        for name, value in given.items():
            complaint = complaint or changed(ended.inputs[rank][name], value, name, rank)
    if complaint:
        return _told(is_edge, complaint, UNEXAMINED)

    found = np.array([[lone_number(value) for value in told] for told in ended.returned])
    wrong = [_wrong_metric(found[:, place], spread, place) for place in range(3)]
    sent = none_sent(ended.trace, "A rank has only its own examples.")
    if sent and not any(wrong):
        return _told(is_edge, sent, UNEXAMINED)
    return _told(is_edge, first_complaint(wrong[:2]), wrong[2])


def _told(is_edge: bool, counted: Complaint, ranked: Complaint) -> dict[str, Complaint]:
    if is_edge:
        return {EDGES: first_complaint([counted, ranked])}
    return {COUNTED: counted, RANKED: ranked}


def _wrong_form(returned: Sequence[Any]) -> Complaint:
    for rank, metrics in enumerate(returned):
        came = other_than_tuple(tuple(metrics) if is_row(metrics) else metrics, len(NAMES))
        if came:
            return f"rank {rank}: expected three numbers, recall, precision, average precision, got {came}"
        for name, value in zip(NAMES, metrics, strict=True):
            if isinstance(lone_number(value), str):
                return f"rank {rank}: expected the {name} as a number, {lone_number(value)}"
    return None


def _wrong_metric(values: np.ndarray, spread: Spread, place: int) -> Complaint:
    right = spread.right()[place]
    wrong = np.flatnonzero(~np.isclose(values, right, rtol=NEAR, atol=NEAR))
    if not wrong.size:
        return None

    rank = int(wrong[0])
    complaint = f"rank {rank}: expected {right:.6f}, the {NAMES[place]} of all ranks' examples; got {values[rank]:.6f}."
    if np.isnan(values[rank]):
        return f"{complaint} This is 0/0, which counts as 0: nothing is found, or there is nothing to find."

    slips = _slips(spread, place) | _of_padding(spread, place)
    if place == 2:
        slips |= _of_the_sum(spread)
    slip = first_slip(lambda given: np.allclose(values, given, rtol=NEAR, atol=NEAR), slips)
    if not slip and place == 2 and _is_one_by_one(values, *spread.together()):
        slip = _ONE_BY_ONE
    return f"{complaint} {slip}".rstrip()


_SUMS = {
    "recall": "Add up positives found and all positives over the ranks, then divide.",
    "precision": "Add up positives found and all examples found over the ranks, then divide.",
    "average precision": "It sorts all examples, and one rank's order says nothing about another's: send the scores.",
}


def _slips(spread: Spread, place: int) -> dict[str, ValueByRank]:
    """Return {words: the metric on each rank} for slips that give a wrong value, unless there is nothing to find."""
    return _of_ranks(spread, place) | _of_all_examples(spread, place)


def _of_ranks(spread: Spread, place: int) -> dict[str, ValueByRank]:
    """Return {words: the metric on each rank} for slips that combine each rank's own metric."""
    n, advice = len(spread.shares), _SUMS[NAMES[place]]
    if n == 1:
        return {}

    own = np.array([metrics(*share, spread.threshold)[place] for share in spread.shares])
    examples = np.array([len(labels) for _, labels in spread.shares])
    positives = np.array([labels.sum() for _, labels in spread.shares])
    slips = {
        f"This is the mean of the ranks' own values. {advice}": [float(own.mean())] * n,
        f"This is each rank's own value. {advice}": own.tolist(),
        f"This is the ranks' mean, weighted by their examples. {advice}": [float(own @ examples / max(1, examples.sum()))] * n,
    }
    some = positives > 0
    if some.any() and not some.all():
        slips[f"This is the mean over the ranks that have a positive. {advice}"] = [float(own[some].mean())] * n
    if some.any() and place > 0:
        slips[f"This is the ranks' mean, weighted by their positives. {advice}"] = [float(own @ positives / positives.sum())] * n
    return slips


def _of_all_examples(spread: Spread, place: int) -> dict[str, ValueByRank]:
    """Return {words: the metric on each rank} for slips with the threshold, or with the order of all examples."""
    scores, labels = spread.together()
    n, at_threshold = len(spread.shares), _at(scores, labels, spread.threshold)
    if place < 2:
        above = _at(scores, labels, float(np.nextafter(spread.threshold, np.inf, dtype=scores.dtype)))
        turned = f"This is the {NAMES[1 - place]}: the order is recall, precision, average precision."
        slips = {
            "A score equal to the threshold is found, too: scores >= threshold, with unchanged scores.": [above[place]] * n,
            turned: [at_threshold[1 - place]] * n,
        }
        if spread.threshold not in scores:
            slips["No score equals the threshold: find every score that is at least as high."] = [0.0] * n
        if not at_threshold[place]:
            slips["This is 1, where there is nothing to find or nothing is found: 0/0 counts as 0."] = [1.0] * n
        return slips

    recall, precision = _points(scores, labels, scores).T
    gained = np.diff(recall, prepend=0.0)
    trapezoids = gained * (precision + np.append(1.0, precision[:-1])) / 2
    interpolated = gained * np.maximum.accumulate(precision[::-1])[::-1]
    return {
        "This is recall times precision at the threshold. Average precision takes every score as a threshold.":
            [at_threshold[0] * at_threshold[1]] * n,
        "The lowest scores came first: the surest example has the highest score.":
            [metrics(-scores, labels, spread.threshold)[2]] * n,
        "This is the area under lines from point to point (the trapezoidal rule), which promises more than the model holds. "
        "Each gain in recall counts with the precision at its own threshold.": [float(trapezoids.sum())] * n,
        "This takes the highest precision at that recall or a higher one (interpolated). Each gain in recall counts with the "
        "precision at its own threshold.": [float(interpolated.sum())] * n,
        "This is the mean of the precision over all scores. Only a gain in recall counts, as much as it gains.":
            [float(precision.mean())] * n,
    }  # fmt: skip


def _of_padding(spread: Spread, place: int) -> dict[str, ValueByRank]:
    """Return {words: its value on each rank} for the metric of shares filled up to one length, all fillers above every score."""
    counts, (scores, labels) = [len(own) for own, _ in spread.shares], spread.together()
    n, fillers = len(counts), max(counts) * len(counts) - sum(counts)
    filled = np.append(scores, np.full(fillers, np.inf, scores.dtype)), np.append(labels, np.zeros(fillers, bool))
    words = "Fillers count as examples here: a score may be lower than any number. Leave the fillers out."
    return {words: [metrics(*filled, spread.threshold)[place]] * n}


def _of_the_sum(spread: Spread) -> dict[str, ValueByRank]:
    """Return {words: its value on each rank} for mistakes in a metric's sum over thresholds. Some may give the right value."""
    scores, labels = spread.together()
    n, (recall, precision) = len(spread.shares), _points(scores, labels, scores).T
    by_rank = []
    for own, _ in spread.shares:
        own_recall, own_precision = _points(scores, labels, own).T
        by_rank.append(float((np.diff(own_recall, prepend=0.0) * own_precision).sum()))

    return {
        "The thresholds went from the lowest to the highest, so recall fell. Begin with the highest.":
            [float((np.diff(recall[::-1], prepend=0.0) * precision[::-1]).sum())] * n,
        "The first threshold counts, too: before it recall is 0.": [float((np.diff(recall) * precision[1:]).sum())] * n,
        "Each precision was weighted by recall, not by the gain in recall since the threshold before.":
            [float((recall * precision).sum())] * n,
        "The thresholds were this rank's own scores: every score of all ranks is one.": by_rank,
    }  # fmt: skip


_ONE_BY_ONE = "Equal scores were taken one after the other. They are one threshold: the order of equal examples means nothing."


def _is_one_by_one(values: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether some order of equal scores gives the metrics `values`: from negatives first to positives first."""
    if len(np.unique(scores)) == len(scores):
        return False

    bounds = []
    for tie in (labels, ~labels):
        ordered = labels[np.lexsort((tie, -scores.astype(float)))]
        hits = np.cumsum(ordered)
        bounds.append(float((hits / np.arange(1, len(hits) + 1))[ordered].sum() / max(1, labels.sum())))
    least, most = bounds
    return bool((values >= least - NEAR).all() and (values <= most + NEAR).all())


def _points(scores: np.ndarray, labels: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the metrics recall and precision at each threshold, the highest first, [thresholds, 2]."""
    return np.array([_at(scores, labels, threshold) for threshold in np.unique(thresholds)[::-1]]).reshape(-1, 2)
