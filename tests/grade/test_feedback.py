"""Feedback for students: everything that they need, nothing of anybody else, and no word of theirs that runs."""

import base64
import hashlib
import json
import random
import re
import shutil
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner
from typing_extensions import override

from worldsize import cli
from worldsize.checks.arena import Arena, ArenaResult, Trial
from worldsize.checks.verdict import Verdict
from worldsize.grade import course
from worldsize.grade.marking import mark_submission
from worldsize.grade.marking.rows import ExerciseRow, GradeRow, PropertyRow, write
from worldsize.grade.marking.tamper import Tamper
from worldsize.grade.outside.arena import CountingArena, LastRunReached
from worldsize.grade.reports import feedback
from worldsize.grade.reports.expected_messages import ExpectedMessages
from worldsize.grade.reports.feedback_page import MessagePictures, PagePicture, page
from worldsize.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
RING = "06_ring_all_reduce"
LABS = course.load(ROOT)
TITLES = course.titles_of(LABS[RING])
HOSTILE = [
    "<script>alert(1)</script>", "=cmd|'/c calc'!A1", '"><img src=x onerror=alert(1)>', "</style><script>alert(1)</script>",
    "javascript:alert(1)", "&lt;script&gt;", "\u202etxt.exe", "\x1b[31mred\x00", "😀 علي", "{{7*7}} ${7*7}", "x" * 9000,
]  # fmt: skip


def exercise(state: str = "fail", mismatch: str = "rank 1: expected 12, got 7", **more: object) -> ExerciseRow:
    properties = (PropertyRow("x holds the sum", 0.5, True), PropertyRow("messages go round", 0.5, state == "pass"))
    points = 1.0 if state == "pass" else 0.5
    return ExerciseRow("ring_all_reduce", "Exercise 6.5", state, points, 1.0, properties, mismatch, **more)


def row(student: str = "anna", *exercises: ExerciseRow, path: str = "", state: str = "graded", **more: object) -> GradeRow:
    exercises = exercises or (exercise(),)
    path = path or f"{student}/{RING}.ipynb"
    return GradeRow(student, RING, path, state, 0.5, 6.0, exercises, **{"seed": 11, "digest": "ab" * 32, **more})


def html(given: GradeRow, pairs: dict[str, MessagePictures] | None = None, **more: object) -> str:
    return page(given, TITLES, pairs or {}, **more)


