"""nbgrader's formgrader in a browser, over a class of 45: everybody is listed, and what a person gives goes all the way out."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, expect
from typer.testing import CliRunner, Result

from tests.support.gradebook import LABS, RING, ROOT, row
from tests.support.lab_page import WAIT_MS, Tab
from tests.support.lab_server import LabServer
from worldsize import cli
from worldsize.grade.marking import submission
from worldsize.grade.marking.rows import write

pytestmark = [pytest.mark.browser, pytest.mark.soak, pytest.mark.timeout(600)]
ODD_NAMES = ("O'Brien, Ann", "علي", "Zoë Ünal", "李 明")
STUDENTS = [f"{ODD_NAMES[k] if k < len(ODD_NAMES) else f'Student {k}'}_{4700 + k}" for k in range(45)]
TOO_LONG, NOT_GRADED, WITH_POINTS = STUDENTS[0], STUDENTS[1], STUDENTS[7]  # a timeout, no exercise read, and a fail
ANSWER = "the answer of {}"
HOST_OF_MATHJAX = "cdnjs.cloudflare.com"  # formgrader's page asks for it, and does without
NO_MATHJAX = "MathJax is not defined"


@dataclass
class Class:
    """A class that was graded, and its gradebook in a folder that a server shows."""

    server: LabServer
    folder: Path

    def worldsize(self, command: str, *words: object) -> Result:
        made = CliRunner().invoke(cli.app, [command, str(self.folder / "grades"), "--course", str(ROOT), *map(str, words)])
        assert made.exit_code == 0, made.output
        return made

    @property
    def gradebook(self) -> Path:
        return self.server.work / "gradebook.db"

    def books(self) -> Result:
        return self.worldsize("books", "--gradebook", self.gradebook, "--submissions", self.folder / "submitted")


def handed_in(path: Path, student: str) -> str:
    """Write a notebook with an answer of the student's own; its digest."""
    made = json.loads((ROOT / "labs" / f"{RING}.ipynb").read_text())
    for cell in made["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "ring_all_reduce":
            cell["source"] = f"# Exercise 6.5: x\nanswer = {ANSWER.format(student)!r}\n"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(made))
    return submission.digest(path.read_bytes())


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Class]:
    folder = tmp_path_factory.mktemp("class")
    for k, student in enumerate(STUDENTS):
        digest = handed_in(folder / "submitted" / student / f"{RING}.ipynb", student)
        state = {TOO_LONG: "timeout", NOT_GRADED: "ungradable"}.get(student, "graded")
        write(row(student, 9 if k % 7 else 0.5, state=state, digest=digest), folder / "grades" / "rows")
    with LabServer(tmp_path_factory.mktemp("formgrader")) as server:
        made = Class(server, folder)
        said = made.books().output
        assert "wrote 45 notebooks for formgrader" in said and "wrote 225 scores, 0 unchanged" in said
        yield made


@pytest.fixture(scope="module")
def tab(browser: Any, graded: Class) -> Iterator[Tab]:
    """JupyterLab in the gradebook's folder."""
    context = browser.new_context(viewport={"width": 1500, "height": 1100})
    tab = Tab(context)
    tab.page.goto(f"{graded.server.url}/lab?token={graded.server.token}")
    yield tab
    context.close()


@pytest.fixture(scope="module")
def grader(tab: Tab) -> FrameLocator:
    """formgrader's own page, opened from JupyterLab's menu."""
    tab.page.locator(".lm-MenuBar-itemLabel", has_text="Nbgrader").click()
    tab.page.locator(".lm-Menu-item", has_text=re.compile("^Formgrader$")).click()
    return tab.page.frame_locator("iframe")


def students_of_the_lab(grader: FrameLocator) -> FrameLocator:
    """Manual Grading, the lab, its notebook: where each submission has a line."""
    grader.get_by_role("link", name="Manual Grading").first.click()
    for _ in ("the assignment", "its notebook"):
        link = grader.locator("tbody a", has_text=RING)
        expect(link).to_be_visible(timeout=WAIT_MS)
        link.click()
    expect(grader.locator("tbody tr")).to_have_count(len(STUDENTS), timeout=WAIT_MS)
    return grader


def open_submission(grader: FrameLocator, student: str) -> None:
    students_of_the_lab(grader)
    line = grader.locator("tbody tr", has=grader.locator("a.name-shown", has_text=student))
    line.locator(".glyphicon-eye-open").click()
    line.locator("a.name-shown").click()
    expect(grader.locator("#check_ring_all_reduce")).to_be_visible(timeout=WAIT_MS)


