"""Continuous integration of a course: every solution by papermill, with small sizes; in `make test` three of them.

`notebook_runs` executes each once, in a kernel of its own, for all tests that look at it.
"""

from pathlib import Path

import pytest

from tests.journeys.doors import Entered, run_of
from tests.support.notebook_runs import RUN_TIMEOUT_S, Execute, each_run
from worldsize.authoring.source import points
from worldsize.lab.lab import LABS

DOORS = [run_of(number) for number in LABS]

pytestmark = pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)


@each_run("quick")
def test_a_solution_with_small_sizes_earns_every_point(source: Path, kind: str, execute: Execute, entered: Entered) -> None:
    done = execute(source, kind)
    assert (done.points, done.possible) == (points(source), points(source))
    entered.enter(run_of(source.stem[:2]))


def test_every_declared_door_was_entered(request: pytest.FixtureRequest, entered: Entered) -> None:
    own = [item for item in request.session.items if item.path == Path(__file__) and hasattr(item, "callspec")]
    ran = {item.callspec.params["source"].stem[:2] for item in own}
    entered.closed |= {run_of(number): "most labs run in the soak" for number in LABS if number not in ran}
    entered.check()
