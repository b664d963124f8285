"""Check a training that ends at any step, resumes in another process, and comes to the same bits.

A life is a run of the arena, so each rank is a new process: with the file of the last life, other first weights, other
random numbers, and only its own examples for its own steps. The weights are compared with NumPy's (`resumed_lesson.py`),
and bit by bit with a training that never ended; a difference is traced to the state that was left out.
PyTorch's notes on reproducibility, and "Saving and loading a general checkpoint": what a checkpoint needs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations, permutations, product
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import resumed_training
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import SINGLE
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import kind_in_words, same
from worldsize.checks.resilience.resumed_lesson import INPUTS, PARTS, Lesson, ResumePlan, State, drawn_lesson
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

RESUMED = "ended at any step and begun again, it comes to the same bits"
ALL_STEPS = "never ended, it takes every step once and returns the model's state"
SAVED = "rank 0 alone saves, after every few steps and after the last"
NEVER = -1
# without a part of the state, three weights would have to agree to 9 digits in each of ten trainings: a chance below 1e-30
CLOSE = {"tolerance": 1e-9, "near_zero": 1e-11}
ALONE = "Take each step by one call of training.step, which does everything; leave the generator's numbers as they come."

PLANS = (
    ResumePlan(2, 9, 2, 4, ends=((), (5,), (2,), (3,), (4,), (6,), (8,), (5, 1), (3, 3), (9,))),
    ResumePlan(1, 7, 1, 3, ends=((), (1,), (5,))),
    ResumePlan(3, 7, 3, 2, ends=((), (4,), (6,))),
    ResumePlan(2, 8, 3, 3, ends=((), (4,), (5, 3)), again_every=2),  # resumes between multiples of `again_every`
    ResumePlan(4, 5, 9, 2, ends=((), (3,))),  # saves after the last step alone
    ResumePlan(1, 260, 128, 65, ends=((), (258,))),  # a place above 255 in the checkpoint
)


@exercise({RESUMED: 1.25, ALL_STEPS: 0.25, SAVED: 0.0}, seen={RESUMED: evidence.LIVES, SAVED: evidence.OWN_PROCESS})
def train_to_the_end(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check `train_to_the_end(training, steps, every, load, save)`, a training that can be ended at any step.

    The function returns the model's state, {"weight": [inputs]}, on every rank.
    """
    wrong: list[str] = []
    return chain.from_iterable(_lives(arena, fn, plan, wrong) for plan in PLANS)


def _lives(arena: Arena, fn: Callable, plan: ResumePlan, wrong: list[str]) -> Iterator[Case]:
    """Yield, to resume, the first life of every training, then the second life of the trainings that were ended, and so on.

    `wrong` has the complaints so far. With one there are first lives alone: a later one begins with the files of right ones.
    """
    lesson = drawn_lesson(plan, np.random.default_rng(arena.draws.getrandbits(32)))
    files = [np.zeros(0, "uint8")] * len(plan.ends)
    done = [0] * len(plan.ends)  # steps that the file holds
    whole: list[np.ndarray] = []  # the weights of the training that was never ended, by rank

    for life in range(len(lesson.lives)):
        if life and wrong:
            return
        ends = {k: (*of_training, NEVER)[life] for k, of_training in enumerate(plan.ends) if life <= len(of_training)}
        cases = []
        for rank in range(plan.world_size):
            cases.append([lesson.case(life, end, files[k], done[k], rank) for k, end in ends.items()])

        def examine(ended: ArenaResult, life: int = life, ends: dict[int, int] = ends) -> dict[str, Complaint]:
            by_training = list(zip(*ended.returned, strict=True))  # [training][rank]
            complaints: dict[str, Complaint] = {}
            for (k, end), rows in zip(ends.items(), by_training, strict=True):
                for name, complaint in _examine(lesson, rows, (life, end, done[k]), whole).items():
                    complaints[name] = complaints.get(name) or complaint

                if any(complaints.values()):
                    wrong.extend(filter(None, complaints.values()))
                    return {RESUMED: UNEXAMINED} | complaints

                if life == 0 and end == NEVER:
                    whole.extend(row["returned"]["weight"] for row in rows)
                if len(rows[0]["file"]):
                    files[k] = rows[0]["file"]
                    done[k] += rows[0]["saved"][-1]
            return {RESUMED: None} | complaints  # a first life shows whether there is something to begin again from

        yield Case(
            str(plan) + ("", ", resumed", ", resumed for the second time")[life],
            lambda cases=cases: arena.ranks(fn, cases, driver=resumed_training.lived),
            examine,
        )


