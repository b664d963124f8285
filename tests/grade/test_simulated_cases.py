"""The grader's second verdict: one sandboxed process plays all ranks of a case in simulated time, earns nothing, and confirms.

Real ranks earn points; what cheats in simulated time, or does not play, is known for it and costs the grader nothing.
"""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.grade.cheats import ALL, LAB, RIGHT, ROOT, TITLE, with_cell
from tests.support.answers import ANSWERS, IN_A_SANDBOX
from tests.support.sandboxed_answers import cells_of
from worldsize.checks import run_check
from worldsize.checks.arena import ByRank
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.checks.verdict import Property, Verdict
from worldsize.grade import course
from worldsize.grade.frames import BadFrame
from worldsize.grade.isolation.limits import Meter
from worldsize.grade.marking import mark_submission, rows
from worldsize.grade.marking.confirmation import Checked, confirmed
from worldsize.grade.marking.grading_record import GradedFolder
from worldsize.grade.marking.mark_submission import MarkingTask, mark
from worldsize.grade.marking.rows import ExerciseRow, GradeRow, SimulatedRow
from worldsize.grade.outside import played_result
from worldsize.grade.outside.arena import SandboxArena, Submitted
from worldsize.grade.outside.played_arena import PlayLost, SimulatedSandboxArena
from worldsize.grade.reports import needs_a_person
from worldsize.links import Link

BODY = RIGHT.split("\n", 2)[2]
HERE = "type(fabric).__name__ == 'SimulatedFabric'"  # how a cheat knows where it is


def in_simulated_time(act: str) -> str:
    """A right answer that does something else in simulated time."""
    return f"{TITLE}def pass_right(fabric, x):\n    if {HERE}:\n        {act}\n{BODY}"


def arena_of(sandbox, *sources: str, case_s: float = 10.0, cells: list | None = None, seed: int = 7) -> SimulatedSandboxArena:
    cells = cells or [["Set-up 1", "import torch"], *([f"Exercise 0.{k}", text] for k, text in enumerate(sources, 1))]
    meter = Meter(replace(sandbox.limits, case_s=case_s))
    return SimulatedSandboxArena(sandbox, meter, cells, 1, random.Random(seed), random.Random(f"orders {seed}"))


def played(sandbox, source: str, case_s: float = 10.0) -> Verdict:
    return run_check("pass_right", arena_of(sandbox, source, case_s=case_s), Submitted("pass_right"))


TELLS = """
from time import perf_counter, sleep
seen = []

def tells(fabric, x, shared, own):
    seen.append(fabric.rank)
    began_s = perf_counter()
    sleep(3600)
    fabric.compute(0.25)
    n = fabric.world_size
    if fabric.rank == 0:
        fabric.send(torch.ones(5), 1, tag=3)
    elif fabric.rank == 1:
        fabric.recv(torch.zeros(5), 0, tag=3)
    shared["sum"] += 1
    return seen, own, shared["sum"], perf_counter() - began_s, sorted(m for m in __import__("sys").modules if "checks" in m)
"""


@pytest.fixture(scope="module")
def told(sandbox):
    inputs = [np.full(2, rank) for rank in range(3)]
    own = ByRank(("a", "b", "c"))
    arena = arena_of(sandbox, TELLS)
    return arena.ranks(Submitted("tells"), inputs, {"sum": 0}, own, link=Link("1 MB/s", "1 ms"))


def test_each_rank_has_its_own_cells_and_arguments(told):
    assert told.state == "done", told.message
    assert [returned[:3] for returned in told.returned] == [((0,), "a", 1), ((1,), "b", 1), ((2,), "c", 1)]


def test_clocks_are_simulated_under_names_of_the_cells_own_too(told):
    assert all(3600 <= returned[3] < 3601 for returned in told.returned)


def test_the_record_has_messages_by_the_link_and_declared_work(told):
    (one,) = told.trace.transfers
    assert (one.src, one.dst, one.size_bytes, one.tag) == (0, 1, 20, 3) and one.end_s - one.start_s >= 1e-3
    assert sorted((span.rank, span.label) for span in told.trace.spans) == [(rank, "0.25 s declared") for rank in range(3)]


def test_no_check_is_in_the_process_that_plays(told):
    drives = {"arena", "in_one_process", "in_rank", "index", "noted_calls", "plain_call", "verdict"}
    checks = [name for name in told.returned[0][4] if name.startswith("worldsize.checks")]
    found = {name.removeprefix("worldsize.checks").removeprefix(".") for name in checks}
    assert {name for name in found if not name.startswith("drivers")} <= {"", *drives}


