"""Sealed forecasts: what is kept, what a later one replaces, and what stays once it is open."""

import json
from datetime import datetime

import pytest

from worldsize.lab import seals
from worldsize.lab.lab import Lab

pytestmark = pytest.mark.quick

FIRST, SECOND = [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)], [(7.0, 8.0, 9.0)]


def model(rows):
    return rows


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLDSIZE_STATE_DIR", str(tmp_path))
    return Lab("16")


def test_what_was_sealed_is_opened(lab):
    lab.seal("clusters", FIRST, model)
    assert lab.sealed("clusters") == FIRST


def test_another_kernel_opens_it_too(lab):
    lab.seal("clusters", FIRST, model)
    assert Lab("16").sealed("clusters") == FIRST


def test_nothing_sealed_is_none(lab):
    assert lab.sealed("clusters") is None


def test_an_exercise_not_yet_written_seals_nothing(lab, capsys):
    lab.seal("clusters", None, model)
    assert lab.sealed("clusters") is None
    assert "not yet" in capsys.readouterr().out


def test_a_seal_has_the_time_at_which_it_was_opened(lab):
    state = {}
    seals.with_seal(state, "clusters", seals.sealed_now("clusters", FIRST, [model]))
    before = datetime.now().astimezone()
    seals.opened(state, "clusters")
    (one,) = seals.seals_in(state, "clusters")
    assert before.replace(microsecond=0) <= datetime.fromisoformat(one.opened).astimezone() <= datetime.now().astimezone()


def test_until_it_is_opened_a_new_seal_takes_the_place_of_the_old_one(lab):
    lab.seal("clusters", FIRST, model)
    lab.seal("clusters", SECOND, model)
    assert lab.sealed("clusters") == SECOND


def test_once_opened_the_first_one_stays_and_a_new_one_is_said_to_be_late(lab, capsys):
    lab.seal("clusters", FIRST, model)
    lab.sealed("clusters")
    lab.seal("clusters", SECOND, model)
    assert lab.sealed("clusters") == FIRST
    assert "when the truth was open" in capsys.readouterr().out


def test_the_same_seal_once_more_is_no_other_attempt(lab, capsys):
    lab.seal("clusters", FIRST, model)
    lab.sealed("clusters")
    lab.seal("clusters", FIRST, model)
    assert "already sealed at" in capsys.readouterr().out


def test_another_source_with_the_same_numbers_has_another_digest(lab):
    lab.seal("one", FIRST, model)
    lab.seal("other", FIRST, test_nothing_sealed_is_none)
    kept = json.loads(lab.path.read_text())["seals"]
    assert kept["one"][0]["digest"] != kept["other"][0]["digest"]


def test_predictions_and_points_stay_as_they_are(lab):
    lab.measure("off", 3.0)
    lab.seal("clusters", FIRST, model)
    assert lab.measured("off") == 3.0 and lab.sealed("clusters") == FIRST


@pytest.mark.parametrize("numbers", [[], [1.0, 2.0], [(1.0, float("nan"))], "abc"])
def test_what_is_no_row_of_numbers_is_refused(lab, numbers):
    with pytest.raises(ValueError, match=r"lab.seal\('clusters'\): expected rows of finite numbers"):
        lab.seal("clusters", numbers)


@pytest.mark.parametrize("damaged", [[], "x", {"clusters": [{"numbers": "x"}]}, {"clusters": [3]}])
def test_a_damaged_seal_is_none(lab, damaged):
    lab.measure("off", 3.0)
    state = json.loads(lab.path.read_text())
    lab.path.write_text(json.dumps({**state, "seals": damaged}))
    assert lab.sealed("clusters") is None
    lab.seal("clusters", FIRST, model)
    assert lab.sealed("clusters") == FIRST


KNOWN = [10.0, 20.0, 30.0, None]
GOOD = [(9.0, 10.0, 11.0), (18.0, 20.5, 22.0), (27.0, 29.0, 33.0), (36.0, 40.0, 44.0)]


def test_of_a_forecast_that_is_good_where_the_truth_is_open_the_closed_rows_are_sealed(lab):
    lab.seal("clusters", GOOD, model, known=KNOWN)
    assert lab.sealed("clusters") == [(36.0, 40.0, 44.0)]


REFUSED = [
    pytest.param(GOOD[:3], "expected 4 intervals, one for each row, got 3", id="a row is missing"),
    pytest.param([10.0, 20.0, 30.0, 40.0], r"row 0: expected (low, middle, high) in seconds, got 10.0", id="middles alone"),
    pytest.param([*GOOD[:3], (5.0, 4.0, 3.0)], "row 3: expected low ≤ middle ≤ high", id="a closed row upside down"),
    pytest.param([*GOOD[:3], (5.0, None, 7.0)], "row 3: expected three finite numbers", id="a closed row without a middle"),
    pytest.param([[1e3 * x for x in row] for row in GOOD], "Return seconds, not milliseconds", id="milliseconds"),
    pytest.param([[x / 2 for x in row] for row in GOOD], "but for one factor: all are about 0.5 times as long", id="one factor"),
    pytest.param([(x, x, x) for _, x, _ in GOOD], "how far off is your model on the rows", id="no interval"),
    pytest.param([(x / 3, x, x * 3) for _, x, _ in GOOD], "that holds everything says nothing", id="all the world"),
    pytest.param([], "expected 4 intervals", id="nothing"),
]


@pytest.mark.parametrize(("rows", "words"), REFUSED)
def test_a_forecast_that_fails_where_the_truth_is_open_is_not_sealed(lab, capsys, rows, words):
    lab.seal("clusters", rows, model, known=KNOWN)
    said = capsys.readouterr().out
    assert words in said and "Fix your function, run its cell, then run this one again." in said
    assert "the measurements stay closed" in said
    assert lab.sealed("clusters") is None


@pytest.mark.parametrize("rows", [None, GOOD[:3]])
def test_a_refused_forecast_takes_an_earlier_one_back_that_is_not_opened(lab, capsys, rows):
    lab.seal("clusters", GOOD, model, known=KNOWN)
    lab.seal("clusters", rows, model, known=KNOWN)
    assert "is withdrawn" in capsys.readouterr().out
    assert lab.sealed("clusters") is None


def test_a_refused_forecast_leaves_one_that_is_open_as_it_is(lab, capsys):
    lab.seal("clusters", GOOD, model, known=KNOWN)
    lab.sealed("clusters")
    lab.seal("clusters", GOOD[:3], model, known=KNOWN)
    assert "is open and still counts" in capsys.readouterr().out
    assert lab.sealed("clusters") == [(36.0, 40.0, 44.0)]


def test_a_rehearsal_seals_nothing_and_says_what_it_found(lab, capsys):
    assert lab.rehearse(GOOD, KNOWN) is True
    assert capsys.readouterr().out == (
        "✔ ready to be sealed. On 3 rows with open measurements, the middle is 1.9 % off on average; 3 lie within their "
        "intervals, which are ± 10 % wide on average.\n"
    )
    assert lab.sealed("clusters") is None


@pytest.mark.parametrize(("rows", "words"), [(None, "not yet"), (GOOD[:3], "not ready to be sealed. expected 4 intervals")])
def test_a_rehearsal_of_what_can_not_be_sealed_is_false(lab, capsys, rows, words):
    assert lab.rehearse(rows, KNOWN) is False
    assert words in capsys.readouterr().out
