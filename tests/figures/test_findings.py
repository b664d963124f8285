"""The words of findings: each holds for its numbers, also where they tie, are few, are zero or are missing."""

import math

import pytest

from worldsize import units
from worldsize.figures.frame import crossings, findings, predictions

NAN = math.nan


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ({}, ""),
        ({"ring": None}, ""),
        ({"ring": NAN, "star": math.inf}, ""),
        ({"ring": 0.02}, "ring takes 20 ms"),
        ({"4 buckets": 0.02}, "4 buckets take 20 ms"),
        ({"ring": 0.2, "star": 0.62}, "ring is 3.1 times as fast as star"),
        ({"ring": 0.62, "star": 0.2}, "star is 3.1 times as fast as ring"),
        ({"ring": 0.2, "star": 0.203}, "ring and star tie"),
        ({"ring": 0.2, "star": 0.62, "tree": None}, "ring is 3.1 times as fast as star"),
        ({"ring": 1.0, "tree": 2.0, "star": 4.0}, "ring is fastest, 4 times as fast as the slowest, star"),
        ({"ring": 1.0, "tree": 1.01, "star": 4.0}, "ring and tree tie, up to 4 times as fast as star"),
        ({"ring": 1.0, "tree": 1.01, "star": 1.02}, "ring, tree and star tie"),
        ({"ring": 1.0, "star": 1.08}, "ring is 8 % faster than star"),
        ({"two": 1.14, "three": 1.18, "one": 1.09}, "two and one tie, up to 8 % faster than three"),
        ({"ring": 0.0, "star": 0.0}, "ring and star tie"),
        ({"ring": 0.0, "star": 1.0}, "ring is many times as fast as star"),
    ],
)
def test_a_race_has_a_winner_a_tie_or_nothing(seconds, words):
    assert findings.fastest(seconds) == words


def test_what_lies_within_the_spread_of_repetitions_overlaps_and_is_no_tie():
    words = "ring and star overlap, middle runs 1 s to 1.3 s"
    assert findings.fastest({"ring": 1.0, "star": 1.3}, {"star": 0.4}) == words


def test_a_third_ones_spread_makes_no_tie_of_two_others():
    said = findings.fastest({"ring": 1.0, "star": 1.3, "tree": 4.0}, {"ring": 0.1, "star": 0.1, "tree": 0.9})
    assert said == "ring is fastest, 4 times as fast as the slowest, tree"


def test_who_is_slower_than_one_that_is_behind_is_no_winner_however_wide_its_spread():
    said = findings.fastest({"ring": 1.0, "star": 2.0, "tree": 3.0}, {"tree": 5.0})
    assert said == "ring is fastest, 3 times as fast as the slowest, tree"


def test_the_spread_leaves_out_the_quarters_at_both_ends():
    assert findings.spread([1.0, 1.0, 1.1, 1.2, 9.0]) == pytest.approx(0.2)
    assert findings.spread([2.0]) == 0


@pytest.mark.parametrize(
    ("worked_s", "words"),
    [
        ({"rank 0": 0.0, "rank 1": 4.0, "rank 2": 1.0, "rank 3": 1.0}, "rank 1 computes 4 times as long as the others"),
        ({"rank 1": 1.0, "rank 2": 1.0, "rank 3": 3.0}, "rank 3 computes 3 times as long as the others"),
        ({"rank 1": 3.0, "rank 2": 3.0, "rank 3": 1.0}, ""),  # two of three are no exception
        ({"rank 1": 1.2, "rank 2": 1.0, "rank 3": 1.0}, ""),
        ({"rank 1": 9.0, "rank 2": 1.0}, ""),
        ({"rank 1": 9.0, "rank 2": 1.0, "rank 3": 0.0}, ""),
        ({"rank 1": NAN, "rank 2": 1.0, "rank 3": None}, ""),
        ({}, ""),
    ],
)
def test_a_straggler_is_one_that_works_clearly_longer_than_all_others(worked_s, words):
    assert findings.straggler(worked_s) == words


def test_repetitions_far_apart_are_told():
    said = findings.wide({"ring": [1.0, 1.1, 1.2], "star": [1.0, 1.0, 3.1]})
    assert said == "repetitions of star are up to 3.1 times apart: was this machine busy?"


