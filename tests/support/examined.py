"""What each case of a check says of each property: a check that runs in an arena, with its cases looked at."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from worldsize.checks import check_of
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case
from worldsize.checks.verdict import Complaint, Verdict

Found = dict[str, Complaint]


@dataclass(frozen=True)
class Examined:
    """A check's verdict, and what its cases found, by their place and name."""

    verdict: Verdict
    found: dict[tuple[int, str], Found] = field(default_factory=dict)


def examined(exercise: str, arena: Arena, fn: Callable) -> Examined:
    """Run the check of `exercise` on `fn`. Raises NotPlayable where the arena does."""
    found: dict[tuple[int, str], Found] = {}
    check = check_of(exercise)
    cases = enumerate(check.cases(arena, fn))
    verdict = check.judged(_noted(case, (place, case.name), found) for place, case in cases)
    return Examined(verdict, found)


def _noted(case: Case, key: tuple[int, str], found: dict[tuple[int, str], Found]) -> Case:
    def examine(ended: ArenaResult) -> Found:
        found[key] = case.examine(ended)
        return found[key]

    return replace(case, examine=examine)
