"""The pages for instructors say what is so: their samples, syllabi, minutes, and the places that they name."""

import re
from pathlib import Path

import pytest

from tests.support import sample_grades

pytestmark = pytest.mark.quick
ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "instructors.md").read_text()
GRADING = (ROOT / "docs" / "grading.md").read_text()
SOURCES = {path.stem[:2]: path.read_text() for path in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))}


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def lines_of(heading: str) -> list[list[str]]:
    """The cells of the lines below a table's head that begins so."""
    _, _, after = section("A term, or a week").partition(heading)
    table = after.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def labs_in(text: str) -> list[str]:
    return re.findall(r"\b([0-9]{2})\b", text)


def needed(lab: str) -> set[str]:
    """The labs that a lab says it stands on, but for those that only help."""
    told = re.search(r"\*\*Prerequisites:\*\*\s(?:# )?(.*?)\n\n", SOURCES[lab], re.DOTALL)[1].replace("\n# ", " ")
    stands_on = " ".join(one for one in re.split(r"(?<=\.) ", told) if not re.search(r"\bhelps?\b|\btell of\b", one))
    return {number for named in re.findall(r"Labs? ([0-9]{2}(?: and [0-9]{2})?)", stands_on) for number in labs_in(named)}


def in_order(labs: list[str]) -> None:
    for k, lab in enumerate(labs):
        assert needed(lab) <= set(labs[:k]), f"lab {lab} stands on {needed(lab)}, and before it come {labs[:k]}"


def test_in_fourteen_weeks_every_lab_comes_once_and_after_what_it_stands_on():
    weeks = lines_of("| week |")
    labs = [lab for line in weeks for lab in labs_in(line[1])]
    assert len(weeks) == 14 and sorted(labs) == sorted(SOURCES)
    in_order(labs)


def test_what_is_handed_in_was_taught_before():
    taught: set[str] = set()
    for _, labs, handed_in in lines_of("| week |"):
        taught |= set(labs_in(labs))
        assert set(labs_in(handed_in)) <= taught


def test_in_five_days_every_lab_comes_after_what_it_stands_on():
    days = lines_of("| day |")
    assert len(days) == 5
    in_order([lab for line in days for lab in labs_in(line[1])])


def test_five_days_with_tensorflow_come_in_order_too():
    first = [lab for line in lines_of("| day |")[:2] for lab in labs_in(line[1])]
    others = re.search(r"days 1 and 2 as they are, then (.*?)\.", " ".join(TEXT.split()))[1]
    in_order([*first, *labs_in(others)])


def test_the_minutes_of_a_day_are_those_of_its_labs():
    minutes = dict(re.findall(r"^\| ([0-9]{2}) \| .*? \| ([0-9]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE))
    for day, labs, told in lines_of("| day |"):
        assert sum(int(minutes[lab]) for lab in labs_in(labs)) == int(told), f"day {day}"


def test_the_sample_table_is_what_grading_prints():
    made = sample_grades.with_sample_table(GRADING)
    assert made == GRADING, "docs/grading.md has another table: make pages"


def test_the_picture_of_a_page_is_of_what_feedback_writes():
    made = sample_grades.digest(sample_grades.sample_page())
    assert sample_grades.kept_digest() == made, f"{sample_grades.PAGE} is stale: make pages"


def test_the_sizes_are_of_labs_that_there_are():
    measured = re.findall(r"^\| ([0-9]{2}) ", section("A shared server"), re.MULTILINE)
    assert measured == sorted(measured) and set(measured) <= set(SOURCES)


@pytest.mark.parametrize("text", [TEXT, GRADING], ids=["instructors", "grading"])
def test_every_link_of_its_contents_leads_somewhere(text):
    heads = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^## (.*)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= heads
