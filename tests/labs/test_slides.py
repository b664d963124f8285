"""Slides of a lab: what they show by a small lab's structure, and in a browser what its keys do. Of whole labs no answer."""

from __future__ import annotations

import functools
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.support.lab_page import chromium
from tests.support.notebook_runs import RUN_TIMEOUT_S, built, each_run
from worldsize import figures
from worldsize.authoring.executed_solutions import is_whole
from worldsize.authoring.slides.build import BROWSERS, as_pdf
from worldsize.authoring.slides.deck import MOST, deck, slides_of
from worldsize.authoring.slides.pictures import Shown, shown_in, with_own_names
from worldsize.authoring.source import answer_lines, given_lines

LEAST = 10
OPENING = "# Lab 06. Rings\n\n**After this lab you are able to** add up round a ring.\n\n**Minutes:** 5"
COMPARE = "**In one sentence:** why is it slow?\n\n<details><summary>Compare</summary>All wait for one card.</details>"
quick = pytest.mark.quick


def ran(source, *outputs, **settings):
    return new_code_cell(source, outputs=list(outputs), **settings)


def said(text):
    return new_output("stream", text=text)


@functools.cache
def drawn():
    ring = figures.Curve("a ring", [(1, 1.0), (2, 2.0)])
    shown = figures.curves([ring], "Does it grow?", x="ranks", y="s")._repr_html_()
    return new_output("display_data", {"text/html": shown, "text/plain": "a ring"})


def part(number, optional=""):
    """The cells of a part: prose, a question, an exercise, a picture, a sentence."""
    question = f"How long is {number}?"
    return [
        new_markdown_cell(f"## Part {number}{optional}\n\nRanks stand round a ring of $n-1$ links."),
        ran(f'# Your prediction\nlab.predict("took{number}")', said(f"{question} no prediction\n")),
        ran("# Exercise 6.1: a ring\ndef ring(): secret_answer()", metadata={"nbgrader": {"grade": False}}),
        ran("lab.measure(…)", said(f"{question}\n  it was 0.51 s\n"), drawn()),
        new_markdown_cell(COMPARE),
    ]


def slides(parts, optional=0):
    cells = [new_markdown_cell(OPENING)]
    for number in range(parts):
        cells += part(number, " (optional)" if number < optional else "")
    cells += [new_markdown_cell("## What came out"), ran("lab.summary()", said("3 of 6 points\n"))]
    notebook = new_notebook(cells=cells)
    return notebook, slides_of(notebook, notebook)


def html(parts=2):
    notebook, _ = slides(parts)
    return deck(notebook, notebook)


@quick
def test_a_part_shows_its_question_then_its_picture_then_its_sentence():
    _, made = slides(1)
    asked, shown, told = made[1:-1]
    assert (asked.question, asked.measured, asked.exercises) == ("How long is 0?", "0.51 s", ["Exercise 6.1: a ring"])
    assert shown.shown.asks == "Does it grow?" and (told.sentence, told.compare) == ("why is it slow?", "All wait for one card.")


@quick
@pytest.mark.parametrize("parts", [3, 8, 17])
def test_a_lab_has_ten_to_twenty_slides(parts):
    assert LEAST <= len(slides(parts)[1]) <= MOST


@quick
def test_optional_parts_are_left_out_where_there_are_too_many_and_the_notes_say_so():
    _, made = slides(9, optional=3)
    assert not any("(optional)" in slide.heading for slide in made)
    assert "Part 0 (optional); Part 1 (optional); Part 2 (optional)" in made[-1].notes


@quick
def test_where_a_question_shares_its_picture_s_slide_the_picture_waits():
    _, made = slides(15)
    assert any(slide.question and slide.shown for slide in made)
    assert all(slide.answer_waits for slide in made if slide.question and slide.shown)


@quick
def test_the_last_slide_says_what_the_run_measured():
    _, made = slides(2)
    came_out = [(asked.text, asked.measured) for asked in made[-1].answers]
    assert came_out == [("How long is 0?", "0.51 s"), ("How long is 1?", "0.51 s")]


