"""Check a batch norm over the rows of all ranks, forwards and backwards, with one all-reduce each way.

The reference is NumPy on one device that has all rows; the messages show how often the ranks meet. Left out: running
statistics.
S. Ioffe and C. Szegedy, "Batch Normalization", ICML 2015; C. Peng et al., "MegDet", CVPR 2018: over devices;
T. Chan, G. Golub and R. LeVeque, "Updating Formulae and a Pairwise Algorithm", 1979: variances of parts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import Expected
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.transfers import sent_by_each
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import kind_in_words, other_than_tuple, same
from worldsize.checks.large_batches import batch_norm_reference
from worldsize.checks.large_batches.batch_norm_reference import NAMES, NormTask
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.trace import Trace
from worldsize.units import count

FORWARD = "y: everybody's mean and variance"
BACKWARD = "grad_x: through everybody's mean and variance"
OWN = "grad_weight and grad_bias: this rank's own sums"
ONCE = "one all-reduce forwards, one backwards"
SAFE = "a large mean and a small spread"
KEPT = "all four in x's dtype, and what was handed in as it was"
NEAR = 1e-9  # of the largest value: ten million roundings of float64, so no right answer fails by luck
# a mean of 20,000 is rounded by 0.2 % of the spread at most. An unsafe variance is off by up to 20 either way: one in some 200 is
# within 4 % by luck, all five features in under 1e-11
NEAR_FLOAT32 = 0.02
ROWS = ((10, 14, 7), (6,), (1, 9, 12, 5), (2, 3, 1, 4, 2), (1, 1))
MOST_NUMBERS = 4  # for each feature in an all-reduce; forwards, for each rank too
LARGE = 20_000  # features: sums travel in messages above 128 KiB, whose send waits for the receiver
LARGE_MEAN = 20_000.0  # in float32 the mean of the squares less the square of this has no digit left

UNSAFE = (
    "The mean is 20,000 and the spread about 1: in float32 the mean of the squares is rounded by up to 16, so do "
    "not subtract the square of the mean from it. Add up in float64, or let the ranks send count, mean and squared distances "
    "from their own mean."
)
LONE_ROW = (
    "A rank has a single row here: its x.var(0) divides by rows − 1, which is 0, and NaN reaches all ranks. "
    "Use x.var(0, correction=0)."
)

NO_WEIGHT = (
    "The features that are not finite have weight 0: nothing can be divided by it there. Keep x̂ from the way forwards."
)


@exercise({FORWARD: 0.25, BACKWARD: 0.5, OWN: 0.25, ONCE: 0.5, SAFE: 0.25, KEPT: 0.25}, seen={ONCE: evidence.MESSAGES})
def synced_norm(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check `synced_norm(fabric, x, weight, bias, grad, eps)`, a batch norm over all ranks.

    The function returns y, grad_x, grad_weight, grad_bias. x and grad, the gradient of y, have shape [rows, features];
    every rank has its own number of rows.
    """

    def drawn(rows: Sequence[int], features: int, **more: Any) -> NormTask:
        return NormTask.drawn(np.random.default_rng(arena.draws.getrandbits(32)), rows, features, **more)

    tasks = [drawn(rows, 3 + number % 2) for number, rows in enumerate(ROWS)]
    for task in (*tasks, drawn((2, 3), LARGE)):
        yield Case(
            str(task),
            lambda task=task: arena.ranks(fn, task.inputs, task.eps, driver=on_ranks.with_named),
            lambda ended, task=task: _examine(ended, task),
        )

    task = drawn((30, 18, 25), 5, shift=LARGE_MEAN, apart=0.5, dtype="float32")
    yield Case(
        f"{ranks_in_words(3)}, float32, a mean of {LARGE_MEAN:,.0f} and a spread of about 1",
        lambda: arena.ranks(fn, task.inputs, task.eps, driver=on_ranks.with_named),
        lambda ended: _examine_float32(ended, task),
    )


def _examine(ended: ArenaResult, task: NormTask) -> dict[str, Complaint]:
    misshapen = _no_four(ended.returned)
    if misshapen:
        return {FORWARD: misshapen, **dict.fromkeys((BACKWARD, OWN, KEPT, ONCE), UNEXAMINED)}

    right = batch_norm_reference.reference(task)
    wrong = {}
    for k, name in enumerate(NAMES):
        wrong[name] = _wrong([got[k] for got in ended.returned], right[name], name, task)

    values = {FORWARD: wrong["y"], BACKWARD: wrong["grad_x"], OWN: wrong["grad_weight"] or wrong["grad_bias"]}
    if wrong["y"] or wrong["grad_x"]:  # right messages with wrong values earn nothing
        return {**values, KEPT: UNEXAMINED, ONCE: UNEXAMINED}
    return {
        **values,
        KEPT: though_right("y and grad_x", _changed(ended.inputs, task)),
        ONCE: though_right("y and grad_x", _meets_too_often(ended.trace, task)),
    }


