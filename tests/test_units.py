"""Numbers as text: each in the unit in which it is easiest to read."""

import math

import pytest

from worldsize import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (7, "7"), (1234.5, "1,234"), (0.01234, "0.0123"), (12.345, "12.3"), (-12.345, "-12.3"),
        (999_999.6, "1,000,000"), (1_234_567, "1,234,567"), (12_345_678.5, "1.23e+07"), (math.inf, "inf"), (math.nan, "nan"),
    ],
)  # fmt: skip
def test_a_number_has_three_digits_and_whole_ones_stay_whole(value, text):
    assert units.number(value) == text
    assert (units.number(value, "ms"), units.number(value, "%")) == (f"{text} ms", f"{text} %")


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1 kB"), (392_500, "392 kB"), (4_000_000, "4 MB"), (2.5e9, "2.5 GB"),
        (3e12, "3 TB"),
    ],
)  # fmt: skip
def test_a_size_is_told_in_the_largest_unit_of_which_it_has_one(size_bytes, text):
    assert units.size(size_bytes) == text


@pytest.mark.parametrize(
    ("value_s", "text"), [(0, "0 s"), (1, "1 s"), (90.5, "90.5 s"), (0.0123, "12.3 ms"), (2.5e-6, "2.5 µs"), (4e-8, "0.04 µs")]
)
def test_seconds_are_told_in_seconds_thousandths_or_millionths(value_s, text):
    assert units.seconds(value_s) == text


@pytest.mark.parametrize(("ratio", "text"), [(8.056, "8.1"), (0.1714, "0.17"), (123.4, "123"), (1, "1"), (99.4, "99")])
def test_a_ratio_has_two_digits(ratio, text):
    assert units.times(ratio) == text


def test_a_count_has_its_noun_in_the_plural_but_for_one():
    assert [units.count(n, "rank") for n in (0, 1, 2, 4800)] == ["0 ranks", "1 rank", "2 ranks", "4,800 ranks"]


def test_a_property_without_points_is_shown():
    assert (units.worth(0.5), units.worth(2.0), units.worth(0)) == ("0.5", "2", "shown, no points")