@quick
def test_every_slide_of_a_part_has_its_prose_as_notes():
    notes = re.findall(r'<aside class="notes"[^>]*>(.*?)</aside>', html(), re.DOTALL)
    assert "Ranks stand round a ring" in notes[1] and "<math" in notes[1] and "Compare:" in notes[3]


@quick
@pytest.mark.parametrize("parts", [1, 8, 17])
def test_no_two_slides_have_the_same_notes(parts):
    notes = [slide.notes for slide in slides(parts)[1] if slide.heading == "Part 0"]
    paragraphs = [text for one in notes for text in one.split("\n\n") if text]
    assert paragraphs and len(paragraphs) == len(set(paragraphs))


@quick
def test_a_sentence_stands_apart_from_the_exercise_that_it_discusses():
    cells = [new_markdown_cell(OPENING)]
    for number in range(3):
        prose, asked, exercise, measured, sentence = part(number)
        measured.outputs = measured.outputs[:1]
        cells += [prose, asked, exercise, measured, sentence]
    made = slides_of(*[new_notebook(cells=cells)] * 2)
    assert any(slide.exercises for slide in made) and not any(slide.exercises and slide.sentence for slide in made)


@quick
def test_a_picture_that_asks_goes_before_the_record_of_a_run():
    cells = [new_markdown_cell(OPENING), *part(0)]
    record = drawn().copy()
    record.data = {"text/html": re.sub(r"<span>Does it grow\?</span>", "", record.data["text/html"]), "text/plain": "a run"}
    cells.insert(4, ran("run = launch(ring, 4)", record))
    (shown,) = [slide.shown for slide in slides_of(*[new_notebook(cells=cells)] * 2)[1:] if slide.shown]
    assert shown.asks == "Does it grow?"


@quick
def test_a_bitmap_s_first_sentence_is_its_caption():
    image = '<img alt="Rank 1 takes 1.5 s; rank 0 waits. More." src="data:image/png;base64,AA">'
    picture = new_output("display_data", {"text/html": image})
    (shown,) = shown_in(ran("timeline", picture))
    assert shown.caption == "Rank 1 takes 1.5 s; rank 0 waits"


@quick
def test_what_was_printed_before_a_question_is_no_answer_to_it():
    cells = [new_markdown_cell(OPENING), *part(0)[:3], part(0)[-1]]
    cells.insert(2, ran("first()", said("two lines\nof another cell\n")))
    assert not any(slide.printed for slide in slides_of(*[new_notebook(cells=cells)] * 2))


@quick
def test_a_run_that_was_stopped_is_not_shown():
    whole, stopped, partly = (new_notebook(cells=[ran("a = 1", execution_count=1), ran("b = 2")]) for _ in range(3))
    whole.cells[1].execution_count = stopped.cells[1].execution_count = 2
    stopped.cells[1].outputs = [new_output("error", ename="Interrupted", evalue="", traceback=[])]
    assert [is_whole(one) for one in (whole, stopped, partly)] == [True, False, False]


@quick
def test_an_exercise_is_named_and_its_code_stays_out():
    assert "Exercise 6.1: a ring" in html() and "secret_answer" not in html()


@quick
def test_a_page_of_slides_asks_nobody_for_anything():
    made = html()
    assert "default-src 'none'" in made
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"|@import|\burl\((?!#)', made) == []


@quick
def test_every_picture_has_its_alt_text():
    pictures = re.findall(r'<div class="picture"[^>]*>\s*<svg [^>]*>', html())
    assert len(pictures) > 1 and all(re.search(r'role="img" aria-label="[^"]+', picture) for picture in pictures)


@quick
def test_a_picture_s_head_is_the_slide_s_text_and_no_longer_in_the_svg():
    shown = slides(1)[1][2].shown
    assert shown.finds and "Does it grow?" not in re.sub("<svg [^>]*>", "", shown.html)


@quick
def test_a_long_finding_is_cut_after_a_clause():
    clauses = [f"clause {number} says as much as that" for number in range(9)]
    caption = Shown("", "Why?", "; ".join(clauses)).caption
    assert len(caption) < 260 and caption.split("; ") == clauses[: caption.count(";") + 1]


@quick
def test_a_caption_has_both_sides_of_a_comparison():
    assert Shown("", "Why?", f"{'a' * 150}; {'b' * 150}; c").caption == f"{'a' * 150}; {'b' * 150}"


