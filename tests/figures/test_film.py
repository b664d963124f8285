"""A replay as one SVG that moves by itself."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from worldsize.figures.replay.film import FILM_S, HOLD_S, film_of
from worldsize.figures.replay.player import replay
from worldsize.trace import Trace, Transfer

SVG = "{http://www.w3.org/2000/svg}"


def run(n: int, seconds: float = 1.0) -> Trace:
    transfers = [Transfer(r, (r + 1) % n, 8, k * seconds, (k + 1) * seconds) for k in range(2) for r in range(n)]
    return Trace(n, tuple(transfers))


def played(**runs: Trace) -> ElementTree.Element:
    return ElementTree.fromstring(film_of(replay(runs)._repr_html_()))


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_every_message_travels_once_and_every_rank_stands_there(n: int) -> None:
    film = played(ring=run(n))
    assert len(film.findall(f".//{SVG}animateMotion")) == 2 * n
    assert sorted(text.text for text in film.iter(f"{SVG}text"))[:n] == sorted(map(str, range(n)))


def test_moments_grow_within_the_loop() -> None:
    for animation in played(ring=run(4), slower=run(4, 3.0)).iter(f"{SVG}animateMotion"):
        times = [float(time) for time in animation.get("keyTimes").split(";")]
        assert times == sorted(times) and len(set(times)) == 4 and (times[0], times[-1]) == (0, 1)
        assert animation.get("dur") == f"{FILM_S + HOLD_S:g}s"


def test_the_film_says_what_the_replay_found() -> None:
    title = played(ring=run(4), slower=run(4, 3.0)).find(f"{SVG}title").text
    assert "Ring ends first" in title and "slower takes" in title


def test_a_name_is_no_markup() -> None:
    assert "<b>" in [text.text for text in played(**{"<b>": run(2)}).iter(f"{SVG}text")]


def test_what_is_no_replay_is_told() -> None:
    with pytest.raises(ValueError, match="figures.replay"):
        film_of("<p>nothing</p>")
