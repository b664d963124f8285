"""Check of `vocabulary_loss`: a cross-entropy over a vocabulary that is sharded by words, and its gradient.

Each rank has only its own words' logits; loss and gradient must match one device's. Some logits lie where exp overflows or
vanishes, and some differ widely between ranks. The bytes sent must not grow with the vocabulary. M. Shoeybi et al.,
"Megatron-LM", arXiv:1909.08053, 2019, section 3: fusing the output with the loss.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit import evidence
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import SINGLE, SINGLE_WORDS, Expected, went_through_float32
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, first_slip, lone_number, other_than_tuple
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import times

LOSS = "the loss is that of one device, on every rank"
GRADIENT = "the gradient of its own logits is that of one device"
BYTES = "a few numbers a token travel, however many words there are"
NEAR = {"float64": 1e-10, "float32": 2e-5}
MOST_NUMBERS = 4  # per token, from each rank to each other


class WordsCase(NamedTuple):
    words: tuple[int, ...]  # on each rank
    tokens: int
    about: float = 0.0  # mean of the logits
    apart: float = 0.0  # difference between neighboring ranks' means
    rising: float = 0.0  # difference between successive tokens' means
    dtype: str = "float64"


# the large means and rises make exp overflow or vanish in float64; three cases leave ranks without words, one of them where a
# highest logit of 0 would hide all others; one has more words than int16 can count
SIZES = (
    WordsCase((31, 30), 5), WordsCase((31, 30, 30), 7, about=900.0), WordsCase((40, 25, 60, 33), 6, rising=400.0),
    WordsCase((37,), 4, about=-900.0), WordsCase((31, 31, 30, 30, 30), 9, about=-2000.0, apart=800.0),
    WordsCase((34, 33), 8, dtype="float32"), WordsCase((1, 1, 1, 0, 0), 6), WordsCase((33, 90, 28), 6, apart=10.0),
    WordsCase((20, 0, 25), 5, about=-2000.0), WordsCase((0, 24, 21), 1), WordsCase((20_000, 20_300), 4),
)  # fmt: skip


@dataclass(frozen=True)
class VocabularyCase:
    """Logits [tokens, words], of which rank r has the columns that begin at first[r]; targets [tokens] are words."""

    logits: np.ndarray
    targets: np.ndarray
    words: tuple[int, ...]
    apart: bool = False  # in a softmax the words of some ranks vanish

    @property
    def world_size(self) -> int:
        return len(self.words)

    @property
    def first(self) -> list[int]:
        return [0, *np.cumsum(self.words)[:-1].tolist()]

    def own(self, whole: np.ndarray, rank: int) -> np.ndarray:
        return whole[:, self.first[rank] : self.first[rank] + self.words[rank]]

    def inputs(self) -> list[dict[str, Any]]:
        given = []
        for rank, first in enumerate(self.first):
            given.append({"logits": self.own(self.logits, rank).copy(), "targets": self.targets, "first": first})
        return given


@exercise({LOSS: 0.5, GRADIENT: 0.25, BYTES: 0.25}, seen={BYTES: evidence.MESSAGES})
def vocabulary_loss(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a cross-entropy over a vocabulary that is sharded by words.

    `vocabulary_loss(fabric, logits, targets, first)` returns (loss, gradient): the mean over all tokens, and its gradient with
    respect to `logits`, [tokens, own words], whose first column is word `first`. `targets` [tokens] index the whole vocabulary.
    """
    cases = []
    for size in SIZES:
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        tells = _slips_differ if size is SIZES[0] else lambda task: True
        task = drawn_until(tells, partial(_drawn, size, generator), f"words on {len(size.words)} ranks")
        far = f", logits about {size.about:g}" * bool(size.about) + ", far apart between ranks" * bool(size.apart)
        far += f", each token's about {size.rising:g} above the one before" * bool(size.rising)
        name = f"{ranks_in_words(task.world_size)} with {', '.join(map(str, size.words))} words, {size.tokens} tokens{far}"
        run = partial(arena.ranks, fn, task.inputs(), driver=on_ranks.with_named)
        cases.append(Case(name, run, partial(_examine, task=task), _ADVICE))
    return cases


_NO_WORDS = "A rank may have no word: then its highest logit is -inf, and its sum is 0."
_ADVICE = {
    "Expected reduction dim": _NO_WORDS,
    "max(): Expected": _NO_WORDS,
    "source and destination dtypes match": "A new tensor is float32 unless you say otherwise: make it with logits.new_zeros(…).",
    "out of bounds": "`targets` are words of the whole vocabulary; this rank has the words from `first` on, maybe not this one.",
}


