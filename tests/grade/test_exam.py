"""`worldsize exam`: every variant has one right answer, computed in two ways, and the files are what an LMS takes."""

import io
import math
import zipfile
from xml.etree import ElementTree

import pytest
import torch

from worldsize.grade.exam import QUESTIONS, exam, files, formats
from worldsize.grade.exam.question import APART, TOLERANCE, ExamQuestion, Given, variant
from worldsize.links import Link
from worldsize.simulate import simulate

VARIANTS = 1000
BY_ID = {question.id: question for question in QUESTIONS}
IDS = list(BY_ID)
AGREE = 1e-3  # the edge of a finite sequence in `causal_row`; all else is equal to rounding


def test_sixty_questions_ask_about_every_lab():
    assert len(QUESTIONS) >= 60 and len(BY_ID) == len(QUESTIONS)
    assert {question.lab for question in QUESTIONS} == {f"{k:02}" for k in range(18)}


@pytest.mark.parametrize("name", IDS)
def test_a_thousand_variants_have_one_answer_each_computed_in_two_ways(name):
    question, known = BY_ID[name], {}
    for seed in range(VARIANTS):
        one = variant(question, str(seed))
        given = Given(**one.numbers)
        assert math.isfinite(one.answer) and one.answer > 0
        assert math.isclose(question.again(given), one.answer, rel_tol=AGREE), one.numbers
        assert known.setdefault(one.text, one.answer) == one.answer, "the same text has two answers"
        assert abs(float(f"{one.answer:.3g}") - one.answer) < one.tolerance / 2, "three digits are not enough"
    assert len(known) >= 4, "a class would get the same numbers"