@quick
def test_two_pictures_have_no_name_in_common():
    svg = '<svg><pattern id="a"/><pattern id="ab"/><path fill="url(#a)"/><use href="#ab"/></svg>'
    assert with_own_names(svg, 3) == (
        '<svg><pattern id="s3-a"/><pattern id="s3-ab"/><path fill="url(#s3-a)"/><use href="#s3-ab"/></svg>'
    )


@quick
@pytest.mark.parametrize(
    ("prose", "lead"),
    [
        ("Ranks add up. The cell below shows how.", "Ranks add up."),
        ("Ranks add up.\n\nBelow, one waits. It fails.", "Ranks add up."),
        ("Add up by ranks.\n\nRanks take turns.\nPyTorch lists all:", "Add up by ranks."),
        ("PyTorch lists all:\n\nRanks take turns.", "Ranks take turns."), ("Then run the next cells.", ""),
    ],
)  # fmt: skip
def test_a_lead_says_nothing_about_the_notebook_s_cells(prose, lead):
    cells = [new_markdown_cell(OPENING), new_markdown_cell(f"## Part\n\n{prose}"), *part(1)[1:]]
    notebook = new_notebook(cells=cells)
    assert slides_of(notebook, notebook)[1].lead == lead


@quick
def test_a_steep_picture_s_text_is_smaller_in_the_same_room():
    text = '<text style="font-size: 11px">a</text>'
    steep, flat = (Shown(f'<svg viewBox="0 0 760 {height}">{text}</svg>') for height in (700, 200))
    assert steep.smallest_text(1178, 400) < 7 and flat.smallest_text(1178, 400) > 17


@each_run("quick", "solution", scope="module")
@pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)
def test_slides_of_a_lab_are_ten_to_twenty_and_hold_no_answer(source, kind, execute):
    lab, run = nbformat.reads(built(source)[1], as_version=4), nbformat.read(execute(source, kind).out, as_version=4)
    made, given = deck(lab, run), {line.strip() for line in given_lines(source)}
    answers = {line.strip() for lines in answer_lines(source).values() for line in lines} - given
    escaped = [line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for line in answers if len(line) > 20]
    assert [line for line in escaped if line in made or line.replace('"', "&#34;").replace("'", "&#39;") in made] == []
    assert LEAST <= made.count("<section") <= MOST


# ---- in a browser --------------------------------------------------------------------------------------

# what reaches beyond its slide
BEYOND = """() => [...document.querySelectorAll(".now > :not(.notes)")].filter((part) => {
  const [inner, outer] = [part, part.parentElement].map((element) => element.getBoundingClientRect());
  return inner.bottom > outer.bottom + 1 || inner.right > outer.right + 1 || part.scrollWidth > part.clientWidth + 1;
}).map((part) => part.className || part.tagName)"""
SMALL = """() => [...document.querySelectorAll(".now *")].filter((part) => !part.closest("svg, .notes, math, code"))
  .filter((part) => [...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .filter((part) => parseFloat(getComputedStyle(part).fontSize) < 24).map((part) => part.textContent)"""


# takes the shown slide's steps one by one; each text of its picture with the largest size at which most of it was seen
TEXTS = """() => {
  const slide = document.querySelector(".now");
  const [room, unit] = [slide.getBoundingClientRect(), slide.getBoundingClientRect().width / 1280];
  const sizes = new Map();
  const player = slide.querySelector(".ws-steps, .ws-replay")?.shadowRoot;
  const look = () => [slide, ...(player ? [player] : [])].flatMap((root) => [...root.querySelectorAll("svg text")])
    .filter((text) => text.textContent.trim()).forEach((text) => {
      const [box, matrix] = [text.getBoundingClientRect(), text.getScreenCTM()];
      const frame = text.ownerSVGElement.getBoundingClientRect();
      const width = Math.min(box.right, room.right) - Math.max(box.left, room.left);
      const height = Math.min(box.bottom, frame.bottom) - Math.max(box.top, frame.top);
      const seen = width > 0 && height > 0 && width * height > 0.6 * box.width * box.height; // an axis' label may be longer
      const size = (parseFloat(getComputedStyle(text).fontSize) * Math.hypot(matrix.a, matrix.b)) / unit;
      const before = sizes.get(text)?.[0] ?? 0;
      sizes.set(text, [Math.max(before, seen ? size : 0), text.textContent, "tight" in text.dataset]);
    });
  look();
  while (slide.querySelector(".step:not(.seen)")) { forward(); look(); }
  return [...sizes.values()];
}"""
LEAST_PX, TIGHT_PX, ROUNDED_PX = 18, 16, 0.4


