"""`worldsize class`: what a class misunderstood is found, nothing is invented, and nobody is named."""

import csv
import io
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.gradebook import LABS, RING, row
from worldsize import cli
from worldsize.grade.marking.rows import ExerciseRow, PropertyRow, write
from worldsize.grade.reports import class_folder, class_map
from worldsize.grade.reports.released_questions import released_questions
from worldsize.lab.handed_predictions import MOST_CHARACTERS, MOST_ROWS, HandedPrediction, predictions_in
from worldsize.lab.summary import HANDED_IN_MIME

pytestmark = pytest.mark.quick
ROOT = Path(__file__).resolve().parents[2]
STUDENTS = 40
# ten questions: the truth, and how many of the class are off by which factor; the others scatter, or are right
KNOWN = {
    "fan_in": (12.0, {1 / 3: 23}),
    "bits": (125.0, {8.0: 9, 1.0: 20}),
    "unit": (0.004, {1000.0: 7}),
    "twice": (16.0, {2.0: 12, 0.5: 8}),
    "squared": (4.0, {4.0: 10}),
    "all_right": (7.0, {1.0: 40}),
    "near": (100.0, {1.3: 11, 1.0: 10}),
    "nobody_agrees": (3.0, {}),
    "few_agree": (3.0, {2.5: 4}),
    "ranks_less_one": (9.0, {1 / 7: 6}),
}


def scattered(count: int, around: float, seed: int, avoid: list[float]) -> list[float]:
    """Predictions that no two students share: at even steps of a log scale, none near a factor that is planted."""
    order = random.Random(seed)
    steps = [around * 1.25 ** (k - 40) for k in range(80)]
    free = [x for x in steps if all(abs(x / around / factor - 1) > 0.2 for factor in [*avoid, 1.0])]
    return order.sample(free, count)


def a_class() -> list[list[HandedPrediction]]:
    columns = []
    for seed, (name, (truth, errors)) in enumerate(KNOWN.items()):
        said = [truth * factor for factor, count in errors.items() for _ in range(count)]
        said += scattered(STUDENTS - len(said), truth, seed, list(errors))
        random.Random(seed).shuffle(said)
        columns.append([HandedPrediction("06", name, f"{name}?", "MB", predicted, truth) for predicted in said])
    return [list(one) for one in zip(*columns, strict=True)]


def notebook(*tables: object) -> dict:
    outputs = [{"output_type": "execute_result", "metadata": {}, "data": {HANDED_IN_MIME: table}} for table in tables]
    return {"cells": [{"cell_type": "code", "source": "lab.summary()", "outputs": outputs}]}


def table(*rows: dict, lab: object = "06") -> dict:
    return {"lab": lab, "predictions": list(rows)}


def answer(**changes: object) -> dict:
    return {"id": "a", "question": "How many?", "unit": "s", "predicted": 2.0, "measured": 1.0, **changes}


# the answer to a question that lab 06 asks
ASKED = answer(id="fan_in", question="4 ranks, 1 MB each. How many MB does rank 0 receive?", unit="MB")


def test_of_ten_questions_every_planted_error_is_found_and_no_other():
    found = class_map.class_map([], a_class())
    said = {q.id: sorted((round(group.factor, 3), group.students) for group in q.groups) for q in found.questions}
    planted = {
        name: sorted((round(f, 3), n) for f, n in errors.items() if f != 1 and n >= 0.1 * STUDENTS + 2)
        for name, (_, errors) in KNOWN.items()
    }
    assert said == planted


@pytest.mark.parametrize("students", [4, 10, 20, 40, 100])
def test_guesses_without_a_shared_idea_seldom_make_a_group(students):
    invented = 0
    for seed in range(100):
        draws = random.Random(seed)
        asked = [[HandedPrediction("06", "q", "?", "s", draws.lognormvariate(0, 1.2), 1.0)] for _ in range(students)]
        invented += bool(class_map.class_map([], asked).questions[0].groups)
    assert invented <= 5


def test_a_prediction_counts_against_what_its_own_student_measured():
    asked = [[HandedPrediction("06", "q", "?", "s", 3.0 * own, own)] for own in (1.0, 2.0, 5.0, 9.0)]
    (group,) = class_map.class_map([], asked).questions[0].groups
    assert (round(group.factor, 6), group.students) == (3.0, 4)