class Read(HTMLParser):
    """A page as a browser reads it: `tags` with their attributes, and the `text` outside of style."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self._style = False
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))
        self._style = tag == "style"
        self.text += " "

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._style else data

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]


SENT = PagePicture(b"png", 'Two "ranks" <b>', 730, 290)


def test_it_says_points_by_exercise_and_property_and_the_first_mismatch():
    text = " ".join(Read(html(row())).text.split())
    assert "0.5 of 6 points" in text and "Exercise 6.5: the ring all-reduce" in text
    assert "x holds the sum ✔ holds 0.5" in text and "messages go round ✘ does not hold 0.5" in text
    assert "rank 1: expected 12, got 7" in text


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("fail", "restart the kernel, and run its check"), ("timeout", "did not end in time"),
        ("crashed", "the process ended before"),
        ("missing", "the notebook that you handed in lacks the cell"),
        ("not yet", "not written yet"), ("pass", "Every exercise passed"),
    ],
)  # fmt: skip
def test_it_says_what_to_do_next(state, advice):
    assert advice in Read(html(row("anna", exercise(state)))).text


def test_it_says_what_was_repaired_and_which_file_counted():
    text = Read(html(row(tamper=(Tamper("check changed", "Exercise 6.1"),), handed_in="b.ipynb counts, not a.ipynb"))).text
    assert "the check of Exercise 6.1 was changed" in text and "b.ipynb counts, not a.ipynb" in text


def test_what_could_not_be_graded_says_why():
    given = GradeRow("anna", "", "anna", "ungradable", reason="no notebook was handed in")
    assert "This could not be graded: no notebook was handed in." in Read(html(given)).text


def test_where_the_grader_itself_failed_the_student_has_nothing_to_do():
    given = GradeRow("anna", RING, "anna/x.ipynb", "lost", reason="the grader itself failed")
    assert "Nothing: the grader failed, not your notebook" in Read(html(given)).text


def test_one_that_took_the_graders_memory_is_told_what_to_look_for():
    text = Read(html(GradeRow("eve", RING, "eve/x.ipynb", "crashed", reason="it sent more than fits"))).text
    assert "it sent more than fits" in text and "lists or tensors that grow without limit" in text
    assert "not your notebook" not in text


def test_what_the_grader_lost_has_no_page(tmp_path):
    lost = GradeRow("ben", RING, f"ben/{RING}.ipynb", "lost", reason="it was killed")
    written = feedback.write([row(), lost], tmp_path / "pages", LABS, tmp_path)
    assert written == [tmp_path / "pages" / "anna" / f"{RING}.html"]


def test_an_exercise_that_was_helped_says_how_it_was_checked():
    given = row("anna", exercise("pass", "With the course's own `all_gather`: 1 points.", helped=("all_gather",)))
    assert "With the course's own `all_gather`" in Read(html(given)).text


def test_the_seed_is_said_only_when_asked_and_does_not_follow_from_the_appeal_number():
    given = row(seed=123456789)
    assert "123456789" not in html(given)
    assert "--seed 123456789" in html(given, seed_too=True)
    numbers = {re.search(r"[0-9a-f]{4}(-[0-9a-f]{4}){3}", html(row(seed=s, digest=d)))[0] for s in (1, 2) for d in "ab"}
    assert len(numbers) == 4


TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "figure", "figcaption"),
    *("h1", "h2", "h3", "h4", "p", "a", "ul", "li", "strong", "span", "div", "code", "pre", "bdi", "meter", "img"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_word_of_a_student_becomes_a_tag_an_attribute_or_a_control_character(text):
    bad = exercise("fail", text)
    setup = Tamper("set-up changed", "1", first_line=text, count=1, lines=(text,))
    tamper = (Tamper("points claimed", text, found=text), setup)
    given = row(text, bad, path=f"{text}/x.ipynb", tamper=tamper, handed_in=text, reason=text, state="tampered")
    source = html(given, {"ring_all_reduce": MessagePictures(SENT, None)})
    read = Read(source)
    assert {name for name, _ in read.tags} <= TAGS
    assert not any(key.startswith("on") or key == "style" for _, attributes in read.tags for key in attributes)
    assert all(attributes["href"].startswith("#") for attributes in read.all("a"))
    assert not set("\x00\x1b\u202e") & set(source)
    assert len(source) < 60_000


def test_a_page_asks_nothing_of_anybody_and_its_policy_forbids_scripts():
    read = Read(html(row(), {"ring_all_reduce": MessagePictures(SENT, SENT)}))
    (policy,) = [m["content"] for m in read.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "script" not in policy and "unsafe" not in policy
    assert all(image["src"].startswith("data:image/png;base64,") for image in read.all("img"))
    assert not re.search(r"url\(|@import|https?://", html(row()))


def test_the_policy_names_the_pages_own_style():
    source = html(row())
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)[1]
    assert f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'" in source


def test_a_page_can_be_read_aloud_and_reached_by_keyboard():
    given = row("anna", exercise(), tamper=(Tamper("exercise missing", "Exercise 6.1"),))
    read = Read(html(given, {"ring_all_reduce": MessagePictures(SENT, SENT)}))
    assert read.all("html") == [{"lang": "en"}] and len(read.all("h1")) == 1
    levels = [int(name[1]) for name, _ in read.tags if re.fullmatch(r"h\d", name)]
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert [i["alt"] for i in read.all("img")] == [f'{w}: Two "ranks" <b>' for w in ("Your messages", "Messages as expected")]
    assert all(head.get("scope") in ("col", "row") for head in read.all("th"))
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) and {a["href"][1:] for a in read.all("a")} <= set(ids)


def test_a_page_holds_nothing_of_another_student(tmp_path):
    rows = [row("anna", exercise("fail", "mismatch-of-anna")), row("ben", exercise("fail", "mismatch-of-ben"))]
    anna, ben = feedback.write(rows, tmp_path / "pages", LABS, tmp_path / "kept")
    assert "ben" not in anna.read_text() and "anna" not in ben.read_text()


def places(*rows: GradeRow) -> list[str]:
    return [str(place) for _, place in feedback.placed(rows)]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (f"anna/ps1/{RING}.ipynb", f"anna/ps1/{RING}.html"),
        (f"anna/{RING}.ipynb", f"anna/{RING}.html"),
        ("anna/final (2).ipynb", f"anna/{RING}.html"),
        (f"doejane_12_34_{RING}.ipynb", f"doejane_12_34_{RING}.html"),
        (f"Doe, Jane_4711_assignsubmission_file_/{RING}.ipynb", f"Doe, Jane_4711_assignsubmission_file_/{RING}.html"),
        ("علي 😀/x.ipynb", f"علي 😀/{RING}.html"),
        ("anna", "anna/feedback.html"),
    ],
    ids=["nbgrader", "plain", "renamed", "Canvas", "Moodle", "letters of the world", "a folder without a notebook"],
)
def test_pages_lie_as_the_submissions_lay(path, place):
    assert places(row(path=path)) == [place]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (f"doejane_12_34_{RING}.pdf", f"doejane_12_34_{RING}.html"),
        ("anna/Report.PDF", "anna/Report.html"),
        ("anna.smith", "anna.smith/feedback.html"),
        ("J. Doe_4711_assignsubmission_file_", "J. Doe_4711_assignsubmission_file_/feedback.html"),
    ],
)
def test_the_page_of_a_file_that_is_no_notebook_is_named_like_the_file(path, place):
    assert places(row(path=path, state="ungradable")) == [place]


@pytest.mark.parametrize(
    "path",
    [
        "../../x/a.ipynb", "/etc/passwd", "a/../../b.ipynb", "..", ".hidden/a.ipynb", "a\\..\\b/x.ipynb", "CON/a.ipynb", "nul",
        "a\nb/x.ipynb", "-rf/x.ipynb", "a /x.ipynb", "a./x.ipynb", "<b>/x.ipynb", "\u202ea/x.ipynb", "~/x.ipynb", "$HOME/x.ipynb",
        "x" * 300 + ".ipynb", "a.html/x.ipynb", "*?|:/x.ipynb", "",
    ],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_written_plainly(path, tmp_path):
    (made,) = feedback.write([row("anna", path=path)], tmp_path / "pages", LABS, tmp_path / "kept")
    assert made.resolve().is_relative_to(tmp_path / "pages") and made.is_file()
    assert re.fullmatch(r"([\w-]+(\.[0-9a-f]{10})?/)*[\w-]+(\.[0-9a-f]{10})?\.html", str(made.relative_to(tmp_path / "pages")))


def test_no_two_pages_share_a_place_even_where_case_does_not_count():
    paths = ["Anna/a.ipynb", "anna/b.ipynb", "anna/c.ipynb", "ANNA/d.ipynb", "a\u0301/e.ipynb", "\u00e1/f.ipynb", "<a>/x", "<a/x"]
    found = places(*(row(path=path) for path in paths))
    assert len({place.casefold() for place in found}) == len(paths)


def test_what_nbgrader_needs_to_release_a_page_lies_beside_it(tmp_path):
    folder = tmp_path / "submitted" / "anna" / "ps1"
    folder.mkdir(parents=True)
    (folder / "timestamp.txt").write_text("2026-11-20 10:00:00 UTC")
    (folder / "submission_secret.txt").symlink_to("/etc/hostname")
    given = row(path=f"anna/ps1/{RING}.ipynb")
    (made,) = feedback.write([given], tmp_path / "pages", LABS, tmp_path / "kept", submissions=tmp_path / "submitted")
    assert sorted(p.name for p in made.parent.iterdir()) == [made.name, "timestamp.txt"]  # and no link is followed
    assert made.stat().st_mode & 0o777 == 0o644


def test_the_same_rows_make_the_same_pages(tmp_path):
    rows = [row("anna", exercise(ranks=2, messages=((0, 1, 8, 0.0, 0.1, 0),))), row("ben")]
    first = {p.name: p.read_bytes() for p in feedback.write(rows, tmp_path / "a", LABS, tmp_path / "kept")}
    assert {p.name: p.read_bytes() for p in feedback.write(rows[::-1], tmp_path / "b", LABS, tmp_path / "kept")} == first


def test_a_folder_without_a_grading_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected the rows of a grading, got none"):
        feedback.write([], tmp_path, LABS, tmp_path)


def test_the_command_says_how_many_pages_it_wrote(tmp_path):
    write(row(), tmp_path / "grades" / "rows")
    answer = CliRunner().invoke(cli.app, ["feedback", str(tmp_path / "grades"), "--to", str(tmp_path / "pages")])
    assert answer.exit_code == 0 and f"wrote 1 page: {tmp_path}" in answer.output.replace("\n", "")
    assert (tmp_path / "pages" / "anna" / f"{RING}.html").is_file()


HUB = """# Exercise 6.5: x
def ring_all_reduce(fabric, x):
    if fabric.rank == 0:
        for rank in range(1, fabric.world_size):
            y = torch.empty_like(x)
            fabric.recv(y, rank)
            x += y
        for rank in range(1, fabric.world_size):
            fabric.send(x, rank)
    else:
        fabric.send(x, 0)
        fabric.recv(x, 0)
