"""Check of `attention_seconds`: the time of one layer's attention, round a ring and with its heads dealt out (all-to-all).

Results are compared with `formulas.attention` for drawn sizes; a slip is named by its value. Left out: from where on either way
wins, which the lab draws.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from typing_extensions import override

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import long_sequences
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, first_slip, number
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.formulas import attention
from worldsize.links import Link
from worldsize.units import count
from worldsize.units import number as in_words

RING = "the ring: blocks on their way under work, or work under blocks on their way"
HEADS = "heads dealt out, where the ranks divide them"
CLEAR, APART = 1e-4, 3e-6  # least relative difference of a slip from the right value, and from another slip

SIZES = (  # ranks, heads, a block's way over its work, and what is special
    (4, 8, (0.05, 0.5), "the work takes longer than a block's way"),
    (8, 16, (2.0, 9.0), "a block's way takes longer than the work"),
    (16, 16, (0.5, 2.0), "one head per rank"),
    (6, 16, (2.0, 9.0), "6 ranks do not divide 16 heads"),
    (64, 16, (1.5, 3.0), "more ranks than heads"),
    (1, 8, (0.3, 3.0), "nothing travels"),
)


@dataclass(frozen=True)
class Layer:
    """A layer's attention on `ranks` ranks.

    `work_s` is the time of all its work on one device, `bytes_per_s` the bandwidth of a rank's network card.
    """

    ranks: int
    tokens: int
    heads: int
    head_width: int
    item_bytes: int
    latency_s: float
    bytes_per_s: float
    work_s: float

    @property
    def width(self) -> int:
        return self.heads * self.head_width

    @override
    def __str__(self) -> str:
        return (
            f"{count(self.ranks, 'rank')}, {self.tokens:,} tokens, {self.heads} heads of {self.head_width} numbers of "
            f"{self.item_bytes} bytes, {self.bytes_per_s:.4g} bytes/s, latency {self.latency_s:.4g} s, work {self.work_s:.4g} s"
        )


@exercise({RING: 0.5, HEADS: 0.5})
def attention_seconds(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a formula: `attention_seconds(layer)` returns (seconds round the ring, seconds with heads dealt out).

    `layer` is a dict with the fields of `Layer`; the second is math.inf where the ranks do not divide the heads.
    """
    # not drawn case by case: then all that tell could have the same numbers
    items, head_widths = arena.draws.sample((2, 4), 2), arena.draws.sample((64, 96, 128), 3)
    for k, (ranks, heads, sent_over_work, what) in enumerate(SIZES):
        layer = _drawn(arena, ranks, heads, head_widths[k % 3], items[k % 2], sent_over_work)
        yield Case(
            f"{layer} ({what})",
            lambda layer=layer: arena.ranks(fn, [asdict(layer)], driver=long_sequences.by_hand),
            lambda ended, layer=layer: _examine(ended, layer),
        )


def _drawn(
    arena: Arena, ranks: int, heads: int, head_width: int, item_bytes: int, sent_over_work: tuple[float, float]
) -> Layer:
    """Draw a layer whose slips differ from the right values, as nearly all do. Raises AssertionError as `drawn_until`."""
    draws = arena.draws

    def draw() -> Layer:
        tokens = ranks * draws.randint(500, 5000)
        bytes_per_s = draws.uniform(5e9, 9e10)
        block_s = 2 * attention.block_bytes(tokens, heads * head_width, ranks, item_bytes) / bytes_per_s
        latency_s = block_s * draws.uniform(0.05, 0.4)
        work_s = (block_s + latency_s) * ranks**2 / draws.uniform(*sent_over_work)
        return Layer(ranks, tokens, heads, head_width, item_bytes, latency_s, bytes_per_s, work_s)

    return drawn_until(_tells, draw, f"attention_seconds for {ranks} ranks")


def _tells(layer: Layer) -> bool:
    if layer.ranks == 1:
        return True
    for right, slips in zip(_seconds(layer), (_ring_slips(layer), _heads_slips(layer)), strict=True):
        for value in slips.values():
            if math.isfinite(right) and _alike_by_chance(value, right, CLEAR):
                return False
        if any(_alike_by_chance(*pair, APART) for pair in combinations(slips.values(), 2)):
            return False
    return True


