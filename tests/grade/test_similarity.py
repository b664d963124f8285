"""Similarity: a copy is found whatever its names and spaces, honest answers are apart, the release's own code is nothing."""

import inspect
import json
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.grade.cheats import ROOT, cell
from worldsize import cli
from worldsize.grade import course
from worldsize.grade.reports import similarity as comparing
from worldsize.grade.reports import similarity_page
from worldsize.grade.reports.similarity import Compared, Similarity, compare, given_runs, similarity

RING = "06_ring_all_reduce"
COPY = re.compile(r"\b(handle|bounds|start|stop|chunk|step|left|right|received)\b")


@pytest.fixture(scope="module")
def lab() -> course.CourseLab:
    return course.load(ROOT)[RING]


def honest(exercise: str) -> dict[str, str]:
    """The right answers in odd styles that the checks are tested with, but for those that call a helper elsewhere."""
    right = import_module(f"tests.checks.mutants.{exercise}").answers.right
    sources = {fn.__name__: inspect.getsource(fn).partition("\n") for fn in right}
    written_out = {name: text for name, (first, _, text) in sources.items() if first.startswith("@")}  # no edit of another
    return {name: text for name, text in written_out.items() if text.count("\n") > 3}


def disguised(source: str) -> str:
    """Other names, other comments, other spaces, another docstring."""
    renamed = COPY.sub(lambda found: f"my_{found[0]}", source)
    wide = re.sub(r"(?m)^( +)(?=\S)", lambda found: found[1] * 2, renamed)
    return wide.replace(", ", " ,  ").replace("# Exercise", "# my own work!\n# Exercise")


def compared(lab: course.CourseLab, exercise: str, **answers: str | None) -> Compared:
    (one,) = [e for e in lab.exercises if e.id == exercise]
    return compare(lab, one, {name: {exercise: text} for name, text in answers.items()}, given_runs(lab))


@pytest.mark.parametrize("exercise", ["parameter_server", "sharded_parameter_server", "reduce_scatter", "ring_all_reduce"])
def test_a_renamed_and_reformatted_copy_ranks_above_every_honest_pair(lab, exercise):
    answers = honest(exercise)
    original = list(answers)[-1]
    found = compared(lab, exercise, **answers, zz_copy=disguised(answers[original]))
    best = found.pairs[0]
    assert {best.one.student, best.other.student} == {original, "zz_copy"} and best.share > 0.95
    assert found.pairs[1].share < best.share


def test_a_copy_of_the_course_s_own_answer_is_near_it(lab):
    (exercise,) = [e for e in lab.exercises if e.id == "reduce_scatter"]
    found = compared(lab, "reduce_scatter", copier=disguised(exercise.reference), **honest("reduce_scatter"))
    shares = {student: pair.share for student, pair in found.to_course.items()}
    assert shares["copier"] > 0.95 and max(shares, key=shares.get) == "copier"


def test_what_the_release_gave_counts_for_nothing(lab):
    for exercise in lab.exercises:
        more = f"{lab.setups[-1]}\n{exercise.stub}"
        found = compared(lab, exercise.id, stub=exercise.stub, more=more, none=None)
        assert (found.empty, found.shares, found.to_course) == (("more", "none", "stub"), (), {})


def test_code_of_any_cell_of_the_release_counts_for_nothing_and_so_does_code_in_its_prose(lab):
    given = "def shown(fabric, x):\n    return [total[k + 1] * work(x, k) for k in range(fabric.world_size)]\n"
    for more in ({"code": (given,)}, {"given": (f"Write it so:\n```python\n{given}```\n",)}):
        found = compared(replace(lab, **more), "reduce_scatter", ann=given, bob=given)
        assert found.empty == ("ann", "bob")


def of_two_labs(lab: course.CourseLab, students: int) -> Similarity:
    """Every student has the same two lines in lab 00; one pair copied an exercise of lab 06 that all others wrote alone."""
    start = course.load(ROOT)["00_start_here"]
    short = compared(start, "pass_right", **{f"s{k}": start.exercises[0].reference for k in range(students)})
    answers = dict(list(honest("reduce_scatter").items())[: students - 1])
    long = compared(lab, "reduce_scatter", **answers, zz_copy=disguised(next(iter(answers.values()))))
    return Similarity(compared=(short, long), whole=(), unread=())


@pytest.mark.parametrize("students", [3, 6], ids=["too few for a base rate", "a class"])
def test_a_copy_of_a_long_answer_stands_before_two_lines_that_a_whole_class_has(lab, students):
    found = of_two_labs(lab, students)
    exercise, pair = found.first[0]
    assert (exercise.exercise, pair.other.student) == ("reduce_scatter", "zz_copy")
    assert similarity_page.lines(found)[0].startswith(f"{RING} reduce_scatter")


