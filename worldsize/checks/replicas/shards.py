"""Check of shards: a shuffled epoch, cut into batches and shares, with the same batches on any number of ranks.

Each call answers for one rank, and the check compares the answers. Strided and contiguous shares pass, in any order and
from any generator.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, combinations, islice
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, ranks_in_words
from worldsize.checks.kit.values import are_whole, is_row, kind_in_words
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count as counted

ONCE = "every example is taken exactly once in an epoch"
SAME = "a step's batch is the same on any number of ranks, and the seed alone shuffles"
EVEN = "every rank takes an equal share of it, within one"
PLANS = ((4, 18, 8), (2, 12, 4), (1, 7, 3))  # (world size, examples, batch size)
DRAWN = (3, range(20, 340, 8), 8)  # comes first; the number of examples is drawn
# ranges of (world size, examples, batch size), asked in one process: many ranks, batches smaller than the world or larger
# than the data, batches of one
MORE = (
    ((9, 33), (60, 120), (34, 50)),
    ((5, 33), (40, 70), (2, 16)),
    ((2, 9), (10, 30), (1, 1)),
    ((2, 6), (5, 11), (12, 40)),
    ((9, 33), (1, 8), (1, 8)),
)
# Two shuffles of fewer examples may give the same batches by chance. For 18 (8, 8 and 2) the chance is 8! 8! 2!/18! = 5e-7,
# for DRAWN's 20 or more (8, 8 and 4) 2e-8 at most, for MORE below 1e-10.
ENOUGH = 18
# N = 128 examples, b = 16 a batch, and consecutive seeds. No shuffle keeps two examples in one batch, or an example in one
# step, for every seed; rotations, reversals and batches with fixed members do. A right shuffle does the first for a pair with
# chance ((b - 1)/(N - 1))^SEEDS, the second for an example with (b/N)^(SEEDS - 1): over all pairs and examples below 1e-7.
# A rotation parts neighbors at b places only, so with fewer seeds than b it never parts some pair.
MANY, OF_MANY, SEEDS = 128, 16, 12

Epoch = list[list[list[int]]]  # [rank][step] -> the rank's indices


@exercise({ONCE: 0.25, SAME: 0.5, EVEN: 0.25})
def shards(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a rank's shards of the data: its indices for every step of an epoch, no example twice and none left out.

    `shards(count, batch_size, seed, rank, world_size)` returns a list of indices for each step.
    """
    cases = []
    world_size, counts, batch_size = DRAWN
    drawn = (world_size, arena.draws.choice([count for count in counts if count % world_size]), batch_size)
    for plan in (drawn, *PLANS):
        asked = _asked(*plan, arena.draws.getrandbits(31))
        run = partial(arena.ranks, fn, [asked], driver=on_ranks.answers)
        cases.append(Case(_named(*plan), run, lambda ended, plan=plan: _examine(ended.returned[0], *plan)))

    more = []
    for spans in MORE:
        more.append([arena.draws.randint(*span) for span in spans])
    asked = []
    for plan in more:
        asked += _asked(*plan, arena.draws.getrandbits(31))
    run = partial(arena.ranks, fn, [asked], driver=on_ranks.answers)
    name = "more ranks, smaller and larger batches"
    cases.append(Case(name, run, lambda ended: _examine_all(ended.returned[0], more)))

    first = arena.draws.getrandbits(31)
    seeds = (0, 1, *range(first, first + SEEDS))  # 0 and 1 as well: epochs are counted from 0
    asked = [(MANY, OF_MANY, seed, 0, 1) for seed in seeds]
    run = partial(arena.ranks, fn, [asked], driver=on_ranks.answers)
    name = f"1 rank, {MANY} examples, batches of {OF_MANY}, seeds 0, 1 and {SEEDS} more"
    cases.append(Case(name, run, lambda ended: _examine_shuffles(ended.returned[0]["returned"], seeds)))
    return cases


def _asked(world_size: int, count: int, batch_size: int, seed: int) -> list[tuple[int, ...]]:
    """Return the arguments of each call of `shards`: all ranks, a rank alone, then all ranks with another seed."""
    first = [(count, batch_size, seed, rank, world_size) for rank in range(world_size)]
    again = [(count, batch_size, seed + 1, rank, world_size) for rank in range(world_size)]
    return [*first, (count, batch_size, seed, 0, 1), *again]