def test_a_deadlock_says_who_waits_for_whom(sandbox):
    both = "def both(fabric, x):\n    fabric.recv(x, 1 - fabric.rank)\n"
    ended = arena_of(sandbox, both).ranks(Submitted("both"), [np.zeros(1)] * 2)
    assert ended.state == "deadlock" and [(w.rank, w.op, w.peer) for w in ended.waits] == [(0, "recv", 1), (1, "recv", 0)]


def test_what_needs_real_processes_is_refused_before_any_starts(sandbox):
    arena = arena_of(sandbox, "")
    for ask in (
        lambda: arena.group(Submitted("f"), [0]), lambda: arena.tensorflow(Submitted("f"), [0]),
        lambda: arena.ranks(Submitted("f"), [0, 0], played={0: print}),
    ):  # fmt: skip
        with pytest.raises(NotPlayable):
            ask()
    assert arena._runs == 0


def agree(sandbox, exercise: str, fn, seed: int = 7) -> None:
    """The played case says in a sandbox what it says in the notebook's process."""
    sandbox.preload(["torch.nn.parallel", "worldsize.formulas.attention"])  # what set-up cells of labs 10 and 17 import
    try:
        here = run_check(exercise, SimulatedArena(seed, interleaved=True), fn)
        there = run_check(exercise, arena_of(sandbox, cells=cells_of(fn), seed=seed), Submitted("answer"))
    except NotPlayable:
        pytest.skip("it needs real processes")
    assert (here.state, here.properties) == (there.state, there.properties), f"{here.mismatch}\n{there.mismatch}"


def answers_of(*exercises: str) -> list:
    """(exercise, function): two of each of these exercises, or, of all, the answers but for the wrong ones `IN_A_SANDBOX`."""
    found = []
    for answers in ANSWERS:
        functions = [*answers.right, *(row[0] for row in answers.wrong if row[0] not in IN_A_SANDBOX)]
        if exercises:
            functions = [answers.right[0], answers.wrong[0][0]] if answers.exercise in exercises else []
        found += [pytest.param(answers.exercise, fn, id=f"{answers.exercise}-{fn.__name__}") for fn in functions]
    return found


@pytest.mark.parametrize(("exercise", "fn"), answers_of("ring_all_reduce", "gpipe"))
def test_an_answer_gets_the_same_verdict_in_the_notebook_and_in_the_sandbox(sandbox, exercise, fn):
    agree(sandbox, exercise, fn)


@pytest.mark.soak
@pytest.mark.parametrize(("exercise", "fn"), answers_of())
def test_every_answer_gets_the_same_verdict_in_the_notebook_and_in_the_sandbox(sandbox, exercise, fn):
    """`test_checks` compares the notebook with the real ranks of a sandbox for every third wrong one."""
    agree(sandbox, exercise, fn)


COLUMNS = {"src": [0], "dst": [1], "size_bytes": [4], "tag": [0], "start_s": [0.0], "end_s": [1.0], "recv_start_s": [0.0]}


def result(**changed: object) -> dict:
    """What a sandbox tells of a case on two ranks, with one message."""
    transfers = {name: np.array(column, float if name.endswith("_s") else int) for name, column in COLUMNS.items()}
    work = {"rank": np.array([], int), "start_s": np.array([]), "end_s": np.array([])}
    told = {"state": "done", "message": "", "returned": (1, 2), "inputs": (1, 2), "unwaited": (), "waits": ()}
    told |= {"transfers": transfers, "work": work}
    return told | changed


def column(name: str, values: object) -> dict:
    return {"transfers": result()["transfers"] | {name: np.array(values)}}


def test_a_result_is_taken_over():
    ended = played_result.arena_result(result(), 2)
    assert (ended.state, ended.returned, ended.trace.world_size, len(ended.trace.transfers)) == ("done", (1, 2), 2, 1)


@pytest.mark.parametrize(
    "told",
    [
        None, [], "done", {}, result(state="passed"), result(state=["done"]), result(returned=(1,)), result(inputs=None),
        result(unwaited=(2,)), result(unwaited=(True,)), result(transfers={}), result(work=None),
        result(state="deadlock", waits=((0, "steals", 1, 0, False),)),
        result(state="deadlock", waits=((0, "recv", 7, 0, False),)), result(state="deadlock", waits=(1, 2, 3)),
        result(**column("src", [-1])), result(**column("dst", [0])),
        result(**column("dst", [2])), result(**column("size_bytes", [2**40])), result(**column("end_s", [np.nan])),
        result(**column("end_s", [np.inf])), result(**column("tag", [0, 0])), result(**column("tag", [0.5])),
        result(**column("start_s", [[0.0]])), result(**column("tag", "many")),
    ],
)  # fmt: skip
def test_what_is_no_result_is_refused(told):
    with pytest.raises(BadFrame):
        played_result.arena_result(told, 2)


