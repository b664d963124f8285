"""Check of `ring_backward`: the gradients of ring attention, where a block's gradient travels with its keys and values.

AttentionGradients must match one device's, from the rows and the logarithms of sums that a forward pass keeps. T. Dao et al.,
"FlashAttention", arXiv:2205.14135, 2022, appendix B.2; H. Liu et al., "Ring Attention with Blockwise Transformers for
Near-Infinite Context", arXiv:2310.01889, 2023. Left out: what travels under work.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import Expected, as_number
from worldsize.checks.kit.judge import Case, first_complaint, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import other_than_tuple
from worldsize.checks.long_sequences.blockwise import WRONG_MASKS, Sequence1D, off_the_ring
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.trace import Trace
from worldsize.units import times

VALUES = "the gradients of each rank's queries, keys and values are those of one device"
BYTES = "keys and values make n − 1 hops, their gradients at most n"
NEAR = {"float64": 1e-10, "float32": 5e-5}


class BackwardCase(NamedTuple):
    ranks: int
    length: int
    width: int
    causal: bool = False
    layout: str = "in a row"
    dtype: str = "float64"


SIZES = (
    BackwardCase(3, 9, 4), BackwardCase(2, 6, 3, True), BackwardCase(4, 11, 3, True), BackwardCase(1, 4, 3, True),
    BackwardCase(4, 12, 5, True, "dealt out"), BackwardCase(5, 13, 2, True, "dealt out"),
    BackwardCase(3, 7, 4, True, dtype="float32"),
)  # fmt: skip


class AttentionGradients(NamedTuple):
    """AttentionGradients of a rank's queries, keys and values, or a rank's part of them from one block."""

    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray


Parts = list[list[AttentionGradients]]  # [rank whose queries they are][rank whose block they are]
Subtracted = Callable[[np.ndarray, np.ndarray], np.ndarray]
Inner = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # of grad, rows and queries


@dataclass(frozen=True)
class BackwardPass:
    """A sequence whose attention has been computed, and the gradient of all its rows, [length, width]."""

    sequence: Sequence1D
    grad: np.ndarray

    def _scores(self, keys_numbers: Sequence[int], own: Sequence[int], k: np.ndarray) -> np.ndarray:
        scores = self.sequence.q[list(own)].astype(float) @ k.T.astype(float) / k.shape[1] ** 0.5
        if self.sequence.causal:
            scores = np.where(np.asarray(keys_numbers)[None, :] > np.asarray(own)[:, None], -np.inf, scores)
        return scores

    @cached_property
    def log_sum(self) -> np.ndarray:
        """The logarithm of each query's sum of exp(score), [length, 1]."""
        numbers = range(len(self.grad))
        scores = self._scores(numbers, numbers, self.sequence.k)
        greatest = scores.max(axis=1, keepdims=True)
        return greatest + np.log(np.exp(scores - greatest).sum(axis=1, keepdims=True))

    @cached_property
    def rows(self) -> np.ndarray:
        numbers = range(len(self.grad))
        return np.exp(self._scores(numbers, numbers, self.sequence.k) - self.log_sum) @ self.sequence.v.astype(float)

    def inputs(self) -> list[dict[str, Any]]:
        """Return what each rank is handed: its own rows of everything, and the numbers of all ranks' tokens."""
        given = []
        for own, task in zip(self.sequence.tokens, self.sequence.inputs(), strict=True):
            del task["work_s"]
            kept = {"rows": self.rows, "log_sum": self.log_sum, "grad": self.grad}
            given.append(task | {name: x[list(own)].astype(self.grad.dtype) for name, x in kept.items()})
        return given

    def parts(
        self, subtracted: Subtracted = lambda d, _: d, root: Callable[[np.ndarray], float] = lambda q: q.shape[1] ** 0.5,
        by_block: bool = False, masked_as: Callable[[int, int], int] = lambda rank, source: source,
        inner: Inner = lambda grad, rows, _: grad * rows, bracketed: bool = True, dv_from_ds: bool = False,
    ) -> Parts:  # fmt: skip
        """Return each rank's part of each block's gradients.

        `subtracted(d, weighted)` returns what dS subtracts; `weighted` is the block's weights times their gradients. The block of
        rank `source` is masked as if `masked_as(rank, source)`, modulo n, owned it. `by_block`: each block has a softmax of its
        own. D is the sum of the rows of `inner`. Unless `bracketed`, D is subtracted after the product with P. `root(q)` divides.
        """
        tokens = self.sequence.tokens
        found: Parts = []
        for rank, own in enumerate(tokens):
            q, grad = self.sequence.of(self.sequence.q, rank).astype(float), self.sequence.of(self.grad, rank).astype(float)
            d = inner(grad, self.rows[list(own)], q).sum(axis=1, keepdims=True)
            found.append([])
            for source in range(len(tokens)):
                k, v = (self.sequence.of(x, source).astype(float) for x in (self.sequence.k, self.sequence.v))
                numbers = np.resize(tokens[masked_as(rank, source) % len(tokens)], len(k))  # another block may be longer
                scores = self._scores(numbers, own, k)
                p = np.exp(scores - self.log_sum[list(own)])
                if by_block:
                    seen = np.exp(scores - np.maximum(scores.max(axis=1, keepdims=True), np.finfo(float).min))
                    p = seen / np.maximum(seen.sum(axis=1, keepdims=True), 1)  # 0 where a query sees no key
                of_weights = grad @ v.T
                less = subtracted(d, p * of_weights)
                ds = (p * (of_weights - less) if bracketed else p * of_weights - less) / root(q)
                found[-1].append(AttentionGradients(ds @ k, ds.T @ q, (ds if dv_from_ds else p).T @ grad))
        return found