@pytest.mark.parametrize("repeats", [{}, {"ring": []}, {"ring": [1.0, 9.0]}, {"ring": [0.0, 0.0, 0.0]}, {"ring": [1, NAN, 1, 1]}])
def test_few_or_equal_repetitions_say_nothing(repeats):
    assert findings.wide(repeats) == ""


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ""),
        ({"rank 0": None}, ""),
        ({"rank 0": 3000}, "rank 0 sends 3 kB"),
        ({"rank 0": 1000, "rank 1": 2000}, "rank 1 sends most, 2 kB, 2 times what rank 0 sends"),
        ({"rank 0": 0, "rank 1": 2000}, "rank 1 sends most, 2 kB; rank 0 sends 0 B"),
        ({"rank 0": 2000, "rank 1": 2000}, "rank 0 and rank 1 tie: each sends 2 kB"),
        ({"rank 0": 2000, "rank 1": 2000, "rank 2": 5}, "rank 0 and rank 1 tie and send most, 2 kB each"),
        ({f"rank {r}": 7 for r in range(9)}, "all 9 of them tie: each sends 7 B"),
        ({f"rank {r}": 7 for r in range(9)} | {"rank 9": 1}, "9 of 10 tie and send most, 7 B each"),
        ({"rank 0": 0, "rank 1": 0}, "rank 0 and rank 1 tie: each sends 0 B"),
        ({"rank 0": 2940, "rank 1": 2820, "rank 2": 5}, "rank 0 and rank 1 tie and send most, 2.82 kB to 2.94 kB"),
        ({"rank 0": 2940, "rank 1": 2820}, "rank 0 and rank 1 tie: 2.82 kB to 2.94 kB"),
    ],
)
def test_who_has_most_is_one_several_or_all(values, words):
    assert findings.ranked(values, ("sends", "send"), units.size) == words


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        ([], ""),
        ([(1, None), (2, NAN)], ""),
        ([(1, 5.0)], "loss: 5 at 1"),
        ([(1, 5.0), (2, 1.0)], "loss falls from 5 to 1 at 2"),
        ([(2, 5.0), (1, 1.0)], "loss rises from 1 to 5 at 2"),
        ([(1, 5.0), (2, 5.1)], "loss stays at about 5.1 from 1 to 2"),
        ([(1, 1.0), (2, 9.0), (3, 4.0)], "loss peaks at 2, 9; from 1 at 1 to 4 at 3"),
        ([(1, 9.0), (2, 1.0), (3, 4.0)], "loss is lowest at 2, 1; from 9 at 1 to 4 at 3"),
        ([(1, 0.0), (2, 0.0)], "loss stays at 0 from 1 to 2"),
    ],
)
def test_a_curve_is_told_from_its_first_point_to_its_last(curve, words):
    assert findings.course("loss", curve) == words


@pytest.mark.parametrize(
    ("ones", "others", "words"),
    [
        ([(1, 1.0), (2, 1.0), (3, 1.0)], [(1, 0.5), (2, 0.8), (3, 4.0)], "B is lower up to 2, A from 3"),
        ([(1, 0.5), (2, 0.8), (3, 4.0)], [(1, 1.0), (2, 1.0), (3, 1.0)], "A is lower up to 2, B from 3"),
        ([(1, 1.0), (2, 1.0)], [(1, 2.0), (2, 3.0)], "A is lower everywhere, 3 times at 2"),
        ([(1, 2.0), (2, 3.0)], [(1, 1.0), (2, 1.0)], "B is lower everywhere, 3 times at 2"),
        ([(1, 1.0), (2, 1.0)], [(1, 1.01), (2, 1.02)], "A and B tie everywhere"),
        ([(1, 1.0), (2, 1.0)], [(1, 2.0), (2, 1.02)], "A is lower at first, at 2 they tie"),
        ([(1, 0.0), (2, 0.0)], [(1, 2.0), (2, 1.0)], "A is lower than B everywhere"),
        ([(1, 1.0), (2, 3.0), (3, 1.0)], [(1, 2.0), (2, 2.0), (3, 2.0)], "A is lower up to 1, B at 2, A from 3"),
        ([(k, 2.0 * (k % 2)) for k in range(6)], [(k, 1.0) for k in range(6)], "A and B cross 5 times"),
        ([(1, 1.0), (2, 1.0), (3, 1.0)], [(1, 1.0), (2, 2.0), (3, 3.0)], "A is lower from 2 on, 3 times at 3"),
        ([(1, 1.0), (2, 1.0), (3, 1.0)], [(1, 2.0), (2, 1.0), (3, 3.0)], "A is lower where they do not tie, 3 times at 3"),
        ([(1, 1.0)], [(2, 1.0)], ""),
        ([(1, None)], [(1, 1.0)], ""),
        ([(1, NAN), (2, 1.0)], [(1, 1.0), (2, 4.0)], "A is lower everywhere, 4 times at 2"),
    ],
)
def test_two_curves_are_told_by_which_is_lower_where(ones, others, words):
    assert crossings.crossover("A", ones, "B", others) == words