READS_THE_OTHERS = TITLE + """
def pass_right(fabric, x):
    import gc
    n, left = fabric.world_size, (fabric.rank - 1) % fabric.world_size
    if n == 1:
        return x.clone()
    worlds = [one for one in gc.get_objects() if type(one).__name__ == "Trial"]
    handle = fabric.isend(x, to=(fabric.rank + 1) % n)
    empty = torch.zeros_like(x)
    fabric.recv(empty, frm=left)
    handle.wait()
    return torch.from_numpy(worlds[0].inputs[left].copy()) if worlds else torch.zeros_like(x)
"""
FORGES_ITS_RESULT = TITLE + """
import gc
import worldsize.grade.inside.played_case as box
from worldsize.checks.arena import ArenaResult
from worldsize.trace import Trace, Transfer

def forged(inputs):
    n = len(inputs)
    ring = [Transfer(r, (r + 1) % n, inputs[r].nbytes, 0.0, 1e-3, 0, 0.0) for r in range(n)] if n > 1 else []
    got = tuple(inputs[(r - 1) % n] for r in range(n))
    return ArenaResult("done", returned=got, inputs=tuple(inputs), trace=Trace(n, tuple(ring)))

tells = vars(box).setdefault("tells", box._told)
box._told = lambda result: tells(forged(box.inputs))

def pass_right(fabric, x):
    for one in gc.get_objects():
        if type(one).__name__ == "Trial":
            box.inputs = one.inputs
    return torch.zeros_like(x)
"""


@pytest.mark.parametrize("source", [READS_THE_OTHERS, FORGES_ITS_RESULT], ids=["reads the others", "forges its result"])
def test_in_one_process_a_cheat_can_have_all_properties(sandbox, source):
    """So nothing is earned there: below, the same cheats have no points for their values."""
    verdict = played(sandbox, source)
    assert verdict.points == ALL, verdict.mismatch


