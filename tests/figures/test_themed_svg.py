"""A picture as SVG: small, of tokens alone, safe beside others on a page, and a PNG with it."""

import base64
import io
import re
from xml.etree import ElementTree

import matplotlib
import PIL.Image
import pytest
from matplotlib.patches import Rectangle

from worldsize import figures
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame.themed_svg import themed_svg

ROWS = [figures.Timing("ring", 0.02, 0.03, 4), figures.Timing("star", 0.05, 0.03, 4), figures.Timing("<&>", 0.1)]


@pytest.fixture
def picture() -> Picture:
    return figures.race(ROWS)


def svg_of(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(themed_svg(picture, picture.alt, 730)[0])


def test_every_colour_is_a_token(picture: Picture) -> None:
    svg, tones = themed_svg(picture, picture.alt, 730)
    told = set(re.findall(r"var\(--ws-([a-z0-9-]+),#[0-9a-f]{6}\)", svg))
    assert told == {tone.name for tone in tones} >= {"ink", "algorithm-0", "algorithm-1"}
    assert not re.findall(r"(?<!,)#[0-9a-fA-F]{6}\b", svg)


def test_its_style_has_both_values_of_each_of_its_tones(picture: Picture) -> None:
    html = picture._repr_html_()
    for tone in (tokens.INK, *tokens.ALGORITHMS[:2]):
        assert f"--ws-{tone.name}:{tone.light}" in html and f"--ws-{tone.name}:{tone.dark}" in html


def test_a_screen_reader_hears_the_finding(picture: Picture) -> None:
    root = svg_of(picture)
    assert root.get("role") == "img" and root.get("aria-label") == picture.alt
    assert len(picture.alt) > 20


def test_words_stay_words_as_they_were_written(picture: Picture) -> None:
    words = ["".join(text.itertext()) for text in svg_of(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert "\u00a020 ms" in words and "<&>" in words  # a browser drops a plain blank at the beginning


def test_two_pictures_of_a_page_share_no_id(picture: Picture) -> None:
    other = figures.race(ROWS[:2])
    first, second = ({e.get("id") for e in svg_of(p).iter() if e.get("id")} for p in (picture, other))
    assert first and second and not first & second


def test_every_reference_has_its_target(picture: Picture) -> None:
    svg = themed_svg(picture, picture.alt, 730)[0]
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg)) <= set(re.findall(r' id="([^"]+)"', svg))


def test_it_sets_no_rule_for_the_page_around_it(picture: Picture) -> None:
    assert not list(svg_of(picture).iter("{http://www.w3.org/2000/svg}style"))


def test_the_same_picture_is_the_same_text(picture: Picture) -> None:
    assert figures.race(ROWS)._repr_html_() == picture._repr_html_()


def test_a_png_that_is_as_sharp_stands_beside_it(picture: Picture) -> None:
    bundle = picture.bundle()
    png = base64.b64decode(bundle["image/png"])
    width = int.from_bytes(png[16:20])
    assert png.startswith(b"\x89PNG") and width >= 1.4 * picture.get_figwidth() * base.SHOWN_DPI
    assert bundle["image/png"] in bundle["text/html"]  # for a front end that takes SVG out of HTML
    assert bundle["text/plain"] == picture.alt


def test_a_png_is_white_where_nothing_is_drawn(picture: Picture) -> None:
    image = PIL.Image.open(io.BytesIO(picture.png())).convert("RGB")
    assert image.getpixel((2, 2)) == (255, 255, 255)


def test_a_crowded_one_is_a_png_alone(picture: Picture) -> None:
    html = picture.html(picture.png(), most_svg_bytes=100)
    assert html.startswith("<img alt=") and "<svg" not in html


def test_a_students_own_style_stays_out(picture: Picture) -> None:
    with matplotlib.rc_context({"text.color": "red", "svg.fonttype": "path", "font.size": 30}):
        assert figures.race(ROWS)._repr_html_() == picture._repr_html_()


def test_a_notebook_keeps_all_three(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **more: shown.append((data, more)))
    picture._ipython_display_()
    [(data, more)] = shown
    assert set(data) == {"text/html", "image/png", "text/plain"}
    assert more["metadata"]["image/png"]["alt"] == picture.alt


@pytest.mark.parametrize("hatch", ["...", "....", "oo", "xx", "////", "\\\\\\"])
def test_a_hatch_is_a_few_kilobytes_and_looks_as_in_the_bitmap(hatch: str) -> None:
    picture = Picture(3, 2)
    picture.add_subplot().add_patch(Rectangle((0, 0), 1, 1, facecolor=tokens.SEND.light, edgecolor=base.INK, hatch=hatch))
    svg = themed_svg(picture, "", 288)[0]
    pattern = re.search(r"<pattern.*?</pattern>", svg, re.DOTALL)[0]
    assert len(pattern) < 12_000
    assert "--ws-hatch" in pattern and "--ws-ink" not in pattern
    assert 4 <= pattern.count("M") <= 400
