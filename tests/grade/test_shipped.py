"""No function that the package ships earns an exercise's points in a graded run, and no rank can read how one is written."""

import ast
import inspect
import os
import random
import types
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from operator import attrgetter
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from typing_extensions import override

import worldsize
from tests.grade.shipped import SHIPPED, Shipped
from tests.support.answers import NEEDS_PROCESSES
from worldsize.checks import run_check
from worldsize.checks.arena import ArenaResult, Trial
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.checks.verdict import Verdict
from worldsize.grade import course
from worldsize.grade.course import CourseLab, Exercise
from worldsize.grade.inside import withheld_functions
from worldsize.grade.isolation.bubblewrap import FRESH, NoSandbox
from worldsize.grade.isolation.limits import Meter
from worldsize.grade.outside import withheld
from worldsize.grade.outside.arena import SandboxArena, Submitted
from worldsize.grade.outside.boxes import Sandbox
from worldsize.grade.outside.withheld import WITHHELD, withheld_from

LABS = course.load(Path(__file__).resolve().parents[2])
EXERCISES = {exercise.id: (lab, exercise) for lab in LABS.values() for exercise in lab.exercises}


def _verdict(sandbox: Sandbox, exercise: Exercise, lab: CourseLab, source: str) -> Verdict:
    """Check an exercise's cell in a sandbox, below its lab's set-up, as a graded run does."""
    cells = [[f"Set-up {k}", setup] for k, setup in enumerate(lab.setups, 1)] + [[exercise.title, source]]
    sandbox.preload(lab.modules)
    sandbox.exercise = exercise.id
    try:
        arena = SandboxArena(sandbox, Meter(sandbox.limits), cells, 1, random.Random(7))
        verdict = run_check(exercise.id, arena, *map(Submitted, exercise.functions))
    finally:
        sandbox.settle()
    assert not arena.changed
    return verdict


def _named(one: Shipped) -> str:
    return f"{one.exercise}-{one.name}"


USUAL = ("both formulas", "the fastest plan", "split backwards", "whole files", "a cluster's tasks", "one of many rings",
         "the first half", "the second half", "a group's broadcast")  # fmt: skip
EACH = [pytest.param(one, id=_named(one), marks=[pytest.mark.soak] * (one.name not in USUAL)) for one in SHIPPED]


@pytest.mark.parametrize("shipped", EACH)
def test_an_answer_by_the_package_earns_nothing(sandbox, shipped):
    lab, exercise = EXERCISES[shipped.exercise]
    verdict = _verdict(sandbox, exercise, lab, shipped.source)
    assert verdict.points == 0 and verdict.state == "fail", str(verdict)
    said = ("is not available in graded runs", "ImportError", "ModuleNotFoundError")
    assert any(one in verdict.mismatch for one in said), verdict.mismatch


REFUSED_BY_THE_CHECK = ("attention_seconds",)  # also in a notebook, where nothing is withheld


@pytest.mark.soak
@pytest.mark.parametrize("shipped", [one for one in SHIPPED if one.exercise not in REFUSED_BY_THE_CHECK], ids=_named)
def test_an_answer_by_the_package_earned_points_where_nothing_was_withheld(sandbox, shipped, monkeypatch):
    monkeypatch.setattr(withheld, "WITHHELD", ())
    lab, exercise = EXERCISES[shipped.exercise]
    verdict = _verdict(sandbox, exercise, lab, shipped.source)
    assert verdict.points == shipped.held, str(verdict)


LOOKS = """
import gc, os, sys
from types import FunctionType

def looks(files, names):
    texts = [open(file).read() for file in files if os.path.exists(file)]
    for folder in {os.path.dirname(file) + "/__pycache__" for file in files}:
        texts += os.listdir(folder) if os.path.isdir(folder) else []
    files = set(files)
    codes = [one.__code__ for one in gc.get_objects() if isinstance(one, FunctionType)]
    return "".join(texts), sorted({code.co_qualname for code in codes if code.co_filename in files} & set(names))
"""