"""


@pytest.fixture(scope="module")
def hub(sandbox, tmp_path_factory) -> GradeRow:
    """A submission whose all-reduce goes through rank 0, graded."""
    made = json.loads((ROOT / "labs" / f"{RING}.ipynb").read_text())
    for cell in made["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "ring_all_reduce":
            cell["source"] = HUB
    path = tmp_path_factory.mktemp("hub") / f"{RING}.ipynb"
    path.write_text(json.dumps(made))
    task = mark_submission.MarkingTask("anna", RING, str(path), f"anna/{RING}.ipynb")
    return mark_submission.mark(task, LABS, sandbox, 5)


@pytest.fixture(scope="module")
def pages(hub, tmp_path_factory) -> tuple[Path, Path]:
    """The page of `hub`, and what was kept of the course's own answer."""
    folder = tmp_path_factory.mktemp("pages")
    (made,) = feedback.write([hub], folder / "pages", LABS, folder / "kept")
    return made, folder / "kept"


def test_the_students_messages_stand_beside_those_of_the_same_case_as_expected(pages):
    sent, wanted = (image["alt"] for image in Read(pages[0].read_text()).all("img"))
    assert sent.startswith("Your messages: ") and "every message goes to or comes from rank 0. 4 messages, 24 B each" in sent
    assert "round a ring. 12 messages, 8 B each, 96 B in all, 4 steps" in wanted


