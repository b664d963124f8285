"""The checks of tensor parallelism: a linear layer cut by columns, one cut by rows, and the pair as an MLP.

Every part of the output and of the gradients must be that of the whole layer on one rank; the messages must be no more
than the all-reduces that cannot be done without. A rank is given NaN in the parts of weights, and of gradients, that
other ranks hold: with the whole layer on every rank nothing would have to be sent.
M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, 2019, section 3. Weights have shape [outputs, inputs], as torch's: the
"columns" of the paper, which writes x A, are their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge, none_sent, ranks_in_words
from worldsize.checks.sharding.parts import Part, cut, not_a_tuple, own_alone, wrong_part
from worldsize.checks.verdict import Complaint, Verdict
from worldsize.units import times

COLUMN = {
    "forwards: this rank's columns of the output": 0.5,
    "backwards: the gradients of x, weight and bias": 0.5,
    "one all-reduce, of x's gradient": 0.5,
}
ROW = {
    "forwards: the whole output, on every rank": 0.5,
    "backwards: the gradients of x, weight and bias": 0.5,
    "one all-reduce, of the output": 0.5,
}
MLP = {"the output and the gradients of the whole MLP": 0.5, "two all-reduces, nothing in between": 0.5}

NAMES = ("y", "the gradient of x", "the gradient of weight", "the gradient of bias")
MLP_NAMES = ("y", "the gradient of x", "the gradient of up", "the gradient of down")
# ranks, examples, inputs, outputs (an MLP's hidden width); even parts first, then uneven and square ones
SIZES = ((2, 3, 4, 6), (3, 4, 7, 8), (4, 2, 8, 8), (1, 3, 4, 5))

UNREDUCED = "This is rank {r}'s part alone: the parts of all ranks have to be added up, in an all-reduce."
DIVIDED = "It was divided by the number of ranks: parts add up, nothing is to be divided."
SUMMED = "These were added up over the ranks, but each rank's part is its own."
WHOLE = "This is the whole: a rank keeps its own part alone."


def column_parallel(arena: Arena, fn: Callable) -> Verdict:
    """Check of tensor parallelism, a linear layer cut by columns.

    `column_parallel(fabric, (x, weight, bias, grad))`: y = x weightᵀ + bias. x is whole; of the others a rank has its rows of
    weight, its part of bias and its columns of grad, and NaN elsewhere.
    """

    def inputs(n: int, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, grad: np.ndarray) -> list[tuple]:
        own = zip(own_alone(weight, n), own_alone(bias, n), own_alone(grad, n, 1), strict=True)
        return [(x, *parts) for parts in own]

    return judge("column_parallel", COLUMN, _cases(arena, fn, inputs, _column_parts, COLUMN))


def row_parallel(arena: Arena, fn: Callable) -> Verdict:
    """Check of tensor parallelism, a linear layer cut by rows.

    `row_parallel(fabric, (x, weight, bias, grad))`: x is this rank's columns, weight has NaN in the columns of other ranks,
    bias and grad are whole.
    """

    def inputs(n: int, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, grad: np.ndarray) -> list[tuple]:
        own = zip(cut(x, n, 1), own_alone(weight, n, 1), strict=True)
        return [(columns.copy(), weights, bias, grad) for columns, weights in own]

    return judge("row_parallel", ROW, _cases(arena, fn, inputs, _row_parts, ROW))


def parallel_mlp(arena: Arena, fn: Callable) -> Verdict:
    """Check of tensor parallelism, two layers with one all-reduce each way.

    `parallel_mlp(fabric, (x, up, down, grad))`: y = relu(x upᵀ) downᵀ; x and grad are whole, up has NaN in the rows of other
    ranks, and down in their columns.
    """
    return judge("parallel_mlp", MLP, _mlp_cases(arena, fn))


# ---- cases -----------------------------------------------------------------------------------


def _cases(arena: Arena, fn: Callable, inputs_of: Callable, parts_of: Callable, points: dict) -> Iterator[Case]:
    for n, batch, width, outputs in SIZES:
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        shapes = ((batch, width), (outputs, width), (outputs,), (batch, outputs))
        given = [generator.integers(1, 30, shape).astype("float64") for shape in shapes]
        name = _name(n, batch, width, outputs)
        yield _case(name, arena, fn, inputs_of(n, *given), parts_of(n, *given), points)


def _case(name: str, arena: Arena, fn: Callable, inputs: list[tuple], parts: Sequence[Part], points: dict) -> Case:
    forward, backward, messages = points
    y, *gradients = parts
    summed = gradients[0] if points is COLUMN else y
    needed_bytes = 2 * (len(inputs) - 1) * summed.expected[0].nbytes

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        return _values_first({
            forward: _wrong(ended, NAMES, [y]),
            backward: _wrong(ended, NAMES, gradients, first=1),
            messages: _wrong_bytes(ended, needed_bytes, ONE),
        })  # fmt: skip

    return Case(name, lambda: _advised(arena.ranks(fn, inputs), points), examine)


def _mlp_cases(arena: Arena, fn: Callable) -> Iterator[Case]:
    for n, batch, width, hidden in SIZES:
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        shapes = ((batch, width), (hidden, width), (width, hidden), (batch, width))
        given = tuple(generator.normal(size=shape) for shape in shapes)
        yield _mlp_case(_name(n, batch, width, hidden), arena, fn, n, given)


def _mlp_case(name: str, arena: Arena, fn: Callable, n: int, given: tuple[np.ndarray, ...]) -> Case:
    values, messages = MLP
    x, up, down, grad = given
    inputs = [(x, own_up, own_down, grad) for own_up, own_down in zip(own_alone(up, n), own_alone(down, n, 1), strict=True)]
    parts = _mlp_parts(n, *given)
    needed_bytes = 2 * 2 * (n - 1) * x.nbytes

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        found = {values: _wrong(ended, MLP_NAMES, parts), messages: _wrong_bytes(ended, needed_bytes, TWO)}
        return _values_first(found)

    return Case(name, lambda: arena.ranks(fn, inputs), examine)


def _advised(ended: ArenaResult, points: dict) -> ArenaResult:
    """Says where to cut after an error about shapes, which tells no more than that they don't fit."""
    if ended.state != "raised" or "shapes cannot be multiplied" not in ended.message:
        return ended

    if points is COLUMN:
        dimension, why = 0, "its outputs are spread"
    else:
        dimension, why = 1, "x's columns, its inputs, are spread"
    advice = f"weight is [outputs, inputs]: cut it along dimension {dimension}, since {why} over the ranks."
    return replace(ended, message=f"{ended.message}\n{advice}")


