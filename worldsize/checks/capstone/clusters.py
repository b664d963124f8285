"""Check predicted steps of real clusters: fitted to 64 GPUs and to a single node, asked for 256 and 512.

The steps are measured: 26 and 1,440 to fit to, 83 to be judged by. They are public, so an answer might know them; the
function is therefore asked again for a made-up cluster (`made_up_cluster.py`) with drawn constants. A grade's sandbox hides the
83 and the course's model of them (`grade.isolation.bubblewrap`).
J. Bang et al., "vTrain", MICRO 2024: the measured steps.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from worldsize import data, units
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.capstone import made_up_cluster
from worldsize.checks.capstone.counted_parts import missing_part, wrong_constant
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.intervals import as_seconds, no_intervals, one_factor
from worldsize.checks.kit.judge import Case, first_complaint
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.data import MeasuredIteration

HALF, FULL = 0.18, 0.12
# on the made-up cluster, in rows of the measured shapes: on 64 GPUs, and on more; its links are slow, so that a constant fitted
# elsewhere is further off there than on the measured cluster
ELSEWHERE_FEW, ELSEWHERE = 0.28, 0.22
# in each group of rows; in 100 of 100 draws the course's answer is at most 2.3 % off, without a part at least 6.7 % in a group
MADE_UP = 0.06
LEAST_COVERED, MOST_WIDE, NARROW = 0.85, 0.4, 0.3
MOST_WIDE_MADE_UP = 0.1  # the made-up steps scatter by a hundredth
WITHIN_18 = "the 83 within 18 %"
WITHIN_12 = "the 83 within 12 %"
EVERY_PART = "every part counts: a made-up cluster within 6 %"
COVERED = "17 of 20 of the 83 in an interval of ± 40 % on average"
NARROWLY_COVERED = "… of ± 30 %, and narrow where the steps hardly scatter"
FEW_GPUS = 64
SMALL_GROUP = 8  # rows; smaller groups are not named

Rows = list[MeasuredIteration]


@exercise({WITHIN_18: 0.5, WITHIN_12: 0.5, EVERY_PART: 0.5, COVERED: 0.25, NARROWLY_COVERED: 0.25})
def predict_steps(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check predictions for measured steps of clusters.

    `predict_steps(few, single_node, rows)` returns (low, middle, high) in seconds for each of `rows`; a row is a dict.
    """
    generator = np.random.default_rng(arena.draws.getrandbits(64))
    single, multi = data.measured_iterations("single"), data.measured_iterations("multi")
    here = _task(single, multi, [], generator)
    there = _task(*made_up_cluster.cluster(single, multi, generator), generator)
    case = Case(
        f"{len(multi)} rows",
        lambda: _called(arena, fn, [here, there]),
        lambda ended: _examine(ended, here, there),
    )
    return [case]


@dataclass(frozen=True)
class ClusterTask:
    """A cluster task, a student's arguments: rows of 64 GPUs and of a node to fit to, and those to predict."""

    asked: Rows
    given: list[list[dict[str, Any]]]

    @property
    def measured_s(self) -> np.ndarray:
        return np.array([row.iteration_s for row in self.asked])

    @property
    def fitted(self) -> np.ndarray:
        """Return which of the cluster's rows to predict were given to fit to, too."""
        return np.array([row.gpus == FEW_GPUS for row in self.asked])

    @property
    def groups(self) -> np.ndarray:
        """Return each row's group of the made-up cluster, "" for the shape of a measured row."""
        return np.array([made_up_cluster.group(row) or "" for row in self.asked])

    def off(self, intervals: np.ndarray) -> np.ndarray:
        """Return how far the middles of `intervals` `[rows, 3]` are off, relative to the measured time: below 0 is too short."""
        return intervals[:, 1] / self.measured_s - 1


def _task(single: Rows, multi: Rows, more: Rows, generator: np.random.Generator) -> ClusterTask:
    """Return the cluster task to predict the rows of `multi` and of `more`."""
    few = [row for row in _mixed(multi, generator) if row.gpus == FEW_GPUS]
    asked = _mixed(multi + more, generator)  # with the fitted rows: they tell a bad fit from a bad extrapolation
    given = []
    for rows in (few, _mixed(single, generator), asked):
        given.append([dict(vars(row)) for row in rows])
    for row in given[2]:
        del row["iteration_s"]
    return ClusterTask(asked, given)


