"""The kit of a check: its declaration, the values that it expects, the bytes that it needs, draws until a case tells."""

import itertools

import numpy as np
import pytest

from worldsize.checks import CHECKS, check_of
from worldsize.checks.arena import ArenaResult
from worldsize.checks.kit import evidence
from worldsize.checks.kit.draws import drawn_until
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.expected import SINGLE_WORDS, Expected, went_through_float32
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.needed_bytes import NeededBytes
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.trace import Trace, Transfer

pytestmark = pytest.mark.quick


@exercise({"values": 1.0, "messages": 0.5}, seen={"messages": evidence.MESSAGES})
def halves(arena, fn):
    """Check `halves(x)`."""
    yield Case("4", lambda: arena.call(fn, 4), lambda ended: {"values": None if ended.returned == (2,) else "no half"})
    yield Case("no messages", lambda: ArenaResult("done"), lambda ended: {"messages": None})


def test_a_declared_function_judges_its_cases_under_its_name():
    verdict = halves(SimulatedArena(1), lambda x: x // 2)
    assert (verdict.exercise, verdict.state, verdict.points, verdict.possible) == ("halves", "pass", 1.5, 1.5)
    assert halves(SimulatedArena(1), lambda x: x).mismatch == "4: no half"
    assert (halves.__name__, halves.__doc__, halves.needs) == ("halves", "Check `halves(x)`.", "")


def test_a_property_without_other_evidence_is_seen_in_what_came_back():
    assert halves.seen == {"values": evidence.RETURNED, "messages": evidence.MESSAGES}


def test_evidence_of_a_property_that_the_exercise_lacks_is_an_error():
    with pytest.raises(ValueError, match="exercise: expected evidence of values, got evidence of value"):
        exercise({"values": 1.0}, seen={"value": evidence.MESSAGES})


def test_a_property_for_messages_that_nobody_waits_for_must_be_one_of_the_exercise():
    with pytest.raises(ValueError, match="exercise: expected waits as one of values, got 'messages'"):
        exercise({"values": 1.0}, waits="messages")


def test_points_that_only_the_answers_own_process_sees_are_an_error():
    exercise({"values": 1.0, "graph": 0.0}, seen={"graph": evidence.OWN_PROCESS})
    with pytest.raises(ValueError, match="expected 0 points for 'graph', which the answer's own process alone sees, got 0.5"):
        exercise({"values": 1.0, "graph": 0.5}, seen={"graph": evidence.OWN_PROCESS})


def test_an_exercise_that_nobody_declares_is_an_error():
    with pytest.raises(ValueError, match="check: expected one of accumulate, .*, got 'halves'"):
        check_of("halves")


def test_every_name_of_the_index_is_declared_under_it():
    assert {name: check_of(name).name for name in CHECKS} == {name: name for name in CHECKS}


RIGHT = [np.array([2.0, 4.0]), np.array([6.0, 8.0])]
WANTED = Expected("the sum", RIGHT, {"This is the mean.": [x / 2 for x in RIGHT]})


def test_right_values_on_every_rank_are_no_complaint_but_for_rounding():
    assert WANTED.wrong(RIGHT) is None and WANTED.wrong([x * (1 + 1e-8) for x in RIGHT]) is None
    assert WANTED.wrong([x * (1 + 1e-4) for x in RIGHT])


def test_the_first_wrong_rank_is_named_with_the_mistake_that_gives_its_values():
    assert WANTED.wrong([RIGHT[0], RIGHT[1] / 2]) == (
        "rank 1, element 0: expected 6 (the sum), got 3 (2 of 2 elements differ). This is the mean."
    )


def test_a_rank_of_small_values_is_held_to_them_beside_another_of_large_ones():
    apart = Expected("it", [np.array([1e-3, 2e-3]), np.array([1e6, 2e6])])
    assert apart.wrong([np.zeros(2), np.array([1e6, 2e6])]).startswith("rank 0, element 0: expected 0.001 (it), got 0")
    assert Expected("it", apart.by_rank, near_zero=0.1).wrong([np.zeros(2), np.array([1e6, 2e6])]) is None


def test_mistakes_are_asked_for_only_where_something_is_wrong():
    def never():
        raise AssertionError("nothing is wrong")

    assert Expected("the sum", RIGHT, never).wrong(RIGHT) is None


def test_another_right_value_is_right_on_its_rank():
    either = Expected("the sum", RIGHT, too=[[-x for x in RIGHT]])
    assert either.wrong([RIGHT[0], -RIGHT[1]]) is None
    assert either.wrong([RIGHT[1], -RIGHT[0]]).startswith("rank 0, element 0: expected 2 (the sum), got 6")


@pytest.mark.parametrize("but_for_nan", [False, True])
def test_a_mistake_explains_values_with_nan_only_where_that_is_asked_for(but_for_nan):
    wanted = Expected("the sum", RIGHT, WANTED.mistakes, but_for_nan=but_for_nan)
    assert ("This is the mean." in wanted.wrong([np.array([1.0, np.nan]), RIGHT[1]])) is but_for_nan
    assert "mean" not in wanted.wrong([np.full(2, np.nan), RIGHT[1]])  # nothing but NaN fits every mistake
    overflows = Expected("the sum", RIGHT, {"It overflows.": [np.array([1.0, np.nan]), RIGHT[1]]}, but_for_nan=but_for_nan)
    assert ("It overflows." in overflows.wrong([np.array([1.0, np.nan]), RIGHT[1]])) is but_for_nan


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ([np.array([1 / 3, 1.0], "float32").astype("float64"), np.ones(2)], "went through float32"),
        ([np.array([1 / 3, 1.0]) * 1.005, np.ones(2)], "went through bfloat16 or float16"),
        ([np.array([1 / 3, np.inf]), np.ones(2)], "1 of its 2 numbers are not finite"),
        ([np.array([7.0, 7.0]), np.ones(2)], "(2 of 2 elements differ)."),
    ],
)
def test_what_no_mistake_explains_is_told_as_numbers(got, words):
    wanted = Expected("the mean", [np.array([1 / 3, 1.0]), np.ones(2)], rounding=1e-10)
    assert words in wanted.wrong(got)