def _name(n: int, batch: int, width: int, outputs: int) -> str:
    return f"{ranks_in_words(n)}, x [{batch}, {width}], the first weight [{outputs}, {width}]"


def _wrong(ended: ArenaResult, names: Sequence[str], parts: Sequence[Part], first: int = 0) -> Complaint:
    complaint = not_a_tuple(ended.returned, names)
    if complaint:
        return complaint

    for k, part in enumerate(parts, first):
        complaint = wrong_part([got[k] for got in ended.returned], part)
        if complaint:
            return complaint

    return None


def _values_first(found: dict[str, Complaint]) -> dict[str, Complaint]:
    """Messages are spoken of alone where the values are right."""
    *values, messages = found.values()
    if any(values) or not messages:
        return found
    return {**found, list(found)[-1]: f"the values are right, but {messages}"}


# ---- messages --------------------------------------------------------------------------------

ONE = "one all-reduce"
TWO = "two all-reduces, one forwards and one backwards,"


def _wrong_bytes(ended: ArenaResult, needed: int, what: str) -> Complaint:
    """Words for more or less than the bytes of the all-reduces, or for no message at all."""
    complaint = none_sent(ended.trace, _HOW)
    if complaint:
        return complaint

    got = ended.trace.total_bytes()
    if got == needed:
        return None
    if got < needed:
        return (
            f"all ranks together sent {got} bytes, and {what} cannot do with less than {needed}. Did a rank compute with weights "
            f"that are not its own?"
        )
    return (
        f"all ranks together sent {got} bytes, {times(got / needed) if needed else 'many'} x those of {what} which have to be "
        f"({needed} bytes). What a rank can work out from its own part needs no message."
    )


_HOW = "Each rank is to use its own part of the weights alone, and all_reduce(fabric, t) for what has to be added up."


# ---- what is right, and what slips give ------------------------------------------------------


