"""Schedules played on paper: dependencies, length, micro-batches in flight; and the same read back from spans."""

import pytest

from worldsize.formulas import cost, pipeline
from worldsize.formulas.pipeline import Stuck, play
from worldsize.trace import Span, Trace, Transfer

pytestmark = pytest.mark.quick


def all_first(stages: int, micro_batches: int) -> list[list[tuple[str, int]]]:
    micros = range(micro_batches)
    return [[("forward", k) for k in micros] + [("backward", k) for k in micros]] * stages


def in_turn(stages: int, micro_batches: int) -> list[list[tuple[str, int]]]:
    return [[(way, k) for k in range(micro_batches) for way in ("forward", "backward")]] * stages


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (4, 1), (2, 3), (4, 4), (4, 32), (3, 2)])
def test_all_forwards_first_takes_m_plus_p_minus_1_slots(stages, micro_batches):
    took = pipeline.makespan_s(play(all_first(stages, micro_batches), 1, 2))
    assert took == 3 * (micro_batches + stages - 1) == pytest.approx(3 * micro_batches * cost.bubble(stages, micro_batches))


@pytest.mark.parametrize("seconds", [(1, 1, 1, 1), (1, 4, 2, 3), (9, 1, 1, 1), (1, 1, 1, 9)])
def test_stages_that_differ_take_what_the_formula_says(seconds):
    trace = play(all_first(4, 5), seconds, [2 * s for s in seconds])
    assert pipeline.makespan_s(trace) == cost.pipeline([3 * s for s in seconds], 5)


def test_one_micro_batch_at_a_time_keeps_one_stage_busy():
    trace = play(in_turn(4, 3), 1, 2)
    assert pipeline.utilisation(trace) == pytest.approx(1 / 4)


def test_a_message_delays_the_next_stage_alone():
    trace = play([[("forward", 0), ("forward", 1)]] * 2, 1, 1, hop_s=0.5)
    begins = {(w.stage, w.micro): w.start_s for w in pipeline.works(trace)}
    assert begins == {(0, 0): 0, (0, 1): 1, (1, 0): 1.5, (1, 1): 2.5}


def test_stages_that_wait_for_each_other_are_stuck():
    with pytest.raises(Stuck, match="stage 0 can't do backward 0 before stage 1 has done backward 0; stage 1 can't do"):
        play([[("forward", 0), ("backward", 0), ("forward", 1)], [("forward", 0), ("forward", 1), ("backward", 0)]], 1, 1)


def test_a_backward_waits_for_its_own_forward():
    with pytest.raises(Stuck, match="stage 0 can't do backward 0 before stage 0 has done forward 0"):
        play([[("backward", 0), ("forward", 0)]], 1, 1)


def test_micro_batches_in_flight_are_counted_from_forward_to_backward():
    assert pipeline.in_flight(play(all_first(3, 5), 1, 2)) == [5, 5, 5]
    assert pipeline.in_flight(play(in_turn(3, 5), 1, 2)) == [1, 1, 1]


def test_a_micro_batch_that_ends_as_the_next_begins_is_not_in_flight_with_it():
    spans = [Span(0, "compute", *times) for times in ((0, 1, "forward 0"), (1, 2, "backward 0"), (2, 3, "forward 1"))]
    assert pipeline.in_flight(Trace(1, spans=tuple(spans))) == [1]


def test_a_split_backward_holds_its_micro_batch_until_its_weights_are_done():
    late = [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1), ("weights", 0), ("weights", 1)]
    assert pipeline.in_flight(play([late], 1, 1, weights_s=1)) == [2]


def test_weights_wait_for_their_own_backward():
    with pytest.raises(Stuck, match="stage 0 can't do weights 0 before stage 0 has done backward 0"):
        play([[("forward", 0), ("weights", 0)]], 1, 1)


def test_a_micro_batch_goes_through_the_chunks_of_all_devices_in_their_order():
    forwards = [[("forward", 0, 0), ("forward", 0, 1)]] * 2
    found = [(w.stage, w.chunk, w.start_s) for w in pipeline.works(play(forwards, 2, 2, hop_s=0.5, chunks=2))]
    assert found == [(0, 0, 0), (1, 0, 1.5), (0, 1, 3), (1, 1, 4.5)]


def test_chunks_in_the_wrong_order_are_stuck():
    with pytest.raises(Stuck, match="stage 0 can't do forward 0 before stage 1 has done forward 0"):
        play([[("forward", 0, 1), ("forward", 0, 0)], [("forward", 0, 0), ("forward", 0, 1)]], 1, 1, chunks=2)


def test_other_spans_are_no_work_of_a_stage():
    spans = (Span(0, "compute", 0, 1, "0.5 s declared"), Span(0, "compute", 0, 1, "forward"), Span(0, "recv", 0, 1))
    trace = Trace(1, (Transfer(0, 1, 4, 0, 1),), spans)
    assert (pipeline.works(trace), pipeline.makespan_s(trace), pipeline.utilisation(trace)) == ([], None, None)
