"""What a check says in a notebook it says in a grade: the answers of `mutants`, run in the sandbox instead."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from tests.checks.mutants import Answers
from worldsize.checks import run_check
from worldsize.grade.host.arena import SandboxArena, Submitted
from worldsize.grade.isolation.limits import Meter

FOLDER = Path(__file__).resolve().parents[1] / "checks" / "mutants"
MODULES = sorted(p.stem for p in FOLDER.glob("[a-z]*.py"))
ANSWERS: list[Answers] = [import_module(f"tests.checks.mutants.{name}").answers for name in MODULES]

# The package `mutants`, made of its sources, in a sandbox that has no tests to import.
MUTANTS = "tests.checks.mutants"
PACKAGES = ("tests", "tests.checks", MUTANTS)
TEXTS = {name: "" for name in PACKAGES}
TEXTS |= {f"{MUTANTS}.{path.stem}".removesuffix(".__init__"): path.read_text() for path in FOLDER.glob("*.py")}
PACKAGE = f"""
import sys
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
SOURCES, PACKAGES = {TEXTS!r}, {PACKAGES!r}

class Sources(MetaPathFinder, InspectLoader):
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=name in PACKAGES) if name in SOURCES else None
    def get_source(self, name):
        return SOURCES[name]
    def is_package(self, name):
        return name in PACKAGES

sys.meta_path.insert(0, Sources())
"""
PICK = """
from importlib import import_module
answers = import_module("tests.checks.mutants.{module}").answers
answer = [fn for fn in (*answers.right, *(row[0] for row in answers.wrong)) if fn.__name__ == "{name}"][0]
"""


def verdict_on(sandbox, exercise: str, fn):
    sandbox.preload(["torch.nn.parallel"])  # what lab 10's set-up cells import
    cells = [["Set-up 1", PACKAGE], ["Exercise 1.1", PICK.format(module=fn.__module__.rpartition(".")[2], name=fn.__name__)]]
    return run_check(exercise, SandboxArena(sandbox, Meter(sandbox.limits), cells, 1), Submitted("answer"))


def _each(kind: str) -> list:
    """(exercise, function, words that its verdict must say) of the right or the wrong answers.

    Of the right ones all but an exercise's first are for `make soak`: `test_checks` tries them all, by the same checks.
    """
    right = [(a.exercise, fn, ()) for a in ANSWERS for fn in a.right]
    wrong = [(a.exercise, fn, words) for a in ANSWERS for fn, words, _ in a.wrong]
    first = {a.right[0] for a in ANSWERS}
    return [
        pytest.param(*row, id=f"{row[0]}-{row[1].__name__}", marks=[pytest.mark.soak] * (kind == "right" and row[1] not in first))
        for row in (right if kind == "right" else wrong)
    ]


@pytest.mark.parametrize(("exercise", "fn", "words"), _each("right"))
def test_a_right_answer_earns_every_point(sandbox, exercise, fn, words):
    verdict = verdict_on(sandbox, exercise, fn)
    assert (verdict.state, verdict.points) == ("pass", verdict.possible), verdict.mismatch


@pytest.mark.soak
@pytest.mark.parametrize(("exercise", "fn", "words"), _each("wrong"))
def test_a_wrong_answer_fails_with_the_same_words(sandbox, exercise, fn, words):
    verdict = verdict_on(sandbox, exercise, fn)
    assert verdict.state == "fail"
    if "init_process_group" in inspect.getsource(fn):  # such ranks have no process group in a grade
        words = ["no process group is here"]
    assert [w for w in words if w not in verdict.mismatch] == [], verdict.mismatch