@contextmanager
def opened(path, made):
    path.write_text(made, encoding="utf-8")
    with chromium() as browser:
        shown = browser.new_page(viewport={"width": 1280, "height": 720})
        shown.goto(path.as_uri())
        yield shown


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("slides") / "06_rings.html", html()) as shown:
        yield shown


def faults(shown):
    """What is wrong on each slide: beyond its edge, or smaller than the last row reads."""
    wrong = {}
    for number in range(shown.locator("section").count()):
        shown.evaluate(f"show({number}, false)")
        texts = shown.evaluate(TEXTS)
        title = shown.evaluate("document.querySelector('.now').matches('.title')")
        small = [] if title else [one for one in texts if one[0] < (TIGHT_PX if one[2] else LEAST_PX) - ROUNDED_PX]
        if found := shown.evaluate(BEYOND) + shown.evaluate(SMALL) + small:
            wrong[number + 1] = found
    return wrong


@each_run("quick", "solution", scope="module")
@pytest.mark.browser
@pytest.mark.timeout(2 * RUN_TIMEOUT_S + 300)
def test_on_no_slide_of_a_lab_is_a_text_small_or_beyond_the_edge(source, kind, execute, tmp_path):
    lab, run = nbformat.reads(built(source)[1], as_version=4), nbformat.read(execute(source, kind).out, as_version=4)
    with opened(tmp_path / "a.html", deck(lab, run)) as shown:
        assert faults(shown) == {}


STEEP = "".join(f'<text x="10" y="{20 * line}" style="font-size: 11px">line {line}</text>' for line in range(1, 40))


@pytest.mark.browser
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_picture_too_steep_for_its_slide_is_shown_piece_by_piece_and_whole_on_paper(tmp_path):
    steep = f'<section><figure><div class="picture"><svg viewBox="0 0 760 800">{STEEP}</svg></div></figure></section>'
    with opened(tmp_path / "a.html", html().replace("<section", steep + "<section", 1)) as shown:
        whole = shown.locator("svg").first.get_attribute("viewBox")
        sizes = [size for size, *_ in shown.evaluate(TEXTS)]
        assert min(sizes) >= LEAST_PX - ROUNDED_PX and shown.locator("section").first.locator(".closer.seen").count() > 1
        shown.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert shown.locator("svg").first.get_attribute("viewBox") == whole


@pytest.mark.browser
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_keys_go_through_steps_and_slides_and_n_opens_the_notes(page):
    def seen(*keys):
        for key in keys:
            page.keyboard.press(key)
        return page.locator(".now .place").inner_text()[0], page.locator(".now .step.seen").count()

    assert seen("Home") == ("1", 0)
    assert [seen("ArrowRight"), seen("ArrowRight"), seen("Space")] == [("2", 0), ("2", 1), ("3", 0)]
    assert seen("ArrowLeft") == ("2", 1) and seen("End")[0] == str(page.locator("section").count())
    seen("Home", "ArrowRight")
    with page.expect_popup() as opened:
        page.keyboard.press("n")
    assert "Ranks stand round a ring" in opened.value.inner_text("body")


@pytest.mark.browser
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_nothing_reaches_beyond_its_slide_and_no_text_is_small(page):
    assert faults(page) == {}


@pytest.mark.browser
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_pdf_has_a_page_for_each_slide(tmp_path: Path):
    (tmp_path / "a.html").write_text(html(), encoding="utf-8")
    pdf = as_pdf(tmp_path / "a.html", next(filter(None, map(shutil.which, BROWSERS))))
    assert len(re.findall(rb"/Type */Page\b", pdf.read_bytes())) == html().count("<section")
