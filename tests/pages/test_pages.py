"""HTML from templates: what a person wrote stays text, nothing is trusted but one picture, and the files are shipped."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jinja2
import pytest

from worldsize import pages
from worldsize.authoring import release
from worldsize.grade.gradescope import bundle

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted(path for path in (ROOT / "worldsize/pages/templates").iterdir() if path.suffix == ".html")
FILES = [*TEMPLATES, ROOT / "worldsize/pages/templates/style.css"]


def verdict(**values: object) -> str:
    plain = {"head": "x", "chip": "", "properties": (), "mismatch": "", "says": (), "places": "", "picture": "", "tried": ""}
    return pages.render("verdict.html", **plain | values)


def test_what_stands_between_backticks_is_code_and_the_rest_stays_text():
    assert pages.inline_code("`a < b` <i>") == "<code>a &lt; b</code> &lt;i&gt;"


def test_a_text_stays_text():
    assert "<strong>&lt;b&gt; &#34;&amp;&#39;</strong>" in verdict(head="<b> \"&'")


def test_what_steers_a_reader_s_eye_or_terminal_is_shown_as_a_mark():
    assert "<strong>a\ufffdb\ufffdc\ufffd ع\u200cل\n</strong>" in verdict(head="a\u202eb\x1bc\udcff ع\u200cل\n")


def test_a_value_that_is_not_given_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="'heading' is undefined"):
        pages.render("summary.html", heads=(), rows=(), points=())


def test_what_is_trusted_to_be_html_is_what_figures_of_the_course_drew():
    texts = {path.name: path.read_text() for path in FILES}
    trusted = {(name, value) for name, text in texts.items() for value in re.findall(r"{{ (\w+) \| safe }}", text)}
    assert trusted == {("verdict.html", "picture"), ("run_page.html", "picture"), ("run_page.html", "player")}
    assert sum(len(re.findall(r"\bsafe\b", text)) for text in texts.values()) == len(trusted)
    assert not any(re.search(r"autoescape|Markup", text) for text in texts.values())


def test_no_template_asks_for_anything_elsewhere_or_has_a_script():
    asking = r"<link|url\(|@import|https?://|\son\w+=|<script"
    assert [path.name for path in FILES if re.search(asking, path.read_text())] == []


def test_what_a_notebook_shows_has_no_style_sheet_and_a_page_no_style_attribute():
    fragments = {"course_map.html", "verdict.html", "summary.html", "strip.html"}
    assert {path.name for path in TEMPLATES if " style=" in path.read_text()} == fragments
    assert {path.name for path in TEMPLATES if 'extends "page.html"' in path.read_text()}.isdisjoint(fragments)


def test_whoever_shows_no_page_pays_for_no_template():
    code = "import sys, worldsize.lab.lab, worldsize.lab.verdict_view; print('jinja2' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], timeout=60, text=True).strip() == "False"


def test_templates_go_into_the_wheel_the_students_bundle_and_gradescope_s():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packed = {path for pattern in config["*"] for path in (ROOT / "worldsize/pages").glob(pattern)}
    graded = {path for pattern in bundle.PATTERNS for path in ROOT.glob(pattern)}
    assert set(FILES) == packed
    assert set(FILES) <= set(release.bundle_files(ROOT)) & graded
