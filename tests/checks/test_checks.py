"""The checks of exercises: wrong answers fail with words that name the mistake, right ones earn every point."""

import functools
import re
from collections.abc import Callable
from inspect import signature

import numpy as np
import pytest

from tests.checks.mutants import Answers, says
from tests.support.answers import ANSWERS, FOLDER, IN_A_SANDBOX, NEEDS_PROCESSES, SLOW, right_answers
from tests.support.examined import Examined, examined
from worldsize.cells.released import EXERCISES
from worldsize.checks import CHECKS, check_of, run_check
from worldsize.checks.arena import ArenaResult, LaunchArena
from worldsize.checks.in_one_process import NotPlayable
from worldsize.checks.kit.judge import Case, judge, of_both
from worldsize.checks.kit.values import first_difference, inputs_for
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.checks.verdict import UNEXAMINED, Property, Tried, Verdict
from worldsize.errors import NotYet
from worldsize.failures import Wait
from worldsize.trace import Trace

SEED = 7  # the same draws in every run of the suite; `test_seeds` tries others
LARGE_SIZES = tuple((n, length) for n in range(2, 9) for length in (2 * n, 2 * n + 1, n - 1))
ON_REAL_RANKS = tuple(size for size in LARGE_SIZES if size[0] in (2, 3, 4, 7))
LAB_OF = {exercise: number for number, exercises in EXERCISES.items() for exercise in exercises}
BY_EXERCISE = {answers.exercise: answers for answers in ANSWERS}
# answers that need processes though their exercise does not, or none though it does
ALONE_IN_A_PROCESS = {
    "stage_3": {"receives_in_a_thread": "a thread"},
    "ring_attention": {"receives_in_a_thread": "a thread"},
    "train_to_the_end": {"keeps_the_checkpoint_in_memory": "memory of a rank's own"},
}


def _wrong(what: str, left_out: frozenset[Callable] = frozenset()) -> list[object]:
    """(exercise, function, its words or the sizes where it is harmless); most are for the long campaign.

    Those that are `left_out` are there where `make test` runs them.
    """
    found = [
        (place, a.exercise, *row) for a in ANSWERS for place, row in enumerate(a.wrong)
        if row[0] not in left_out or _is_usual(a.exercise, row[0], place)
    ]  # fmt: skip
    last = {"words": 2, "harmless_at": 3}[what]
    return [
        pytest.param(*row[:2], row[last], id=f"{row[0]}-{row[1].__name__}", marks=_unless(_is_usual(*row[:2], place)))
        for place, *row in found
    ]


def _unless(usual: bool) -> list[pytest.MarkDecorator]:
    return [] if usual else [pytest.mark.soak]


def _is_usual(exercise: str, fn: Callable, place: int) -> bool:
    """Return whether `make test` runs a wrong answer on real ranks, too: one of each lab's, and those that need processes.

    `tests/grade/test_checks.py` has one of each exercise on the ranks of a sandbox.
    """
    first_of_lab = (*EXERCISES[LAB_OF[exercise]],).index(exercise) == 0
    return (place == 0 and first_of_lab) or fn.__name__ in ALONE_IN_A_PROCESS.get(exercise, ())


def _takes_sizes(exercise: str) -> bool:
    return list(signature(check_of(exercise)).parameters)[2:3] == ["sizes"]


def in_simulated_time(fn: Callable) -> SimulatedArena:
    limit = {"limit_s": 1.0} if fn.__name__ == "never_ends" else {}  # it takes all of it
    return SimulatedArena(seed=SEED, **limit)


@functools.cache
def looked_at(exercise: str, fn: Callable) -> Examined | None:
    """The check in simulated time; None where the answer needs real processes."""
    try:
        return examined(exercise, in_simulated_time(fn), fn)
    except NotPlayable:
        return None


def played(exercise: str, fn: Callable) -> Verdict | None:
    """The verdict in simulated time; None where the answer needs real processes."""
    found = looked_at(exercise, fn)
    return found and found.verdict


# Where the words of a verdict in simulated time and on real ranks differ, and why; all else of them is the same.
OWN_WORDS = re.compile(
    "|".join((
        r"^ *… \d+ frames? of libraries, the last in \w+$",  # what lies below a fabric's calls
        r" \(last message: (?:sent|received) [\d.,]+ k?M?B (?:to|from) rank \d+\)",  # told by ranks that are processes alone
        r"(?<=after timeout_s=)\d+(?= s the function's process had not ended)",  # simulated time gives it 1 s, to be quick
    )),
    re.MULTILINE,
)  # fmt: skip