def _called(arena: Arena, fn: Callable, tasks: Sequence[ClusterTask]) -> ArenaResult:
    """Call `fn` to predict each cluster; the first call that does not end well stands for all."""
    returned, after = [], []
    for task in tasks:
        ended = arena.call(fn, *task.given)
        if ended.state != "done":
            return ended
        returned += ended.returned
        after.append(ended.inputs)
    return ArenaResult("done", returned=tuple(returned), inputs=tuple(after))


def _examine(ended: ArenaResult, here: ClusterTask, there: ClusterTask) -> dict[str, Complaint]:
    for got, after, task in zip(ended.returned, ended.inputs, (here, there), strict=True):
        complaint = no_intervals(got, len(task.asked)) or _changed(after, task)
        if complaint:
            return dict.fromkeys(predict_steps.points, UNEXAMINED) | {WITHIN_18: complaint}

    intervals, elsewhere = map(as_seconds, ended.returned)
    wrong, beyond = _wrong_middles(intervals, here, HALF), _wrong_middles(intervals, here, FULL)
    not_fitted = _not_fitted(elsewhere, there)
    if not_fitted and not wrong:
        wrong = beyond or not_fitted
    beside = wrong and UNEXAMINED  # constants from elsewhere show nothing of the other properties
    return {
        WITHIN_18: wrong,
        WITHIN_12: beyond or beside,
        EVERY_PART: beside if wrong else _missing_part(elsewhere, there),
        COVERED: _wrong_intervals(intervals, here, MOST_WIDE) or beside,
        NARROWLY_COVERED: _wrong_intervals(intervals, here, NARROW) or _given_width(elsewhere, there) or beside,
    }


def _changed(after: Sequence[Any], task: ClusterTask) -> Complaint:
    named = zip(("few", "single_node", "rows"), after, task.given, strict=True)
    return first_complaint(changed(rows, given, name) for name, rows, given in named)


def _mixed(rows: Rows, generator: np.random.Generator) -> Rows:
    return [rows[k] for k in generator.permutation(len(rows))]


def _wrong_middles(intervals: np.ndarray, task: ClusterTask, most: float) -> Complaint:
    """Complain where predictions for clusters of more GPUs are too far off, on average over the rows.

    Where the fitted rows are too far off already, the complaint names only these, and reveals nothing of the others.
    """
    off = np.abs(task.off(intervals))
    error, at_few = float(off[~task.fitted].mean()), float(off[task.fitted].mean())
    if error <= most:
        return None

    middle = intervals[:, 1]
    missing = missing_part(task.asked, middle)
    cause = missing or wrong_constant(task.asked, middle)
    if at_few > HALF:
        words = one_factor(middle[task.fitted], task.measured_s[task.fitted], FULL) or _other_order(middle, task.measured_s)
        return (
            f"on the rows of {FEW_GPUS} GPUs, whose seconds were given, your predictions are {_percent(at_few)} off on average: "
            f"fix that first. {words or cause}"
        ).rstrip()

    words = one_factor(middle, task.measured_s, FULL) or _other_order(middle, task.measured_s) or _where(middle, task)
    if at_few < FULL < error and not missing:
        words += " A fit cannot tell apart parts of a step that grow alike in all rows of the fit."
    return (
        f"on the rows of 256 and 512 GPUs your predictions are {_percent(error)} off on average, and {_percent(at_few)} "
        f"on the rows of {FEW_GPUS}; expected at most {_percent(most)}. {words} {cause}"
    ).rstrip()


def _not_fitted(intervals: np.ndarray, task: ClusterTask) -> Complaint:
    """Complain where the made-up cluster's rows of measured shapes are predicted badly, on 64 GPUs or on more."""
    off = np.abs(task.off(intervals))
    at_few, beyond = float(off[task.fitted].mean()), float(off[(task.groups == "") & ~task.fitted].mean())
    if at_few <= ELSEWHERE_FEW and beyond <= ELSEWHERE:
        return None
    return (
        f"you predict the measured clusters well. On another cluster, whose GPUs, memory and network have other speeds, with "
        f"all rows measured anew, your predictions are {_percent(at_few)} off on the rows of {FEW_GPUS} GPUs and "
        f"{_percent(beyond)} on the rows of 256 and 512: do all your constants come from the given rows? "
        f"{_cause(intervals, task)}"
    ).rstrip()