Rows = Sequence[dict[str, Any]]
LifeOf = tuple[int, int, int]  # (life, number of its steps before it is ended, steps that its file holds)


def _examine(lesson: Lesson, rows: Rows, of: LifeOf, whole: Sequence[np.ndarray]) -> dict[str, Complaint]:
    life, end, done = of
    kind = RESUMED if life else ALL_STEPS
    complaints: dict[str, Complaint] = {kind: None, SAVED: UNEXAMINED}
    complaint = _apart(rows) or _wrong_places(lesson, rows, of)
    if complaint:
        return complaints | {kind: f"{_when(lesson, of)}{complaint}"}

    saves = _wrong_saves(lesson, rows, of)
    complaints = {kind: saves if life else None, SAVED: saves}  # a later life's saves cost points: the first life's were right
    if end == NEVER:
        complaints[kind] = _wrong_return(rows) or _wrong_weights(lesson, rows, of, whole) or complaints[kind]
    if complaints[kind]:
        complaints[kind] = f"{_when(lesson, of)}{complaints[kind]}"
    return complaints


def _when(lesson: Lesson, of: LifeOf) -> str:
    life, _, done = of
    if not life:
        return ""
    if done == lesson.plan.steps:
        return f"from a checkpoint of all {done} steps: "
    return f"from a checkpoint of {count(done, 'step')}: "


def _apart(rows: Rows) -> Complaint:
    if rows[0]["how"] != "apart":
        return None

    words = rows[0]["words"]
    if "gather" in words:
        return f"{words}: all ranks must gather together, so call gather before any `if training.rank == 0`."
    if "has ended" in words:
        return f"{words}: every rank goes on from the same checkpoint. Call load() on each of them."
    return f"{words}: every rank goes on from the same place. Call load() on each of them, not on rank 0 alone."


def _wrong_places(lesson: Lesson, rows: Rows, of: LifeOf) -> Complaint:
    plan, (_, end, done) = lesson.plan, of
    for rank, row in enumerate(rows):
        if end == NEVER and row["how"] == "ended":
            return f"rank {rank} takes steps without end: {count(len(row['taken']), 'step')} so far"

    until = plan.steps if end == NEVER else min(plan.steps, done + end)
    right = [divmod(step, plan.batches) for step in range(done, until)]
    for rank, row in enumerate(rows):
        taken = [tuple(place) for place in row["taken"]]
        for place, expected in zip(taken, right, strict=False):
            if place != expected:
                return f"rank {rank} took step{place}, expected step{expected}: {_misplaced(plan, taken, right, done)}"
        if len(taken) > len(right):
            return f"rank {rank} took {count(len(taken), 'step')}, expected {len(right)}: the training has {plan.steps}."
        if len(taken) < len(right):
            return f"rank {rank} took {count(len(taken), 'step')} and returned, expected {len(right)}."
    return None


def _misplaced(plan: ResumePlan, taken: list[tuple[int, int]], right: list[tuple[int, int]], done: int) -> str:
    """Return the mistake in a resume that leads to other steps, in words."""
    off = taken[0][0] * plan.batches + taken[0][1] - done
    if done and abs(off) == 1 and taken[0] != (0, 0):
        what = "one less: count a step after taking it" if off < 0 else "one more: the next step has the number of steps done"
        return f"{count(done, 'step')} are done, but the checkpoint says {what}."
    return (
        f"an epoch has {plan.batches} batches, and step number k, counted from 0, is divmod(k, training.batches). Put the number "
        f"of steps done in the checkpoint."
    )


def _wrong_saves(lesson: Lesson, rows: Rows, of: LifeOf) -> Complaint:
    plan, (life, _, done) = lesson.plan, of
    every = plan.every_of(life)
    for rank, row in enumerate(rows[1:], 1):
        if row["saved"]:
            return f"rank {rank} saved: there is one file, and several ranks would write it at once. Save on rank 0 alone."

    last = len(rows[0]["taken"]) + done
    expected = [step for step in range(done + 1, last + 1) if step % every == 0 or step == plan.steps]
    got = [step + done for step in rows[0]["saved"]]
    if got == expected or (done == last == plan.steps and got == [plan.steps]):  # once more what the file holds does no harm
        return None
    since = [step for step in range(done + 1, last + 1) if (step - done) % every == 0 or step == plan.steps]
    slip = " Here the steps are counted from the restart." if got == since else ""
    return (
        f"rank 0 saved after steps {_list(got)}, expected {_list(expected)}: save after every {count(every, 'step')}, counted "
        f"from the beginning of the training, and after the last.{slip}"
    )


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _wrong_return(rows: Rows) -> Complaint:
    for rank, row in enumerate(rows):
        got = row["returned"]
        weight = got.get("weight") if isinstance(got, dict) else None
        if isinstance(weight, np.ndarray) and weight.shape == (INPUTS,):
            continue

        came = kind_in_words(got)
        if isinstance(got, dict):
            came = f"a dict with {', '.join(map(str, got)) or 'nothing'}"
        return f"rank {rank}: expected the function to return training.model.state_dict(), got {came}"
    return None