def test_exercises_that_were_not_written_or_that_passed_have_no_picture(hub, pages):
    assert [e.state for e in hub.exercises] == [*["not yet"] * 4, "fail"]
    assert len(Read(pages[0].read_text()).all("img")) == 2


def test_what_was_expected_is_kept_and_not_run_again(hub, pages, tmp_path):
    (kept,) = pages[1].iterdir()
    ranks, messages = json.loads(kept.read_text())
    (tmp_path / kept.name).write_text(json.dumps([ranks, messages[:1]]))
    with closing(ExpectedMessages(LABS, tmp_path)) as again:
        assert (len(messages), again.trace(hub, hub.exercises[-1]).total_bytes()) == (12, 8)


def with_answers(answer: str | None) -> dict[str, course.CourseLab]:
    """The course with `answer` for each of its own."""
    exercises = tuple(replace(e, reference=answer) for e in LABS[RING].exercises)
    return {RING: replace(LABS[RING], exercises=exercises)}


def test_without_the_courses_answers_there_is_no_expected_picture(hub, tmp_path):
    with closing(ExpectedMessages(with_answers(None), tmp_path)) as nothing:
        assert nothing.trace(hub, hub.exercises[-1]) is None


def test_a_check_that_cannot_be_run_here_keeps_no_feedback_back(tmp_path):
    given = row("anna", exercise(ranks=2, run=1, messages=((0, 1, 8, 0.0, 0.1, 0),)))
    (made,) = feedback.write([given], tmp_path / "pages", with_answers("1 / 0"), tmp_path / "kept")
    assert len(Read(made.read_text()).all("img")) == 1


