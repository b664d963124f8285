"""Sealed forecasts: what is kept, what a later one replaces, and what stays once it is open."""

import json

import pytest

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
    assert "sealed already" in capsys.readouterr().out


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