def _column_parts(n: int, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, grad: np.ndarray) -> list[Part]:
    rows, columns = cut(weight, n), cut(grad, n, 1)
    y = x @ weight.T + bias
    crossed = _products(cut(x, n, 1), _transposed(cut(weight, n, 1)))

    inward = _products(columns, rows)
    turned = _products(_transposed(columns), [x] * n)
    of_bias = [g.sum(0) for g in columns]

    return [
        Part("its columns of y", cut(y, n, 1), {
            WHOLE: [y] * n,
            "The bias was left out.": cut(y - bias, n, 1),
            "weight was cut along the wrong dimension: an output of the layer is a row of weight, [outputs, inputs].": [
                part + bias for part in crossed
            ],
        }),
        Part("the gradient of x", [sum(inward)] * n, {**_alone(inward), DIVIDED: [sum(inward) / n] * n}),
        Part("the gradient of its rows of weight", turned, {WHOLE: [grad.T @ x] * n, **_summed(turned)}),
        Part("the gradient of its part of bias", of_bias, {WHOLE: [grad.sum(0)] * n, **_summed(of_bias)}),
    ]  # fmt: skip


def _row_parts(n: int, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, grad: np.ndarray) -> list[Part]:
    columns, own = cut(weight, n, 1), cut(x, n, 1)
    outward = _products(own, _transposed(columns))
    y = sum(outward) + bias

    inward = _products([grad] * n, columns)
    turned = _products([grad.T] * n, own)

    return [
        Part("y", [y] * n, {
            f"The bias is in it {n} times: every rank added it, and then all were summed. Add it once, after the sum.": [
                y + (n - 1) * bias
            ] * n,
            "The bias was left out.": [y - bias] * n,
            **_alone(outward), **_alone([part + bias for part in outward]),
            DIVIDED: [sum(outward) / n + bias] * n,
            "The whole was divided by the number of ranks: parts add up.": [y / n] * n,
        }),
        Part("the gradient of its columns of x", inward, {WHOLE: [grad @ weight] * n, **_summed(inward)}),
        Part("the gradient of its columns of weight", turned, {WHOLE: [grad.T @ x] * n, **_summed(turned)}),
        Part("the gradient of bias", [grad.sum(0)] * n, {
            f"It is {n} times too large: every rank has the whole of y's gradient already, nothing is to be added up.": [
                n * grad.sum(0)
            ] * n,
            "This is a part of it: the bias is whole on every rank.": cut(grad.sum(0), n),
        }),
    ]  # fmt: skip


def _mlp_parts(n: int, x: np.ndarray, up: np.ndarray, down: np.ndarray, grad: np.ndarray) -> list[Part]:
    ups, downs = cut(up, n), cut(down, n, 1)
    hidden = _products([x] * n, _transposed(ups))
    active = [np.maximum(h, 0) for h in hidden]
    outward = _products(active, _transposed(downs))
    late = _products(hidden, _transposed(downs))

    plain = _products([grad] * n, downs)
    masked = [g * (h > 0) for g, h in zip(plain, hidden, strict=True)]
    inward = _products(masked, ups)
    unmasked = _products(plain, ups)
    of_up = _products(_transposed(masked), [x] * n)
    of_down = _products([grad.T] * n, active)
    no_relu = "The gradient passed ReLU as if it were not there: where hidden is not above 0, it is 0."

    return [
        Part("y", [sum(outward)] * n, {
            **_alone(outward), DIVIDED: [sum(outward) / n] * n,
            "There is no ReLU in it.": [sum(late)] * n,
            "ReLU has to come between the two layers, not after them.": [np.maximum(sum(late), 0)] * n,
        }),
        Part("the gradient of x", [sum(inward)] * n, {
            **_alone(inward), DIVIDED: [sum(inward) / n] * n, no_relu: [sum(unmasked)] * n,
        }),
        Part("the gradient of its rows of up", of_up, {
            no_relu: _products(_transposed(plain), [x] * n), WHOLE: [np.concatenate(masked, 1).T @ x] * n,
            **_summed(of_up),
        }),
        Part("the gradient of its columns of down", of_down, {
            WHOLE: [grad.T @ np.concatenate(active, 1)] * n,
            "It was taken with the values before ReLU: down sees those after it.": _products([grad.T] * n, hidden),
            **_summed(of_down),
        }),
    ]  # fmt: skip


def _products(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Each rank's own matrix product."""
    return [a @ b for a, b in zip(left, right, strict=True)]


def _transposed(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [part.T for part in parts]


def _alone(parts: Sequence[np.ndarray]) -> dict[str, list[np.ndarray]]:
    """The slip of leaving out the all-reduce; each rank has its own words."""
    return {UNREDUCED.format(r=r): [part] * len(parts) for r, part in enumerate(parts)}


def _summed(parts: Sequence[np.ndarray]) -> dict[str, list[Any]]:
    """The slip of adding up what is each rank's own, where the parts are equally large."""
    if len({part.shape for part in parts}) > 1:
        return {}
    return {SUMMED: [sum(parts)] * len(parts)}