def test_a_long_pair_beyond_the_twenty_largest_shares_is_among_the_most_alike_with_its_code(lab, monkeypatch):
    """Two students copied the exercise and wrote as much beside it; of the short answers, more pairs share everything."""
    monkeypatch.setattr(comparing, "SHOWN", 3)
    short = "def f(x, y):\n    return [x[k + 1] * y for k in range(9) if y]\n"
    long, *others = [next(iter(honest(exercise).values())) for exercise in ("ring_all_reduce", "parameter_server", "all_gather")]
    copies = {name: f"{disguised(long)}\n{other}" for name, other in zip(("ann", "bob"), others, strict=True)}
    found = compared(lab, "reduce_scatter", **dict.fromkeys(("s1", "s2", "s3"), short), **copies)
    every = Similarity(compared=(found,), whole=(), unread=())
    assert ("ann", "bob") not in [(pair.one.student, pair.other.student) for pair in found.pairs]
    assert next((pair.one.student, pair.other.student) for _, pair in every.first) == ("ann", "bob")
    assert "<summary><bdi>ann</bdi> and <bdi>bob</bdi>" in similarity_page.page(every)


def test_two_lines_that_a_whole_class_has_are_no_row_of_the_most_alike(lab):
    assert {one.exercise for one, _ in of_two_labs(lab, 6).first} == {"reduce_scatter"}
    assert comparing.base_rate([1.0] * 9) == 0.0 and comparing.base_rate([0.5] * 10) == 0.5


def test_over_a_whole_lab_short_answers_of_a_class_stand_behind(lab):
    tally = comparing.SharedSums()
    (exercise,) = [e for e in lab.exercises if e.id == "reduce_scatter"]
    alike = {f"s{k}": {"reduce_scatter": exercise.reference} for k in range(5)}
    compare(lab, exercise, alike, given_runs(lab), tally)
    assert {pair.beyond for pair in tally.pairs(RING)} == {0.0}


def test_a_line_that_a_student_wrote_twice_counts_though_copydetect_would_take_it_off(lab):
    twice = "def f(x):\n" + "    total[x + 1] = work(x, 2) * other(x)\n" * 2
    assert comparing.fingerprint(twice, frozenset({1})).token_coverage > 30


def test_pairs_are_in_order_and_every_pair_is_in_the_spread(lab):
    answers = honest("all_gather")
    found = compared(lab, "all_gather", **answers)
    assert len(found.shares) == len(answers) * (len(answers) - 1) / 2
    assert [pair.share for pair in found.pairs] == sorted(found.shares, reverse=True)[: len(found.pairs)]
    assert sum(comparing.spread(found.shares)) == len(found.shares)


def test_the_spread_has_its_ends():
    assert comparing.spread([0.0, 0.05, 0.1, 0.99, 1.0]) == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory: pytest.TempPathFactory, lab: course.CourseLab) -> Path:
    tmp_path = tmp_path_factory.mktemp("similarity")

    def hand_in(student: str, answers: dict[str, str]) -> None:
        notebook = json.loads((ROOT / "labs" / f"{RING}.ipynb").read_text())
        for exercise, source in answers.items():
            cell(notebook, exercise)["source"] = source
        (tmp_path / "submitted" / student).mkdir(parents=True)
        (tmp_path / "submitted" / student / f"{RING}.ipynb").write_text(json.dumps(notebook))

    mine = {e.id: e.reference for e in lab.exercises}
    evil = "\ndef f(x):\n    return '</pre><script>alert(1)</script>', x + 17 * (x - 3) ** 2 % 5"
    hand_in("<b>anna", {name: text + evil for name, text in mine.items()})
    hand_in("bert", {name: disguised(text) for name, text in mine.items()})
    hand_in("cleo", {name: next(iter(honest(name).values())) for name in ("parameter_server", "all_gather")})
    hand_in("\udcffzoe", {"all_gather": mine["all_gather"]})
    (tmp_path / "submitted" / "dora").mkdir()
    (tmp_path / "submitted" / "dora" / f"{RING}.ipynb").write_text("{")
    return tmp_path / "submitted"


@pytest.fixture(scope="module")
def found(handed_in: Path) -> Similarity:
    return similarity(handed_in, ROOT)


def test_over_a_whole_lab_the_copy_stands_first(found, lab):
    best = found.whole[0]
    assert (best.one, best.other, best.exercises) == ("<b>anna", "bert", len(lab.exercises))
    assert found.whole[1].share < best.share
    assert found.unread == ("dora: the file is not JSON (JSONDecodeError): it is not a notebook, or only part of one",)