def _missing_part(intervals: np.ndarray, task: ClusterTask) -> Complaint:
    off, group = task.off(intervals), task.groups
    means = {name: float(off[group == name].mean()) for name in made_up_cluster.GROUPS}
    farthest = max(means, key=lambda one: abs(means[one]))
    if abs(means[farthest]) <= MADE_UP:
        return None

    # without a part, rows where it is much of a step are too short; rows of one layer a stage have a head too
    shortest = min(means, key=means.__getitem__)
    name = shortest if means[shortest] < -MADE_UP else farthest
    if means[made_up_cluster.SIXTEEN] < -0.3:  # no other part is so much of these rows
        name = made_up_cluster.SIXTEEN
    if name == made_up_cluster.HOPS and means[made_up_cluster.HEAD] < -MADE_UP:
        name = made_up_cluster.HEAD
    way = "long" if means[name] > 0 else "short"
    return (
        f"on another cluster, made up of the five kinds of parts, the {(group == name).sum()} rows {name} are "
        f"{_percent(abs(means[name]))} too {way}. {_cause(intervals, task) or made_up_cluster.GROUPS[name]}"
    )


def _given_width(intervals: np.ndarray, task: ClusterTask) -> Complaint:
    wide = float(((intervals[:, 2] - intervals[:, 0]) / 2 / intervals[:, 1]).mean())
    if wide <= MOST_WIDE_MADE_UP:
        return None
    return (
        f"on another cluster, whose steps scatter by {_percent(made_up_cluster.SCATTER)}, your intervals are ± {_percent(wide)} "
        f"wide on average; expected at most ± {_percent(MOST_WIDE_MADE_UP)} there. "
        f"{_cause(intervals, task) or 'Take the width from the rows.'}"
    )


def _cause(intervals: np.ndarray, task: ClusterTask) -> str:
    """Return a sentence about a part that the middles leave out, or about a wrong constant in them; empty for none."""
    middle = intervals[:, 1]
    return missing_part(task.asked, middle) or wrong_constant(task.asked, middle)


def _percent(share: float) -> str:
    return units.number(float(f"{100 * share:.3g}"), "%")


def _other_order(middle: np.ndarray, measured: np.ndarray) -> str:
    if float(np.abs(np.sort(middle) / np.sort(measured) - 1).mean()) <= FULL / 2:
        return "The predictions are right in another order: return one for each row, in the order of the rows."
    return ""


def _where(middle: np.ndarray, task: ClusterTask) -> str:
    """Return words for the group of clusters' rows whose prediction is furthest off."""
    asked, off = task.asked, middle / task.measured_s - 1
    groups: dict[str, Callable[..., bool]] = {
        "with fewer micro-batches than 4 a stage": lambda row: (
            row.global_batch / (row.data * row.micro_batch) < 4 * row.pipeline
        ),
        "with 16 stages and more": lambda row: row.pipeline >= 16,
        "with 4 stages and fewer": lambda row: row.pipeline <= 4,
    }
    for tensor in (1, 2, 4, 8):
        groups[f"with tensor {tensor}"] = lambda row, tensor=tensor: row.tensor == tensor
    for hidden in sorted({row.hidden for row in asked}):
        groups[f"of the model {hidden} wide"] = lambda row, hidden=hidden: row.hidden == hidden

    signed = {}
    for name, belongs in groups.items():
        members = np.array(list(map(belongs, asked)))
        within = off[members & ~task.fitted]
        if len(within) >= SMALL_GROUP:
            signed[name] = (float(within.mean()), len(within))
    name = max(signed, key=lambda one: abs(signed[one][0]))
    mean, rows = signed[name]
    return f"Furthest off are the {rows} {name}: {_percent(abs(mean))} too {'long' if mean > 0 else 'short'}."


def _wrong_intervals(intervals: np.ndarray, task: ClusterTask, most: float) -> Complaint:
    large = ~task.fitted
    measured = task.measured_s[large]
    low, middle, high = intervals[large].T
    covered, wide = float(((low <= measured) & (measured <= high)).mean()), float(((high - low) / 2 / middle).mean())
    if covered >= LEAST_COVERED and wide <= most:
        return None

    complaint = (
        f"{_percent(covered)} of the {large.sum()} rows lie in your intervals, whose half-width is on average "
        f"{_percent(wide)} of the prediction; "
    )
    if wide > most:
        return f"{complaint}expected at most {_percent(most)}: an interval that holds everything says nothing."
    return (
        f"{complaint}nine in ten should, and at least {_percent(LEAST_COVERED)} must: unseen rows lie farther off than the "
        "rows of the fit."
    )
