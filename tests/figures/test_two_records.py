"""A step in two records on one axis: which rows there are, what they say together, and what one of them lacks."""

from types import SimpleNamespace

import pytest

from worldsize import figures
from worldsize.figures.one_step import two_records as picture
from worldsize.trace import Span, Trace, Transfer

pytestmark = pytest.mark.quick


class Done(SimpleNamespace):
    def __getitem__(self, rank: int) -> SimpleNamespace:
        return self.profile


def one(name: str, start_s: float, end_s: float) -> SimpleNamespace:
    return SimpleNamespace(name=name, start_s=start_s, end_s=end_s)


def work(rank: int, start_s: float, end_s: float) -> Span:
    return Span(rank, "compute", start_s, end_s, declared=True)


def run(*collectives: tuple[float, float], transfers: tuple[Transfer, ...] = ()) -> Done:
    """Two steps, at 0 s and at 10 s: 2 s of work on rank 0, 4 s on rank 1; the step ends after 5 s."""
    spans = [work(rank, at + k, at + k + 1 + rank) for at in (0.0, 10.0) for rank in (0, 1) for k in (0, 1 + rank)]
    spans.append(Span(0, "wait", 12.0, 15.0, "wait() of a sum"))
    gloo = [one("gloo:all_reduce", *times) for times in collectives]
    profile = SimpleNamespace(operators=[one("aten::mm", 10.0, 10.5), one("forward", 9.0, 15.0)], collectives=gloo)
    trace = Trace(2, transfers, tuple(sorted(spans, key=lambda s: s.start_s)))
    return Done(state="done", trace=trace, profile=profile)


def found(of: Done) -> str:
    return picture.finding(picture.tracks(of.trace, of.profile, 2, 0), 0)


def rows(of: Done) -> dict[str, tuple]:
    return {track.label: track.intervals for track in picture.tracks(of.trace, of.profile, 2, 0)}


def test_times_count_from_the_ranks_last_step_and_what_lies_before_is_left_out() -> None:
    seen = rows(run((0.0, 3.0), (11.0, 15.0)))
    assert seen["profiler: collectives, rank 0"] == ((1.0, 5.0),)
    assert seen["record: work, rank 0"] == ((0.0, 2.0),) and seen["record: work, rank 1"] == ((0.0, 4.0),)
    assert seen["record: waits, rank 0"] == ((2.0, 5.0),)


def test_operators_are_those_of_aten_and_not_who_calls_them() -> None:
    assert rows(run())["profiler: operators, rank 0"] == ((0.0, 0.5),)


def test_a_link_has_a_row() -> None:
    sent = (Transfer(0, 1, 8, 11.0, 12.0), Transfer(1, 0, 8, 12.0, 13.0))
    seen = rows(run(transfers=sent))
    assert seen["record: messages, 0 to 1"] == ((1.0, 2.0),) and seen["record: messages, 1 to 0"] == ((2.0, 3.0),)


def test_the_finding_says_who_works_while_a_collective_is_under_way() -> None:
    assert found(run((11.0, 15.0))) == (
        "By the profiler a collective is under way 80 % of the step; for 75 % of that rank 1 still works; "
        "the record has no messages"
    )


def test_the_finding_says_what_one_record_has_and_the_other_lacks() -> None:
    assert found(run(transfers=(Transfer(0, 1, 8, 11.0, 12.0),))) == (
        "The record has 1 message to rank 0 and from it; the profiler has no collectives"
    )


def test_the_part_of_the_collectives_in_which_another_rank_works_is_a_number_per_rank() -> None:
    assert picture.at_work(run((11.0, 15.0)), 2) == {1: pytest.approx(0.75)}
    assert picture.at_work(run(), 2) == {1: 0.0}


def test_a_step_s_events_are_counted_for_each_record() -> None:
    sent = (Transfer(0, 1, 8, 11.0, 12.0), Transfer(1, 0, 8, 12.0, 13.0))
    seen = picture.in_step(run((0.0, 3.0), (11.0, 15.0), transfers=sent), 2)
    assert seen == {"operators": 1, "collectives": 1, "messages": 2}


def test_time_in_both_counts_once() -> None:
    assert picture.together_s([(0, 2), (1, 3)], [(2.5, 9), (0, 1)]) == pytest.approx(1.5)


def test_the_alt_text_has_question_finding_and_each_row() -> None:
    alt = figures.two_records(run((11.0, 15.0)), 2, "Whom does it wait for?").alt
    assert alt.startswith("Whom does it wait for? By the profiler a collective is under way 80 % of the step")
    assert "record: work, rank 1: 80 % of the time." in alt and "record: messages: nothing." in alt


def test_an_exercise_not_yet_written_is_said() -> None:
    unwritten = SimpleNamespace(state="not yet", not_yet="Exercise 11.4")
    assert "not yet" in figures.two_records(unwritten, 2, "Which?").alt