def _drawn(size: WordsCase, generator: np.random.Generator) -> VocabularyCase:
    whole = sum(size.words)
    logits = size.about + 2 * generator.normal(size=(size.tokens, whole)) + size.rising * np.arange(size.tokens)[:, None]
    ends = np.cumsum(size.words)
    for rank, own in enumerate(np.split(logits, ends[:-1], axis=1)):
        own += size.apart * rank

    # targets at the borders between the ranks' words show errors of one in `first`; word 0 shows a `first` left out
    borders = {0, *(ends - 1), *ends} - {-1, whole}
    targets = generator.permutation([*sorted(borders), *generator.integers(0, whole, size.tokens)][: size.tokens])
    return VocabularyCase(logits.astype(size.dtype), targets.astype("int64"), size.words, bool(size.apart))


def _slips_differ(task: VocabularyCase) -> bool:
    """Return whether each slip gives rank 0 a loss of its own."""
    given = sorted(float(losses(task, slip)[0]) for slip in (WordsSlip(), *_LOSS_SLIPS))
    return all(after - before > 1e-6 for before, after in pairwise(given))


def _examine(ended: ArenaResult, task: VocabularyCase) -> dict[str, Complaint]:
    wrong = _wrong_loss(ended, task)
    if wrong:
        return {LOSS: wrong, GRADIENT: UNEXAMINED, BYTES: UNEXAMINED}

    slope = _wrong_gradient(ended.returned, task)
    sent = none_sent(ended.trace, "Exchange a maximum, a sum and the right word's logit over all ranks.")
    dear = UNEXAMINED if slope else though_right("the loss and its gradient", sent or _dear(ended, task))
    return {LOSS: None, GRADIENT: slope, BYTES: dear}


@dataclass(frozen=True)
class WordsSlip:
    """A known mistake in loss or gradient; the defaults are no mistake."""

    # "own": each rank subtracts its own, and adds the sums unscaled; "unscaled": likewise, and then adds the highest of all;
    # "none": no maximum is subtracted; "not added": the sum's log alone
    maximum: str = "of all"
    sums: str = "of all"  # or "own"
    # "own": not exchanged; "below"/"short"/"above": a border word missed or doubled; "unshifted": no `first`; "even": `first`
    # worked out; "largest": no sum; "clamped": ranks without the word tell their nearest word's
    right: str = "of all"
    # or "sum"; "of own": each rank averages its own target words, then the ranks average; "of ranks": divided by their number;
    # "own part"/"own": the sum over its own target words, divided by all tokens or by these, and not exchanged
    mean: str = "of tokens"
    hot: str = "own"  # "none": nothing is subtracted; "clamped": 1 in every row, at the nearest own word
    divided: str = "tokens"  # what the gradient is divided by: "tokens", "nothing", "tokens and ranks", "own" target words


def losses(task: VocabularyCase, slip: WordsSlip = WordsSlip()) -> list[np.ndarray]:  # noqa: B008, it is frozen
    """Return each rank's mean loss over the vocabulary, in float64. Megatron-LM, section 3."""
    log_sums, right = _log_sums(task, slip), _right(task, slip)
    made = [log_sum - logit for log_sum, logit in zip(log_sums, right, strict=True)]
    if slip.mean == "sum":
        return [by_token.sum() for by_token in made]
    if slip.mean == "of own":
        means = []
        for rank, by_token in enumerate(made):
            mine = _mine(task, rank)
            means.append(by_token[mine].mean() if mine.any() else 0.0)
        return [np.mean(means)] * task.world_size
    if slip.mean in ("own part", "own"):
        mine = [_mine(task, rank) for rank in range(task.world_size)]
        divisors = [len(own) if slip.mean == "own part" else max(1, own.sum()) for own in mine]
        return [by_token[own].sum() / by for by_token, own, by in zip(made, mine, divisors, strict=True)]
    if slip.mean == "of ranks":
        return [by_token.mean() / task.world_size for by_token in made]
    return [by_token.mean() for by_token in made]


def _mine(task: VocabularyCase, rank: int) -> np.ndarray:
    return (task.targets >= task.first[rank]) & (task.targets < task.first[rank] + task.words[rank])


def _log_sums(task: VocabularyCase, slip: WordsSlip) -> list[np.ndarray]:
    whole = task.logits.astype("float64")
    parts = [task.own(whole, rank) for rank in range(task.world_size)]
    tops = [part.max(axis=1, initial=-np.inf) for part in parts]
    top = np.max(tops, axis=0) if slip.maximum != "none" else np.zeros(len(whole))

    with np.errstate(all="ignore"):
        if slip.maximum in ("own", "unscaled"):
            sums = [np.exp(part - own[:, None]).sum(axis=1) for part, own in zip(parts, tops, strict=True)]
            return [(own if slip.maximum == "own" else top) + np.log(np.sum(sums, axis=0)) for own in tops]

        sums = [np.exp(part - top[:, None]).sum(axis=1) for part in parts]
        of_all = np.sum(sums, axis=0)
        shift = 0.0 if slip.maximum == "not added" else top
        return [shift + np.log(own if slip.sums == "own" else of_all) for own in sums]