def _examine_float32(ended: ArenaResult, task: NormTask) -> dict[str, Complaint]:
    misshapen = _no_four(ended.returned)
    if misshapen:
        return {SAFE: misshapen, KEPT: UNEXAMINED, ONCE: UNEXAMINED}

    unsafe = _unsafe(ended, task)
    kept, once = _promoted(ended.returned, task.x[0].dtype), _meets_too_often(ended.trace, task)
    if unsafe:  # the other cases show that the values are right where the mean is small
        return {SAFE: unsafe, KEPT: kept, ONCE: once}
    return {SAFE: None, KEPT: though_right("y and grad_x", kept), ONCE: though_right("y and grad_x", once)}


def _promoted(returned: Sequence[Any], dtype: np.dtype) -> Complaint:
    for rank, four in enumerate(returned):
        for name, got in zip(NAMES, four, strict=True):
            came = getattr(got, "dtype", kind_in_words(got))
            if came != dtype:
                return f"rank {rank}: expected {name} as {dtype}, got {came}: the next layers would work on twice the bytes"
    return None


def _no_four(returned: Sequence[Any]) -> Complaint:
    for rank, got in enumerate(returned):
        came = other_than_tuple(got, len(NAMES))
        if came:
            return f"rank {rank}: expected {', '.join(NAMES)}, four tensors, got {came}"
    return None


def _wrong(held: Sequence[Any], right: Sequence[np.ndarray], name: str, task: NormTask) -> Complaint:
    mistakes = partial(batch_norm_reference.slips, task, name)
    otherwise = partial(_otherwise, task=task)
    return Expected(name, right, mistakes, rounding=NEAR, but_for_nan=True, otherwise=otherwise).wrong(held)


def _otherwise(rank: int, got: Any, right: np.ndarray, task: NormTask) -> str:
    if same(got, right, 1e-4, 1e5 * NEAR * float(np.abs(right).max())):
        return "The numbers are right, but only to half of their digits: x is float64, so compute in float64."
    if not isinstance(got, np.ndarray) or np.isfinite(got).all():
        return ""
    if np.isfinite(got[..., task.weight != 0]).all():
        return NO_WEIGHT
    return LONE_ROW if 1 in task.rows and np.isnan(got).all() else ""


def _unsafe(ended: ArenaResult, task: NormTask) -> Complaint:
    right = batch_norm_reference.reference(task)
    for k, name in enumerate(NAMES[:2]):
        held = [_in_dtype(told[k], right[name][0].dtype) for told in ended.returned]
        wrong = Expected(name, right[name], rounding=NEAR_FLOAT32, otherwise=lambda *_: UNSAFE).wrong(held)
        if wrong:
            return wrong

    return None


def _in_dtype(got: Any, dtype: np.dtype) -> Any:
    """Return a batch norm's tensor in `dtype`: an answer in float64 is right here; `_examine_float32` asks for x's dtype."""
    return got.astype(dtype) if isinstance(got, np.ndarray) and got.dtype.kind == "f" else got


def _changed(after: Sequence[Any], task: NormTask) -> Complaint:
    for rank, (left, given) in enumerate(zip(after, task.inputs, strict=True)):
        for name, before in given.items():
            complaint = changed(left[name], before, name, rank)
            if complaint:
                return complaint
    return None


def _meets_too_often(trace: Trace, task: NormTask) -> Complaint:
    """Complain about a batch norm with more messages than two all-reduces have, or about so many bytes that rows were sent."""
    complaint = none_sent(trace, "Use all_reduce.")
    n, features = task.ranks, task.features
    if complaint or n == 1:
        return complaint

    messages = sent_by_each(trace)
    rank = max(range(n), key=messages.__getitem__)  # the first of the ranks that sent most
    sent, per_all_reduce = messages[rank], 2 * (n - 1)
    if sent > 2 * per_all_reduce:
        meetings = count(math.ceil(sent / per_all_reduce), "all-reduce")
        return (
            f"rank {rank} sent {sent} messages, as many as {meetings}; expected one forwards and one backwards. Put all "
            f"sums side by side in one tensor."
        )

    # four numbers for each feature, in the dtype of x: in a row for each rank forwards, once backwards
    item = task.x[0].itemsize
    most = per_all_reduce * item * MOST_NUMBERS * features * (n + 1)
    if trace.total_bytes() <= most:
        return None
    mismatch = f"all ranks together sent {trace.total_bytes():,} bytes; expected at most {most:,}: "
    if item < 8 and trace.total_bytes() <= 2 * most:
        return f"{mismatch}did a table with a row for each rank travel in float64? x is float32, so send its rows in float32."
    return f"{mismatch}send sums over the rows, not the rows."