@pytest.mark.parametrize("name", IDS)
def test_a_usual_wrong_answer_counts_as_wrong(name):
    question = BY_ID[name]
    assert question.slips
    for seed in range(VARIANTS // 10):
        one = variant(question, str(seed))
        for slip in question.slips:
            assert abs(slip(Given(**one.numbers)) - one.answer) > one.tolerance + (APART - TOLERANCE) * one.answer / 2


def test_a_question_whose_slip_is_always_right_is_refused():
    same = ExamQuestion("same", "00", "{n}?", "", {"n": (1, 2)}, lambda g: g.n, lambda g: g.n, "", (lambda g: g.n,))
    with pytest.raises(RuntimeError, match="no draw of 1000 keeps its usual wrong answers apart"):
        variant(same, "0")


def ring(fabric, size, n):
    chunks = [torch.zeros(size // n, dtype=torch.uint8) for _ in range(n)]
    right, left = (fabric.rank + 1) % n, (fabric.rank - 1) % n
    for step in range(2 * (n - 1)):
        handle = fabric.isend(chunks[step % n], to=right)
        fabric.recv(chunks[(step + 1) % n], frm=left)
        handle.wait()


def to_the_server(fabric, size, n):
    whole = torch.zeros(size, dtype=torch.uint8)
    if fabric.rank:
        fabric.send(whole, to=0)
        return
    for worker in range(1, n):
        fabric.recv(whole, frm=worker)


def small(name: str) -> list[Given]:
    """A few variants whose ranks are few and whose bytes divide, so that the ranks can send them."""
    found = [Given(**variant(BY_ID[name], str(seed)).numbers) for seed in range(200)]
    fits = [given for given in found if given.n <= 8 and given.mb * 10**6 % given.n == 0 and given.mb <= 40]
    return fits[:4]


@pytest.mark.parametrize("name", ["ring_bytes", "ring_seconds", "server_bytes"])
def test_simulated_ranks_come_to_the_same_answer(name):
    assert small(name)
    for given in small(name):
        size = given.mb * 10**6
        link = Link(given.gbs * 1e9, given.us * 1e-6) if name == "ring_seconds" else None
        run = simulate(to_the_server if name == "server_bytes" else ring, given.n, args=(size, given.n), link=link)
        found = {
            "ring_bytes": lambda run=run: run.trace.sent_bytes(0) / 1e6,
            "server_bytes": lambda run=run: sum(t.size_bytes for t in run.trace.transfers if t.dst == 0) / 1e6,
            "ring_seconds": lambda run=run: 1e3 * run.simulated_s,
        }[name]()
        assert math.isclose(found, BY_ID[name].answer(given), rel_tol=1e-6)


def test_students_get_the_same_questions_with_numbers_of_their_own():
    one, other = (exam(("06", "12"), 6, "term", student) for student in ("ada", "ben"))
    assert [v.question.id for v in one] == [v.question.id for v in other]
    assert [v.text for v in one] != [v.text for v in other]
    assert {v.question.lab for v in one} <= {"06", "12"}


def test_the_same_seed_draws_the_same_exam_and_another_one_another():
    texts = [[v.text for v in exam((), 10, seed, "ada")] for seed in ("a", "a", "b")]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("count", [0, 100])
def test_more_questions_than_there_are_are_refused(count):
    with pytest.raises(ValueError, match=f"--questions: expected 1 to {len(QUESTIONS)}.*got {count}"):
        exam((), count, "a")


def test_a_lab_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="--lab: expected one of 00, 01.*got '77'"):
        exam(("77",), 1, "a")


def test_an_exam_shows_no_answer_and_its_sheet_shows_all(tmp_path):
    files.write(tmp_path / "out", "text", ["ada", "ben"], ("06",), None, "s")
    asked = (tmp_path / "out" / "ada.txt").read_text()
    sheet = (tmp_path / "out" / "answers" / "ada.txt").read_text()
    for one in exam(("06",), None, "s", "ada"):
        assert one.text in asked and one.question.why not in asked
        assert formats.answer_words(one) in sheet and one.question.why in sheet


def test_moodle_gets_a_category_a_question_and_a_variant_a_student(tmp_path):
    (path,) = files.write(tmp_path / "out", "moodle", ["a", "b", "c"], ("06",), 3, "s")
    quiz = ElementTree.fromstring(path.read_text())
    kinds = [question.get("type") for question in quiz]
    assert kinds == ["category", "numerical", "numerical", "numerical"] * 3
    exams = [exam(("06",), 3, "s", name) for name in "abc"]
    in_order = [exams[k][place] for place in range(3) for k in range(3)]
    answers = [answer for question in quiz for answer in question.findall("answer")]
    assert [float(one.find("text").text) for one in answers] == pytest.approx([v.answer for v in in_order])
    assert [float(one.find("tolerance").text) for one in answers] == pytest.approx([v.tolerance for v in in_order])


def test_canvas_gets_a_group_a_question(tmp_path):
    pytest.importorskip("text2qti", reason="an extra: pip install -e '.[instructor]'")
    (path,) = files.write(tmp_path / "out", "qti", [str(k) for k in range(5)], ("06", "11"), 4, "s")
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as bundle:
        (name,) = [name for name in bundle.namelist() if "assessment_" in name and name.endswith(".xml") and "meta" not in name]
        text = bundle.read(name).decode()
    assert text.count("<selection_number>1<") == 4
    texts = {v.text for k in range(5) for v in exam(("06", "11"), 4, "s", str(k))}
    assert text.count("numerical_question") == len(texts)


def test_two_students_of_one_name_are_refused(tmp_path):
    (tmp_path / "names.txt").write_text("Ada\n\nBen\nAda\n")
    with pytest.raises(ValueError, match="each once, got twice 'Ada'"):
        files.names_from(str(tmp_path / "names.txt"))


def test_names_that_would_share_a_file_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="two that give the same file name"):
        files.write(tmp_path / "out", "text", ["a b", "a_b"], (), 2, "s")
    assert not (tmp_path / "out").exists()


def test_a_name_that_no_file_can_have_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="expected names of at most 200 bytes, got one of 300: 'xxx"):
        files.write(tmp_path / "exam", "text", ["Ann", "x" * 300, "Ben"], ("06",), 1, "s")
    assert not (tmp_path / "exam").exists()
    longest = "ä" * 100
    assert len(files.write(tmp_path / "exam", "text", [longest], ("06",), 1, "s")) == 2


def test_a_folder_that_is_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a new folder, got an existing one"):
        files.write(tmp_path, "text", ["a"], (), 2, "s")


def test_another_form_is_refused(tmp_path):
    with pytest.raises(ValueError, match="--form: expected one of text, moodle, qti, got 'pdf'"):
        files.write(tmp_path / "out", "pdf", ["a"], (), 2, "s")