def test_a_check_may_say_something_else_of_what_no_mistake_explains():
    wanted = Expected("it", [np.array([1 / 3])], rounding=1e-10, otherwise=went_through_float32)
    assert wanted.wrong([np.array([1 / 3], "float32").astype("float64")]).endswith(SINGLE_WORDS)
    assert SINGLE_WORDS not in wanted.wrong([np.array([0.3])])
    assert went_through_float32(0, np.array([1 / 3]), np.array([1 / 3], "float32")) == ""  # float32 was asked for


def sent(size_bytes: int) -> Trace:
    return Trace(2, (Transfer(0, 1, size_bytes, 0.0, 1.0, 0, 0.0),))


NEEDED = NeededBytes(1000, "an all-reduce", {2000: "It came twice."}, "Send less.", "A sum is missing.", 100, "Send something.")


@pytest.mark.parametrize(
    ("size_bytes", "complaint"),
    [
        (1000, None),
        (900, None),  # spared
        (2000, "all ranks together sent 2,000 bytes, 2 x the 1,000 bytes of an all-reduce. It came twice."),
        (3000, "all ranks together sent 3,000 bytes, 3 x the 1,000 bytes of an all-reduce. Send less."),
        (950, "all ranks together sent 950 bytes, 0.95 x the 1,000 bytes of an all-reduce. A sum is missing."),
        (1001, "all ranks together sent 1,001 bytes, slightly more than the 1,000 bytes of an all-reduce. Send less."),
    ],
)
def test_bytes_are_right_spared_or_complained_about_with_the_mistake(size_bytes, complaint):
    assert NEEDED.wrong(sent(size_bytes)) == complaint


def test_no_message_at_all_is_told_in_words_of_its_own():
    assert NEEDED.wrong(Trace(2)) == "no message passed through the fabric. Send something."


def test_fewer_bytes_are_right_where_no_words_are_given_for_them():
    assert NeededBytes(1000, "an all-reduce", {}, "Send less.").wrong(sent(10)) is None


def test_a_case_is_drawn_until_it_tells():
    drawn = itertools.count()
    assert drawn_until(lambda number: number >= 3, lambda: next(drawn), "numbers") == 3


def test_draws_that_never_tell_end_in_an_error_that_names_them():
    with pytest.raises(AssertionError, match="numbers: 5 draws, and none will do"):
        drawn_until(lambda number: False, lambda: 1, "numbers", most=5)