@pytest.mark.parametrize("mode", ["own", pytest.param(FRESH, marks=pytest.mark.soak)])
def test_no_file_and_no_code_of_a_withheld_function_is_left_in_a_rank(sandbox, mode):
    try:
        box = sandbox if mode == sandbox.mode else Sandbox(mode)
    except NoSandbox as refused:
        pytest.skip(str(refused))
    files, names = [], []
    for module, functions in withheld_from("ring_all_reduce").items():
        files.append(str(Path(worldsize.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")))
        names += functions

    box.preload(["torch", *withheld_from("ring_all_reduce")])
    box.exercise = "ring_all_reduce"
    try:
        arena = SandboxArena(box, Meter(box.limits), [["Exercise 1.1", LOOKS]], 1, random.Random(7))
        ended = arena.call(Submitted("looks"), files, names)
    finally:
        box.settle()
        if box is not sandbox:
            box.close()
    assert ended.returned == (("", ()),), ended.message


def test_every_withheld_function_exists_and_every_exercise_of_the_table_too():
    for one in WITHHELD:
        module = import_module(one.module)
        for name in one.names:
            assert not inspect.unwrap(attrgetter(name)(module)).__code__.co_freevars, name
        assert set(one.exercises) <= set(EXERCISES) and one.reason


# rooms whose functions a submission could call; the others start processes, grade, or draw pictures and pages
ROOMS = (
    "arrays", "data", "engines.cluster_spec", "grade.frames", "fabric", "failures", "files", "formulas", "links",
    "machine", "pytorch", "report", "simulate", "titles", "trace", "units",
)  # fmt: skip
TF_ROOMS = ("engines.cluster_spec", "tf")  # for exercises in TensorFlow, whose processes start in seconds
STARTS = ("tf.launch_tensorflow", "pytorch.live_cluster", "pytorch.live_quorum",
          "pytorch.elastic_agents", "pytorch.fake_world", "engines.cluster_spec.prepare_tensorflow",
          "engines.cluster_spec.start_server")  # fmt: skip
SLOW = ("noise_scale", "predict_steps")  # checks that draw for seconds
# {(exercise, function): why its points are earned}
EARNED: dict[tuple[str, str], str] = {}


@cache
def shipped_functions(rooms: tuple[str, ...] = ROOMS) -> dict[str, Callable]:
    """Return {name: function} of the functions of the package's modules that a submission could call, private ones too."""
    found: dict[str, Callable] = {}
    for module in walk_packages(worldsize.__path__, "worldsize."):
        place = module.name.removeprefix("worldsize.")
        if place.startswith(STARTS) or not any(f"{place}.".startswith(f"{room}.") for room in rooms):
            continue
        for name, value in vars(import_module(module.name)).items():
            own = isinstance(value, types.FunctionType) and value.__module__ == module.name
            if own and f"{place}.{name}" not in STARTS:
                found[f"{place}.{name}"] = value
    return found


def _parameters(exercise: Exercise) -> int:
    """Return the number of parameters without a default of an exercise's function."""
    for node in ast.walk(ast.parse(exercise.stub)):
        if isinstance(node, ast.FunctionDef) and node.name == exercise.functions[0]:
            return len(node.args.args) - len(node.args.defaults)
    raise AssertionError(exercise.id)


def _fits(function: Callable, count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


@contextmanager
def _without_answers(exercise: str) -> Iterator[None]:
    """Withhold in this process what a graded run of the exercise has not."""
    kept = []
    for module, names in withheld_from(exercise).items():
        for name in names:
            function: Any = inspect.unwrap(attrgetter(name)(import_module(module)))
            kept.append((function, function.__code__))
    withheld_functions.withhold(withheld_from(exercise))
    try:
        yield
    finally:
        for function, code in kept:
            function.__code__ = code


class Fails(Exception):
    """The end of a check whose first run already fails."""


class HidingArena(SimulatedArena):
    """Simulated time, in which a function runs without what graded runs withhold; `patient` goes on if its first run fails."""

    def __init__(self, exercise: str, patient: bool) -> None:
        super().__init__(seed=1, limit_s=2.0)
        self._exercise, self._patient, self._first = exercise, patient, True

    @override
    def run(self, trial: Trial) -> ArenaResult:
        with _without_answers(self._exercise):
            ended = super().run(trial)
        if self._first and ended.state != "done" and not self._patient:
            raise Fails
        self._first = False
        return ended


def _earning(exercise: Exercise, patient: bool = False) -> dict[str, str]:
    """Return {function: its verdict} of every function of the package that earns points as this exercise's answer."""
    found = {}
    count = _parameters(exercise)
    for name, function in shipped_functions().items():
        if not _fits(function, count):
            continue

        def answer(*given: Any, function: Callable = function) -> Any:
            return function(*given)

        try:
            verdict = run_check(exercise.id, HidingArena(exercise.id, patient), *[answer] * len(exercise.functions))
        except (Fails, NotPlayable):
            continue
        except Exception:  # noqa: S112 - its values made the check itself fail, which earns nothing
            continue
        if verdict.points and (exercise.id, name) not in EARNED:
            found[name] = str(verdict)
    return found


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """A process and a folder of the search's own: called with anything, some functions keep or write what they are given."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with ProcessPoolExecutor(1, get_context("spawn"), os.chdir, (folder,)) as pool:
        yield pool


def _advice(exercise: str, earning: dict[str, str]) -> str:
    """Say what to do where functions of the package earn points, with the verdict of one."""
    name, verdict = next(iter(earning.items()), ("", ""))
    return (
        f"{exercise}: expected no points for functions of the package, got some for {', '.join(earning)}. Let the property that "
        f"{name} fulfils be UNEXAMINED where values are wrong, or withhold it in {withheld.__name__}.\n{verdict}"
    )


PLAYED = [name for name, (_, exercise) in EXERCISES.items() if name not in NEEDS_PROCESSES and exercise.points]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name in SLOW)) for name in PLAYED])
def test_no_function_of_the_package_earns_points_in_the_form_of_the_contract(elsewhere, name):
    earning = elsewhere.submit(_earning, EXERCISES[name][1]).result()
    assert not earning, _advice(name, earning)


@pytest.mark.soak
@pytest.mark.parametrize("name", PLAYED)
def test_nor_does_one_whose_first_run_fails(elsewhere, name):
    earning = elsewhere.submit(_earning, EXERCISES[name][1], patient=True).result()
    assert not earning, _advice(name, earning)


CALLS = """
from importlib import import_module

def {function}(*given):
    return getattr(import_module("worldsize.{place}"), "{name}")(*given)
"""
ON_RANKS = [name for name in NEEDS_PROCESSES if EXERCISES[name][1].points]


@pytest.mark.soak
@pytest.mark.parametrize("exercise", ON_RANKS)
def test_nor_does_one_on_real_ranks_where_an_exercise_needs_processes(sandbox, exercise):
    lab, asked = EXERCISES[exercise]
    rooms = TF_ROOMS if lab.number in ("07", "08", "09") else ROOMS
    count = _parameters(asked)
    earning = {}
    for full, function in shipped_functions(rooms).items():
        if _fits(function, count):
            place, _, name = full.rpartition(".")
            source = "".join(CALLS.format(function=one, place=place, name=name) for one in asked.functions)
            verdict = _verdict(sandbox, asked, lab, source)
            if verdict.points:
                earning[full] = str(verdict)
    assert not earning


def _earning_where_nothing_is_withheld(exercise: Exercise) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(withheld, "WITHHELD", ())
        return _earning(exercise)


def test_the_search_finds_an_answer_that_is_not_withheld(elsewhere):
    earning = elsewhere.submit(_earning_where_nothing_is_withheld, EXERCISES["same_start"][1]).result()
    assert "fabric.collectives.broadcast" in earning
