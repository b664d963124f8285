"""The pictures of lab 09, and declared time in a graph: what each says, and that not-yet input is drawn."""

import time

import pytest

from worldsize import figures
from worldsize.figures import outcome_table, workers
from worldsize.tf import launch

quick = pytest.mark.quick
DATA = [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
OFF = [[[0, 1], [2, 3]], [[0, 1], [2, 3]]]


@quick
@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (DATA, "2 steps, no example more than once"),
        (OFF, "2 steps, every example more than once"),
        ([[[0, 1], [2]], [[0]]], "1 or 2 steps, 1 of 3 examples more than once"),
    ],
)
def test_shares_say_how_many_steps_and_what_is_taken_twice(taken, words):
    assert workers.finding(taken) == words


@quick
def test_a_picture_of_shares_tells_each_policy_in_its_alt_text():
    alt = figures.shares({"DATA": DATA, "OFF": OFF, "yours": None}, "Who takes which?").alt
    assert alt.startswith("Who takes which? With OFF, examples are taken more than once; with the others none is.")
    assert "DATA: 2 steps, no example more than once. OFF: " in alt and alt.endswith("yours: not yet.")


@quick
def test_shares_say_of_all_examples_how_many_nobody_takes():
    assert workers.finding(OFF, range(6)) == "2 steps, 2 examples never, all 4 others more than once"
    alt = figures.shares({"DATA": DATA, "OFF": OFF}, "Who takes which?", range(8)).alt
    assert alt.startswith("Who takes which? With OFF, examples are taken more than once; with the others none is; 4 of 8")
    assert "every example is taken." in figures.shares({"DATA": DATA}, "Who takes which?", range(8)).alt


@quick
def test_shares_of_which_none_is_written_are_not_yet():
    assert figures.shares({"yours": None}, "Who takes which?").alt.startswith("not yet: yours")


@quick
def test_outcomes_are_told_row_by_row():
    cells = {("A", "x"): "works", ("A", "y"): "works", ("B", "x"): "fails", ("B", "y"): "loses updates", ("C", "x"): "planned"}
    alt = figures.outcomes(["A", "B", "C"], ["x", "y"], cells, "What works?", "small").alt
    assert alt.startswith("What works? 2 of 4 combinations work; 1 of 2 alike in both columns. small.")
    assert alt.endswith("A: works in both; B: x fails, y loses updates; C: planned.")


@quick
def test_every_outcome_has_a_mark_of_its_own():
    assert len({look.mark for look in outcome_table.LOOKS.values()}) == len(outcome_table.LOOKS)


@quick
def test_lanes_say_how_many_and_where_nothing_came():
    rows = {"worker 0": [0.5, 1.0, 1.5], "worker 1": [0.5, 4.0]}
    alt = figures.lanes(rows, {"killed": 0.6}, "Who comes back?").alt
    assert "after \"killed\" worker 0 finishes 2 closures, worker 1 finishes 1 closure." in alt
    assert alt.startswith("Who comes back? Worker 1 finishes nothing from 0.5 to 4 s; ")
    assert alt.endswith("worker 0: 3 closures. worker 1: 2 closures, none from 0.5 to 4 s. killed at 0.6 s.")


@quick
def test_a_tick_of_a_lane_has_its_own_name():
    alt = figures.lanes({"agent 0": [0.5, 3.0], "agent 1": [0.5]}, {"killed": 0.6}, "Who goes on?", noun="step").alt
    assert 'after "killed" agent 0 finishes 1 step, agent 1 finishes none.' in alt
    assert "closure" not in alt


@quick
def test_lanes_without_anything_say_so():
    assert figures.lanes({"worker 0": []}, {}, "Who?").alt == "nothing was finished"


@quick
@pytest.mark.parametrize(("times", "gap"), [([], (0.0, 0.0)), ([1.0], (0.0, 0.0)), ([3.0, 1.0, 1.5], (1.5, 3.0))])
def test_the_longest_gap_is_found_in_any_order(times, gap):
    assert workers.longest_gap(times) == gap


@quick
def test_tallies_name_every_counter_of_every_run():
    alt = figures.tallies({"a": {"closures": 9, "iterations": 7}}, 9, "Do they agree?").alt
    assert alt == "Do they agree? Iterations of a are off most, 2 too few; 1 of 2 counters are off. a: closures 9, iterations 7."


@pytest.mark.soak  # it hangs on seconds
def test_a_pause_in_a_graph_takes_its_time_once():
    assert 0.5 <= launch(_paused, args=(0.5,))[0] < 1.0


def _paused(seconds):
    import tensorflow as tf

    from worldsize.tf.declared_time import pause

    step = tf.function(lambda: pause(seconds))
    step()
    lasted_s = []
    for _ in range(3):  # the shortest: a busy machine makes some longer, two pauses in one would make all
        began_s = time.monotonic()
        assert int(step()) == 0
        lasted_s.append(time.monotonic() - began_s)
    return min(lasted_s)


def test_how_far_a_counter_is_off_is_parted_from_where_it_stands():
    ax = figures.tallies({"a": {"closures": 9, "iterations": 7}}, 9, "Do they agree?").axes[0]
    assert "7: 2 too few" in [text.get_text() for text in ax.texts]