@pytest.mark.parametrize(
    ("a", "b", "c", "words"),
    [
        ((1, 1, 1), (2, 2, 2), (3, 3, 3), "A is lowest everywhere"),
        ((1, 1, 3), (2, 2, 1), (3, 3, 3), "A is lowest up to 1, B from 2"),
        ((1, 3, 1), (2, 1, 2), (3, 3, 3), "A is lowest up to 0, B at 1, A from 2"),
        ((1, 1, 3), (1, 1, 1), (3, 3, 3), "A and B are lowest up to 1, B from 2"),
        ((1, 3, 1, 3, 1), (2, 1, 2, 1, 2), (3, 3, 3, 3, 3), "at 0 and at 4 A is lowest"),
        ((1, 3, 1, 3, 1, 3), (2, 1, 2, 1, 2, 1), (3, 3, 3, 3, 3, 3), "at 0 A is lowest, at 5 B"),
        ((1, None), (None, 1), (2, 2), ""),
    ],
)
def test_of_several_curves_the_lowest_is_told_by_ranges(a, b, c, words):
    curves = {name: list(enumerate(ys)) for name, ys in zip("ABC", (a, b, c), strict=True)}
    assert crossings.lowest(curves, {}) == words


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ([], ""),
        ([(3, 1.0)], ""),
        ([(1, 0.0)], ""),
        ([(1, 10.2), (2, 19.8)], "ring is within 5 % of the prediction"),
        ([(1, 10.0), (2, 26.0)], "ring is up to 30 % above the prediction, at 2"),
        ([(1, 8.0), (2, 20.0)], "ring is up to 20 % below the prediction, at 1"),
        ([(1, 10.0), (2, 62.0)], "ring is 3.1 times the prediction at 2"),
        ([(1, 1.0), (2, NAN)], "ring is 0.1 times the prediction at 1"),
    ],
)
def test_the_distance_from_the_prediction_is_told_at_its_worst(measured, words):
    assert predictions.off_prediction("ring", measured, [(1, 10.0), (2, 20.0)]) == words


def test_curves_near_their_predictions_are_told_together():
    exact, far = ([(1, 1.0), (2, 2.0)], [(1, 1.0), (2, 2.0)]), ([(1, 1.3)], [(1, 1.0)])
    assert predictions.off_predictions({"A": exact, "B": exact}) == "both are within 5 % of the prediction"
    said = "B is up to 30 % above the prediction, at 1; A is within 5 % of the prediction"
    assert predictions.off_predictions({"A": exact, "B": far, "C": ([], [])}) == said
    assert predictions.off_predictions({}) == ""


def test_an_outlier_is_not_told_as_the_distance_from_the_prediction_too():
    predicted = [(n, 10.0) for n in (1, 2, 4, 8)]
    assert predictions.off_prediction("A", [(1, 9.0), (2, 9.0), (4, 40.0), (8, 9.0)], predicted).startswith("A is up to 10 %")


def test_a_point_far_from_its_neighbours_is_an_outlier():
    assert predictions.outliers([(1, 1.0), (2, 2.0), (4, 9.0), (8, 4.0), (16, 5.0)]) == {4: 3.0}


def test_an_outlier_is_a_question_and_no_claim():
    said = predictions.odd("a step", [(1, 1.0), (2, 2.0), (4, 9.0), (8, 4.0), (16, 5.0)], x=lambda n: f"{n} ranks")
    assert said == "at 4 ranks a step is 3 times what its neighbours say: was this machine busy?"


def test_a_point_is_an_outlier_where_the_others_keep_to_their_prediction():
    predicted = [(n, float(n)) for n in (1, 2, 4, 8)]
    assert predictions.outliers([(1, 1.2), (2, 2.4), (4, 14.4), (8, 9.6)], predicted) == {4: pytest.approx(3)}


def test_a_whole_curve_above_its_prediction_has_no_outlier():
    predicted = [(n, float(n)) for n in (1, 2, 4, 8)]
    assert predictions.outliers([(n, 3 * y) for n, y in predicted], predicted) == {}


def test_a_curve_that_comes_nearer_to_its_prediction_bit_by_bit_has_no_outlier():
    predicted = [(n, 1.0) for n in (1, 2, 4, 8, 16)]
    assert predictions.outliers([(1, 1.9), (2, 1.6), (4, 1.4), (8, 1.2), (16, 1.0)], predicted) == {}