def _examine(answered: dict[str, Any], world_size: int, count: int, batch_size: int) -> dict[str, Complaint]:
    returned = answered["returned"]
    ranks = [*range(world_size), 0, *range(world_size)]
    for rank, got in zip(ranks, returned, strict=True):
        complaint = _no_steps(got, rank)
        if complaint:
            return {ONCE: complaint, SAME: UNEXAMINED, EVEN: UNEXAMINED}

    every = list(map(_whole_numbers, returned))
    epoch, alone, reseeded = every[:world_size], every[world_size], every[world_size + 1 :]
    cover, lengths = _wrong_cover(epoch, count, batch_size), _wrong_lengths(epoch)
    same = lengths or _wrong_batches(epoch, alone, count, batch_size)
    many = _taken(epoch) >= ENOUGH and len(epoch[0]) > 1
    if not same and many and _batches(epoch) == _batches(reseeded):
        same = "two different seeds give the same batches: shuffle the examples by the seed."

    nothing = not any(epoch)  # nobody takes a step, so there is no batch to look at
    same = same or resets("shards", answered["drawn"]) or _moves(answered["moved"])
    return {
        ONCE: cover,
        SAME: UNEXAMINED if nothing and not same else same,
        EVEN: UNEXAMINED if nothing or lengths else _wrong_shares(epoch, count, batch_size),
    }


def _examine_all(answered: dict[str, Any], plans: Sequence[Sequence[int]]) -> dict[str, Complaint]:
    """Return each property's first complaint about shards, with its plan's name, the first plan's before others'.

    `answered` holds all plans in a row. A property is unexamined if no plan shows it.
    """
    rest = iter(answered["returned"])
    complaints: dict[str, Complaint] = {}
    others: dict[str, Complaint] = dict.fromkeys(shards.points, UNEXAMINED)
    for plan in plans:
        returned = list(islice(rest, 2 * plan[0] + 1))
        for held, complaint in _examine({**answered, "returned": returned}, *plan).items():
            if complaint:
                complaints.setdefault(held, f"{_named(*plan)}: {complaint}")
            elif complaint is None:
                others[held] = None

    return complaints | {held: other for held, other in others.items() if held not in complaints}


def _named(world_size: int, count: int, batch_size: int) -> str:
    return f"{ranks_in_words(world_size)}, {counted(count, 'example')}, batches of {batch_size}"


def _no_steps(got: Any, rank: int) -> Complaint:
    """Return a complaint if a rank's shards, `got`, are not a list of steps, each a list of whole numbers; else None."""
    shape = "a list of steps, each a list of this rank's indices"
    if not is_row(got):
        return f"rank {rank}: expected {shape}, got {_kind(got)}"

    for step, indices in enumerate(got):
        if is_row(indices) and are_whole(*indices):
            continue

        came = _kind(indices)
        if isinstance(indices, tuple):
            odd = next(one for one in indices if not are_whole(one))
            came = f"a list with {_kind(odd)} in it" + " (tolist() turns tensors into numbers)" * isinstance(odd, np.ndarray)
        return f"rank {rank}, step {step}: expected {shape}, got {came} in place of a list of indices"

    return None


def _kind(got: Any) -> str:
    if isinstance(got, str):
        return f"{got} (make it a list)"
    return kind_in_words(got)


def _whole_numbers(steps: Sequence[Sequence[Any]]) -> list[list[int]]:
    return [list(map(int, indices)) for indices in steps]


def _wrong_cover(epoch: Epoch, count: int, batch_size: int) -> Complaint:
    takers: list[list[int]] = [[] for _ in range(count)]  # [example] -> ranks that take it
    for rank, steps in enumerate(epoch):
        for example in chain(*steps):
            if not 0 <= example < count:
                return f"rank {rank} takes example {example}; there are {count}, numbered from 0"
            takers[example].append(rank)

    for example, by in enumerate(takers):
        if len(by) > 1:
            ranks = sorted(set(by))
            who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
            taken = _taken(epoch)
            why = f"The ranks take {taken} examples in all, but there are {count}: do not pad."
            together = _in_one_step(example, epoch)
            if together is not None:
                why = f"All of them take it in step {together}: shares of one batch must not overlap."
            if taken == count * len(epoch) > count:
                why = "Every rank takes all examples: take only the rank's share of every batch."
            elif taken == count:
                why = "The ranks shuffle differently: all must shuffle with the same seed, in a separate generator."
            return f"example {example} is taken {len(by)} times in one epoch, by {who}. {why}"

    missing = [example for example, by in enumerate(takers) if not by]
    if missing:
        return _missing(missing, epoch, count, batch_size)
    return None


