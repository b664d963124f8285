"""Checks of tensor parallelism: a sharded MLP between f and g, and one between norms on sharded tokens (sequence parallelism).

Each rank gets only its own shard of the weights. Every step's output and input gradient, and the final weights, must match one
device's, and the bytes sent must match the minimal collectives', so an answer that gathers weights fails.

Weights have shape [outputs, inputs], as in torch: the papers' "columns", for x A, are rows here. M. Shoeybi et al.,
"Megatron-LM", arXiv:1909.08053, 2019, section 3; V. Korthikanti et al., arXiv:2205.05198, 2022, section 4.2.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import sharding
from worldsize.checks.kit import evidence
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import ByRank, Expected
from worldsize.checks.kit.judge import Case, ranks_in_words, though_right
from worldsize.checks.kit.needed_bytes import NeededBytes
from worldsize.checks.kit.values import has_keys
from worldsize.checks.sharding.parts import cut, part, what_came
from worldsize.checks.sharding.sharded_mlp import (
    SHARED,
    Mistake,
    MlpWeights,
    Norm,
    ShardedRun,
    block_on_ranks,
    mlp_on_ranks,
)  # fmt: skip
from worldsize.checks.verdict import UNEXAMINED, Complaint

VALUES = "every step and the weights are those of one device"
ALL_REDUCES = "two all-reduces a step, of the output and of x's gradient"
HALVES = "halves of all-reduces for the tokens, one all-reduce for what all ranks hold"
KEYS = ("y", "grad_x", "weights")

# ranks, examples, width, hidden, steps; even parts first, then uneven and square ones
MLP_SIZES = ((2, 3, 4, 6, 2), (3, 4, 5, 8, 2), (4, 2, 8, 8, 3), (1, 3, 4, 5, 2))
# ranks, tokens (divided by the ranks), width, hidden, steps
BLOCK_SIZES = ((2, 6, 4, 6, 2), (3, 6, 5, 8, 2), (4, 8, 6, 9, 3), (1, 3, 4, 5, 2))
RATE = 0.02


@dataclass(frozen=True)
class Shards:
    """A case: each rank's input, the results expected of `train` (parts by key), and the bytes that must travel."""

    name: str
    inputs: list[dict[str, Any]]
    parts: dict[str, list[Expected]]
    needed: NeededBytes
    tokens: tuple[int, int] | None = None  # shape of all ranks' tokens together; None if tokens are not sharded