def compared(verdict: Verdict | None) -> tuple | None:
    """What is the same in simulated time and on real ranks: state, points, properties, and words."""
    words = verdict and verdict.mismatch and OWN_WORDS.sub("", verdict.mismatch)
    return verdict and (verdict.state, verdict.points, [p.passed for p in verdict.properties], words)


@pytest.fixture
def arena() -> LaunchArena:
    return LaunchArena(tensorflow_s=60, seed=SEED)  # on a busy machine TensorFlow starts slowly


def test_every_exercise_has_four_wrong_answers_and_two_right_ones():
    counts = {a.exercise: (len(a.wrong), len(a.right)) for a in ANSWERS}
    assert set(counts) == set(CHECKS)
    assert all(wrong >= 4 and right >= 2 for wrong, right in counts.values()), counts


@pytest.mark.parametrize("exercise", CHECKS)
def test_wrong_answers_fail_with_words_that_name_the_mistake(exercise):
    found = []
    for fn, words, _ in _usual(BY_EXERCISE[exercise]):
        verdict = played(exercise, fn)
        if verdict is not None and (verdict.state != "fail" or not all(says(verdict.mismatch, one) for one in words)):
            found.append((fn.__name__, words, verdict.state, verdict.mismatch))
    assert found == []


@pytest.mark.parametrize("exercise", CHECKS)
def test_right_answers_in_an_odd_style_earn_every_point(exercise):
    verdicts = {fn.__name__: played(exercise, fn) for fn in BY_EXERCISE[exercise].right}
    found = {name: v.mismatch for name, v in verdicts.items() if v is not None and (v.state, v.points) != ("pass", v.possible)}
    assert found == {}


@pytest.mark.parametrize("exercise", CHECKS)
def test_a_case_tries_the_same_properties_whatever_is_wrong(exercise):
    """A property that cannot be judged beside another's complaint is UNEXAMINED; left out, it would keep what it held before."""
    looks = [(fn.__name__, one.found) for fn in _all(BY_EXERCISE[exercise]) if (one := looked_at(exercise, fn))]
    held: dict[tuple[int, str], set[str]] = {}
    for _, cases in looks:
        for case, found in cases.items():
            held.setdefault(case, set()).update(name for name, complaint in found.items() if complaint is None)
    left_out = [(name, case, held[case] - set(found)) for name, cases in looks for case, found in cases.items()]
    assert [row for row in left_out if row[2]] == []


@pytest.mark.parametrize("exercise", [a.exercise for a in ANSWERS if a.spoilt])
def test_a_mistake_on_purpose_earns_nothing(exercise):
    found = []
    for fn, honest in BY_EXERCISE[exercise].spoilt:
        with_it, without = played(exercise, fn), honest and played(exercise, honest)
        if with_it is not None and with_it.points > (without.points if without else 0):
            found.append((fn.__name__, with_it.points, without and without.points, with_it.mismatch))
    assert found == []


def _spoilt() -> list[object]:
    """(exercise, function, the same without its mistake on purpose); one that needs processes is part of the usual suite."""
    rows = [(a.exercise, *row) for a in ANSWERS for row in a.spoilt]
    return [
        pytest.param(*row, id=f"{row[0]}-{row[1].__name__}", marks=_unless(row[0] == "save_atomically")) for row in rows
    ]


@pytest.mark.parametrize(("exercise", "fn", "honest"), _spoilt())
def test_a_mistake_on_purpose_earns_nothing_on_real_ranks(arena, exercise, fn, honest):
    verdict, most = run_check(exercise, arena, fn), run_check(exercise, arena, honest).points if honest else 0
    assert verdict.points <= most, verdict.mismatch


@pytest.mark.parametrize("exercise", sorted(BY_EXERCISE))
def test_those_that_need_real_processes_are_named(exercise):
    """Every right answer of the exercises in `NEEDS_PROCESSES`, and those of the others that `ALONE_IN_A_PROCESS` has."""
    refused = {fn.__name__ for fn in _all(BY_EXERCISE[exercise]) if played(exercise, fn) is None}
    if exercise in NEEDS_PROCESSES:
        assert BY_EXERCISE[exercise].right[0].__name__ in refused
    else:
        assert refused == set(ALONE_IN_A_PROCESS.get(exercise, ()))