def _in_one_step(example: int, epoch: Epoch) -> int | None:
    """Return the step in which several ranks' shards hold the example; None if there is none."""
    for step in range(max(map(len, epoch))):
        if sum(example in steps[step] for steps in epoch if step < len(steps)) > 1:
            return step
    return None


def _taken(epoch: Epoch) -> int:
    """Count the examples that all ranks' shards together take."""
    return len(list(chain(*chain(*epoch))))


def _missing(missing: list[int], epoch: Epoch, count: int, batch_size: int) -> str:
    n, steps = len(epoch), max(map(len, epoch))
    sizes = _sizes(count, batch_size)
    complaint = f"example {missing[0]} is taken by no rank ({len(missing)} of {count} examples are not). "
    if len(missing) == count % batch_size:
        return complaint + "Was the last batch left out, because it is smaller?"
    if steps < len(sizes):
        return complaint + (
            f"No rank has more than {counted(steps, 'step')}, but the epoch has {len(sizes)} batches: does the loop stop "
            f"early, or is batch_size too large?"
        )
    if len(missing) == sum(size % n for size in sizes):
        return complaint + f"Is the rest left out where a batch does not divide by {n}?"
    return complaint + "Together the ranks' shares of a batch must be the whole batch."


def _wrong_lengths(epoch: Epoch) -> Complaint:
    for rank, steps in enumerate(epoch):
        if len(steps) != len(epoch[0]):
            return (
                f"rank {rank} has {counted(len(steps), 'step')} and rank 0 has {len(epoch[0])}: the rank with more would wait "
                f"for ever. Cut the order into batches first, then each batch into shares: a rank that takes nothing in a "
                f"step has an empty list there."
            )

    return None


def _wrong_batches(epoch: Epoch, alone: list[list[int]], count: int, batch_size: int) -> Complaint:
    n = len(epoch)
    sizes = list(map(len, _batches(epoch)))
    right = _sizes(count, batch_size)
    if sizes != sorted(sizes, reverse=True) and sorted(sizes) == sorted(right):
        return (
            f"step {sizes.index(min(sizes))} has {counted(min(sizes), 'example')}, but later steps have {batch_size}: the "
            f"smaller batch is the rest of the order, and comes last."
        )

    for step, together in enumerate(_batches(epoch)):
        expected = min(batch_size, count - step * batch_size)
        if len(together) != expected:
            return (
                f"step {step}: {ranks_in_words(n)} together take {counted(len(together), 'example')}; expected "
                f"{expected}. batch_size counts the examples of all ranks together."
            )
        if step >= len(alone) or together != sorted(alone[step]):
            return (
                f"step {step}: {ranks_in_words(n)} together take other examples than a lone rank. "
                f"Cut the whole epoch into batches first, then each batch into shares."
            )

    if len(alone) > len(sizes):
        return f"{ranks_in_words(n)} take {counted(len(sizes), 'step')} together, but a lone rank takes {len(alone)}."
    return None


def resets(whose: str, drawn: dict[str, Sequence[Sequence[float]]], seed: str = "seed") -> Complaint:
    """Return a complaint if a call for shards resets one of the process's global generators, or None.

    `drawn[name]` holds the numbers that the generator gave after each of two calls; `seed` is what to seed one's own with.
    """
    for name, (one, other) in drawn.items():
        if tuple(one) == tuple(other):
            own = OWN[name].format(seed=seed)
            return f"{whose} resets {GLOBAL[name]}: every rank would then draw the same numbers, for dropout too. {own}"
    return None


