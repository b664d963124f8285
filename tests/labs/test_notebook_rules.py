"""Every rule for notebooks, on a notebook that keeps it and on notebooks that break it."""

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.support import notebook_rules as rules
from tests.support.sample_source import course
from worldsize.authoring.build import notebooks
from worldsize.authoring.source import answer_lines

pytestmark = pytest.mark.quick

OPENING = "You will be able to run ranks. Takes 30 minutes, 4 points. Prerequisites: none."


def book(*cells: NotebookNode) -> NotebookNode:
    notebook = new_notebook()
    # set afterwards, because new_notebook itself mends some of what is wrong on purpose here
    notebook.cells = list(cells)
    return notebook


def code(source: str = "", *outputs: NotebookNode, **metadata: object) -> NotebookNode:
    return new_code_cell(source, outputs=list(outputs), metadata=metadata, id=str(metadata.pop("id", "cell")))


def prose(text: str, id: str = "cell") -> NotebookNode:
    return new_markdown_cell(text, id=id)


def shown(kind: str, data: str, **metadata: object) -> NotebookNode:
    return new_output("display_data", data={kind: data}, metadata=metadata)


def printed(text: str) -> NotebookNode:
    return new_output("stream", text=text)


def lines(count: int) -> str:
    return "\n".join(["x"] * count)


@pytest.mark.parametrize("lengths", [[], [10], [30, 1, 10], [1, 1, 30]])
def test_code_of_good_length_passes(lengths):
    assert rules.long_code(book(*(code(lines(n)) for n in lengths))) == []


def test_markers_are_not_counted_as_code():
    marked = "    ### BEGIN SOLUTION\n" + lines(10) + "\n    ### END SOLUTION"
    assert rules.long_code(book(code(marked))) == []


def test_a_cell_of_31_lines_is_too_long():
    assert rules.long_code(book(code("1"), code("1"), code(lines(31)))) == ["cell: 31 lines of code, at most 30"]


def test_a_median_over_10_lines_is_too_long():
    assert rules.long_code(book(code(lines(11)), code(lines(11)), code("1"))) == [
        "median code cell: 11 lines, at most 10"
    ]


def test_a_visible_line_of_96_columns_passes():
    assert rules.wide_code(book(code("x" * 96 + "\n" + "y" * 96))) == []


def test_a_visible_line_of_97_columns_is_too_wide():
    assert rules.wide_code(book(code("1\n    " + "x" * 93))) == [f"cell: 97 columns, at most 96: {'x' * 93}"]


def test_a_folded_cell_may_be_wider():
    assert rules.wide_code(book(code("x" * 130, jupyter={"source_hidden": True}))) == []


def test_a_hundred_words_pass():
    assert rules.long_prose(book(prose("word " * 100))) == []


def test_101_words_are_too_many():
    assert rules.long_prose(book(prose("word " * 101))) == ["cell: 101 words, at most 100"]


def test_hints_and_rules_of_tables_are_no_words():
    text = "word " * 99 + "| --- |\n<details>\n<summary>Hint</summary>\n" + "hint " * 50 + "\n</details> word"
    assert rules.long_prose(book(prose(text))) == []


def test_words_after_a_hint_are_counted():
    assert rules.long_prose(book(prose("<details>a</details>" + " b" * 60 + "<details>c</details>" + " d" * 60)))


def test_an_answer_of_25_lines_passes():
    assert rules.long_answers({"ring": ["x"] * 25}) == []


def test_an_answer_of_26_lines_is_too_long():
    assert rules.long_answers({"ring": ["x"] * 26}) == ["ring: an answer of 26 lines, at most 25"]


@pytest.mark.parametrize("points", ["4 points", "**Points:** 4", "Points: 4", "4.0 points"])
def test_an_opening_that_says_everything_passes(points):
    text = OPENING.replace("4 points", points)
    assert rules.opening(book(prose("# Title"), prose(text), code()), 4) == []


@pytest.mark.parametrize(
    ("missing", "said"),
    [("able to", '"able to"'), ("30 minutes", "minutes"), ("4 points", "points"), ("Prerequisites", "prerequisites")],
)
def test_an_opening_that_leaves_something_out_is_told_what(missing, said):
    found = rules.opening(book(prose(OPENING.replace(missing, "")), code()), 4)
    assert found == [f"the opening does not say {said}"]


def test_what_comes_after_the_first_code_is_no_opening():
    assert len(rules.opening(book(prose("# Title"), code(), prose(OPENING)), 4)) == 4


def test_an_opening_with_the_wrong_points_is_told_the_right_ones():
    assert rules.opening(book(prose(OPENING), code()), 6) == ["the opening says 4 points, the checks hold 6"]


def test_a_summary_at_the_end_passes():
    assert rules.ending(book(code(), code(tags=["summary"]), prose("Further reading"))) == []


@pytest.mark.parametrize("where", [[], [0], [0, 1]])
def test_a_summary_elsewhere_or_nowhere_or_twice_is_wrong(where):
    cells = [code(tags=["summary"] if n in where else []) for n in range(2)]
    assert len(rules.ending(book(*cells))) == 1


def test_a_generated_lab_keeps_every_rule_of_ids_traces_and_leaks(tmp_path):
    source = course(tmp_path)
    lab = nbformat.reads(notebooks(source)[1], 4)
    found = rules.ids(lab, "06") + rules.traces_of_a_run(lab) + rules.leaks(lab, answer_lines(source), [])
    assert found == []