def _all(answers: Answers) -> list[Callable]:
    return [*answers.right, *(fn for fn, *_ in _usual(answers))]


def _usual(answers: Answers) -> list[tuple]:
    """The wrong answers that are judged here: of a slow exercise every third, and those that need a process."""
    if answers.exercise not in SLOW:
        return answers.wrong
    alone = ALONE_IN_A_PROCESS.get(answers.exercise, ())
    return [row for place, row in enumerate(answers.wrong) if place % 3 == 0 or row[0].__name__ in alone]


@pytest.mark.parametrize(("exercise", "fn", "words"), _wrong("words", IN_A_SANDBOX))
def test_a_wrong_answer_fails_on_real_ranks_as_in_simulated_time(arena, exercise, fn, words):
    verdict, simulated = run_check(exercise, arena, fn), played(exercise, fn)
    assert verdict.state == "fail"
    assert [one for one in words if not says(verdict.mismatch, one)] == [], verdict.mismatch
    assert simulated is None or fn in BY_EXERCISE[exercise].chance or compared(verdict) == compared(simulated)


def at_sizes(exercise: str, fn: Callable, sizes: list[tuple[int, int]], launches: LaunchArena) -> Verdict:
    """The verdict at `sizes`, in simulated time; on real ranks where the answer needs them."""
    try:
        return run_check(exercise, in_simulated_time(fn), fn, sizes)
    except NotPlayable:
        return run_check(exercise, launches, fn, sizes)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("exercise", "fn", "harmless_at"), _wrong("harmless_at"))
def test_a_wrong_answer_fails_at_every_size_where_it_is_wrong(arena, exercise, fn, harmless_at):
    if not _takes_sizes(exercise):
        pytest.skip("its check has sizes of its own")
    for n in range(2, 9):
        verdict = at_sizes(exercise, fn, [size for size in LARGE_SIZES if size[0] == n], arena)
        assert (verdict.state == "pass") == (n in harmless_at), f"{n} ranks: {verdict}"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("exercise", "fn"), right_answers())
def test_a_right_answer_passes_at_every_size(arena, exercise, fn):
    """On real ranks; `test_seeds` has the usual sizes, with ten draws."""
    if not _takes_sizes(exercise):
        pytest.skip("its check has sizes of its own")
    verdict = run_check(exercise, arena, fn, ON_REAL_RANKS)
    assert verdict.state == "pass", verdict.mismatch


def test_answers_import_tensorflow_when_they_need_it():
    """Every rank that gets one of them imports its module first."""
    sources = {path.name: path.read_text() for path in FOLDER.glob("*.py")}
    assert [name for name, text in sources.items() if re.search(r"^(import|from) (tensorflow|keras|tf_keras)", text, re.M)] == []


def test_an_endless_loop_ends_the_check_at_its_time_limit():
    verdict = run_check("ring_all_reduce", LaunchArena(timeout_s=1), _never_ends)
    assert verdict.mismatch.startswith("3 ranks, 6 elements: after timeout_s=1 s")


def _never_ends(fabric, x):
    while True:
        x += 0


def test_a_stub_is_not_yet_and_earns_nothing(arena):
    verdict = run_check("ring_all_reduce", arena, _stub)
    assert (verdict.state, verdict.points, verdict.possible) == ("not yet", 0, 1.5), verdict.mismatch
    assert "Exercise 6.3: reduce-scatter" in str(verdict)


def _stub(fabric, x):
    raise NotYet("Exercise 6.3: reduce-scatter")


def test_an_exercise_that_is_not_there_is_named_with_those_that_are(arena):
    with pytest.raises(ValueError, match="expected one of .*all_gather.*got 'ring_al_reduce'"):
        run_check("ring_al_reduce", arena, _stub)


def test_the_messages_of_the_run_that_failed_come_with_the_verdict(arena):
    verdict = run_check("ring_all_reduce", arena, _wrong_ring("whole_tensors_round_the_ring"))
    assert {t.size_bytes for t in verdict.trace.transfers} == {24}


def test_properties_that_held_earn_their_points_though_another_failed(arena):
    verdict = run_check("ring_all_reduce", arena, _wrong_ring("as_many_whole_tensors_as_there_are_steps"))
    assert [p.passed for p in verdict.properties] == [True, True, False, None]
    assert verdict.points == 0.75