def enter(tab: Tab, grader: FrameLocator, field: str, text: str, api: str) -> None:
    """Type into a field as a person does; done once the server has it."""
    with tab.page.expect_response(lambda answer: f"/api/{api}/" in answer.url and answer.request.method == "PUT") as saved:
        grader.locator(field).fill(text)
        grader.locator(field).blur()
    assert saved.value.ok


def test_all_of_a_class_are_listed_with_their_points_whatever_their_names(tab, grader):
    students_of_the_lab(grader)
    names = grader.locator("tbody a.name-shown").all_text_contents()
    assert sorted(names) == sorted(STUDENTS)
    points = dict(zip(names, grader.locator("tbody td.score").all_text_contents(), strict=True))
    assert points[WITH_POINTS] == "2.5 / 6" and points[STUDENTS[2]] == "6 / 6"
    asked = grader.locator("tbody tr", has=grader.locator(".needs-manual-grade .glyphicon-ok"))
    assert asked.count() == 2
    assert set(tab.errors) <= {NO_MATHJAX}


def test_a_submission_shows_the_students_answer_and_what_the_check_said(grader):
    open_submission(grader, WITH_POINTS)
    page = grader.locator("body").inner_text()
    assert ANSWER.format(WITH_POINTS) in page and "ring_all_reduce: fail, 0.5 of 1.5 points" in page


def test_points_and_a_comment_given_by_hand_reach_gradebook_export_and_the_students_page(tab, grader, graded, tmp_path):
    open_submission(grader, WITH_POINTS)
    enter(tab, grader, "#check_ring_all_reduce", "1.25", "grade")
    enter(tab, grader, "#check_all_gather_extra_credit", "0.5", "grade")
    enter(tab, grader, "#ring_all_reduce-comment", "Nearly: <b>one</b> step\ntoo few.", "comment")

    students_of_the_lab(grader)
    line = grader.locator("tbody tr", has=grader.locator("a.name-shown", has_text=WITH_POINTS))
    assert line.locator("td.score").text_content() == "3.75 / 6"

    graded.worldsize("export", "--gradebook", graded.gradebook)
    lines = list(csv.reader(io.StringIO((graded.folder / "grades" / "canvas.csv").read_text(), newline="")))
    assert {one[1]: one[5] for one in lines[2:]}["4707"] == "3.75"

    graded.worldsize("feedback", "--to", tmp_path / "feedback", "--gradebook", graded.gradebook)
    shown = Tab(tab.page.context)
    shown.page.goto((tmp_path / "feedback" / WITH_POINTS / f"{RING}.html").as_uri())
    text = shown.page.locator("body").inner_text()
    assert "Your instructor gave 3.75 points for this lab" in text
    assert "Nearly: <b>one</b> step\ntoo few." in text and shown.page.locator("pre b").count() == 0
    shown.page.close()
    assert set(tab.errors) <= {NO_MATHJAX}


def test_what_was_given_stays_when_the_books_are_written_again(tab, grader, graded):
    open_submission(grader, TOO_LONG)
    enter(tab, grader, "#check_ring_all_reduce", "1.5", "grade")
    done = graded.books().output
    assert "wrote 0 scores, 225 unchanged" in done
    open_submission(grader, TOO_LONG)
    expect(grader.locator("#check_ring_all_reduce")).to_have_value("1.5", timeout=WAIT_MS)


def test_whom_the_grader_could_not_grade_gets_points_by_hand(tab, grader, graded):
    open_submission(grader, NOT_GRADED)
    for exercise in LABS[RING].exercises:
        enter(tab, grader, f"#check_{exercise.id}", "1", "grade")
    graded.worldsize("export", "--gradebook", graded.gradebook)
    sheet = (graded.folder / "grades" / "canvas.csv").read_text()
    assert '"علي","4701","","","","5"' in sheet


def test_points_of_overrides_csv_are_in_formgrader(grader, graded):
    given = 'student,lab,points,reason\n4720,06,5.5,"the check asked for another dtype"\n'
    (graded.folder / "grades" / "overrides.csv").write_text(given)
    graded.books()
    open_submission(grader, STUDENTS[20])
    last = LABS[RING].exercises[-1].id
    expect(grader.locator(f"#check_{last}_extra_credit")).to_have_value("-0.5", timeout=WAIT_MS)


def test_formgrader_asks_for_nothing_elsewhere_but_what_it_does_without(tab):
    assert {url.split("/")[2] for url in tab.elsewhere} <= {HOST_OF_MATHJAX}
