"""The rules of `notebook_rules` and a run from top to bottom, for every lab that has a source.

Each notebook is built from its source and executed once (`notebook_runs`); all tests of a run share it. The usual run executes
a few solutions with small parameters, whose points `tests/journeys/test_ci.py` looks at; the soak every one so, every lab as
shipped, and every solution at full size.
"""

import functools
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tests.support import notebook_rules as rules
from tests.support.notebook_runs import RUN_TIMEOUT_S, SOURCES, built, each_run
from worldsize.authoring.headless import HeadlessRun
from worldsize.authoring.source import answer_lines, given_lines, points
from worldsize.lab.lab import LABS

MAX_EXECUTED_BYTES = 2_000_000
NARROW = {*"00 01 02 04 05 06 07 08 09 10 12 15 17".split()}  # labs whose visible code fits into a window

every_lab = pytest.mark.parametrize("source", [pytest.param(s, id=s.stem, marks=pytest.mark.quick) for s in SOURCES])
every_full_solution = each_run("solution")
every_shipped_lab = each_run("lab")
every_run = each_run("quick", "solution", "lab")
# a test may find the one before under way
a_whole_run = pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)


@functools.cache
def solution_of(source: Path) -> NotebookNode:
    return nbformat.reads(built(source)[0], as_version=nbformat.NO_CONVERT)


@functools.cache
def lab_of(source: Path) -> NotebookNode:
    return nbformat.reads(built(source)[1], as_version=nbformat.NO_CONVERT)


@functools.cache
def executed(done: HeadlessRun) -> NotebookNode:
    return nbformat.read(done.out, as_version=4)


@every_lab
def test_code_cells_are_short(source):
    assert rules.long_code(solution_of(source)) == []


@every_lab
def test_no_visible_line_of_code_is_cut(source):
    if source.stem[:2] in NARROW:
        assert rules.wide_code(solution_of(source)) + rules.wide_code(lab_of(source)) == []


@every_lab
def test_prose_cells_are_short(source):
    assert rules.long_prose(solution_of(source)) == []


@every_lab
def test_answers_are_short(source):
    assert rules.long_answers(answer_lines(source)) == []


@every_lab
def test_a_lab_opens_with_goals_minutes_points_and_prerequisites(source):
    assert rules.opening(lab_of(source), points(source)) == []


@every_lab
def test_a_lab_ends_with_its_summary(source):
    assert rules.ending(lab_of(source)) == []


@every_lab
def test_points_are_those_of_the_courses_table(source):
    assert points(source) == LABS[source.stem[:2]].points


@every_lab
def test_what_a_lab_stands_on_is_said_in_its_first_lines(source):
    opening = lab_of(source).cells[0].source.partition("**Prerequisites:**")[2]
    assert set(LABS[source.stem[:2]].after) <= set(re.findall(r"\b[01][0-9]\b", opening))


@every_lab
def test_cells_are_named_after_exercises_and_headings(source):
    lab = source.stem[:2]
    assert rules.ids(solution_of(source), lab) + rules.ids(lab_of(source), lab) == []


@every_lab
def test_no_answer_can_be_read_in_a_lab(source):
    assert rules.leaks(lab_of(source), answer_lines(source), given_lines(source)) == []


@every_lab
@pytest.mark.parametrize("folder", ["solutions", "labs"])
def test_no_trace_of_a_run_is_committed(source, folder, root):
    committed = nbformat.read(root / folder / f"{source.stem}.ipynb", as_version=nbformat.NO_CONVERT)
    assert rules.traces_of_a_run(committed) == []


@every_full_solution
@a_whole_run
def test_a_solution_earns_every_point(source, kind, execute):
    done = execute(source, kind)
    # a lab without points keeps none
    assert (done.points or 0, done.possible or 0) == (points(source), points(source))


@every_shipped_lab
@a_whole_run
def test_a_lab_as_shipped_earns_nothing_of_what_there_is(source, kind, execute):
    done = execute(source, kind)
    assert (done.points or 0, done.possible or 0) == (0, points(source))


@every_shipped_lab
@a_whole_run
def test_a_lab_as_shipped_says_not_yet_at_every_check(source, kind, execute):
    assert rules.silent_stubs(executed(execute(source, kind))) == []


@every_run
@a_whole_run
def test_a_run_shows_no_error(source, kind, execute):
    assert rules.errors(executed(execute(source, kind))) == []


@every_run
@a_whole_run
def test_a_run_ends_with_the_points_in_its_summary(source, kind, execute):
    assert "points: " in execute(source, kind).summary_text


@every_run
@a_whole_run
def test_every_picture_has_alt_text(source, kind, execute):
    assert rules.missing_alt(executed(execute(source, kind))) == []


@every_run
@a_whole_run
def test_an_executed_notebook_is_small(source, kind, execute):
    assert execute(source, kind).out.stat().st_size <= MAX_EXECUTED_BYTES


@every_run
@a_whole_run
def test_an_executed_notebook_stores_no_widget_state(source, kind, execute):
    assert rules.widget_state(executed(execute(source, kind))) == []