def _right(task: VocabularyCase, slip: WordsSlip) -> list[np.ndarray]:
    """Return the logits of the target words in the vocabulary, [tokens], as each rank would have them."""
    logits = []
    for rank in range(task.world_size):
        part, local = task.own(task.logits.astype("float64"), rank), task.targets - task.first[rank]
        if slip.right == "unshifted":
            local = task.targets
        if slip.right == "even":
            local = task.targets - rank * task.words[rank]
        lowest, end = int(slip.right == "below"), task.words[rank] + (slip.right == "above") - (slip.right == "short")
        mine = ((local >= lowest) & (local < end) | (slip.right == "clamped")) & (task.words[rank] > 0)
        column = np.clip(local, 0, max(task.words[rank] - 1, 0))
        logits.append(np.array([part[row, column[row]] if mine[row] else 0.0 for row in range(len(part))]))
    if slip.right == "own":
        return logits
    if slip.right == "largest":
        return [np.max(logits, axis=0)] * task.world_size
    return [np.sum(logits, axis=0)] * task.world_size


_LOSS_SLIPS = {
    WordsSlip(maximum="own"): (
        "Each rank subtracted its own words' highest logit, and the sums were added as they are: first bring them to one "
        "scale, the highest logit of all ranks."
    ),
    WordsSlip(maximum="unscaled"): (
        "Each rank subtracted its own words' highest logit, and the sums were added unscaled: multiply a rank's sum by e to the "
        "power of its highest logit minus that of all ranks."
    ),
    WordsSlip(maximum="not added"): (
        "A token's highest logit was subtracted before exp, and not added again: log Σ e^z is the highest logit plus the log of "
        "the sum that you have."
    ),
    WordsSlip(right="clamped"): (
        "Ranks that do not have the right word told the logit of their nearest word, and all were added up: such a rank tells 0."
    ),
    WordsSlip(sums="own"): "The sum has this rank's own words alone: add up the exponentials of all ranks' words.",
    WordsSlip(sums="own", right="own"): "Nothing was exchanged: this is the loss of a vocabulary of this rank's words.",
    WordsSlip(right="own"): (
        "The right word's logit is missing where another rank has that word: send it to all ranks."
    ),
    WordsSlip(right="largest"): (
        "Of what the ranks told of the right word's logit, the largest was taken. A rank without the word told 0, and a "
        "logit may be below 0: add them up."
    ),
    WordsSlip(right="above"): (
        "A right word on the border of two parts was counted on both: a rank has the words from first up to, but not "
        "including, first + its number of words."
    ),
    WordsSlip(right="below"): "The right word's logit is missing where it is the first of a rank's words.",
    WordsSlip(right="short"): "The right word's logit is missing where it is the last of a rank's words.",
    WordsSlip(right="even"): (
        "A rank's own words were taken to begin at rank times their number. Ranks have different numbers of words: take `first`."
    ),
    WordsSlip(right="unshifted"): (
        "`targets` are words of the whole vocabulary: column 0 of `logits` is the word `first`, so look at targets - first."
    ),
    WordsSlip(mean="sum"): "This is the sum over the tokens: divide by the number of tokens.",
    WordsSlip(mean="of ranks"): (
        "It was divided by the number of ranks, too: every token is in it once, so divide by the tokens alone."
    ),
    WordsSlip(mean="own part"): (
        "Only the tokens whose right word this rank has are in it: every rank needs the mean over all tokens."
    ),
    WordsSlip(mean="own"): "This is the mean over the tokens whose right word this rank has, not over all tokens.",
    WordsSlip(mean="of own"): (
        "This is a mean of the ranks' means, each over the tokens whose right word that rank has: the ranks' counts differ."
    ),
}
_OVERFLOW = (
    "An exponential overflows past e^709 in float64, and vanishes below e^-745: subtract each token's highest logit before exp, "
    "the highest of all ranks (`all_reduce` would add the ranks' highest up)."
)
_VANISHED = (
    "Where a softmax is below e^-745 it is 0, and its log is -inf: subtract each token's highest logit of all ranks before exp, "
    "and take log Σ − z of the right word, not the log of a softmax."
)