# what it does in simulated time, and what the grader says of it
LOST = {
    "leaves": ("__import__('posix')._exit(0)", "crashed"),
    "breaks down": ("__import__('ctypes').string_at(0)", "crashed"),
    "never ends": (
        "while True:\n            try:\n                while True: pass\n            except BaseException: pass", "timeout",
    ),
    "returns too much": ("return torch.zeros(5_000_000)", "crashed"),
    "floods": (
        "import gc; line = [o for o in gc.get_objects() if type(o).__name__ == 'BrokerChannel'][0]\n"
        "        while True: line.tell({'op': 'call', 'number': 0, 'args': ['l']})", "crashed",
    ),
    "tells a result of its own": (
        "import gc; line = [o for o in gc.get_objects() if type(o).__name__ == 'BrokerChannel'][0]\n"
        "        line.tell({'op': 'done', 'played': ['d', ['state', 'done'], ['returned', 'all that you want']]})", "crashed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_a_process_that_does_not_play_is_named(sandbox, name):
    act, incident = LOST[name]
    with pytest.raises(PlayLost) as lost:
        played(sandbox, in_simulated_time(act), case_s=1.0 if incident == "timeout" else 10.0)
    assert lost.value.incident == incident, str(lost.value)


@pytest.mark.parametrize("act", ["__import__('threading').Thread(target=print).start()", "__import__('os')._exit(0)"])
def test_what_needs_a_process_of_its_own_is_not_playable(sandbox, act):
    with pytest.raises(NotPlayable):
        played(sandbox, in_simulated_time(act))


def marked(sandbox, tmp_path: Path, source: str) -> tuple[ExerciseRow, list[needs_a_person.Need]]:
    path = tmp_path / f"{LAB}.ipynb"
    path.write_text(json.dumps(with_cell(source)))
    row = mark(MarkingTask("anna_1", LAB, str(path), path.name, sound=True), course.load(ROOT), sandbox, seed=3)
    assert rows.from_dict(json.loads(json.dumps(rows.to_dict(row)))) == row
    (exercise,) = row.exercises
    return exercise, needs_a_person.needs(GradedFolder((row,)))


def test_a_right_answer_is_confirmed_and_needs_nobody(sandbox, tmp_path):
    exercise, needs = marked(sandbox, tmp_path, TITLE + RIGHT)
    assert (exercise.state, exercise.points, exercise.simulated.outcome, needs) == ("pass", ALL, "same", [])


def test_an_answer_that_is_wrong_in_simulated_time_alone_keeps_its_points_and_is_listed(sandbox, tmp_path):
    exercise, (need,) = marked(sandbox, tmp_path, in_simulated_time("x = -x"))
    assert (exercise.state, exercise.points, exercise.simulated.outcome) == ("pass", ALL, "differs")
    assert (need.kind, need.student) == ("differs", "anna_1")
    assert f"on real ranks {ALL:g}; in simulated time {exercise.simulated.points:g} (" in need.why


def test_an_answer_that_is_wrong_for_other_draws_loses_its_points(sandbox, tmp_path, monkeypatch):
    draws = []

    def check(exercise: str, arena, *functions) -> Verdict:
        draws.append(arena.draws.random())
        if not isinstance(arena, SandboxArena):
            arena.ways.add("ranks")
            return verdict(True, True, state="pass")
        return verdict(True, False)

    monkeypatch.setattr(mark_submission, "run_check", check)
    exercise, (need,) = marked(sandbox, tmp_path, TITLE + RIGHT)
    assert (exercise.state, exercise.points, exercise.simulated.outcome, need.kind) == ("fail", 1.0, "differs", "differs")
    assert exercise.mismatch == "In simulated time, with other draws: rank 1: expected 12, got 7"
    assert draws[0] != draws[1] == draws[2]


@pytest.mark.parametrize("source", [READS_THE_OTHERS, FORGES_ITS_RESULT], ids=["reads the others", "forges its result"])
def test_what_only_one_process_allows_earns_nothing(sandbox, tmp_path, source):
    exercise, _ = marked(sandbox, tmp_path, source)
    values = {p.name: p.passed for p in exercise.properties}
    assert exercise.state == "fail" and exercise.points <= 1.0 and False in values.values(), values


def test_a_process_that_is_gone_costs_no_points_and_is_listed(sandbox, tmp_path):
    exercise, (need,) = marked(sandbox, tmp_path, in_simulated_time(LOST["leaves"][0]))
    assert (exercise.state, exercise.points, exercise.simulated.outcome) == ("pass", ALL, "crashed")
    assert (need.kind, need.why) == ("not played", f"Exercise 0.1: no verdict in simulated time ({exercise.simulated.said})")


def test_what_cannot_be_played_costs_nothing_and_needs_nobody(sandbox, tmp_path):
    act = "__import__('threading').Thread(target=print).start()"
    exercise, needs = marked(sandbox, tmp_path, in_simulated_time(act))
    assert (exercise.points, exercise.simulated.outcome, exercise.simulated.said, needs) == (ALL, "not played", "a thread", [])


def verdict(*passed: bool | None, state: str = "fail") -> Verdict:
    said = "" if state == "pass" else "rank 1: expected 12, got 7"
    return Verdict("ring", state, tuple(Property(f"p{k}", 1.0, one) for k, one in enumerate(passed)), said)


@pytest.mark.parametrize(
    ("real", "simulated", "points", "outcome"),
    [
        (verdict(True, True, state="pass"), verdict(True, True, state="pass"), 2, "same"),
        (verdict(True, True, state="pass"), verdict(True, False), 1, "differs"),
        (verdict(True, True, state="pass"), verdict(None, None), 0, "differs"),
        (verdict(True, True, state="pass"), verdict(), 0, "differs"),
        (verdict(True, True, state="pass"), verdict(None, None, state="not yet"), 0, "differs"),
        (verdict(True, False), verdict(True, None), 1, "same"),
        (verdict(True, False), verdict(True, True, state="pass"), 1, "differs"),
        (verdict(True, False), verdict(False, True), 0, "differs"),
    ],
)  # fmt: skip
def test_a_property_has_its_points_where_both_verdicts_gave_them(real, simulated, points, outcome):
    both = confirmed(Checked(real, real.state), simulated)
    assert (both.verdict.points, both.simulated.outcome) == (points, outcome)
    assert (both.state == "pass") == (points == 2)


def test_a_row_of_a_version_that_knew_no_simulated_time_is_read():
    row = GradeRow("anna_1", LAB, "x.ipynb", "graded", exercises=(ExerciseRow("ring", "Exercise 6.5", "pass", 1.0, 1.0),))
    data = rows.to_dict(row)
    del data["exercises"][0]["simulated"]
    assert rows.from_dict(data) == row


def test_points_given_by_hand_settle_two_verdicts():
    about = SimulatedRow("differs", "rank 1: expected 12", 0.0, 1.0)
    exercise = ExerciseRow("ring", "Exercise 6.5", "fail", 0.0, 1.0, simulated=about)
    row = GradeRow("anna_1", LAB, "x.ipynb", "graded", possible=1.0, exercises=(exercise,))
    assert [need.kind for need in needs_a_person.needs(GradedFolder((row,)))] == ["differs"]
    assert needs_a_person.needs(GradedFolder((row,)), {("anna_1", LAB): object()}) == []
