"""The laws of scaling, and the numbers that checks read."""

import math

import numpy as np
import pytest

from worldsize import figures
from worldsize.checks.kit.values import close, first_named, number
from worldsize.formulas import scaling

pytestmark = pytest.mark.quick


def test_five_percent_serial_cap_the_speedup_at_twenty():
    assert scaling.amdahl_limit(0.05) == pytest.approx(20)
    assert 19.99 < scaling.amdahl(1_000_000, 0.05) < 20


@pytest.mark.parametrize("law", [scaling.amdahl, scaling.gustafson])
def test_one_worker_is_as_fast_as_one_worker(law):
    assert law(1, 0.3) == pytest.approx(1)


@pytest.mark.parametrize("law", [scaling.amdahl, scaling.gustafson])
def test_nothing_serial_makes_n_workers_n_times_as_fast(law):
    assert law(7, 0.0) == pytest.approx(7)


@pytest.mark.parametrize("law", [scaling.amdahl, scaling.gustafson])
def test_all_serial_makes_workers_useless(law):
    assert law(7, 1.0) == pytest.approx(1)


def test_the_two_laws_agree_on_one_run_seen_from_both_sides():
    serial_s, shared_s, n = 0.3, 0.7, 8  # on n workers
    of_one = serial_s / (serial_s + n * shared_s)
    assert scaling.amdahl(n, of_one) == pytest.approx(scaling.gustafson(n, serial_s))


def test_gustafson_knows_no_limit():
    assert scaling.gustafson(10**6, 0.5) == pytest.approx(500_000.5)


def test_without_a_serial_part_there_is_no_limit():
    assert scaling.amdahl_limit(0) == math.inf


def test_efficiency_is_the_part_of_the_workers_that_is_used():
    assert scaling.efficiency(4, scaling.speedup(12.0, 4.0)) == pytest.approx(0.75)


@pytest.mark.parametrize(("n", "serial", "words"), [(0, 0.1, "number of workers is 0"), (2, 5, "5 % as 0.05")])
def test_what_is_no_number_of_workers_or_no_fraction_is_refused(n, serial, words):
    with pytest.raises(ValueError, match=words):
        scaling.amdahl(n, serial)


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.array(3.0), np.array([3.0])])
def test_one_number_is_read_in_whatever_form_it_comes(value):
    assert number(value) == 3.0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "got None (does the function return it?)"),
        ("3", "got '3'"),
        (True, "got True"),
        ((1.0, 2.0), "got 2 values"),
        ({"a": 1}, "got 1 values"),
        (np.zeros(3), "got 3 values"),
    ],
)
def test_what_is_no_number_is_told_in_words(value, words):
    assert number(value) == words


def test_a_mistake_is_named_by_what_it_gives():
    mistakes = {"the sum": 6.0, "the mean": lambda: 2.0, "endless": math.inf}
    assert first_named(2.0, mistakes) == ". the mean"
    assert first_named(5.0, mistakes) == ""


def test_rounding_is_no_difference():
    assert close(0.1 + 0.2, 0.3) and not close(0.3, 0.301)


def test_a_limit_in_stacked_bars_is_seen_and_told():
    picture = figures.stacks({"One card": [{"weights": 120e9}]}, "Does it fit?", limit=("80 GB card", 80e9))
    assert "The line: 80 GB card, 80 GB" in picture.alt
    assert [list(line.get_xdata()) for line in picture.axes[0].lines] == [[80, 80]]


def test_a_limit_above_all_bars_is_inside_the_picture():
    picture = figures.stacks({"One card": [{"weights": 1e9}]}, "Does it fit?", limit=("80 GB card", 80e9))
    assert picture.axes[0].get_xlim()[1] > 80


def test_no_marker_is_cut_at_the_top_of_a_picture():
    measured = [(1, 1.0), (2, 1.001), (4, 1.3)]
    picture = figures.curves([figures.Curve("speedup", measured)], "Does it grow?", x="workers", y="speedup")
    assert picture.axes[0].get_ylim()[1] >= 1.06 * 1.3


@pytest.mark.parametrize("log", [False, True])
def test_curves_of_which_nothing_is_known_are_not_yet(log):
    rows = [figures.Curve("one worker", [(1, None), (2, None)])]
    assert figures.curves(rows, "Does it grow?", x="images", y="images a second", log=log).alt.startswith("not yet: one worker")