def _wrong_loss(ended: ArenaResult, task: VocabularyCase) -> Complaint:
    for rank, got in enumerate(ended.returned):
        came = other_than_tuple(got, 2)
        if came:
            return f"rank {rank}: expected two things, the loss and the gradient of its logits, got {came}"

    for rank, given in enumerate(task.inputs()):
        for name in ("logits", "targets"):
            complaint = changed(ended.inputs[rank][name], given[name], f"`{name}`", rank)
            if complaint:
                return complaint

    near = NEAR[str(task.logits.dtype)]
    expected = float(losses(task)[0])
    named = {words: losses(task, slip) for slip, words in _LOSS_SLIPS.items()}
    for rank, (got, _) in enumerate(ended.returned):
        loss = lone_number(got)
        if isinstance(loss, str):
            return f"rank {rank}: expected the loss as one number, {loss}"
        if close(loss, expected, near):
            continue

        mismatch = f"rank {rank}: expected a loss of {expected:.9g}, got {loss:.9g}. "
        if not np.isfinite(loss):
            why = _VANISHED if task.apart and loss > 0 else _OVERFLOW
            return f"{mismatch}{_NO_WORDS} {why}" if 0 in task.words else mismatch + why
        slip = first_slip(lambda given, loss=loss, rank=rank: close(loss, float(given[rank]), near), named)
        if not slip and close(loss, expected, SINGLE):
            slip = SINGLE_WORDS
        return (mismatch + slip).rstrip()

    return None


def gradients(task: VocabularyCase, slip: WordsSlip = WordsSlip()) -> list[np.ndarray]:  # noqa: B008, it is frozen
    """Return each rank's gradient of the vocabulary loss with respect to its own logits: (softmax − one-hot) / tokens."""
    slopes = []
    for rank, log_sum in enumerate(_log_sums(task, slip)):
        part, local, own = task.own(task.logits.astype("float64"), rank), task.targets - task.first[rank], _mine(task, rank)
        with np.errstate(all="ignore"):
            slope = np.exp(part - log_sum[:, None])
        if slip.hot == "clamped" and task.words[rank]:
            slope[np.arange(len(part)), np.clip(local, 0, task.words[rank] - 1)] -= 1
        elif slip.hot == "own":
            slope[np.flatnonzero(own), local[own]] -= 1
        by = {"tokens": len(part), "nothing": 1, "tokens and ranks": len(part) * task.world_size, "own": max(1, own.sum())}
        slopes.append(slope / by[slip.divided])
    return slopes


_GRADIENT_SLIPS = {
    WordsSlip(divided="nothing"): "This is the gradient of the sum of the tokens' losses: divide by the number of tokens.",
    WordsSlip(hot="none"): "This is the softmax alone: subtract 1 where a token's right word is this rank's.",
    WordsSlip(divided="tokens and ranks"): "It was divided by the number of ranks, too: divide by the tokens alone.",
    WordsSlip(divided="own"): "It was divided by the tokens whose right word this rank has: divide by all tokens.",
    WordsSlip(hot="none", divided="nothing"): "This is the softmax: subtract 1 at the right word; divide by the tokens.",
    WordsSlip(hot="clamped"): "1 was subtracted in every row, even where the right word is another rank's.",
    WordsSlip(sums="own"): "The softmax is over this rank's own words: divide by the sum over all ranks' words.",
    WordsSlip(maximum="own"): "The softmax was divided by a sum whose parts have different scales.",
}


def _wrong_gradient(returned: Sequence[Any], task: VocabularyCase) -> Complaint:
    dtype = str(task.logits.dtype)
    named = {words: gradients(task, slip) for slip, words in _GRADIENT_SLIPS.items()}
    named["The sign is reversed: the gradient is softmax minus 1 at the right word."] = [-slope for slope in gradients(task)]

    right = [slope.astype(dtype) for slope in gradients(task)]
    wanted = Expected(
        "the gradient of its logits", right, named, rounding=NEAR[dtype], near_zero=NEAR[dtype],
        otherwise=partial(went_through_float32, near_zero=SINGLE),
    )  # fmt: skip
    return wanted.wrong([slope for _, slope in returned])


def _dear(ended: ArenaResult, task: VocabularyCase) -> Complaint:
    """Return a complaint if, for the loss, more than MOST_NUMBERS numbers of up to 8 bytes travel per token and pair of ranks."""
    n, tokens = task.world_size, len(task.targets)
    a_number_each = n * (n - 1) * tokens * 8
    got = ended.trace.total_bytes()
    if got <= MOST_NUMBERS * a_number_each:
        return None

    complaint = (
        f"all ranks together sent {got} bytes, {times(got / a_number_each)} numbers a token from each rank to every other; "
        f"{MOST_NUMBERS} are enough. "
    )
    if got >= task.logits.nbytes:
        return complaint + (
            "Do the logits travel? Send only the highest logit of a rank's words, a sum of exponentials and the right logit."
        )
    return complaint + "Put a rank's numbers for all tokens in one tensor, and gather it once."
