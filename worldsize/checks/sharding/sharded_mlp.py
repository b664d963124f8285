"""An MLP's training in NumPy, on one device and on ranks that each hold a shard and may make a mistake.

Without a mistake both agree; the checks name a student's mistake by the result that it gives here. An MLP is
relu(x upᵀ + up_bias) downᵀ + down_bias, a block x + mlp(norm(x)); the loss is ½ Σ (y − target)², so y's gradient is y − target,
and steps are plain gradient descent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from worldsize.checks.kit.expected import ByRank
from worldsize.checks.sharding.parts import cut

EPSILON = 1e-5  # torch's default for a layer norm
Batch = tuple[np.ndarray, np.ndarray]


class MlpWeights(NamedTuple):
    """Weights up [hidden, width], up_bias [hidden], down [width, hidden], down_bias [width]; a shard has fewer hidden units."""

    up: np.ndarray
    up_bias: np.ndarray
    down: np.ndarray
    down_bias: np.ndarray

    @classmethod
    def drawn(cls, generator: np.random.Generator, width: int, hidden: int) -> MlpWeights:
        shapes = ((hidden, width), (hidden,), (width, hidden), (width,))
        return cls(*(generator.normal(size=shape) for shape in shapes))


    @property
    def width(self) -> int:
        return self.up.shape[1]

    def cut(self, n: int) -> list[MlpWeights]:
        """Return the shards of n ranks: hidden units are split, down_bias is whole on every rank."""
        spread = zip(cut(self.up, n), cut(self.up_bias, n), cut(self.down, n, 1), strict=True)
        return [MlpWeights(up.copy(), bias.copy(), down.copy(), self.down_bias.copy()) for up, bias, down in spread]

    def stepped(self, gradients: Sequence[np.ndarray], rate: float) -> MlpWeights:
        return MlpWeights(*(w - rate * g for w, g in zip(self, gradients, strict=True)))


class Norm(NamedTuple):
    """A layer norm's scale and shift, both [width]."""

    scale: np.ndarray
    shift: np.ndarray

    def normed(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return x with mean 0 and variance 1 in each row, and the same scaled and shifted."""
        plain = (x - x.mean(-1, keepdims=True)) / _deviation(x)
        return plain, plain * self.scale + self.shift

    def backward(self, x: np.ndarray, grad: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the gradients of x, scale and shift, given the gradient of `normed`'s second result."""
        plain, _ = self.normed(x)
        inward = grad * self.scale
        of_x = inward - inward.mean(-1, keepdims=True) - plain * (inward * plain).mean(-1, keepdims=True)
        return of_x / _deviation(x), (grad * plain).sum(0), grad.sum(0)


def _deviation(x: np.ndarray) -> np.ndarray:
    return np.sqrt(x.var(-1, keepdims=True) + EPSILON)


@dataclass(frozen=True)
class Mistake:
    """A mistake of ranks with an MLP's shards; the defaults are no mistake."""

    y_is_a_summand: bool = False
    bias_times_ranks: bool = False
    no_bias: bool = False
    no_up_bias: bool = False
    f_on_x: bool = False  # each rank's gradient of its own tokens is summed over the ranks
    y_divided: bool = False
    relu_last: bool = False
    gradient_is_a_summand: bool = False
    gradient_times_ranks: bool = False
    gradient_divided: bool = False
    bias_in_parts: bool = False  # each rank adds its part of the bias before the sum
    bias_times_ranks_backwards: bool = False
    shared_alone: tuple[str, ...] = ()  # names from SHARED whose gradients are not summed over the ranks
    shared_divided: bool = False
    residual: Literal["x", "none", "normed", "of all ranks"] = "x"
    norm_behind: bool = False  # every rank gathers x and norms all tokens


NONE = Mistake()
SHARED = ("scale", "shift", "down_bias")  # weights of a block that every rank holds whole


@dataclass
class ShardedRun:
    """Each rank's results from the sharded MLP: y[step][rank], grad_x[step][rank], weights[k][rank]."""

    y: list[ByRank] = field(default_factory=list)
    grad_x: list[ByRank] = field(default_factory=list)
    weights: list[ByRank] = field(default_factory=list)


def mlp_on_ranks(weights: MlpWeights, batches: Sequence[Batch], rate: float, n: int, mistake: Mistake = NONE) -> ShardedRun:
    """Train an MLP with tensor parallelism on n ranks; n = 1 is one device."""
    shards, run = weights.cut(n), ShardedRun()
    for x, target in batches:
        hidden = [_hidden(w, x, mistake) for w in shards]
        summands = [_active(h, mistake) @ w.down.T for h, w in zip(hidden, shards, strict=True)]

        ys, inward, stepped = [], [], []
        past_g = n if mistake.gradient_times_ranks else 1
        of_bias = _bias_share(mistake, n)
        for rank, w in enumerate(shards):
            y = _left(summands, rank, w.down_bias, mistake)
            of_x, of_w = _mlp_backward(w, x, hidden[rank], y - target, mistake, past_g)
            ys.append(y)
            inward.append(of_x)
            stepped.append(w.stepped((*of_w[:3], of_bias * of_w[3]), rate))

        shards = stepped
        run.y.append(ys)
        if mistake.gradient_is_a_summand:
            run.grad_x.append(inward)
        else:
            run.grad_x.append([sum(inward) / (n if mistake.gradient_divided else 1)] * n)

    run.weights = list(map(list, zip(*shards, strict=True)))
    return run


def _hidden(w: MlpWeights, x: np.ndarray, mistake: Mistake) -> np.ndarray:
    """Return a rank's hidden units of the MLP before the ReLU."""
    return x @ w.up.T + (0.0 if mistake.no_up_bias else 1.0) * w.up_bias


def _bias_share(mistake: Mistake, n: int) -> float:
    """Return the MLP's factor on down_bias's gradient."""
    if mistake.bias_in_parts:
        return 1 / n
    return float(n) if mistake.bias_times_ranks_backwards else 1.0


def _active(hidden: np.ndarray, mistake: Mistake) -> np.ndarray:
    if mistake.relu_last:
        return hidden
    return np.maximum(hidden, 0)


def _left(summands: Sequence[np.ndarray], rank: int, bias: np.ndarray, mistake: Mistake) -> np.ndarray:
    """Return a rank's output of the MLP: the sum of all ranks' summands and the bias, subject to the mistake."""
    n = len(summands)
    whole = sum(summands)
    if mistake.y_is_a_summand:
        whole = summands[rank]
    if mistake.y_divided:
        whole = whole / n
    if mistake.no_bias:
        return whole
    return whole + bias * (n if mistake.bias_times_ranks else 1)


def _mlp_backward(
    w: MlpWeights, x: np.ndarray, hidden: np.ndarray, grad: np.ndarray, mistake: Mistake, past_g: int = 1
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return this rank's summand of x's gradient, and its shard's gradients; g's backward multiplies by `past_g`."""
    of_summand = past_g * grad
    inward = of_summand @ w.down
    if not mistake.relu_last:
        inward = inward * (hidden > 0)
    of_up_bias = 0.0 * w.up_bias if mistake.no_up_bias else inward.sum(0)
    return inward @ w.up, (inward.T @ x, of_up_bias, of_summand.T @ _active(hidden, mistake), grad.sum(0))


def block_on_ranks(
    norm: Norm, weights: MlpWeights, batches: Sequence[Batch], rate: float, n: int, mistake: Mistake = NONE
) -> ShardedRun:
    """Train x + mlp(norm(x)) with sequence parallelism on n ranks, each with its own tokens; n = 1 is one device."""
    shards, norms, run = weights.cut(n), [norm] * n, ShardedRun()
    for x, target in batches:
        own, targets = cut(x, n), cut(target, n)
        wholes = [np.concatenate([rank_norm.normed(part)[1] for rank_norm, part in zip(norms, own, strict=True)])] * n
        if mistake.norm_behind:
            wholes = [rank_norm.normed(x)[1] for rank_norm in norms]

        hidden = [_hidden(w, whole, mistake) for w, whole in zip(shards, wholes, strict=True)]
        summands = [np.maximum(h, 0) @ w.down.T for h, w in zip(hidden, shards, strict=True)]

        past = {"x": 1, "none": 0, "normed": 0, "of all ranks": n}[mistake.residual]
        ys, straight = [], []
        for r, w in enumerate(shards):
            plain = norms[r].normed(own[r])[1] if mistake.residual == "normed" else past * own[r]
            ys.append(cut(_left(summands, r, w.down_bias, mistake), n)[r] + plain)
            straight.append(ys[r] - targets[r])

        grad = np.concatenate(straight)
        backward = [_mlp_backward(w, whole, h, grad, mistake) for w, whole, h in zip(shards, wholes, hidden, strict=True)]
        inward = [of_x for of_x, _ in backward]
        of_tokens, to_share = [], []
        for r in range(n):
            of_normed = cut(inward[r] if mistake.gradient_is_a_summand else sum(inward), n)[r]
            if mistake.gradient_divided:
                of_normed = of_normed / n
            if mistake.residual == "normed":
                of_normed = of_normed + straight[r]
            of_own, of_scale, of_shift = norms[r].backward(own[r], of_normed)
            if mistake.norm_behind:  # its hidden units' part of all tokens; the parts of x's gradient are scattered
                of_own = sum(cut(rank_norm.backward(x, part)[0], n)[r] for rank_norm, part in zip(norms, inward, strict=True))
                _, of_scale, of_shift = norms[r].backward(x, inward[r])
            of_tokens.append(of_own)
            to_share.append((of_scale, of_shift, straight[r].sum(0)))

        run.y.append(ys)
        if mistake.f_on_x:
            of_tokens = [sum(of_tokens)] * n
        run.grad_x.append([own_grad + past * straight[r] for r, own_grad in enumerate(of_tokens)])
        of_bias = _bias_share(mistake, n)
        for r, (of_scale, of_shift, of_down_bias) in enumerate(_shared(to_share, mistake)):
            norms[r] = Norm(norms[r].scale - rate * of_scale, norms[r].shift - rate * of_shift)
            shards[r] = shards[r].stepped((*backward[r][1][:3], of_bias * of_down_bias), rate)

    run.weights = [*map(list, zip(*norms, strict=True)), *map(list, zip(*shards, strict=True))]
    return run


def _shared(parts: list[tuple[np.ndarray, ...]], mistake: Mistake) -> list[tuple[np.ndarray, ...]]:
    """Combine the ranks' parts of the gradients of the MLP's weights in SHARED, subject to the mistake."""
    n, columns = len(parts), []
    for name, column in zip(SHARED, zip(*parts, strict=True), strict=True):
        if name in mistake.shared_alone:
            columns.append(column)
        else:
            columns.append([sum(column) / (n if mistake.shared_divided else 1)] * n)
    return list(zip(*columns, strict=True))
