"""What a submission's process declares earns nothing: of each case of `declared` what it has done, and no more."""

import random
from importlib import import_module

import pytest

from tests.grade.declared import CASES
from tests.support.submitted_code import missing_names
from worldsize.checks import run_check
from worldsize.grade.isolation.limits import Meter
from worldsize.grade.outside.arena import SandboxArena, Submitted

for kind in ("work", "writers", "answers"):
    import_module(f"tests.grade.declared.{kind}")

# one that holds frames back, one that asks for work ahead, and of the writers one for each way to be seen
USUAL = (
    "holds_frames_back_of_buckets", "asks_for_all_work_before_it_does_any", "replaces_the_drivers_save",
    "dies_where_it_is_limited_and_removes_the_old_file", "goes_on_after_its_end",
)  # fmt: skip
EACH = [pytest.param(case, id=case.name, marks=[pytest.mark.soak] * (case.name not in USUAL)) for case in CASES]


@pytest.mark.quick
def test_there_are_thirty_cases_of_names_of_their_own():
    assert len({case.name for case in CASES}) == len(CASES) >= 30
    assert set(USUAL) <= {case.name for case in CASES}


@pytest.mark.quick
def test_all_that_a_case_names_of_the_package_is_there():
    found = {case.name: missing_names(case.source) for case in CASES}
    assert {name: missing for name, missing in found.items() if missing} == {}


@pytest.mark.parametrize("case", EACH)
def test_a_case_earns_no_more_than_what_it_did_and_what_it_replaced_is_named(sandbox, case):
    sandbox.preload(["torch.nn.parallel"])
    arena = SandboxArena(sandbox, Meter(sandbox.limits), [["Exercise 1.1", case.source]], 1, random.Random(7))
    verdict = run_check(case.exercise, arena, Submitted(case.exercise))
    assert verdict.state == "fail" and verdict.points <= case.most, str(verdict)
    assert not any(word in verdict.mismatch for word in ("NameError", "AttributeError", "ImportError", "SyntaxError"))
    assert bool(arena.changed) == case.changes, arena.changed
