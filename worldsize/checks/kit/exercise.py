"""An exercise's declaration: what its check is worth, where each property is seen, and whether its cases need real processes.

    @exercise({VALUES: 1.0, BYTES: 0.5}, seen={BYTES: evidence.MESSAGES})
    def all_gather(arena: Arena, fn: Callable) -> Iterator[Case]:
        yield Case(…)

makes `all_gather` a check: `all_gather(arena, fn)` judges these cases.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from types import MappingProxyType
from typing import Any

from worldsize.checks.arena import Arena
from worldsize.checks.kit.evidence import OWN_PROCESS, RETURNED, Evidence
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.verdict import Verdict

MadeCases = Callable[..., Iterable[Case]]


class Check:
    """The check of an exercise: `check(arena, fn)` returns a verdict.

    `points` and `seen` have a value for each property; `needs` names what simulated time lacks for the cases, "" if nothing.
    """

    def __init__(
        self, cases: MadeCases, points: dict[str, float], seen: Mapping[str, Evidence], needs: str, waits: str | None,
        goes_on: bool,
    ) -> None:  # fmt: skip
        update_wrapper(self, cases)
        self._cases = cases
        self.name = cases.__name__
        self.points = points
        self.seen = {name: seen.get(name, RETURNED) for name in points}
        self.needs = needs
        self._waits = waits
        self._goes_on = goes_on

    def __call__(self, arena: Arena, fn: Callable, *more: Any, **ways: Any) -> Verdict:
        return self.judged(self.cases(arena, fn, *more, **ways))

    def cases(self, arena: Arena, fn: Callable, *more: Any, **ways: Any) -> Iterable[Case]:
        """Return the cases of a check of `fn`, which run in `arena`."""
        return self._cases(arena, fn, *more, **ways)

    def judged(self, cases: Iterable[Case]) -> Verdict:
        """Judge cases by the properties that the exercise declares. Tests hand over wrapped cases, to look at them."""
        return judge(self.name, self.points, cases, self._waits, self._goes_on)


def exercise(
    points: dict[str, float], seen: Mapping[str, Evidence] = MappingProxyType({}), needs: str = "", waits: str | None = None,
    goes_on: bool = True,
) -> Callable[[MadeCases], Check]:  # fmt: skip
    """Declare a function that makes cases the check of the exercise of its name.

    `points` says what each property is worth. `seen` has the evidence of those that are judged by more than what came back.
    `needs` is one of `worldsize.checks.needs`. `waits` and `goes_on` are as in `judge`. Raises ValueError for an unknown
    property, and for points that nothing outside the answer's own process can see.
    """
    unknown = seen.keys() - points.keys()
    if unknown:
        raise ValueError(f"exercise: expected evidence of {', '.join(points)}, got evidence of {', '.join(unknown)}")
    if waits not in (None, *points):
        raise ValueError(f"exercise: expected waits as one of {', '.join(points)}, got {waits!r}")
    for name, found in seen.items():
        if found is OWN_PROCESS and points[name]:
            raise ValueError(
                f"exercise: expected 0 points for {name!r}, which the answer's own process alone sees, got {points[name]}"
            )

    def declared(cases: MadeCases) -> Check:
        return Check(cases, points, seen, needs, waits, goes_on)

    return declared
