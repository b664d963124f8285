"""Links: units as vendors print them, and errors that say what was expected."""

import pickle

import pytest

from worldsize.links import Link

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("1 Gbit/s", 125e6),
        ("20 MB/s", 20e6),
        ("3 GiB/s", 3 * 2**30),
        ("100 Mbps", 12.5e6),
        ("64 kbit/s", 8e3),
        ("1.5e1 MB/s", 15e6),
        ("8 b/s", 1),
        ("9 B/s", 9),
        (5e6, 5e6),
    ],
)
def test_a_bandwidth_is_read_in_its_unit(text, bytes_per_s):
    assert Link(text).bandwidth_bytes_per_s == pytest.approx(bytes_per_s)


@pytest.mark.parametrize(("text", "seconds"), [("50 us", 50e-6), ("1 ms", 1e-3), ("2 s", 2), ("3 ns", 3e-9), (0.5, 0.5)])
def test_a_latency_is_read_in_its_unit(text, seconds):
    assert Link("1 GB/s", text).latency_s == pytest.approx(seconds)


@pytest.mark.parametrize("wrong", ["5 parsecs", "fast", "", "1 Gbit", "-1 MB/s", "0 MB/s", 0, -1, None, True, float("nan")])
def test_what_is_no_bandwidth_is_one_paragraph_with_an_example(wrong):
    with pytest.raises(ValueError, match="bandwidth") as caught:
        Link(wrong)
    said = str(caught.value)
    assert repr(wrong) in said and 'Link("1 Gbit/s", "50 us")' in said and "\n" not in said


@pytest.mark.parametrize("wrong", ["5 parsecs", "50", "-1 us", -1e-6, None])
def test_what_is_no_latency_is_one_paragraph_with_an_example(wrong):
    with pytest.raises(ValueError, match="latency") as caught:
        Link("1 GB/s", wrong)
    assert repr(wrong) in str(caught.value)


def test_seconds_are_alpha_and_size_over_beta():
    assert Link("20 MB/s", "100 us").seconds(4e6) == pytest.approx(0.2001)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("20 MB/s", "20 ms"), "20 MB/s, 20 ms"),
        (("1 Gbit/s", "50 us"), "1 Gbit/s, 50 µs"),
        (("1 Gbit/s", "50 μs"), "1 Gbit/s, 50 µs"),
        ((" 1  Gbit/s", "0.2 s "), "1 Gbit/s, 0.2 s"),
        ((20e6, 0.0005), "20 MB/s, 500 µs"),
        (("20 MB/s",), "20 MB/s, 0 µs"),
    ],
)
def test_a_link_is_told_in_the_units_of_whoever_wrote_it(given, said):
    assert str(Link(*given)) == said


def test_links_of_one_speed_are_equal_however_they_are_written():
    one, other = Link("1 Gbit/s", "1 ms"), Link("125 MB/s", "1000 us")
    assert one == other and hash(one) == hash(other)


def test_a_link_keeps_its_words_on_its_way_to_another_process():
    assert str(pickle.loads(pickle.dumps(Link("20 MB/s", "20 ms")))) == "20 MB/s, 20 ms"