def summed(parts: Parts) -> list[AttentionGradients]:
    """Return each rank's gradients: of its queries over all blocks, of its block over all ranks."""
    n = len(parts)
    found = []
    for rank in range(n):
        of_block = [parts[other][rank] for other in range(n)]
        dq = np.sum([part.dq for part in parts[rank]], axis=0)
        dk, dv = (np.sum([part[place] for part in of_block], axis=0) for place in (1, 2))
        found.append(AttentionGradients(dq, dk, dv))
    return found


def slips(given: BackwardPass) -> dict[str, list[AttentionGradients]]:
    """Return {words for a slip: the gradients that it gives, by rank}."""
    parts = given.parts()
    n, right, root = len(parts), summed(parts), given.grad.shape[1] ** 0.5
    own = [parts[rank][rank] for rank in range(n)]
    of_others = [AttentionGradients(*map(np.subtract, *pair)) for pair in zip(right, own, strict=True)]
    # a block goes from its owner to the next rank, and so on; the rank before the owner has it last
    last = [parts[rank - 1][rank] for rank in range(n)]

    found = {
        "D was not subtracted: dS = P · (dO Vᵀ − D), with D the sums of a row of dO · O.": summed(given.parts(_nothing)),
        "D was added, not subtracted.": summed(given.parts(lambda d, _: -d)),
        "D is one number for each query, the sum of its row of dO · O, not one for all: sum(dim=1, keepdim=True).":
            summed(given.parts(lambda d, _: d.sum())),
        "D came from each block's own weights: it is the sum of a row of dO · O, the same for all blocks.":
            summed(given.parts(_of_block)),
        "Each block had a softmax of its own: a block's weights are P = e^(S − ℓ), which `weights_again` returns.":
            summed(given.parts(_of_block, by_block=True)),
        "A block's weights are those of the softmax over all keys, P = e^(S − ℓ), which `weights_again` returns.":
            summed(given.parts(by_block=True)),
        "dk was divided by √width twice: once is enough, in dS or in the product.":
            [AttentionGradients(one.dq, one.dk / root, one.dv) for one in right],
        "dq was divided by √width twice: once is enough, in dS or in the product.":
            [AttentionGradients(one.dq / root, one.dk, one.dv) for one in right],
        "Scores are divided by √width, and so are their gradients.": summed(given.parts(root=lambda _: 1.0)),
        "Scores were divided by √width, the root of a row's length; this is divided by the root of the number of rows.":
            summed(given.parts(root=lambda q: len(q) ** 0.5)),
        "D belongs into the bracket: dS = P · (dO Vᵀ − D), not P · dO Vᵀ − D.": summed(given.parts(bracketed=False)),
        "D is the sum of a row of dO · O: the rows, not the queries.": summed(given.parts(inner=lambda grad, _, q: grad * q)),
        "dv has the gradient of the scores in it: it is Pᵀ dO, from the weights themselves.":
            summed(given.parts(dv_from_ds=True)),
        "These are the parts of its own block alone: every rank's block must come past.": own,
        "Its gradients are those of the next rank's block: in each of n rounds add this rank's part, and then pass the sum on.":
            _with_block(right, [right[(rank + 1) % n] for rank in range(n)]),
        "Its gradient has the part of the last rank alone: add to what came, and send the sum on.": _with_block(right, last),
        "The part of the rank's own queries is missing in its block's gradient.": _with_block(right, of_others),
        "dk and dv change places.": [AttentionGradients(one.dq, one.dv, one.dk) for one in right],
    }  # fmt: skip
    if len(set(map(len, given.sequence.tokens))) == 1:
        kept = [AttentionGradients(*(np.sum(each, axis=0) for each in zip(*row, strict=True))) for row in parts]
        found["A gradient belongs to a block and travels with it: this is the sum over all blocks."] = _with_block(right, kept)
    if given.sequence.causal and n > 1:
        for words, masked_as in WRONG_MASKS.items():
            found[words] = summed(given.parts(masked_as=masked_as))
    return found


