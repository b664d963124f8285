"""Pages of the site, made from the run of each lab that the tests have made: no answer can be read on them."""

from __future__ import annotations

import json

import nbformat
import pytest

from tests.support import notebook_rules as rules
from tests.support.notebook_runs import RUN_TIMEOUT_S, SOURCES, built
from worldsize.authoring.site.lab_page import lab_page
from worldsize.authoring.source import answer_lines, given_lines

pytestmark = pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)
every_lab = pytest.mark.parametrize("source", [pytest.param(source, id=source.stem) for source in SOURCES])


@pytest.fixture
def page(source, execute):
    run = nbformat.read(execute(source, "solution").out, as_version=4)
    return lab_page(nbformat.reads(built(source)[1], as_version=4), run)


@every_lab
def test_no_answer_can_be_read_on_a_page(source, page):
    assert rules.leaks(page, answer_lines(source), given_lines(source)) == []
    outputs = json.dumps([cell.get("outputs", []) for cell in page.cells], ensure_ascii=False)
    answers = {line.strip() for lines in answer_lines(source).values() for line in lines}
    given = {line.strip() for line in given_lines(source)}
    long = [line for line in answers - given if len(line) > 20]
    assert [line for line in long if json.dumps(line, ensure_ascii=False)[1:-1] in outputs] == []


@every_lab
def test_what_the_lab_shows_is_on_its_page(source, page):
    shown = [output for cell in page.cells for output in cell.get("outputs", []) if output.output_type == "display_data"]
    assert shown and not [output for cell in page.cells for output in cell.get("outputs", []) if output.output_type == "error"]
