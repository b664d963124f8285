"""The answers of every exercise, wrong and right: one module of `tests.checks.mutants` each."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.checks.mutants import Answers
from worldsize.checks import CHECKS, check_of

FOLDER = Path(__file__).resolve().parents[1] / "checks" / "mutants"
ANSWERS: list[Answers] = [
    import_module(f"tests.checks.mutants.{path.stem}").answers for path in sorted(FOLDER.glob("[a-z]*.py"))
]
# every third wrong answer: the soak runs it on the ranks of a sandbox; the others on those of a launch, and in a sandbox's play
IN_A_SANDBOX = frozenset(
    row[0] for number, a in enumerate(ANSWERS) for place, row in enumerate(a.wrong) if place % 3 == number % 3
)
# exercises whose verdicts take 0.1 to 0.6 s each: `make test` plays every third of their wrong answers, the soak all, often
SLOW = (
    "accumulate", "best_plan", "one_bit_average", "predict_steps", "quicker_way", "ring_attention", "run_stage", "scaled_steps",
    "sharded_adam", "sharded_optimizer", "train_replicas", "train_to_the_end", "vocabulary_loss",
)
NEEDS_PROCESSES = tuple(name for name in CHECKS if check_of(name).needs)  # in one order in every process


def right_answers(usual: int | None = None) -> list[object]:
    """(exercise, function) of every right answer; those after the first `usual` of an exercise are for the long campaign."""
    return [
        pytest.param(
            a.exercise, fn, id=f"{a.exercise}-{fn.__name__}", marks=[pytest.mark.soak] * (usual is not None and place >= usual)
        )
        for a in ANSWERS
        for place, fn in enumerate(a.right)
    ]
