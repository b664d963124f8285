"""What a lab's page is made of: its questions and what answers them, folds, widths for a phone, buttons."""

import re
import subprocess

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from worldsize import figures
from worldsize.authoring.site import pages
from worldsize.authoring.site.lab_page import lab_page
from worldsize.authoring.site.picture_widths import LEAST_PX, with_least_widths
from worldsize.authoring.site.questions import questions_of
from worldsize.authoring.site.site_folder import buttons, cover_svg, repository, small, standalone, with_card
from worldsize.figures import tokens
from worldsize.trace import Trace, Transfer

pytestmark = pytest.mark.quick

ASKS = '# Your prediction\nlab.predict("took", "How long?", "s")'


def ran(source, *printed):
    return new_code_cell(source, outputs=[new_output("stream", text="".join(printed))] if printed else [])


def asked():
    """The cells of a part: a question, two cells of its answer with prose between, the next part."""
    return [
        ran(ASKS, "How long? no prediction\n"),
        ran("slow()", "a line\n"),
        ran("lab.measure(…)", "How long?\n  it was 1,234 ms\n"),
        new_markdown_cell("So it took that long."),
        ran("figures.bars()", "picture\n"),
        new_markdown_cell("## The next part"),
        ran("other()", "other\n"),
    ]


def test_a_question_is_answered_by_the_cells_up_to_the_next_heading():
    (question,) = questions_of(asked())
    assert (question.asked_in, question.answered_in) == (0, (1, 2, 4))


def test_a_question_is_answered_by_the_cells_up_to_the_next_question():
    cells = asked()
    cells.insert(4, ran(ASKS.replace("long", "far"), "How far? no prediction\n"))
    (question,) = questions_of(cells)
    assert question.answered_in == (1, 2)


def test_what_was_measured_is_a_number_in_its_unit():
    (question,) = questions_of(asked())
    assert (question.value, question.unit) == (1234.0, "ms")


def test_a_question_that_nothing_measured_has_no_field():
    assert questions_of(asked()[:2]) == []


@pytest.fixture
def page():
    executed = new_notebook(cells=asked())
    lab = nbformat.from_dict(executed)
    for cell in lab.cells:
        if cell.cell_type == "code":
            cell = cell.update(outputs=[])
    return lab_page(lab, executed)


def test_on_a_page_the_place_of_the_field_stands_for_what_the_question_printed(page):
    (field,) = page.cells[0].outputs
    assert 'data-value="1234.0" data-unit="ms" data-measured="1,234 ms"' in field.data["text/html"]


def test_on_a_page_the_cells_that_answer_say_which_question(page):
    tagged = [number for number, cell in enumerate(page.cells) if "answers-0" in cell.metadata.get("tags", [])]
    assert tagged == [1, 2, 4]


@pytest.mark.parametrize(
    ("source", "nbgrader", "label"),
    [
        ("# Exercise 6.1: a ring\ndef ring(): …", {"grade": False}, "Exercise 6.1: a ring"),
        ("check.ring(ring)", {"grade": True}, "Check: ring"),
    ],
)
def test_exercises_and_checks_are_folded_under_a_label_of_their_own(source, nbgrader, label):
    notebook = new_notebook(cells=[new_code_cell(source, id="check_ring", metadata={"nbgrader": nbgrader})])
    (cell,) = lab_page(notebook, notebook).cells
    assert (cell.metadata["tags"], cell.metadata["mystnb"]["code_prompt_show"]) == (["hide-input"], label)


def test_a_recorded_run_with_knobs_says_that_it_is_one():
    notebook = new_notebook(cells=[ran("knobs(race, ranks=[2, 4])", "4 ranks\n")])
    (cell,) = lab_page(notebook, notebook).cells
    assert "The recorded run." in cell.outputs[-1].data["text/html"]


def test_at_its_least_width_the_smallest_text_of_a_picture_can_be_read():
    shown = with_least_widths(figures.messages(Trace(2, (Transfer(0, 1, 1000, 0.0, 0.1),)))._repr_html_())
    svg = re.search(r"<svg.*?</svg>", shown, re.DOTALL)[0]
    least, width = (float(re.search(pattern, svg)[1]) for pattern in (r"--ws-least:(\d+)px", r'viewBox="0 0 ([\d.]+)'))
    smallest = min(float(size) for size in re.findall(r"font-size: ?([\d.]+)px", svg))
    assert smallest * least / width == pytest.approx(LEAST_PX, abs=0.05)


def test_a_picture_s_head_is_a_paragraph_too_where_a_screen_is_narrow(cover):
    shown = with_least_widths(cover)
    lines = re.findall("<span>(.*?)</span>", re.search('<p class="ws-head" aria-hidden="true">(.*?)</p><svg', shown)[1])
    assert lines[0] == "Does it grow?" and len(lines) > 1
    in_the_picture = re.findall(r'<text class="ws-said"[^>]*>([^<]*)</text>', shown)
    assert len(in_the_picture) > len(lines) and " ".join(in_the_picture) == " ".join(lines)


def test_a_bitmap_has_a_least_width_too():
    assert '" style="--ws-least:' in with_least_widths('<img alt="a ring" width="730" style="max-width:100%" src="data:">')


@pytest.fixture
def cover():
    """The picture of a lab's cover, with a head over it, as the run shows it."""
    ring = figures.Curve("a ring whose name makes what is found longer than a line", [(1, 1.0), (2, 2.0)])
    tree = figures.Curve("a tree whose name is about as long as that", [(1, 1.0), (2, 2.0)])
    return figures.curves([ring, tree], "Does it grow?", x="ranks", y="s")._repr_html_()