def test_zero_and_another_sign_are_counted_and_have_no_factor():
    asked = [[HandedPrediction("06", "q", "?", "s", predicted, 2.0)] for predicted in (0.0, -2.0, 2.0)]
    (one,) = class_map.class_map([], asked).questions
    assert (one.students, one.signless, one.close) == (3, 2, 1)


def exercise(words: str, holds: bool | None, name: str = "the sum is right", state: str = "fail") -> ExerciseRow:
    properties = (PropertyRow("every rank returns", 0.5, True), PropertyRow(name, 0.5, holds))
    return ExerciseRow("ring", "Exercise 6.5", state, 0.5, 1.0, properties, words)


def rows(*exercises: ExerciseRow) -> list:
    return [replace(row(f"Jane Doe {k}", path=f"{k}"), exercises=(one,)) for k, one in enumerate(exercises)]


def test_one_cause_in_other_cases_is_one_line():
    words = [f"{n} ranks, {2 * n} elements: rank 1 sent {n} messages, expected 2." for n in (3, 5)]
    found = class_map.class_map(rows(*(exercise(one, False) for one in words)), [])
    assert [cause.students for cause in found.exercises[0].causes] == [2]


def test_two_causes_of_one_property_are_two_lines_the_larger_first():
    a, b = "2 ranks: the values are a mean.", "2 ranks: the chunk is another rank's."
    found = class_map.class_map(rows(*(exercise(one, False) for one in (a, b, b))), [])
    assert [(cause.students, cause.sentence) for cause in found.exercises[0].causes] == [(2, b), (1, a)]


def test_the_same_words_of_two_properties_are_two_causes():
    same = "2 ranks: it is not so."
    found = class_map.class_map(rows(exercise(same, False, "one"), exercise(same, False, "other")), [])
    assert {cause.property for cause in found.exercises[0].causes} == {"one", "other"}


def test_what_is_not_written_is_no_cause():
    found = class_map.class_map(rows(exercise("", None, state="not yet"), exercise("", True, state="pass")), [])
    (one,) = found.exercises
    assert (one.students, one.passed, one.unwritten, one.causes) == (2, 1, 1, ())


def test_the_page_counts_one_submission_in_the_singular():
    page = class_folder.page(class_map.class_map(rows(exercise("2 ranks: wrong.", False)), []))
    assert "1 graded submission of 1 student." in page


def test_neither_page_nor_sheet_names_anybody():
    found = class_map.class_map(rows(exercise("2 ranks: wrong.", False)), a_class())
    assert "Jane" not in class_folder.page(found) and "Jane" not in class_map.as_csv(found)


def test_a_question_that_a_student_wrote_as_markup_stays_text():
    asked = [[HandedPrediction("06", "q", "<script>alert(1)</script>", "s", 1.0, 1.0)]]
    assert "<script>" not in class_folder.page(class_map.class_map([], asked))


def test_no_field_of_the_sheet_is_a_formula():
    found = class_map.class_map(rows(exercise("2 ranks: no.", False, name="=HYPERLINK(1)")), [])
    fields = [field for line in csv.reader(io.StringIO(class_map.as_csv(found))) for field in line]
    assert not [field for field in fields if field[:1] in "=+-@" and field]


@pytest.mark.parametrize(
    "bad",
    [
        answer(predicted=float("inf")), answer(predicted=True), answer(measured="1"), answer(predicted=None), answer(id=3),
        answer(question=["?"]), answer(predicted=10**400), "text", None, [answer()],
    ],
)  # fmt: skip
def test_what_is_no_question_with_two_numbers_is_passed_over(bad):
    good = answer(id="good")
    assert [one.id for one in predictions_in(notebook(table(bad, good)))] == ["good"]


@pytest.mark.parametrize(
    "holder", [None, [], {"cells": None}, {"cells": [None, 3, {"outputs": "x"}]}, notebook("text"), notebook(table(lab=6))]
)
def test_a_notebook_of_another_form_carries_nothing(holder):
    assert predictions_in(holder) == []


def test_the_last_summary_counts():
    assert [p.predicted for p in predictions_in(notebook(table(answer()), table(answer(predicted=5.0))))] == [5.0]


def test_too_many_or_too_long_texts_are_cut():
    many = table(*(answer(id=str(k), question="?" * 10_000) for k in range(2 * MOST_ROWS)))
    found = predictions_in(notebook(many))
    assert len(found) == MOST_ROWS and {len(one.question) for one in found} == {MOST_CHARACTERS}