def _alike_by_chance(value: float, other: float, near: float) -> bool:
    """Return whether two values are near, but not exactly the same, as where work hides all messages."""
    exact = math.isclose(value, other, rel_tol=1e-12)
    return not exact and close(value, other, near, near_zero=0.0)


def _examine(ended: ArenaResult, layer: Layer) -> dict[str, Complaint]:
    got = ended.returned[0]
    if not isinstance(got, tuple) or len(got) != 2:
        came = "nothing" if got is None else f"{got!r}"[:80]
        wrong = f"expected two numbers, the seconds of the ring and of the heads, got {came}"
        return {RING: wrong, HEADS: UNEXAMINED}

    ring_s, heads_s = _seconds(layer)
    swapped = [number(value) for value in reversed(got)]
    if layer.ranks > 1 and swapped == [value for value in swapped if isinstance(value, float)]:
        if math.isfinite(heads_s) and all(map(_near, swapped, (ring_s, heads_s))):
            return {RING: "expected the seconds round the ring first, then those with heads dealt out", HEADS: UNEXAMINED}
    ring = _wrong(got[0], layer, "round the ring", ring_s, _ring_slips(layer))
    return {
        RING: changed(ended.inputs[0], asdict(layer), "layer") or ring,
        HEADS: _wrong(got[1], layer, "with heads dealt out", heads_s, _heads_slips(layer)),
    }


def _wrong(got: Any, layer: Layer, what: str, right: float, slips: dict[str, float]) -> Complaint:
    value = number(got)
    if isinstance(value, str):
        return f"expected the seconds {what} as a number, {value}"
    if value == right or (math.isfinite(right) and _near(value, right)):
        return None

    if math.isinf(right):
        got_s = in_words(value, "s")
        return f"expected math.inf {what}, got {got_s}: a head lies on one rank, and the ranks do not divide the heads."
    if layer.ranks == 1 and value > right:
        return f"expected {in_words(right, 's')} {what}, got {in_words(value, 's')}: one rank alone sends nothing."

    if _near(value, 1e3 * right):
        return f"expected {in_words(right, 's')} {what}, got {in_words(value, 's')}: return seconds, not milliseconds."
    slip = first_slip(lambda slipped: _near(value, slipped), slips)
    return f"expected {in_words(right, 's')} {what}, got {in_words(value, 's')}. {slip}".rstrip()


def _near(value: float, expected: float) -> bool:
    return close(value, expected, near_zero=0.0)


def _seconds(layer: Layer) -> tuple[float, float]:
    """Return attention's right seconds round the ring, and with heads dealt out."""
    link = Link(layer.bytes_per_s, layer.latency_s)
    given = (layer.tokens, layer.width, link, layer.work_s, layer.item_bytes)
    return attention.ring_seconds(layer.ranks, *given), attention.heads_seconds(layer.ranks, layer.heads, *given)


def _ring_slips(layer: Layer) -> dict[str, float]:
    n, alpha = layer.ranks, layer.latency_s
    rows_s = attention.block_bytes(layer.tokens, layer.width, n, layer.item_bytes) / layer.bytes_per_s
    block_s, sent_s = layer.work_s / n**2, alpha + 2 * rows_s
    head_s = attention.block_bytes(layer.tokens, layer.head_width, n, layer.item_bytes) / layer.bytes_per_s

    of_other_items = {
        words: (n - 1) * max(block_s, alpha + 2 * rows_s * item / layer.item_bytes) + block_s
        for words, item in _other_items(layer).items()
    }
    return {
        "Work and way were added: a block travels while the rank works on it.": (n - 1) * (block_s + sent_s) + block_s,
        "The last round sends nothing: n − 1 blocks travel.": n * max(block_s, sent_s),
        "The work of the last block hides nothing, and nothing hides it: add it.": (n - 1) * max(block_s, sent_s),
        "Keys and values both travel, and each number has item_bytes bytes.": (n - 1) * max(block_s, alpha + rows_s) + block_s,
        "Queries stay where they are.": (n - 1) * max(block_s, alpha + 3 * rows_s) + block_s,
        "Each round costs a latency too.": (n - 1) * max(block_s, 2 * rows_s) + block_s,
        "Keys and values leave together: their latencies overlap.": (n - 1) * max(block_s, 2 * alpha + 2 * rows_s) + block_s,
        "A round's work is that on one block: 1/n of the queries with 1/n of the keys.": (
            (n - 1) * max(n * block_s, sent_s) + n * block_s
        ),
        "Only the work was counted: where a block's way takes longer, the rank waits for it.": n * block_s,
        "A block holds all heads.": (n - 1) * max(block_s, alpha + 2 * head_s) + block_s,
        _ROW: (n - 1) * max(block_s, alpha + 2 * rows_s / layer.head_width) + block_s,
        _NO_MASK: (n - 1) * max(block_s / 2, sent_s) + block_s / 2,
        "Only the way was counted.": (n - 1) * sent_s + block_s,
        "A block has 1/n of the tokens.": (n - 1) * max(block_s, alpha + 2 * n * rows_s) + block_s,
        "A latency is part of a block's way, so work hides it too.": (n - 1) * (alpha + max(block_s, 2 * rows_s)) + block_s,
        "Each block that travels has a latency of its own, which work hides too.": (
            alpha + (n - 1) * max(block_s, 2 * rows_s) + block_s
        ),
        **of_other_items,
    }