@exercise({VALUES: 0.5, ALL_REDUCES: 1.0}, seen={ALL_REDUCES: evidence.MESSAGES}, needs=needs.BACKWARD)
def parallel_mlp(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check tensor parallelism: an MLP of which every rank holds a shard.

    `parallel_mlp(fabric, task)` trains relu(x upᵀ + up_bias) downᵀ + down_bias. task["weights"] are this rank's rows of up and
    up_bias, its columns of down, and all of down_bias; task["batches"] are pairs (x, target), the same on all ranks.
    """
    return _cases(arena, fn, MLP_SIZES, _mlp_shards, ALL_REDUCES)


@exercise({VALUES: 0.25, HALVES: 0.75}, seen={HALVES: evidence.MESSAGES_AND_BACKWARD}, needs=needs.BACKWARD)
def sequence_parallel(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check sequence parallelism: an MLP and a norm whose tokens are spread over the ranks.

    `sequence_parallel(fabric, task)` trains x + mlp(norm(x)). task["weights"] are scale and shift of the norm (whole), this
    rank's rows of up and up_bias, its columns of down, and down_bias (whole); task["batches"] are pairs (x, target) of this
    rank's own tokens.
    """
    return _cases(arena, fn, BLOCK_SIZES, _block_shards, HALVES)


def _cases(arena: Arena, fn: Callable, sizes: Sequence[tuple], shards_of: Callable, messages: str) -> Iterator[Case]:
    for size in sizes:
        shards = _drawn(np.random.default_rng(arena.draws.getrandbits(32)), shards_of, *size)
        run = partial(arena.ranks, fn, shards.inputs, driver=sharding.kept_for_backward)
        yield Case(shards.name, run, partial(_examine, shards=shards, messages=messages), _ADVICE)


def _drawn(
    generator: np.random.Generator, shards_of: Callable, n: int, rows: int, width: int, hidden: int, steps: int
) -> Shards:
    """Draw a tensor-parallel case in which each slip would be named. Raises AssertionError as `drawn_until`."""

    def draw() -> Shards:
        weights = MlpWeights.drawn(generator, width, hidden)
        batches = [tuple(generator.normal(size=(2, rows, width))) for _ in range(steps)]
        return shards_of(generator, n, weights, batches)

    return drawn_until(lambda shards: n == 1 or _slips_are_told(shards), draw, f"shards on {n} ranks")


def _slips_are_told(shards: Shards) -> bool:
    """Return whether each slip would be named; with many hidden units at 0, two slips can agree, or one can be right."""
    for words in shards.parts["y"][0].mistakes:
        slipped: list[dict[str, tuple]] = [{} for _ in shards.inputs]
        for key, parts in shards.parts.items():
            for rank, by_rank in enumerate(zip(*(wanted.mistakes[words] for wanted in parts), strict=True)):
                slipped[rank][key] = by_rank
        if words not in (_wrong(slipped, shards) or ""):
            return False
    return True


def _examine(ended: ArenaResult, shards: Shards, messages: str) -> dict[str, Complaint]:
    wrong = _wrong([told["returned"] for told in ended.returned], shards)
    dear = shards.needed.wrong(ended.trace) or _tokens_kept_twice(ended.returned, shards)
    # the right number of bytes earns nothing if the values in them are wrong
    return {VALUES: wrong, messages: UNEXAMINED if wrong else though_right("the values", dear)}


def _tokens_kept_twice(returned: Sequence[dict[str, Any]], shards: Shards) -> Complaint:
    """Return a complaint if autograd keeps two or more tensors of all ranks' tokens per step; `up` needs one.

    The function's own process records this, so the result can only cost points.
    """
    if shards.tokens is None or len(returned) == 1:
        return None

    steps = len(shards.parts["y"])
    for rank, told in enumerate(returned):
        each = told["kept"].count(shards.tokens) / steps
        if each >= 2:
            return (
                f"rank {rank} keeps {each:g} tensors of all ranks' tokens for backward, {list(shards.tokens)}; expected one, "
                f"the input of up. Is the norm behind the gather, so that every rank norms all tokens? Norm a rank's own "
                f"tokens, and gather those."
            )

    return None


_ADVICE = {
    "shapes cannot be multiplied": (
        "A rank has its own shard already: rows of up, which are hidden units, and the columns of down for the same hidden "
        "units. Do not cut it again."
    ),
    "'float' and 'NoneType'": (
        "A weight has no gradient. Either forward does not use it, or a message lies between it and y, and autograd does not "
        "follow messages: inside forward, apply a Function or TwoWays that defines the way back."
    ),
    "modified inplace": "train changes the weights in place after each step: apply f to them inside forward, at each step anew.",
}


def _wrong(returned: Sequence[Any], shards: Shards) -> Complaint:
    for rank, got in enumerate(returned):
        if not has_keys(got, *KEYS):
            return f"rank {rank}: expected what train returns, a dict with {', '.join(KEYS)}, got {what_came(got)}"

    for key in KEYS:
        expected = len(shards.parts[key])
        for rank, given in enumerate(returned):
            got = given[key]
            if not isinstance(got, tuple) or len(got) != expected:
                return f'rank {rank}: expected "{key}" with {expected} tensors, got {what_came(got)}'

    # step by step, so that the earliest difference is reported
    steps, weights = range(len(shards.parts["y"])), range(len(shards.parts["weights"]))
    for k, key in (*product(steps, ("y", "grad_x")), *product(weights, ["weights"])):
        complaint = shards.parts[key][k].wrong([got[key][k] for got in returned])
        if complaint:
            return complaint

    return None


_SLIPS = {
    Mistake(bias_times_ranks=True): (
        "The bias is in it once for every rank: each rank added it before the sum. Add it once, after the sum."
    ),
    Mistake(bias_in_parts=True): (
        "down_bias moves by 1/n of its gradient: if each rank adds down_bias / n before the sum, y is right, but the 1/n "
        "stays backwards. Add it once, after the sum."
    ),
    Mistake(no_bias=True): "down_bias was left out.",
    Mistake(no_up_bias=True): "up_bias was left out: each rank adds its own part, before the ReLU.",
    Mistake(y_divided=True): "It was divided by the number of ranks: add the parts up without dividing.",
}
MLP_SLIPS = _SLIPS | {
    Mistake(y_is_a_summand=True): (
        "This is one rank's part alone: down, cut by its columns, leaves summands. Add up all ranks' summands (g, forwards)."
    ),
    Mistake(relu_last=True): "There is no ReLU between the layers.",
    Mistake(gradient_is_a_summand=True): (
        "This is one rank's part alone: x went to all ranks, so add up all ranks' gradients of x (f, backwards)."
    ),
    Mistake(gradient_divided=True): (
        "It was divided by the number of ranks: each rank's gradient of x is a summand. Add the gradients up, do not average "
        "them (f, backwards), and pass y's gradient on as it is (g, backwards)."
    ),
    Mistake(bias_times_ranks_backwards=True): (
        "down_bias moves by n times its gradient: all ranks hold the whole y and its gradient. Apply f to x alone here."
    ),
    Mistake(gradient_is_a_summand=True, gradient_times_ranks=True): (
        "Ways back are exchanged: f, where x enters, must add up the ranks' gradients, and g must pass y's gradient on as it is."
    ),
    Mistake(gradient_times_ranks=True): (
        "Gradients are n times too large: all ranks hold the whole y and so its whole gradient. Backwards, let g pass it on "
        "as it is."
    ),
}
BLOCK_SLIPS = _SLIPS | {
    Mistake(y_is_a_summand=True): (
        "Each rank's product was cut, not added up: down, cut by its columns, leaves summands. Reduce-scatter them."
    ),
    Mistake(gradient_is_a_summand=True): (
        "The gathered tokens' gradient was cut, not added up: the tokens went to all ranks, so all ranks' gradients must come "
        "back. Reduce-scatter them."
    ),
    **{
        Mistake(shared_alone=names): (
            f"All ranks hold the weight whole, but each rank has only its own tokens' gradient: {said} apart. Add the parts up "
            f"(f)."
        )
        for names, said in (
            (SHARED, "scale, shift and down_bias drift"),
            (SHARED[:2], "scale and shift drift"),
            *(((name,), f"{name} drifts") for name in SHARED),
        )
    },
    **{
        Mistake(shared_alone=names, norm_behind=True): (
            f"The norm is behind the gather, so each rank norms all tokens, and its gradients of scale and shift come from its "
            f"hidden units alone{others}. Norm a rank's own tokens, gather those, and add up (f) what all ranks hold."
        )
        for names, others in ((SHARED, "; down_bias drifts too"), (SHARED[:2], ""))
    },
    Mistake(shared_divided=True): (
        "All ranks hold the weight whole, and each rank's own tokens give a summand of its gradient. Add the summands up, do "
        "not average them."
    ),
    Mistake(gradient_divided=True): (
        "The gathered tokens' gradient was divided by the number of ranks: each rank's gradient is a summand. Reduce-scatter "
        "adds up; do not average."
    ),
    Mistake(f_on_x=True): (
        "All ranks' gradients of x were added up, as in Exercise 12.1: here x is this rank's own tokens, and so is its gradient. "
        "Leave f out there."
    ),
    Mistake(residual="none"): "x itself is missing: the block is x + mlp(norm(x)).",
    Mistake(residual="normed"): "norm(x) is added to the MLP's output. Add x itself: x + mlp(norm(x)).",
    Mistake(residual="of all ranks"): (
        "x is in it once for every rank: each rank added it before the sum. Add a rank's own tokens once, after the sum."
    ),
}


def _mlp_shards(generator: np.random.Generator, n: int, weights: MlpWeights, batches: list) -> Shards:
    right = mlp_on_ranks(weights, batches, RATE, 1)
    slips = {words: mlp_on_ranks(weights, batches, RATE, n, mistake) for mistake, words in MLP_SLIPS.items()}
    names = ("its rows of up", "its part of up_bias", "its columns of down", "down_bias")

    x, steps = batches[0][0], len(batches)
    # one device's final weights, as shards
    end = MlpWeights(*(w[0] for w in right.weights)).cut(n)
    all_reduce_bytes = steps * 2 * (n - 1) * x.nbytes  # one in each step
    expected = {
        "y": {f"y of step {k}": [y[0]] * n for k, y in enumerate(right.y, 1)},
        "grad_x": {f"the gradient of x in step {k}": [g[0]] * n for k, g in enumerate(right.grad_x, 1)},
        "weights": {f"{name} after step {steps}": by_rank for name, by_rank in zip(names, zip(*end, strict=True), strict=True)},
    }
    return Shards(
        name=f"{ranks_in_words(n)}, x [{len(x)}, {weights.width}], up {list(weights.up.shape)}, {steps} steps",
        inputs=[{"weights": [*own], "batches": batches, "rate": RATE} for own in weights.cut(n)],
        parts=_parts(expected, slips),
        needed=_bytes(2 * all_reduce_bytes, "two all-reduces a step", {3 * all_reduce_bytes: _THIRD}),
    )


def _block_shards(generator: np.random.Generator, n: int, weights: MlpWeights, batches: list) -> Shards:
    norm = Norm(*generator.uniform(0.5, 1.5, (2, weights.width)))
    right = block_on_ranks(norm, weights, batches, RATE, 1)
    slips = {words: block_on_ranks(norm, weights, batches, RATE, n, mistake) for mistake, words in BLOCK_SLIPS.items()}
    names = ("scale", "shift", "its rows of up", "its part of up_bias", "its columns of down", "down_bias")

    inputs = []
    for rank, own in enumerate(weights.cut(n)):
        tokens = [tuple(cut(part, n)[rank] for part in batch) for batch in batches]
        inputs.append({"weights": [*norm, *own], "batches": tokens, "rate": RATE})

    x, steps = batches[0][0], len(batches)
    scale, shift, *rest = (w[0] for w in right.weights)
    end = [(scale, shift, *own) for own in MlpWeights(*rest).cut(n)]
    expected = {
        "y": {f"its tokens of y in step {k}": cut(y[0], n) for k, y in enumerate(right.y, 1)},
        "grad_x": {f"its tokens of x's gradient in step {k}": cut(g[0], n) for k, g in enumerate(right.grad_x, 1)},
        "weights": {f"{name} after step {steps}": by_rank for name, by_rank in zip(names, zip(*end, strict=True), strict=True)},
    }
    shared_bytes = 3 * scale.nbytes
    return Shards(
        name=f"{ranks_in_words(n)}, {len(x)} tokens of width {weights.width}, up {list(weights.up.shape)}, {steps} steps",
        inputs=inputs,
        parts=_parts(expected, slips),
        needed=_bytes(
            steps * 2 * (n - 1) * (2 * x.nbytes + shared_bytes),
            "an all-gather and a reduce-scatter of the tokens each way and one all-reduce of what all ranks hold",
            spared_bytes=steps * 2 * (n - 1) * scale.nbytes,  # the gathered gradient of y already gives down_bias's
        ),
        tokens=x.shape,
    )


_THIRD = "Which is the third all-reduce? x is the same on all ranks, and so is y's gradient: neither needs a message."


def _bytes(size_bytes: int, what: str, mistakes: Mapping[int, str] | None = None, spared_bytes: int = 0) -> NeededBytes:
    return NeededBytes(
        size_bytes,
        what,
        {size_bytes // 2: "Do you send float32? All tensors are float64 here.", **(mistakes or {})},
        "Send no weights, and nothing that a rank can compute from its own shard. Where a rank needs only its own part of a sum, "
        "half of an all-reduce is enough.",
        "A sum over the ranks is missing.",
        spared_bytes,
        "Each rank holds a shard: add up or gather over the fabric what several ranks need.",
    )


def _parts(expected: dict[str, dict[str, ByRank]], slips: dict[str, ShardedRun]) -> dict[str, list[Expected]]:
    """Return {key of what tensor-parallel `train` returns: its tensors, each with the value that every slip would give}."""
    parts: dict[str, list[Expected]] = {}
    for key, tensors in expected.items():
        parts[key] = []
        for k, (name, value) in enumerate(tensors.items()):
            parts[key].append(part(name, value, {words: getattr(run, key)[k] for words, run in slips.items()}))
    return parts
