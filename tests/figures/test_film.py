"""A replay as one SVG that moves by itself."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from worldsize.figures import tokens
from worldsize.figures.replay.bands import replay
from worldsize.figures.replay.film import FILM_S, HOLD_S, MOST_CAPTIONS, TIMES, film_of
from worldsize.trace import Trace, Transfer

SVG = "{http://www.w3.org/2000/svg}"


def run(n: int, seconds: float = 1.0) -> Trace:
    transfers = [Transfer(r, (r + 1) % n, 8, k * seconds, (k + 1) * seconds) for k in range(2) for r in range(n)]
    return Trace(n, tuple(transfers))


def played(theme: str = "light", **runs: Trace) -> ElementTree.Element:
    return ElementTree.fromstring(film_of(replay(runs)._repr_html_(), theme))


def parts(film: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    """The "run" groups, with the ranks, or the "row" groups, with bar and words, one for each run."""
    return [group for group in film.iter(f"{SVG}g") if group.get("class") == kind]


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_every_message_travels_once_and_every_rank_stands_there(n: int) -> None:
    film = played(ring=run(n))
    assert len(film.findall(f".//{SVG}animateMotion")) == 2 * n
    assert [text.text for text in film.iter(f"{SVG}text") if text.text.isdigit()] == [*map(str, range(n))]


def test_moments_grow_within_the_loop() -> None:
    for animation in played(ring=run(4), slower=run(4, 3.0)).iter(f"{SVG}animateMotion"):
        times = [float(time) for time in animation.get("keyTimes").split(";")]
        assert times == sorted(times) and len(set(times)) == 4 and (times[0], times[-1]) == (0, 1)
        assert animation.get("dur") == f"{FILM_S + HOLD_S:g}s"


def test_a_film_comes_to_rest_at_its_end() -> None:
    film = played(ring=run(4), slower=run(4, 3.0))
    moves = [one for tag in ("animate", "animateMotion") for one in film.iter(f"{SVG}{tag}")]
    assert {(one.get("repeatCount"), one.get("fill")) for one in moves} == {(str(TIMES), "freeze")}


def test_bars_of_all_runs_grow_on_one_clock() -> None:
    ends = []
    for row in parts(played(ring=run(4), slower=run(4, 3.0)), "row"):
        (bar,) = [one for one in row.iter(f"{SVG}animate") if one.get("attributeName") == "width"]
        moments, widths = ([float(value) for value in bar.get(of).split(";")] for of in ("keyTimes", "values"))
        ends.append((moments[1], widths[1]))
    (soon, short), (late, long) = ends
    assert late / soon == pytest.approx(3, rel=1e-3) and long / short == pytest.approx(3, rel=1e-2)


def test_where_motion_is_reduced_the_end_is_shown_with_every_time() -> None:
    film = played(ring=run(4), slower=run(4, 3.0))
    said = [text.text for text in film.iter(f"{SVG}text") if text.get("class") == "end"]
    assert said == ["2 s, first", "6 s, 3 times as long"]
    (style,) = [style.text for style in film.iter(f"{SVG}style")]
    assert re.search(r"prefers-reduced-motion: reduce\) \{ \.moves \{ display: none \} \.end \{ display: inline \}", style)
    inside = [one for group in film.iter(f"{SVG}g") if group.get("class") == "moves" for one in group.iter()]
    assert {one for one in film.iter() if one.tag.startswith(f"{SVG}animate")} <= set(inside)


def test_the_area_of_a_packet_grows_with_its_bytes_in_all_runs_alike() -> None:
    large = Trace(2, (Transfer(0, 1, 4000, 0.0, 1.0),))
    small = Trace(2, tuple(Transfer(0, 1, 1000, k / 4, (k + 1) / 4) for k in range(4)))
    radii = []
    for group in parts(played(large=large, small=small), "run"):
        radii.append({float(one.get("r")) for one in group.iter(f"{SVG}circle") if one.find(f"{SVG}animateMotion") is not None})
    (one,), (quarter,) = radii
    assert one / quarter == pytest.approx(2, rel=0.03)


def test_a_film_for_dark_pages_differs_in_its_colours_alone() -> None:
    texts = {}
    for theme in ("light", "dark"):
        text = film_of(replay({"ring": run(4)})._repr_html_(), theme)
        assert f'rx="8" fill="{getattr(tokens.PAPER, theme)}"' in text
        texts[theme] = re.sub("#[0-9a-f]{6}", "", text)
    assert texts["light"] == texts["dark"]


def test_the_films_of_the_front_page_are_drawn_as_a_film_is_now(root: Path) -> None:
    """Their numbers are of a recorded run, which a test does not repeat."""
    now = played(ring=run(4), slower=run(4))
    kept = {name: ElementTree.parse(root / "labs" / "covers" / name).getroot() for name in ("06.svg", "06-dark.svg")}
    style = f"{SVG}style"
    assert {name: (film.get("font-size"), film.find(style).text) for name, film in kept.items()} == dict.fromkeys(
        kept, (now.get("font-size"), now.find(style).text)
    )
    titles = [film.find(f"{SVG}title").text for film in kept.values()]
    assert titles[0] == titles[1] and titles[0] in (root / "README.md").read_text(encoding="utf-8")


def captions(film: ElementTree.Element, number: int) -> list[tuple[str, str, list[float], list[int]]]:
    """Of the run of that number: words, opacity where nothing moves, moments, and what is shown from each on."""
    found = []
    for text in parts(film, "row")[number].iter(f"{SVG}text"):
        for moves in text.iter(f"{SVG}animate"):
            moments, shown = ([float(one) for one in moves.get(of).split(";")] for of in ("keyTimes", "values"))
            found.append((text.text, text.get("opacity"), moments, shown))
    return found


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.45, 0.6, 0.7, 0.9])
@pytest.mark.parametrize("number", [0, 1])
def test_at_every_moment_one_caption_is_seen_and_true_of_it(number: int, share: float) -> None:
    seen = []
    for words, _, moments, shown in captions(played(ring=run(4), slower=run(4, 3.0)), number):
        if shown[sum(moment <= share for moment in moments) - 1]:
            seen.append(words)
    at_s = share * (FILM_S + HOLD_S) / FILM_S * 6.0  # the longer run lasts 6 s
    arrived = 4 * min(2, int(at_s / (1.0, 3.0)[number]))
    assert len(seen) == 1
    ended = ("2 s, first", "6 s, 3 times as long")[number]
    assert seen[0] == (ended if arrived == 8 else f"{8 * arrived} B of 64 B")


def test_a_film_of_many_messages_says_at_least_how_many_have_arrived() -> None:
    many = Trace(2, tuple(Transfer(0, 1, 8, float(k), k + 1.0) for k in range(900)))
    said = captions(played(many=many), 0)
    assert 20 < len(said) <= MOST_CAPTIONS + 2
    assert all("at least" in words for words, *_ in said[1:-1])


def test_a_film_opens_with_messages_on_their_way_and_its_caption_is_true_of_them() -> None:
    film = played(ring=run(4), slower=run(4, 3.0))
    # the slower run's first message is half over at 1.5 s of 6
    begins = {one.get("begin") for tag in ("animate", "animateMotion") for one in film.iter(f"{SVG}{tag}")}
    assert begins == {f"{-FILM_S * 1.5 / 6:.3f}s"}


def test_where_nothing_moves_the_film_is_its_opening() -> None:
    film = played(ring=run(4), slower=run(4, 3.0))
    stand = [circle for circle in film.iter(f"{SVG}circle") if circle.find(f"{SVG}set") is not None]
    written = [[words for words, opacity, *_ in captions(film, number) if opacity == "1"] for number in (0, 1)]
    assert len(stand) == 8 and written == [["32 B of 64 B"], ["0 B of 64 B"]]


def test_the_film_says_what_the_replay_found() -> None:
    title = played(ring=run(4), slower=run(4, 3.0)).find(f"{SVG}title").text
    assert "Ring ends first" in title and "slower takes" in title


def test_a_name_is_no_markup() -> None:
    assert "<b>" in [text.text for text in played(**{"<b>": run(2)}).iter(f"{SVG}text")]


def test_what_is_no_replay_is_told() -> None:
    with pytest.raises(ValueError, match="figures.replay"):
        film_of("<p>nothing</p>")