def test_messages_that_are_as_expected_are_called_so():
    said = "Your ranks sent what was expected, to whom it was expected"
    assert said in html(row(), {"ring_all_reduce": MessagePictures(SENT, SENT, same=True)})
    assert said not in html(row(), {"ring_all_reduce": MessagePictures(SENT, SENT)})


class DoneAtOnce(Arena):
    """Every run is done at once."""

    draws = random.Random(1)

    @override
    def run(self, trial: Trial) -> ArenaResult:
        return ArenaResult("done", message=str(trial.link), trace=Trace(1))


def test_runs_are_counted_whatever_their_way_and_the_last_that_was_asked_for_ends_the_check():
    arena = CountingArena(DoneAtOnce(), last=3)
    arena.ranks(len, [1])
    arena.call(len, [])
    assert (arena.runs, arena.ways) == (2, {"ranks", "call"})
    with pytest.raises(LastRunReached) as enough:
        arena.ranks(len, [1], link="slow")
    assert enough.value.ended.message == "slow"


def test_a_verdict_shows_the_run_of_its_first_mistake_though_others_followed():
    arena = CountingArena(DoneAtOnce())
    runs = [arena.call(len, []), arena.ranks(len, [1]), arena.ranks(len, [1])]
    numbers = [arena.run_of(Verdict("ring", "fail", (), "wrong", trace)) for trace in (runs[1].trace, runs[2].trace, None)]
    assert numbers == [2, 3, 0]


@pytest.mark.browser
def test_a_browser_shows_a_page_in_light_and_dark_and_runs_and_asks_nothing(pages, tmp_path):
    from playwright.sync_api import sync_playwright

    tamper = tuple(Tamper("points claimed", text, found=text) for text in HOSTILE)
    bad = row(HOSTILE[0], *(exercise("fail", text) for text in HOSTILE[:1]), reason=HOSTILE[2], tamper=tamper)
    (hostile,) = feedback.write([bad], tmp_path / "pages", LABS, tmp_path / "kept")
    seen, papers = [], set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            tab = browser.new_context(color_scheme=scheme, viewport={"width": 360, "height": 800}).new_page()
            tab.on("console", lambda message: seen.append(message.text))
            tab.on("dialog", lambda dialog: (seen.append("a dialog"), dialog.dismiss()))
            tab.on("request", lambda request: seen.append(request.url) if request.url.startswith("http") else None)
            for made in (pages[0], hostile):
                tab.goto(made.as_uri())
                papers.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
                assert tab.evaluate("document.documentElement.scrollWidth") <= 360
                assert tab.evaluate("[...document.images].every(image => image.naturalWidth > 0)")
        browser.close()
    assert seen == [] and papers == {"rgb(255, 255, 255)", "rgb(22, 24, 27)"}