_ROW = "Each head has head_width numbers in a row."
_NO_MASK = "There is no mask: every query works on all keys."


def _other_items(layer: Layer) -> dict[str, int]:
    """Return {words: the bytes of a number in another dtype than the layer's}."""
    items = [item for item in (1, 2, 4, 8) if item != layer.item_bytes]
    return {f"Each number has item_bytes bytes, {layer.item_bytes} here, not {item}.": item for item in items}


def _heads_slips(layer: Layer) -> dict[str, float]:
    n, alpha = layer.ranks, layer.latency_s
    rows_s = attention.block_bytes(layer.tokens, layer.width, n, layer.item_bytes) / layer.bytes_per_s
    work_s, share = layer.work_s / n, (n - 1) / n
    head_s = attention.block_bytes(layer.tokens, layer.head_width, n, layer.item_bytes) / layer.bytes_per_s

    of_other_items = {
        words: 2 * alpha + 4 * share * rows_s * item / layer.item_bytes + work_s for words, item in _other_items(layer).items()
    }
    return {
        "The rows come back too: queries, keys and values there, and their result.": alpha + 3 * share * rows_s + work_s,
        "Queries travel too: a rank needs all tokens' queries of its heads.": 2 * alpha + 3 * share * rows_s + work_s,
        "A rank keeps its own part: (n − 1)/n of the rows travel.": 2 * alpha + 4 * rows_s + work_s,
        "Each of the two exchanges costs a latency.": 4 * share * rows_s + work_s,
        "Queries, keys and values leave together: two exchanges, two latencies.": 4 * alpha + 4 * share * rows_s + work_s,
        "A message goes to every other rank, and their latencies overlap.": 2 * (n - 1) * alpha + 4 * share * rows_s + work_s,
        "Each other rank gets 1/n of the rows.": 2 * alpha + 4 * (n - 1) * rows_s + work_s,
        "Each rank has 1/n of the work.": 2 * alpha + 4 * share * rows_s + layer.work_s,
        "It cannot work on its heads before all tokens are there: nothing hides.": max(2 * alpha + 4 * share * rows_s, work_s),
        "There are two exchanges, one there and one home: each costs a latency.": alpha + 4 * share * rows_s + work_s,
        "A row has the numbers of all heads: heads times head_width.": 2 * alpha + 4 * share * head_s + work_s,
        _ROW: 2 * alpha + 4 * share * rows_s / layer.head_width + work_s,
        _NO_MASK: 2 * alpha + 4 * share * rows_s + work_s / 2,
        "Four tensors travel, the result home too, and each number has item_bytes bytes.": (
            2 * alpha + 2 * share * rows_s + work_s
        ),
        "A rank sends n − 1 parts: only their latencies overlap, their bytes add up on its card.": (
            2 * alpha + 4 / n * rows_s + work_s
        ),
        "A rank has all pairs of its heads: 1/n of the work.": 2 * alpha + 4 * share * rows_s + work_s / n,
        **of_other_items,
    }