GLOBAL = {
    "torch": "torch's global generator (torch.manual_seed)",
    "random": "Python's global generator (random.seed)",
    "numpy": "NumPy's global generator (np.random.seed)",
}
OWN = {
    "torch": "Use torch.Generator().manual_seed({seed}), and pass it to randperm.",
    "random": "Use random.Random({seed}).",
    "numpy": "Use np.random.default_rng({seed}).",
}


def _moves(moved: Sequence[str]) -> Complaint:
    """Return a complaint if a call for shards leaves one of the process's global generators in another state, or None."""
    for name in moved:
        generator = GLOBAL[name].partition(" (")[0]
        own = OWN[name].format(seed="seed")
        return f"shards leaves {generator} in another state: somebody else's numbers change with that. {own}"
    return None


def _examine_shuffles(returned: Sequence[Any], seeds: Sequence[int]) -> dict[str, Complaint]:
    """Examine the epochs of a lone rank's shards, one for each seed."""
    epochs = []
    for got in returned:
        complaint = _no_steps(got, 0) or _wrong_cover([_whole_numbers(got)], MANY, OF_MANY)
        if complaint:
            return {ONCE: complaint, SAME: UNEXAMINED}
        epochs.append(_whole_numbers(got))

    return {ONCE: None, SAME: _no_shuffle(epochs) or _odd_seed(epochs, seeds)}


def _no_shuffle(epochs: Sequence[list[list[int]]]) -> Complaint:
    """Return a complaint if the epochs' shards, each with every example once, are not shuffles in batches."""
    for epoch in epochs:
        complaint = _wrong_batches([epoch], epoch, MANY, OF_MANY)
        if complaint:
            return complaint

    step_of = []  # by seed and example
    for epoch in epochs:
        steps = {}
        for step, batch in enumerate(epoch):
            steps |= dict.fromkeys(batch, step)
        step_of.append(steps)

    for a, b in combinations(range(MANY), 2):
        if all(steps[a] == steps[b] for steps in step_of):
            return (
                f"examples {a} and {b} are in one batch with each of {len(epochs)} seeds: this is no shuffle of the examples. "
                f"Do not rotate or reverse their order, or shuffle fixed batches: use torch.randperm."
            )

    for example in range(MANY):
        if len({steps[example] for steps in step_of}) == 1:
            step = step_of[0][example]
            return f"example {example} is in step {step} with each of {len(epochs)} seeds: shuffle all the examples."
    return None


def _odd_seed(epochs: Sequence[list[list[int]]], seeds: Sequence[int]) -> Complaint:
    """Return a complaint if shards leaves the examples in their order with one of the seeds, or takes two seeds for one."""
    by_seed = {seed: [sorted(batch) for batch in epoch] for seed, epoch in zip(seeds, epochs, strict=True)}
    in_order = [list(range(start, start + OF_MANY)) for start in range(0, MANY, OF_MANY)]
    for seed, batches in by_seed.items():
        if batches == in_order:
            return f"with seed {seed} the examples keep their order: shuffle them with every seed, 0 too."
    for one, other in combinations(seeds, 2):
        if by_seed[one] == by_seed[other]:
            return f"seeds {one} and {other} give the same batches: pass the seed to the generator as it is."
    return None


def _sizes(count: int, batch_size: int) -> list[int]:
    """Return the number of examples in each step's batch, over all shards."""
    return [min(batch_size, count - start) for start in range(0, count, batch_size)]


def _batches(epoch: Epoch) -> list[list[int]]:
    """Return, by step, the examples that all ranks' shards together take, in ascending order."""
    return [sorted(chain(*shares)) for shares in zip(*epoch, strict=False)]


def _wrong_shares(epoch: Epoch, count: int, batch_size: int) -> Complaint:
    for step, shares in enumerate(zip(*epoch, strict=True)):
        sizes, together = list(map(len, shares)), min(batch_size, max(0, count - step * batch_size))
        low, rest = divmod(together, len(sizes))
        if not low <= min(sizes) <= max(sizes) <= low + bool(rest):
            each = f"{low} or {low + 1}" if rest else str(low)
            return (
                f"step {step}: the ranks take {', '.join(map(str, sizes))} of {together} examples; expected {each} "
                f"each. The slowest rank decides how long a step takes."
            )

    return None
