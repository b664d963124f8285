"""Pictures of all positions of a cell's knobs, drawn in a headless run where no position needs ranks."""

import base64
import gzip
import html
import json
import re

import pytest

from worldsize.figures.base import notice
from worldsize.lab import knob_positions
from worldsize.lab.knobs import knobs
from worldsize.launch import launch
from worldsize.simulate import simulate

pytestmark = pytest.mark.quick


def formula(ranks=2, link="slow"):
    return notice(f"{ranks} ranks over {link} links")


def simulated(ranks=2):
    return notice(f"{simulate(rank_of, ranks).state} on {ranks}")


def rank_of(fabric):
    return fabric.rank


def cached(ranks=2):
    return notice("two") if ranks == 2 else notice(str(launch(len, ranks)))


@pytest.fixture
def shown(monkeypatch):
    """What was put on display in a headless run that draws all positions."""
    found = []
    monkeypatch.setenv("WORLDSIZE_HEADLESS", "1")
    monkeypatch.setenv(knob_positions.WANTED, "beforehand")
    monkeypatch.setattr("IPython.display.display", lambda one, raw=False: found.append(one))
    return found


def data_of(bundle):
    return json.loads(html.unescape(re.search(r'data-knobs="([^"]*)"', bundle["text/html"])[1]))


def test_every_position_but_the_first_has_its_picture(shown):
    knobs(formula, ranks=[1, 2], link=["slow", "quick"])
    data = data_of(shown[0])
    pictures = {place: gzip.decompress(base64.b64decode(kept)).decode() for place, kept in data["pictures"].items()}
    assert data["start"] == "1,0" and sorted(pictures) == ["0,0", "0,1", "1,1"]
    assert 'aria-label="1 ranks over quick links"' in pictures["0,1"]


def test_the_first_picture_stands_where_no_script_runs(shown):
    knobs(formula, ranks=[1, 2])
    assert 'aria-label="2 ranks over slow links"' in shown[0]["text/html"].partition("</div>")[0]


def test_of_very_many_positions_those_one_knob_away_are_kept(shown, monkeypatch):
    monkeypatch.setattr(knob_positions, "MOST_POSITIONS", 3)
    knobs(formula, ranks=[1, 2], link=["slow", "quick"])
    assert sorted(data_of(shown[0])["pictures"]) == ["0,0", "1,1"]


@pytest.mark.parametrize(("draw", "how"), [(formula, "by formula"), (simulated, "in simulated time")])
def test_a_page_can_say_how_the_pictures_were_computed(shown, draw, how):
    knobs(draw, ranks=[1, 2])
    assert data_of(shown[0])["how"] == how


def test_where_another_position_would_need_ranks_the_picture_is_all(shown):
    knobs(cached, ranks=[2, 4])
    assert [picture.alt for picture in shown] == ["two"]


def test_where_nobody_asks_for_the_others_the_picture_is_all(shown, monkeypatch):
    monkeypatch.setenv(knob_positions.WANTED, "")
    knobs(formula, ranks=[1, 2])
    assert [picture.alt for picture in shown] == ["2 ranks over slow links"]