@pytest.fixture
def submitted(tmp_path: Path) -> Path:
    for k in range(4):
        path = tmp_path / "submitted" / f"s{k}" / f"{RING}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(notebook(table(ASKED))))
    return tmp_path / "submitted"


def written(submitted: Path) -> class_folder.ClassFiles:
    return class_folder.write(submitted.parent / "none", submitted, LABS, submitted.parent / "class.html")


def test_without_grades_the_page_shows_predictions_alone(submitted):
    made = written(submitted)
    assert made.found.exercises == () and made.found.questions[0].students == 4
    assert made.page.is_file() and made.sheet.is_file()


def test_the_command_reads_the_predictions_of_what_was_handed_in(submitted, monkeypatch):
    monkeypatch.chdir(submitted.parent)
    write(row("anna_1"), submitted.parent / "grades" / "rows")
    answer = CliRunner().invoke(cli.app, ["class", "grades", "submitted", "--course", str(ROOT)])
    assert answer.exit_code == 0, answer.output
    assert ASKED["question"] in (submitted.parent / "class.html").read_text()


def test_without_grades_and_submissions_it_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="expected the folder that `worldsize grade` wrote"):
        class_folder.write(tmp_path / "none", None, LABS, tmp_path / "class.html")


def test_a_broken_notebook_is_named_and_the_others_count(submitted):
    (submitted / "s1" / f"{RING}.ipynb").write_text("{")
    made = written(submitted)
    assert made.found.questions[0].students == 3 and len(made.unread) == 1 and "s1" in made.unread[0]


def test_the_questions_and_units_of_the_page_are_the_release_s(submitted):
    forged = [
        answer(id="x", question="Anna Arnold copied from Ben"), answer(id="gradient", question="Anna copied", unit="MB"),
        ASKED | {"question": "Anna ranks, 1 MB each. How many MB does rank 0 receive?"}, ASKED | {"unit": "=HYPERLINK(1)"},
    ]  # fmt: skip
    for k, one in enumerate(forged):
        (submitted / f"s{k}" / f"{RING}.ipynb").write_text(json.dumps(notebook(table(one))))
    (submitted / "s4").mkdir()
    (submitted / "s4" / "00_start_here.ipynb").write_text(json.dumps(notebook(table(ASKED))))
    made = written(submitted)
    assert [(q.id, q.question, q.unit, q.students) for q in made.found.questions] == [
        ("gradient", "How many MB is one gradient of this model?", "MB", 1),
        ("fan_in", "… ranks, 1 MB each. How many MB does rank 0 receive?", "MB", 1),
    ]
    for path in (made.page, made.sheet):
        assert "Anna" not in path.read_text() and "HYPERLINK" not in path.read_text()


def test_a_question_keeps_the_numbers_that_its_lab_put_into_it(submitted):
    assert [q.question for q in written(submitted).found.questions] == [ASKED["question"]]


@pytest.mark.parametrize(
    "numbers", [(1e308, 1e-308), (1e-308, 1e308), (1e308, 1e308), (1e-308, 1e-308)], ids=["large", "small", "both", "neither"]
)
def test_numbers_that_nobody_measures_are_dropped(submitted, numbers):
    for k in range(1, 4):
        forged = ASKED | dict(zip(("predicted", "measured"), numbers, strict=True))
        (submitted / f"s{k}" / f"{RING}.ipynb").write_text(json.dumps(notebook(table(forged))))
    assert [q.students for q in written(submitted).found.questions] == [1]


def test_every_question_of_the_labs_is_found_by_its_syntax():
    asked = {stem: "".join(lab.code).count("lab.predict(") for stem, lab in LABS.items()}
    assert {stem: len(released_questions(lab)) for stem, lab in LABS.items()} == asked


def test_watching_looks_again_when_a_file_comes_changes_or_goes(submitted):
    path = submitted / "s0" / f"{RING}.ipynb"
    steps = [
        lambda: None,
        lambda: (submitted / "new.ipynb").write_text("{}"),
        lambda: None,
        lambda: path.write_text(json.dumps(notebook())),
        lambda: path.unlink(),
    ]
    waited = []

    def wait(_: float) -> None:
        waited.append(1)
        if len(waited) > len(steps):
            raise KeyboardInterrupt
        steps[len(waited) - 1]()

    looks = []
    with pytest.raises(KeyboardInterrupt):
        looks += [1 for _ in class_folder.changes([submitted], wait) if looks.append(1) is None]
    assert len(looks) == 4