def shown_as_cover(shown):
    cell = new_code_cell("", metadata={"tags": ["cover"]}, outputs=[new_output("display_data", {"text/html": shown})])
    return cover_svg(new_notebook(cells=[cell]))


def test_a_card_shows_the_cover_s_picture_without_its_words(cover):
    card = small(standalone(shown_as_cover(cover)))
    assert "<text" in cover and "<text" not in card
    assert card.count("<path") == cover.count("<path") > 0 and "var(" not in card


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_arrow_of_a_card_has_a_gap_where_a_word_stood(theme):
    messages = tuple(Transfer(rank, (rank + 1) % 4, 4000, 0.1 * rank, 0.1 * rank + 0.2) for rank in range(4))
    whole = standalone(shown_as_cover(figures.messages(Trace(4, messages))._repr_html_()), theme)
    paper = f"fill:{getattr(tokens.PAPER, theme)}"
    assert whole.count(paper) >= 4 > small(whole).count(paper) == 0
    assert small(whole).count("stroke-linecap:round") >= whole.count("stroke-linecap:round") >= 8


def test_a_card_is_cut_to_what_is_drawn(cover):
    whole = standalone(shown_as_cover(cover))
    left, top, width, height = (float(number) for number in re.search(r'viewBox="([^"]+)"', small(whole))[1].split())
    of_cover = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', whole)
    area = re.search(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', whole)
    x, y, w, h = map(float, area.groups())
    assert 0 < top <= y and 0 < left <= x and x + w <= left + width <= float(of_cover[1])
    assert y + h <= top + height < float(of_cover[2])


def test_a_cover_for_dark_pages_has_the_tones_of_dark_pages(cover):
    dark = standalone(shown_as_cover(cover), "dark")
    assert "var(" not in dark and tokens.INK.dark in dark and tokens.INK.light not in dark


def test_a_cover_that_is_no_svg_has_no_card():
    assert shown_as_cover('<div class="ws-replay"><img alt="" src="data:"></div>') is None


def test_the_cover_of_a_page_follows_the_theme_and_shows_its_card_where_a_screen_is_narrow():
    shown = with_card("# Lab 06\n\n![a <ring> &amp; more](covers/06.png)\n\ntext", "06")
    for theme, name in (("light", "06"), ("dark", "06-dark")):
        assert f'<picture class="only-{theme}"><source media="(max-width: 959px)" srcset="../cards/{name}.svg">' in shown
        assert f'<img class="only-{theme}" src="../cards/whole-{name}.svg" alt="a &lt;ring&gt; &amp; more">' in shown
    assert "![" not in shown


def test_a_card_of_the_course_map_follows_the_theme():
    labs = {"06_ring": new_notebook(cells=[new_markdown_cell("# Lab 06\n\n**Minutes:** 165")])}
    drawn, kept = pages.course_map(labs, "../", ["06"]), pages.course_map(labs, "../")
    assert re.findall(r'<img class="(\S+)" src="(\S+)"', drawn) == [
        ("only-light", "../cards/06.svg"), ("only-dark", "../cards/06-dark.svg"),
    ]  # fmt: skip
    assert re.findall(r'<img src="(\S+)"', kept) == ["../covers/06.png"]


def test_on_the_site_a_document_links_to_titles_and_has_no_list_of_its_parts():
    text = "**Contents.** [One](#one) ·\n[Two](#two)\n\nSee [grading.md](grading.md#two) and [the FAQ](docs/faq.md).\n"
    shown = pages.on_the_site(text, {"grading.md": "grading.md", "faq.md": "faq.md"}, {"grading.md": "Grading", "faq.md": "FAQ"})
    assert shown == "See [Grading](grading.md#two) and [the FAQ](faq.md).\n"


def test_where_a_lab_sums_up_its_page_has_a_place_for_the_reader_s_guesses():
    cells = [ran("lab.summary()", "3 of 6 points\n")]
    (summary,) = lab_page(new_notebook(cells=cells), new_notebook(cells=cells)).cells
    assert [output.data["text/html"] for output in summary.outputs] == ['<div class="ws-guesses"></div>']


def test_where_the_repository_lies_nowhere_the_notebook_is_the_only_button():
    assert re.findall(r">([^<]+)</a>", buttons("06_ring", None).source) == ["Get the notebook", "What it needs"]


def test_a_repository_on_github_opens_in_colab_and_codespaces():
    source = buttons("06_ring", "us/worldsize").source
    assert "colab.research.google.com/github/us/worldsize/blob/main/labs/06_ring.ipynb" in source
    assert "https://codespaces.new/us/worldsize" in source


@pytest.mark.parametrize(
    ("remote", "found"),
    [
        ("https://github.com/us/worldsize.git", "us/worldsize"),
        ("git@github.com:us/worldsize.git", "us/worldsize"),
        ("https://example.org/us/worldsize.git", None),
    ],
)
def test_a_remote_on_github_says_where_the_repository_lies(tmp_path, remote, found):
    for command in (["init", "-q"], ["remote", "add", "origin", remote]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, capture_output=True)
    assert repository(tmp_path, {}) == found


def test_a_build_on_github_says_itself_where_the_repository_lies(tmp_path):
    assert repository(tmp_path, {"GITHUB_REPOSITORY": "fork/worldsize"}) == "fork/worldsize"


def test_the_page_of_the_visual_language_has_every_token_with_what_it_means():
    page = pages.visual_language_page()
    shown = set(re.findall("<title>(.*?)</title>", page))
    assert shown == {tone.name for tone in tokens.ALL}
    assert all(tone.light in page and tone.dark in page for tone in tokens.ALL)
    assert page.count("| your answer |") == 1