@pytest.mark.parametrize(
    "curve",
    [
        [],
        [(1, 1.0)],
        [(1, 1.0), (2, 9.0), (3, 1.0)],  # a curve of three may be so
        [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)],
        [(1, 8.0), (2, 2.0), (3, 1.0), (4, 4.0), (5, 9.0)],  # a curve with one turn
        [(1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0)],
        [(1, 2.0), (2, 3.0), (3, 6.6), (4, 10.3), (5, 6.9)],  # it may have turned
        [(1, 1.0), (2, NAN), (3, None), (4, 2.0), (5, 3.0)],
    ],
)
def test_a_smooth_curve_a_short_one_and_one_of_zeros_have_no_outlier(curve):
    assert predictions.outliers(curve) == {} and predictions.odd("it", curve) == ""


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["A"], "A"),
        (["A", "B"], "A and B"),
        (["A", "B", "C"], "A, B and C"),
        (list("ABCDEFGH"), "all 8 of them"),
    ],
)
def test_names_are_listed_until_there_are_many(names, words):
    assert findings.both(names) == words


@pytest.mark.parametrize(
    ("clauses", "words"),
    [
        ((), ""),
        (("", "ring wins"), "Ring wins"),
        (("ring wins", "", "by far"), "Ring wins; by far"),
        (("v.assign(1) is off",), "v.assign(1) is off"),
        (("iPhone rings",), "iPhone rings"),
    ],
)
def test_a_finding_begins_with_a_capital_unless_with_a_name_of_code(clauses, words):
    assert findings.line(*clauses) == words


@pytest.mark.parametrize(
    ("one", "other", "paired", "level"),
    [
        ((19.0, 19.3, 19.5), (24.0, 26.0, 90.0), False, False),  # one wide range, and no overlap
        ((0.8, 1.0, 1.2), (1.1, 1.3, 1.5), False, True),
        ((1.0, 1.0, 1.0), (1.01, 1.02, 1.01), False, True),
        ((0.8, 1.0, 1.2), (0.9, 1.1, 1.3), True, False),  # lower in each pair
        ((0.8, 1.0, 1.2), (0.9, 0.9, 1.3), True, True),
        ((0.8, 1.0, 1.2), (0.8, 1.0, 1.2), True, True),
        ((0.8, 1.0), (0.9, 1.1), True, True),  # two pairs settle nothing
    ],
)
def test_repetitions_are_level_where_they_overlap_and_pairs_unless_one_is_lower_in_each(one, other, paired, level):
    assert findings.level(one, other, paired) is findings.level(other, one, paired) is level


def test_who_is_ahead_is_told_with_all_that_are_level():
    assert findings.ahead({"a": (1, 2, 3), "b": (2.5, 3, 4), "c": (5, 6, 7)}, largest=False) == ["a", "b"]
    assert findings.ahead({}) == []


def test_a_prediction_that_holds_up_to_a_place_is_told_up_to_there():
    predicted = [(n, float(n)) for n in (1, 2, 4, 8)]
    said = predictions.off_prediction("it", [(1, 1.0), (2, 2.0), (4, 3.0), (8, 4.0)], predicted)
    assert said == "it is within 5 % of the prediction up to 2, then up to 50 % below it, at 8"


@pytest.mark.parametrize("name", ["2 towers", "activations", "weights, gradients, Adam", "steps to the goal", "they"])
def test_what_is_several_things_has_a_verb_of_several(name):
    assert findings.course(name, [(1, 1.0), (2, 3.0), (3, 2.0)]) == f"{name} peak at 2, 3; from 1 at 1 to 2 at 3"
    assert predictions.off_prediction(name, [(1, 1.0)], [(1, 1.0)]) == f"{name} are within 5 % of the prediction"


@pytest.mark.parametrize("name", ["1 tower", "loss", "synchronous", "ring", "one server", "it", "analysis", "Amdahl's law"])
def test_what_is_one_thing_has_a_verb_of_one(name):
    assert findings.course(name, [(1, 1.0), (2, 1.0)]) == f"{name} stays at 1 from 1 to 2"
    assert predictions.off_prediction(name, [(1, 1.0)], [(1, 1.0)]) == f"{name} is within 5 % of the prediction"


def test_many_of_more_are_not_called_all_of_them():
    assert findings.both(list("ABCDE"), 6) == "5 of 6"
    assert findings.both(list("ABCDE"), 5) == findings.both(list("ABCDE")) == "all 5 of them"


def test_who_was_faster_each_time_does_not_tie_however_wide_the_other_ones_repetitions_are():
    repeats_s = {"eager": [0.02, 0.04, 0.45], "graph": [0.001, 0.002, 0.008]}
    assert findings.fastest({"eager": 0.04, "graph": 0.002}, {"eager": 0.2}, repeats_s) == "graph is 20 times as fast as eager"
    words = "eager and graph overlap, middle runs 2 ms to 40 ms"
    assert findings.fastest({"eager": 0.04, "graph": 0.002}, {"eager": 0.2}) == words