@pytest.mark.parametrize(
    ("id", "tags"),
    [("cell", []), ("05-ring-1", []), ("06-ring", []), ("rign", ["exercise:ring"]), ("ring", ["check:ring"])],
)
def test_a_wrong_id_is_named(id, tags):
    assert rules.ids(book(code(id=id, tags=tags)), "06")[0].startswith(f"{id}: expected the id ")


def test_an_id_that_nbgrader_does_not_share_is_named():
    cell = code(id="ring", tags=["exercise:ring"], nbgrader={"grade_id": "other"})
    assert rules.ids(book(cell), "06") == ["ring: nbgrader calls it other"]


def test_an_id_used_twice_is_named():
    assert rules.ids(book(code(id="06-a-1"), prose("", id="06-a-1")), "06") == ["06-a-1: twice"]


def test_outputs_and_counts_are_traces_of_a_run():
    counted = code(id="counted")
    counted.execution_count = 1
    assert rules.traces_of_a_run(book(code("", printed("x"), id="shown"), counted, code())) == [
        "shown: has been run",
        "counted: has been run",
    ]


def test_versions_of_tools_are_traces_of_a_run():
    notebook = book()
    notebook.metadata = {"jupytext": {}, "language_info": {"name": "python", "version": "3.11"}}
    assert rules.traces_of_a_run(notebook) == ["metadata 'jupytext'", "metadata 'version'"]


ANSWER = {"ring": ["    total = secret * 2", "    return x"]}


@pytest.mark.parametrize(
    "cell",
    [
        code("total  =  secret * 2"),
        code("def f():\n    total = secret * 2  # so"),
        prose("Write `total = secret * 2`."),
        code(hint="total = secret * 2"),
    ],
)
def test_an_answer_that_can_be_read_anywhere_is_a_leak(cell):
    assert rules.leaks(book(cell), ANSWER, []) == ["ring: 'total = secret * 2' can be read"]


def test_the_solution_itself_leaks(tmp_path):
    source = course(tmp_path)
    assert len(rules.leaks(nbformat.reads(notebooks(source)[0], 4), answer_lines(source), [])) == 2


def test_an_answer_that_stands_in_given_code_is_no_leak():
    assert rules.leaks(book(code("total = secret * 2")), ANSWER, ["  total = secret * 2"]) == []


def test_a_short_answer_is_no_leak():
    assert rules.leaks(book(code("return x")), ANSWER, []) == []


def test_ordinary_outputs_are_no_errors():
    assert rules.errors(book(code("", printed("ok"), shown("text/plain", "5")))) == []


def test_an_error_output_is_named():
    error = new_output("error", ename="ValueError", evalue="no", traceback=[])
    assert rules.errors(book(code("", error))) == ["cell: ValueError: no"]


@pytest.mark.parametrize("kind", ["text/plain", "text/html"])
def test_a_traceback_that_is_shown_is_named(kind):
    trace = shown(kind, "Traceback (most recent call last):\n  File ...")
    assert rules.errors(book(code("", trace))) == ["cell: shows a traceback"]


def test_a_traceback_that_is_printed_is_named():
    assert rules.errors(book(code("", printed("Traceback (most recent call last):")))) == ["cell: shows a traceback"]


@pytest.mark.parametrize("output", [printed("Not yet: Exercise 6.2"), shown("text/html", "<b>not yet</b>")])
def test_a_check_that_says_not_yet_passes(output):
    assert rules.silent_stubs(book(code("", output, tags=["check:ring"]), code("1"))) == []


@pytest.mark.parametrize("output", [[], [printed("2 of 2")]])
def test_a_check_that_does_not_say_not_yet_is_named(output):
    assert rules.silent_stubs(book(code("", *output, tags=["check:ring"]))) == ['cell: does not say "not yet"']


def test_stored_widget_state_is_named():
    notebook = book()
    assert rules.widget_state(notebook) == []
    notebook.metadata["widgets"] = {}
    assert rules.widget_state(notebook) == ["the notebook stores widget state"]


GOOD_PICTURES = {
    "html": shown("text/html", '<p>x</p><IMG src="data:" alt="the ring is flat">'),
    "metadata": shown("image/png", "aaaa", alt="the ring is flat"),
    "metadata of its kind": shown("image/png", "aaaa", **{"image/png": {"alt": "flat"}}),
    "both": new_output("display_data", data={"image/png": "a", "text/html": '<img alt="flat">'}),
    "no picture": shown("text/html", "<p>a table</p>"),
}
BAD_PICTURES = {
    "no alt": (shown("text/html", '<img src="data:">'), "an <img> without alt text"),
    "empty alt": (shown("text/html", '<img alt=" ">'), "an <img> without alt text"),
    "second without": (shown("text/html", '<img alt="flat"><img/>'), "an <img> without alt text"),
    "png": (shown("image/png", "aaaa"), "image/png without alt text"),
    "jpeg": (shown("image/jpeg", "aaaa", alt=""), "image/jpeg without alt text"),
    "svg": (shown("image/svg+xml", "<svg/>", alt="flat"), "an SVG, which an untrusted notebook does not show"),
}


@pytest.mark.parametrize("picture", GOOD_PICTURES)
def test_a_picture_with_alt_text_passes(picture):
    assert rules.missing_alt(book(code("", GOOD_PICTURES[picture]))) == []


@pytest.mark.parametrize("picture", BAD_PICTURES)
def test_a_picture_without_alt_text_is_named(picture):
    output, said = BAD_PICTURES[picture]
    assert rules.missing_alt(book(code("", output))) == [f"cell: {said}"]
