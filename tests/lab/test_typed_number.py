"""A typed number: its notations, its units, and what is asked back."""

import pytest

from worldsize.lab.typed_number import parse_number

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2.0), (" 1e-3 ", 1e-3), ("2E3", 2000.0), ("-0.5", -0.5), ("−0.5", -0.5), ("+3", 3.0), (".5", 0.5), ("5.", 5.0),
        ("3,5", 3.5), ("0,250", 0.25), ("1234,5", 1234.5), ("1,23", 1.23), ("1.234", 1.234),
        ("1/3", 1 / 3), ("-1/4", -0.25), ("1,5/3", 0.5), ("3 / 4", 0.75),
        ("12 000", 12000.0), ("12_000", 12000.0), ("12\u202f000", 12000.0), ("1,234,567", 1234567.0),
        ("1,234.5", 1234.5), ("1.234,5", 1234.5), ("1.234.567", 1234567.0), ("", None), ("  ", None),
    ],
)  # fmt: skip
def test_a_number_is_read(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("20 ms", "ms", 20.0), ("20ms", "ms", 20.0), ("0.02 s", "ms", 20.0), ("20000 us", "ms", 20.0), ("20000 µs", "ms", 20.0),
        ("2 min", "s", 120.0), ("3 seconds", "s", 3.0), ("5 sec", "s", 5.0), ("2e3 ms", "s", 2.0), ("1/2 s", "ms", 500.0),
        ("4 MB", "kB", 4000.0), ("4000 kB", "MB", 4.0), ("1.5 GB", "MB", 1500.0), ("2 KB", "kB", 2.0), ("4 kB", "bytes", 4000.0),
        ("4000 bytes", "kB", 4.0), ("1 KiB", "bytes", 1024.0), ("8 Mbit", "MB", 1.0), ("20 MB/s", "MB/s", 20.0),
        ("1 GB/s", "MB/s", 1000.0), ("160 Mbit/s", "MB/s", 20.0), ("20 %", "%", 20.0), ("20%", "%", 20.0), ("20", "%", 20.0),
        ("3 times", "times", 3.0), ("3x", "times", 3.0), ("3 ×", "times", 3.0), ("1 step", "steps", 1.0), ("2 of 3", "of 3", 2.0),
        ("ms", "ms", None),
    ],
)  # fmt: skip
def test_a_unit_behind_the_number_is_converted_to_the_questions(text, unit, number):
    assert parse_number(text, unit) == number


@pytest.mark.parametrize(("text", "either"), [("1,234", "1.234 or 1234"), ("-12,000 ms", "12.000 or 12000")])
def test_a_comma_before_three_digits_is_asked_back(text, either):
    with pytest.raises(ValueError, match=f"can be read in two ways: type {either}"):
        parse_number(text, "ms")


@pytest.mark.parametrize(("text", "either"), [("2 Mb", "Mbit or MB"), ("2 mb", "Mbit or MB"), ("2 Gb", "Gbit or GB")])
def test_a_small_b_is_asked_back(text, either):
    with pytest.raises(ValueError, match=f"can mean bits or bytes: write {either}"):
        parse_number(text, "MB")


@pytest.mark.parametrize(("text", "unit"), [("3 kB", "ms"), ("20 ms", "kB"), ("20 %", "times"), ("3 m", "ms"), ("3 s", "")])
def test_a_unit_of_something_else_is_refused_and_the_questions_named(text, unit):
    with pytest.raises(ValueError, match="is not a unit of this question: type a number") as refused:
        parse_number(text, unit)
    assert unit in str(refused.value)


@pytest.mark.parametrize("text", ["nan", "inf", "two", "1 2", "1..2", "1.2.3", "1/", "--1", "1e", "12,34,5", "3 4 ms", "1/2/3"])
def test_what_is_no_number_is_refused_with_examples(text):
    with pytest.raises(ValueError, match="such as 0.25, 1/3 or 2e3"):
        parse_number(text, "ms")


def test_a_division_by_zero_is_refused():
    with pytest.raises(ValueError, match="divides by zero"):
        parse_number("1/0")


def test_a_power_out_of_any_range_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        parse_number("1e999")