@pytest.mark.parametrize(
    "name",
    [
        "whole_tensors_round_the_ring",
        "whole_tensors_and_empty_messages_to_fill_the_count",
        "whole_tensors_and_messages_to_itself_to_fill_the_count",
        "a_ring_with_an_empty_message_after_each_chunk",
    ],
)
def test_the_count_of_messages_is_earned_by_one_message_a_step_alone(arena, name):
    verdict = run_check("ring_all_reduce", arena, _wrong_ring(name))
    (count,) = [p for p in verdict.properties if p.name.startswith("2(n − 1) messages")]
    assert not count.passed, verdict.mismatch


def _wrong_ring(name: str):
    return BY_EXERCISE["ring_all_reduce"][name]


POINTS = {"values": 1.0, "messages": 2.0}


def _case(name: str, values: str | None = None, messages: str | None = None, ended: ArenaResult | None = None) -> Case:
    ended = ended or ArenaResult("done", trace=Trace(2))
    return Case(name, lambda: ended, lambda _: {"values": values, "messages": messages})


def test_judging_goes_on_while_a_property_can_hold():
    second = _case("second", messages="too many")
    verdict = judge("ring", POINTS, [_case("first", values="wrong"), second])
    assert ([p.passed for p in verdict.properties], verdict.mismatch) == ([False, False], "first: wrong")


def test_judging_stops_where_no_property_can_hold_any_more():
    ran = []
    last = Case("last", lambda: ran.append(2), lambda _: {})
    judge("ring", POINTS, [_case("first", values="wrong"), _case("second", "wrong", UNEXAMINED), last])
    judge("ring", POINTS | {"seen by the answer alone": 0}, [_case("first", "wrong", "too many"), last])
    assert ran == []


def test_a_property_that_one_case_could_not_judge_earns_nothing_whatever_the_others_say():
    for cases in ([_case("2 ranks"), _case("3 ranks", "wrong", UNEXAMINED)], [_case("3 ranks", "wrong", UNEXAMINED)]):
        verdict = judge("ring", POINTS, [*cases, _case("4 ranks")])
        assert ([p.passed for p in verdict.properties], verdict.points) == ([False, None], 0)


def test_a_property_that_is_first_tried_after_a_mistake_was_not_examined():
    first = Case("first", lambda: ArenaResult("done", trace=Trace(2)), lambda _: {"values": "wrong"})
    verdict = judge("ring", POINTS, [first, _case("second")])
    assert ([p.passed for p in verdict.properties], verdict.points) == ([False, None], 0)


def test_the_first_mistake_is_the_last_of_a_check_that_does_not_go_on():
    cases = [_case("first", messages="too many"), _case("second", values="wrong")]
    verdict = judge("ring", POINTS, cases, goes_on=False)
    assert ([p.passed for p in verdict.properties], verdict.mismatch) == ([True, False], "first: too many")


def test_two_looks_at_a_property_are_a_complaint_or_unexamined_before_they_hold():
    rows = [(None, None), (None, UNEXAMINED), (UNEXAMINED, None), (UNEXAMINED, "wrong"), ("wrong", UNEXAMINED), ("wrong", "late")]
    assert [of_both(*row) for row in rows] == [None, UNEXAMINED, UNEXAMINED, "wrong", "wrong", "wrong"]


def test_an_isend_that_nobody_waited_for_costs_its_property_beside_another_mistake_too():
    verdict = judge("ring", POINTS, [_case("2 ranks", None, "too many", ended=ArenaResult("done", unwaited=(1,)))])
    assert ([p.passed for p in verdict.properties], verdict.mismatch) == ([False, False], "2 ranks: too many")


def test_a_run_that_breaks_off_after_a_mistake_leaves_the_others_unexamined_and_is_named():
    verdict = judge("ring", POINTS, [_case("2 ranks", "wrong"), _case("3 ranks", ended=ArenaResult("raised", "it broke"))])
    assert ([p.passed for p in verdict.properties], verdict.points) == ([False, None], 0)
    assert verdict.mismatch.splitlines() == [
        "2 ranks: wrong", "Beyond this nothing counts: 3 ranks shows nothing, because its run broke off."
    ]  # fmt: skip


def test_the_first_wrong_property_gives_the_words():
    verdict = judge("ring", POINTS, [_case("2 ranks", None, "too many")])
    assert verdict.mismatch == "2 ranks: too many"