def _wrong_weights(lesson: Lesson, rows: Rows, of: LifeOf, whole: Sequence[np.ndarray]) -> Complaint:
    life, _, done = of
    begun = lesson.fresh(0 if done else life)  # without a checkpoint the training begins with this life's own state
    right = lesson.advanced(begun, lesson.plan.steps).parts[0]

    for rank, row in enumerate(rows):
        got = row["returned"]["weight"]
        if not same(got, right, **CLOSE):
            slip = _slip(lesson, got, of) if life else ALONE
            return f"rank {rank}: expected the weights {_numbers(right)}, got {_numbers(got)}. {slip}"

        if life and done and not np.array_equal(got, whole[rank]):
            far = np.abs(got - whole[rank]).max()
            return (
                f"rank {rank}: the weights differ by {far:.2g} from the weights of a training that was never ended: round no "
                f"number on its way."
            )
    return None


def _slip(lesson: Lesson, got: np.ndarray, of: LifeOf) -> str:
    """Return the mistake with the state in an exact resume, found by the weights that each mistake leads to."""
    life, _, done = of
    if done == 0:
        return "There was no checkpoint: begin with the state that `training` has."

    steps = lesson.plan.steps
    saved, fresh = lesson.advanced(lesson.fresh(0), done), lesson.fresh(life)
    for many in range(1, len(PARTS) + 1):
        for missing in combinations(range(len(PARTS)), many):
            parts = tuple((fresh if k in missing else saved).parts[k] for k in range(len(PARTS)))
            if same(got, lesson.advanced(State(parts, done), steps).parts[0], **CLOSE):
                names = " and ".join(PARTS[k] for k in missing)
                return f"{names[0].upper()}{names[1:]} did not come back: the new process went on with its own."

    noises = saved.parts[3]
    for rank in range(len(noises)):
        parts = (*saved.parts[:3], (noises[rank],) * len(noises))
        if same(got, lesson.advanced(State(parts, done), steps).parts[0], **CLOSE):
            return (
                f"Every rank went on with the generator of rank {rank}: each has its own. Gather the states of all ranks into "
                f"the checkpoint, and load the one at training.rank."
            )

    for noises in list(permutations(saved.parts[3]))[1:]:
        if same(got, lesson.advanced(State((*saved.parts[:3], noises), done), steps).parts[0], **CLOSE):
            return "The ranks went on with each other's generators: the list is in the order of the ranks."

    for noises in product(*((*saved.parts[3], own) for own in fresh.parts[3])):
        if same(got, lesson.advanced(State((*saved.parts[:3], noises), done), steps).parts[0], **CLOSE):
            return f"{_whose(noises, saved.parts[3])}: load the state at training.rank, of the states of all ranks."

    for step in range(max(0, done - lesson.plan.every), done):
        earlier = lesson.advanced(lesson.fresh(0), step).parts
        for many in range(len(PARTS), 0, -1):
            for old in combinations(range(len(PARTS)), many):
                parts = tuple((earlier if k in old else saved.parts)[k] for k in range(len(PARTS)))
                if same(got, lesson.advanced(State(parts, done), steps).parts[0], **CLOSE):
                    what = "all of the state" if many == len(PARTS) else " and ".join(PARTS[k] for k in old)
                    return f"The checkpoint has {what} from after {count(step, 'step')}: take all of it after the step."

    right = lesson.advanced(saved, steps).parts[0]
    if same(got, right, SINGLE, SINGLE * float(np.abs(right).max())):
        return "Numbers that went through float32 are off by this much: save them in the dtype that they have."
    return f"The training went on with another state than the one that it had after {count(done, 'step')}."


def _whose(noises: Sequence[tuple[int, int]], saved: Sequence[tuple[int, int]]) -> str:
    """Say which generators the ranks of a resumed training went on with, where some have not their own."""
    told = []
    for rank, noise in enumerate(noises):
        if noise != saved[rank]:
            whose = f"that of rank {saved.index(noise)}" if noise in saved else "the new process's own"
            told.append(f"rank {rank} went on with {whose}")
    return f"Of the generators, {', '.join(told)}"


def _numbers(values: np.ndarray) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in values) + "]"
