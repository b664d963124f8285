"""What an assistant reads in the students' folder: it names every lab and gives no answer away."""

import re

import pytest

from tests.support.lab_pictures import SOURCES
from worldsize.authoring.source import answer_lines
from worldsize.course import shipped_files

pytestmark = pytest.mark.quick
LONG = 20  # letters: a shorter line, such as `return x`, may stand anywhere


@pytest.fixture(scope="module")
def page(root) -> str:
    return (root / "labs" / "AGENTS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem[:2])
def test_every_lab_has_questions_to_ask_back_under_its_title(page, source):
    title = re.search(r"^# # Lab (\d\d)\. (.+)$", source.read_text(encoding="utf-8"), re.M)
    (found,) = re.findall(rf"^\*\*{title[1]} (.+?)\.\*\* ((?:.+\n)+)", page, re.M)
    words = set(re.findall(r"\w+", title[2].lower()))
    assert words & set(re.findall(r"\w{4,}", found[0].lower()))
    assert found[1].count("?") >= 2 and found[1].rstrip().endswith("?")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem[:2])
def test_no_line_of_an_answer_stands_there(page, source):
    text = "".join(page.split())
    lines = {"".join(line.split()) for lines in answer_lines(source).values() for line in lines}
    assert [line for line in lines if len(line) >= LONG and line in text] == []


def test_it_is_laid_beside_the_labs(root):
    assert "labs/AGENTS.md" in shipped_files.course_files(root)
