"""The pages for whoever teaches a lab: they are fresh, tell of what is there, hold no answer, and no student gets them."""

import re
from pathlib import Path

import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from tests.checks.mutants import says
from tests.labs import teaching_pages as teaching
from tests.support import notebook_rules as rules
from worldsize.authoring.minutes import parts
from worldsize.authoring.release import bundle_files
from worldsize.authoring.site.pages import on_the_site, with_pages_below
from worldsize.authoring.source import split_answer

LABS = list(teaching.SOURCES)
every_lab = pytest.mark.parametrize("lab", LABS)
quick = pytest.mark.quick
AGAIN = "python -m tests.labs.teaching_pages"
WHO_FAILED = re.compile(r"(?:\w+ \d+, )*\w+ \d+ failed(?: first)?:")


def text(lab: str) -> str:
    return (teaching.PAGES / f"{lab}.md").read_text(encoding="utf-8")


def told(lab: str) -> list[tuple[str, str, str]]:
    """(exercise, name of a wrong answer, what its check says) of a lab."""
    return [(exercise, name, said) for exercise, rows in teaching.kept(lab).items() for name, said in rows.items()]


@quick
@every_lab
def test_a_page_is_what_its_lab_and_its_tables_make(lab: str) -> None:
    known = teaching.kept(lab)
    assert teaching.judged(lab, known, say=lambda exercise, name: f"unknown: {AGAIN} {lab}") == known
    assert text(lab) == teaching.page(lab, known), f"docs/teaching/{lab}.md: run `{AGAIN} {lab}`"


@quick
def test_every_lab_has_a_page_and_every_page_a_lab() -> None:
    assert sorted(path.name for path in teaching.PAGES.iterdir()) == [f"{lab}.md" for lab in LABS]


@quick
@every_lab
def test_a_sentence_has_the_words_that_name_the_mistake(lab: str) -> None:
    words = {(a.exercise, fn.__name__): words for a in teaching.ANSWERS for fn, words, _ in a.wrong}
    for exercise, name, said in told(lab):
        assert all(says(said, one) for one in words[exercise, name]), f"{exercise}, {name}: run `{AGAIN} --anew {lab}`"


@pytest.mark.parametrize("lab", ["00", "06"])  # which need no processes; the others are the soak's
def test_checks_say_in_simulated_time_what_the_page_says(lab: str) -> None:
    now = {(exercise, name): said for exercise, name, said in told(lab)}
    assert {row: teaching.sentence(*row) for row in now} == now, f"run `{AGAIN} --anew {lab}`"


@pytest.mark.soak
@pytest.mark.timeout(600)
@every_lab
def test_checks_say_what_the_page_says(lab: str) -> None:
    assert without_who(teaching.judged(lab, {})) == without_who(teaching.kept(lab)), f"run `{AGAIN} --anew {lab}`"


def without_who(said: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The sentences without which of several that fail alike failed first, or that they failed at once: that is chance."""
    return {
        exercise: {name: WHO_FAILED.sub("some failed:", words) for name, words in rows.items()} for exercise, rows in said.items()
    }


@quick
@every_lab
def test_the_cell_to_show_is_there_once_and_shows_something(lab: str) -> None:
    cell = teaching.shown_cell(teaching.source_of(lab), teaching.shown(lab))
    assert re.search(r"figures\.|print\(", cell.text) or "launch(" in cell.text


@quick
@every_lab
def test_a_table_tells_of_exercises_of_its_lab_alone(lab: str) -> None:
    there = set(teaching.exercises(teaching.source_of(lab)))
    assert set(teaching.table(lab)) - {"show"} <= there


@quick
@every_lab
def test_three_to_five_wrong_answers_of_each_exercise_are_told_and_chance_decides_about_none(lab: str) -> None:
    for exercise in teaching.exercises(teaching.source_of(lab)):
        names = [slip.name for slip in teaching.slips(lab, exercise)]
        answers = teaching.BY_EXERCISE[exercise]
        steady = {fn.__name__ for fn, *_ in answers.wrong if fn not in answers.chance}
        assert teaching.FEWEST <= len(names) <= teaching.MOST, exercise
        assert set(names) <= steady, exercise


@quick
@every_lab
def test_no_two_slips_of_an_exercise_get_one_sentence(lab: str) -> None:
    for exercise, rows in teaching.kept(lab).items():
        assert len(set(rows.values())) == len(rows), exercise


@quick
@every_lab
def test_what_may_be_skipped_has_no_points(lab: str) -> None:
    source = teaching.source_of(lab)
    optional = {name for part in parts(source) if part.optional for name in part.exercises}
    assert [cell.check for cell in source.cells if cell.check in optional and cell.points] == []


@quick
@every_lab
def test_a_page_shows_no_markup_and_no_sentence_ends_twice(lab: str) -> None:
    prose = re.sub(r"^```.*?^```", "", text(lab), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"``|\$\$|</?[a-z]+>|[?!:]\.|…\. ?…", prose) == []


@quick
@every_lab
def test_no_answer_can_be_read_on_a_page(lab: str) -> None:
    source = teaching.source_of(lab)
    given = [line for cell in source.cells if cell.kind == "code" for line in split_answer(cell.text)[0]]
    answers = {name: list(filter(str.strip, split_answer(cell.text)[1])) for name, cell in teaching.exercises(source).items()}
    page = new_notebook(cells=[new_markdown_cell(text(lab))])
    assert rules.leaks(page, answers, given) == []


@quick
@every_lab
def test_a_page_names_no_place_of_the_machine_that_made_it(lab: str) -> None:
    assert re.findall(r"/(?:tmp|home|root|usr)/|\bline \d+, in ", text(lab)) == []


@quick
def test_no_student_gets_a_page(root: Path) -> None:
    assert [path for path in bundle_files(root) if "teaching" in path.parts] == []


@quick
def test_the_page_for_instructors_leads_to_every_page(root: Path) -> None:
    page = (root / "docs" / "instructors.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((teaching/\d\d\.md)\)", page) == [f"teaching/{lab}.md" for lab in LABS]


@quick
@every_lab
def test_a_page_leads_to_its_lab(lab: str) -> None:
    [target] = re.findall(r"^\[The lab\]\(([^)]+)\)", text(lab), re.MULTILINE)
    assert (teaching.PAGES / target).resolve() == teaching.ROOT / "labs" / f"{teaching.SOURCES[lab].stem}.ipynb"


@quick
def test_on_the_site_pages_of_labs_stand_below_the_page_for_instructors() -> None:
    page = on_the_site("[00](teaching/00.md) · [01](teaching/01.md)", {"00.md": "teaching/00.md"})
    assert page == "[00](teaching/00.md) · 01"
    assert with_pages_below(page, ["teaching/00.md"]).endswith("```{toctree}\n:hidden:\n\nteaching/00\n```\n")
