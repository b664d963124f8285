"""Which mistakes get the same sentence: the matrix of wrong answers and complaints, of every exercise judged in simulated time.

    python -m tests.checks.sentences [EXERCISE …]

Numbers and quoted names are taken out of a sentence first. Prints each sentence that two answers or more get: where their
mistakes are two, it should be split, or say both. Left out: what needs processes of its own.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress

from tests.support.answers import ANSWERS, NEEDS_PROCESSES
from worldsize.checks import run_check
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import SimulatedArena

SEED = 1
_NUMBER = re.compile(r"[-+−]?\d[\d.,]*(?:e[-+]?\d+)?")


def sentence(mismatch: str) -> str:
    """What a complaint says of the cause: without the case that it begins with, without numbers."""
    _, _, said = mismatch.partition(": ")
    return _NUMBER.sub("#", said or mismatch)


def shared(exercise: str) -> Iterator[tuple[str, list[str]]]:
    """(sentence, names of wrong answers), of those that two wrong answers of `exercise` or more get."""
    found = defaultdict(list)
    for answers in ANSWERS:
        for fn, *_ in answers.wrong if answers.exercise == exercise else ():
            with suppress(NotPlayable), redirect_stdout(sys.stderr):
                found[sentence(run_check(exercise, SimulatedArena(SEED), fn).mismatch or "")].append(fn.__name__)
    for said, names in found.items():
        if len(names) > 1:
            yield said, names


def main() -> None:
    for exercise in sys.argv[1:] or sorted({answers.exercise for answers in ANSWERS} - set(NEEDS_PROCESSES)):
        for said, names in shared(exercise):
            print(f"{exercise}: {', '.join(names)}\n    {said}")


if __name__ == "__main__":
    main()