def test_a_property_that_no_case_tried_earns_nothing():
    case = Case("2 ranks", lambda: ArenaResult("done"), lambda _: {"values": None})
    verdict = judge("ring", POINTS, [case])
    assert verdict.points == 1.0


def test_values_that_a_check_cannot_read_fail_with_the_reason_and_earn_nothing():
    case = Case("3 ranks", lambda: ArenaResult("done", returned=(None,)), lambda ended: {"right": len(ended.returned[0])})
    verdict = judge("ring", POINTS, [case])
    assert (verdict.state, verdict.points) == ("fail", 0)
    assert verdict.mismatch == (
        "3 ranks: the check could not read the result (TypeError: object of type 'NoneType' has no len())"
    )


@pytest.mark.parametrize("state", ["raised", "deadlock", "timeout"])
def test_a_run_that_did_not_end_well_earns_nothing(state):
    verdict = judge("ring", POINTS, [_case("2 ranks"), _case("3 ranks", ended=ArenaResult(state, "it broke"))])
    assert (verdict.state, verdict.points, verdict.mismatch) == ("fail", 0, "3 ranks: it broke")


def test_an_isend_that_nobody_waited_for_loses_the_first_property_in_the_words_of_launch():
    verdict = judge("ring", POINTS, [_case("2 ranks", ended=ArenaResult("done", unwaited=(1,)))])
    assert (verdict.state, [p.passed for p in verdict.properties]) == ("fail", [False, True])
    assert verdict.mismatch == "2 ranks: rank 1 ended without waiting for an isend: call its wait()."


def test_a_deadlock_of_sends_alone_says_what_to_do():
    ended = ArenaResult("deadlock", "nobody goes on", waits=(Wait(0, "send", 1), Wait(1, "send", 0)))
    assert "Receive before you wait" in judge("ring", POINTS, [_case("2 ranks", ended=ended)]).mismatch


def test_a_deadlock_of_receives_gives_no_advice_about_sends():
    ended = ArenaResult("deadlock", "nobody goes on", waits=(Wait(0, "recv", 1), Wait(1, "recv", 0)))
    assert "isend" not in judge("ring", POINTS, [_case("2 ranks", ended=ended)]).mismatch


def test_inputs_differ_by_rank_and_by_element():
    values = np.concatenate(inputs_for(4, 5, seed=1))
    assert len(set(values.tolist())) == len(values)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (None, r"rank 1: expected the sum as a tensor of shape \[2\], got None \(does the function return it\?\)"),
        (3, "got a int"),
        (np.zeros(3), r"of shape \[2\], got shape \[3\]"),
        (np.zeros(2, "int64"), "as float64, got int64"),
        (np.array([1.0, 5.0]), r"rank 1, element 1: expected 2 \(the sum\), got 5 \(1 of 2 elements differ\)"),
    ],
)
def test_the_first_difference_is_told_in_words(got, words):
    assert re.search(words, first_difference(got, np.array([1.0, 2.0]), 1, "the sum"))


def test_equal_arrays_do_not_differ():
    assert first_difference(np.ones(2), np.ones(2), 0, "the sum") is None


@pytest.mark.quick
@pytest.mark.parametrize(
    ("sizes", "said"),
    [((), "none of them"), ((3,), "(3 ranks)"), ((1, 1), "(1 rank, twice)"), ((2, 3, 3, 3), "(2 ranks; 3 ranks, 3 times)")],
)
def test_a_verdict_says_once_on_how_many_real_ranks_its_cases_ran(sizes, said):
    assert said in str(Tried(5, confirmed=sizes))


@pytest.mark.quick
@pytest.mark.parametrize(("state", "mark"), [("pass", "✔"), ("fail", "✘")])
def test_an_optional_exercise_says_that_it_has_no_points(state, mark):
    text = str(Verdict("ring_backward", state, (Property("as one device", 0.0, state == "pass"),)))
    assert text.splitlines()[0] == f"{mark} ring_backward: optional, no points"


def test_a_verdict_prints_its_points_and_every_property():
    properties = (Property("values", 1, True), Property("messages", 2, False), Property("alone", 1))
    text = str(Verdict("ring", "fail", properties, "rank 0 sent nothing"))
    assert text.splitlines() == [
        "✘ ring: 1 of 4 points", "  ✔ values (1)", "  ✘ messages (2)", "  – alone (1)", "rank 0 sent nothing",
    ]  # fmt: skip