def _nothing(d: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.zeros_like(d)


def _of_block(_: np.ndarray, weighted: np.ndarray) -> np.ndarray:
    return weighted.sum(axis=1, keepdims=True)


def _with_block(right: Sequence[AttentionGradients], block: Sequence[AttentionGradients]) -> list[AttentionGradients]:
    """Return gradients: of queries from `right`, of keys and values from `block`."""
    return [AttentionGradients(one.dq, other.dk, other.dv) for one, other in zip(right, block, strict=True)]


@exercise({VALUES: 0.0, BYTES: 0.0}, seen={BYTES: evidence.MESSAGES}, waits=BYTES)
def ring_backward(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check the gradients of attention over a sequence that is sharded over the ranks.

    `ring_backward(fabric, task)` returns (dq, dk, dv) of this rank's own rows. task["rows"], ["log_sum"] and ["grad"] are its
    rows of the attention, the logarithms of its sums of exp(score), and the gradient of its rows.
    """
    for size in SIZES:
        given = _drawn(size, np.random.default_rng(arena.draws.getrandbits(32)))
        seen = "causal" if size.causal else "not causal"
        yield Case(
            f"{ranks_in_words(size.ranks)}, {size.length} tokens {size.layout}, width {size.width}, {seen}, {size.dtype}",
            lambda given=given: arena.ranks(fn, given.inputs()),
            lambda ended, given=given: _examine(ended, given),
            _ADVICE if size.dtype == "float32" else _DTYPE | _ADVICE,
        )


_DTYPE = {"expected float32[": "Give the tensors that you receive into the dtype of the block: x.new_empty(…), or dtype=x.dtype."}
_ADVICE = {
    "masked_fill": (
        "weights_again masks by the tokens of rank `source`, and this block has another number of keys: name the rank that owns "
        "the block at hand."
    ),
    "which is what `out` is": (
        "Blocks differ in length where the ranks do not divide the tokens, and a block's gradient is as long as the block: "
        'len(task["tokens"][its owner]) rows.'
    ),
}


def _drawn(size: BackwardCase, generator: np.random.Generator) -> BackwardPass:
    q, k, v, grad = generator.normal(size=(4, size.length, size.width)).astype(size.dtype)
    numbers = np.arange(size.length)
    tokens = np.array_split(numbers, size.ranks)
    if size.layout == "dealt out":
        tokens = [numbers[rank :: size.ranks] for rank in range(size.ranks)]
    return BackwardPass(Sequence1D(q, k, v, tuple(tuple(own.tolist()) for own in tokens), size.causal), grad)


def _examine(ended: ArenaResult, given: BackwardPass) -> dict[str, Complaint]:
    wrong = _wrong_gradients(ended.returned, given) or _changed(ended.inputs, given)
    if wrong:
        return {VALUES: wrong, BYTES: UNEXAMINED}
    sent = none_sent(ended.trace, "Receive other ranks' keys over the fabric.") or _wrong_blocks(ended.trace, given.sequence)
    return {VALUES: None, BYTES: though_right("the gradients", sent)}


def _wrong_gradients(returned: Sequence[Any], given: BackwardPass) -> Complaint:
    for rank, got in enumerate(returned):
        came = other_than_tuple(got, 3)
        if came:
            return f"rank {rank}: expected three tensors, dq, dk and dv, got {came}"

    dtype = str(given.grad.dtype)
    right, mistakes = summed(given.parts()), partial(slips, given)
    for place, name in enumerate(AttentionGradients._fields):
        by_rank = [one[place].astype(dtype) for one in right]
        of_tensor = partial(_of_tensor, mistakes, place)
        expected = Expected(name, by_rank, of_tensor, rounding=NEAR[dtype], otherwise=_as_gradient)
        wrong = expected.wrong([got[place] for got in returned])
        if wrong:
            return wrong
    return None


def _as_gradient(rank: int, got: Any, right: np.ndarray) -> str:
    """Return what can be said of a wrong gradient that no slip explains."""
    if isinstance(got, np.ndarray) and got.dtype.itemsize < right.dtype.itemsize:
        return "Give it the dtype of the task's rows: torch.zeros_like(x), or dtype=x.dtype."
    return as_number(rank, got, right)


def _of_tensor(mistakes: Callable[[], Mapping[str, list[AttentionGradients]]], place: int) -> dict[str, list[np.ndarray]]:
    return {words: [one[place] for one in by_rank] for words, by_rank in mistakes().items()}


def _changed(after: Sequence[Any], given: BackwardPass) -> Complaint:
    complaints = []
    for rank, (task, handed) in enumerate(zip(after, given.inputs(), strict=True)):
        complaints += [changed(task.get(key), value, f'task["{key}"]', rank) for key, value in handed.items()]
    return first_complaint(complaints)


def _wrong_blocks(trace: Trace, sequence: Sequence1D) -> Complaint:
    """Return a complaint about messages off the ring, or about a rank's bytes."""
    strays = off_the_ring(trace)
    if strays:
        return strays

    n = sequence.world_size
    blocks = [sequence.block_bytes(source) for source in range(n)]  # keys and values; their gradients are as large
    for rank in range(n if n > 1 else 0):
        got = trace.sent_bytes(rank)
        # the ring may turn either way; a rank may keep its own part of its block's gradient at home
        keys = [sum(blocks) - blocks[(rank + step) % n] for step in (1, -1)]
        if got in {way + gradients for way in keys for gradients in (sum(blocks), sum(blocks) - blocks[rank])}:
            continue

        most = max(keys) + sum(blocks)
        complaint = f"rank {rank} sent {got} bytes, {times(got / most)} x the {most} of n − 1 blocks and n gradients. "
        if got == 2 * sum(blocks):
            return complaint + "Keys and values make n − 1 hops: their gradients alone go home."
        if got > most:
            return complaint + "Send each tensor over a link once; queries, rows and their gradients stay."
        return complaint + "Do keys, values and the gradients of both travel, in the dtype of the task?"
    return None
