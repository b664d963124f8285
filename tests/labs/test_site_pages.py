"""Pages of the site, made from runs that the tests have made: no answer can be read on them. Full runs are the soak's."""

import json

import nbformat
import pytest

from tests.support import notebook_rules as rules
from tests.support.notebook_runs import RUN_TIMEOUT_S, SOURCES, built, each_run
from worldsize.authoring.site.lab_page import lab_page
from worldsize.authoring.site.site_folder import glossary_terms
from worldsize.authoring.source import answer_lines, given_lines

pytestmark = pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)
every_lab = each_run("quick", "solution", scope="module")


@pytest.fixture(scope="module")
def page(source, kind, execute):
    run = nbformat.read(execute(source, kind).out, as_version=4)
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


def test_every_term_of_the_glossary_is_used_by_a_lab(root):
    words = "\n".join(source.read_text(encoding="utf-8") for source in SOURCES).lower()
    terms = glossary_terms((root / "docs" / "site" / "glossary.md").read_text(encoding="utf-8"))
    assert [term for term in terms if term.lower() not in words] == [] and len(terms) > 50