def test_the_page_has_no_script_and_no_name_or_code_as_markup(found):
    page = similarity_page.page(found)
    assert "&lt;b&gt;anna" in page and "<b>anna" not in page and "<script" not in page
    assert "default-src 'none'" in page and "http" not in page.replace("http-equiv", "")
    assert "This proves nothing by itself." in page


@pytest.mark.parametrize("text", ["</style><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202etxt.exe\x1b[31m"])
def test_no_word_of_a_student_becomes_a_tag_or_a_control_character(lab, text):
    code = "def f(x):\n" + f"    total[x + 1] = work(x, 2) * other(x)  # {text}\n" * 3
    found = compared(lab, "all_gather", **{text: code, f"2{text}": f"# {text}\n{code}"})
    whole = comparing.SimilarStudents(text, text, text, 0.5, 1)
    page = similarity_page.page(Similarity((replace(found, lab=text, title=text),), (whole,), (text,)))
    tags = {"html", "head", "meta", "title", "style", "body", "header", "main", "h1", "h2", "h3", "p", "strong", "code"}
    tags |= {"ul", "li", "table", "thead", "tr", "th", "td", "bdi", "svg", "rect", "details", "summary", "div", "pre", "mark"}
    assert set(re.findall(r"<(\w+)", page)) == tags
    assert not set("\x1b\u202e") & set(page)


def test_the_page_shows_the_whole_of_both_codes_with_what_they_share_marked(lab):
    shared = "    total[x + 1] = work(x, 2) * other(x)\n" * 3
    found = compared(lab, "all_gather", ann=f"def f(x):\n{shared}", bob=f"def f(x):\n    if x:\n        x = 5\n{shared}")
    codes = re.findall(r"<pre>(.*?)</pre>", similarity_page.page(Similarity((found,), (), ())), re.DOTALL)
    for code, answer in zip(codes, (found.pairs[0].one, found.pairs[0].other), strict=True):
        marked = "".join(re.findall("<mark>(.*?)</mark>", code, re.DOTALL))
        assert re.sub("</?mark>", "", code) == answer.fingerprint.raw_code
        assert "= work(x, 2) * other(x)" in marked and "if x" not in marked


def test_the_command_writes_the_page_and_says_the_most_alike(handed_in, tmp_path):
    done = CliRunner().invoke(
        cli.app, ["similarity", str(handed_in), "--out", str(tmp_path / "out.html"), "--course", str(ROOT)]
    )
    assert done.exit_code == 0, done.output
    assert f"{RING}, whole lab: '<b>anna' and 'bert'" in done.output
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")


@pytest.mark.soak
@pytest.mark.browser
def test_a_browser_shows_the_page_in_light_and_dark_and_its_policy_stops_nothing_of_it(found, tmp_path):
    from playwright.sync_api import sync_playwright

    made = tmp_path / "similarity.html"
    made.write_text(similarity_page.page(found), encoding="utf-8")
    seen, papers = [], set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            tab = browser.new_context(color_scheme=scheme, viewport={"width": 1000, "height": 800}).new_page()
            tab.on("console", lambda message: seen.append(message.text))
            tab.on("request", lambda request: seen.append(request.url) if request.url.startswith("http") else None)
            tab.goto(made.as_uri())
            papers.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            widths = tab.evaluate("[...document.querySelectorAll('rect')].map(rect => rect.getBoundingClientRect().width)")
            assert max(widths) == 240
            assert tab.evaluate("document.documentElement.scrollWidth") <= 1000
        browser.close()
    assert seen == [] and papers == {"rgb(255, 255, 255)", "rgb(22, 24, 27)"}


def in_short(*compared: Compared) -> list[str]:
    return similarity_page.lines(Similarity(compared=compared, whole=(), unread=()))


def test_answers_of_one_student_are_one_line_for_all_exercises(lab):
    alone = [compared(lab, exercise.id, ada=exercise.reference) for exercise in lab.exercises]
    assert in_short(*alone) == ["nothing to compare: no exercise has answers from two students"]


def test_answers_with_nothing_in_common_are_one_line_for_all_exercises(lab):
    one = compared(lab, "reduce_scatter", **dict(zip("ab", honest("reduce_scatter").values(), strict=False)))
    apart = replace(one, pairs=tuple(replace(pair, shared=0) for pair in one.pairs))
    assert in_short(apart, apart) == ["nothing alike: no two answers share code in 2 exercises"]


def test_an_exercise_with_something_alike_is_named_and_the_others_are_counted(lab):
    (text, *_) = honest("reduce_scatter").values()
    alike = compared(lab, "reduce_scatter", ada=text, bob=disguised(text))
    first, second = in_short(alike, compared(lab, "reduce_scatter", ada=text))
    assert first.startswith(f"{RING} reduce_scatter: 1 pair, median ") and first.endswith("('ada' and 'bob')")
    assert second == "nothing alike in 1 other exercise"
