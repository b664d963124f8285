"""Whose a file is: what an LMS wrote into its name says so, and nothing that a student can name does."""

import os
import random
from pathlib import Path

import pytest

from worldsize.grade.marking import submissions_folder
from worldsize.grade.marking.submissions_folder import HandedIn

pytestmark = pytest.mark.quick

RING = "06_ring_all_reduce"
LABS = ["00_start_here", "01_why_distribute", RING]
CANVAS = ["annadoe_4701_90001_06_ring_all_reduce.ipynb", "bendoe_LATE_4702_90002_06_ring_all_reduce-1.ipynb"]
MOODLE = [
    "Anna Doe_4701_assignsubmission_file_06_ring_all_reduce.ipynb",
    "Ben Doe_4702_assignsubmission_file_06_ring_all_reduce.ipynb",
]
FOLDERS = [f"Anna Doe_4701_assignsubmission_file_/{RING}.ipynb", f"Ben Doe_4702_assignsubmission_file_/{RING}.ipynb"]
PLAIN = [f"anna/{RING}.ipynb", f"ben/{RING}.ipynb"]


def found_in(folder: Path, *names: str | bytes) -> list[HandedIn]:
    for name in names:
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return submissions_folder.find(folder, LABS)


def students(found: list[HandedIn]) -> list[str]:
    return sorted(one.student for one in found if not one.refused)


OWN_NAMES = [
    "victim_4711_assignsubmission_file_06_ring_all_reduce",
    "_4711_assignsubmission_file_06_ring_all_reduce",
    "victim_4711_90099_06_ring_all_reduce",
    "LATE_4711_90099_06_ring_all_reduce",
    "4711_90099_06_ring_all_reduce",
    "victim\n_4711_assignsubmission_file_06_ring_all_reduce",
    "\u202evictim_4711_assignsubmission_file_06_ring_all_reduce",
    "victim_\u0664\u0667\u0661\u0661_90099_06_ring_all_reduce",  # 4711 in other digits
    "victim_004711_assignsubmission_file_06_ring_all_reduce",
    f"victim_{'9' * 100}_assignsubmission_file_06_ring_all_reduce",
    "06_ring_all_reduce_victim_4711_assignsubmission_file_",
    "victim_4711_assignsubmission_onlinetext_06_ring_all_reduce",
]


@pytest.mark.parametrize("name", OWN_NAMES)
@pytest.mark.parametrize(
    ("others", "prefix", "expected"),
    [
        (CANVAS, "eve_4799_90003_", ["annadoe_4701", "bendoe_4702", "eve_4799"]),
        (CANVAS, "eve_LATE_4799_90003_", ["annadoe_4701", "bendoe_4702", "eve_4799"]),
        ([], "eve_4799_90003_", ["eve_4799"]),
        (MOODLE, "Eve_4799_assignsubmission_file_", ["Anna Doe_4701", "Ben Doe_4702", "Eve_4799"]),
        ([], "Eve_4799_assignsubmission_file_", ["Eve_4799"]),
    ],
    ids=["canvas", "canvas late", "canvas alone", "moodle", "moodle alone"],
)
def test_no_name_of_a_file_makes_it_somebody_elses(tmp_path, others, prefix, expected, name):
    assert students(found_in(tmp_path, *others, f"{prefix}{name}.ipynb")) == expected


@pytest.mark.parametrize("inner", ["Victim_4711_assignsubmission_file_", "victim_4711_90099_work", "anna"])
@pytest.mark.parametrize(
    ("others", "own", "expected"),
    [
        (FOLDERS, "Eve_4799_assignsubmission_file_", "Eve_4799"),
        (CANVAS, "eve_4799_90003_work", "eve_4799"),
        (PLAIN, "eve", "eve"),
    ],
    ids=["moodle", "canvas", "plain"],
)
def test_no_folder_in_what_was_handed_in_makes_it_somebody_elses(tmp_path, others, own, expected, inner):
    found = students(found_in(tmp_path, *others, f"{own}/{inner}/{RING}.ipynb"))
    assert expected in found and len(found) == 3


@pytest.mark.parametrize("name", ["Eve_van_Dyk", "R2-D2", "Anna 2", "Zoë_9_lives", "O'Neil, Sam"])
def test_a_name_that_moodle_shows_may_have_anything_in_it(tmp_path, name):
    (one,) = found_in(tmp_path, f"{name}_4711_assignsubmission_file_/{RING}.ipynb")
    assert (one.student, one.lab) == (f"{name}_4711", RING)


LETTERS = [*"aZéß李ع🐍 -.',2(+=", "e\u0301", "\u202e", "\u200d", "\u0664", "\n"]


@pytest.mark.parametrize("layout", ["canvas", "moodle", "moodle folders"])
def test_each_of_many_names_keeps_its_own_number(tmp_path, layout):
    chance = random.Random(layout)
    expected = set()
    for number in range(10_000, 10_300):
        name = "".join(chance.choices(LETTERS, k=chance.randint(1, 12))).strip(" .-") or "x"
        name = f"{name}d" if name.isdigit() else name
        own = chance.choice([RING, f"{RING}-2", "lab06", "victim_4711_assignsubmission_file_06", "a_1_2_06"])
        late = chance.choice(["", "_LATE"])
        path = {
            "canvas": f"n{name}{late}_{number}_{number + 7}_{own}.ipynb",
            "moodle": f"n{name}_{number}_assignsubmission_file_{own}.ipynb",
            "moodle folders": f"n{name}_{number}_assignsubmission_file_/{own}.ipynb",
        }[layout]
        expected.add((f"n{name}_{number}", RING))
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("{}")
    found = submissions_folder.find(tmp_path, LABS)
    assert {(one.student, one.lab) for one in found} == expected and len(found) == 300


def test_of_one_students_numbered_uploads_the_last_counts(tmp_path):
    names = [f"doe_LATE_1_{k}_{RING}{again}.ipynb" for k, again in enumerate(["", "-1", "-2"])]
    (one,) = found_in(tmp_path, *names)
    assert one.path.name == names[2] and one.note.startswith("3 notebooks")


@pytest.mark.parametrize(
    ("others", "odd"),
    [
        (CANVAS, "Victim_4711_assignsubmission_file_06_ring_all_reduce.ipynb"),
        (CANVAS, "Victim_4711_assignsubmission_file_9_8_06_ring_all_reduce.ipynb"),
        (CANVAS, "victim_06_ring_all_reduce.ipynb"),
        (CANVAS, f"victim_4711/{RING}.ipynb"),
        (CANVAS, f"12_4799_90003_{RING}.ipynb"),
        (MOODLE, "victim_4711_90003_06_ring_all_reduce.ipynb"),
        (FOLDERS, f"victim_4711/{RING}.ipynb"),
        (PLAIN, "victim_4711_90003_06_ring_all_reduce.ipynb"),
        (PLAIN, f"Victim_4711_assignsubmission_file_/{RING}.ipynb"),
    ],
)
def test_what_is_named_in_another_way_than_the_others_is_nobodys_and_has_a_line(tmp_path, others, odd):
    found = found_in(tmp_path, *others, odd)
    (one,) = [one for one in found if one.refused]
    assert one.path == tmp_path / Path(odd).parts[0] and "rename it" in one.refused
    assert len(students(found)) == 2


def test_a_folder_with_as_many_of_one_kind_as_of_another_is_a_mistake_with_the_next_step(tmp_path):
    with pytest.raises(ValueError, match=r"as many of one kind as of another \(Canvas: 2, Moodle: 2\).*grade each"):
        found_in(tmp_path, *CANVAS, *MOODLE)


def test_files_beside_the_submissions_have_no_say_in_the_layout(tmp_path):
    for k in range(5):
        (tmp_path / f"notes{k}.txt").write_text("")
    assert students(found_in(tmp_path, *CANVAS)) == ["annadoe_4701", "bendoe_4702"]


ODD = {  # what somebody hands in, and what its line says
    "report.pdf": "not a notebook",
    f"{RING}.ipynb.txt": "not a notebook",
    f"{RING}.json": "not a notebook",
    "work.zip": "unpack it",
}


def refused(found: list[HandedIn]) -> dict[str, str]:
    return {one.path.name: one.refused for one in found if one.refused}


@pytest.mark.parametrize(("name", "says"), ODD.items())
@pytest.mark.parametrize(
    ("others", "prefix", "student"),
    [(CANVAS, "eve_4799_90003_", "eve_4799"), (MOODLE, "Eve_4799_assignsubmission_file_", "Eve_4799"), (PLAIN, "eve_", None)],
    ids=["canvas", "moodle", "plain"],
)
def test_what_is_no_notebook_has_a_line_with_the_name_that_the_lms_wrote(tmp_path, others, prefix, student, name, says):
    found = found_in(tmp_path, *others, f"{prefix}{name}")
    (one,) = [one for one in found if one.refused]
    assert says in one.refused and one.path.name == f"{prefix}{name}"
    assert one.student == student or student is None and one.student.startswith("eve")
    assert len(students(found)) == 2


def test_what_lies_beside_a_students_notebook_is_in_its_note(tmp_path):
    more = [f"annadoe_4701_9100{k}_figure{k}.png" for k in range(7)]
    found = found_in(tmp_path, *CANVAS, *more)
    assert refused(found) == {} and len(found) == 2
    note = "figure0.png, annadoe_4701_91001_figure1.png"
    assert note in found[0].note and found[0].note.endswith("and 2 more beside it: not a notebook, does not count")


@pytest.mark.parametrize("name", [f"{RING}.ipynb.txt", "06.pdf", "report.pdf"])
def test_what_may_stand_for_a_lab_that_its_student_has_no_notebook_of_has_a_line_of_its_own(tmp_path, name):
    """All labs are in one folder here, as Canvas exports a whole course."""
    others = [f"annadoe_4701_92000_{LABS[0]}.ipynb", f"bendoe_4702_92001_{LABS[0]}.ipynb", f"eve_4799_92002_{LABS[0]}.ipynb"]
    found = found_in(tmp_path, *CANVAS, *others, f"eve_4799_92003_{name}", "annadoe_4701_92004_figure.png")
    (one,) = [one for one in found if one.refused]
    assert (one.student, one.path.name) == ("eve_4799", f"eve_4799_92003_{name}")
    assert [("figure.png" in each.note) for each in found if each.student == "annadoe_4701"].count(True) == 1


@pytest.mark.parametrize("place", ["anna/lab00/report.pdf", f"anna/{LABS[0]}.ipynb.txt", f"anna/work/{LABS[0]}.ipynb.txt"])
def test_an_assignment_without_a_notebook_has_a_line_beside_the_students_others(tmp_path, place):
    """As nbgrader lays them out: `<student>/<assignment>/<lab>.ipynb`, with tickets of its own."""
    others = [f"anna/lab06/{RING}.ipynb", "anna/lab06/timestamp.txt", "anna/lab06/figure.png", f"ben/lab06/{RING}.ipynb"]
    found = found_in(tmp_path, *others, f"ben/lab00/{LABS[0]}.ipynb", place)
    (one,) = [one for one in found if one.refused]
    assert (one.student, str(one.path.relative_to(tmp_path))) == ("anna", "/".join(Path(place).parts[:2]))
    assert f"(got {Path(place).name})" in one.refused and len(students(found)) == 3


def test_a_folder_without_a_notebook_says_what_is_in_it(tmp_path):
    found = found_in(tmp_path, *PLAIN, "eve/report.pdf", "eve/deep/er/work.zip")
    (tmp_path / "fay").mkdir()
    again = submissions_folder.find(tmp_path, LABS)
    assert "(got report.pdf, work.zip)" in refused(found)["eve"] and "(got nothing)" in refused(again)["fay"]


@pytest.mark.parametrize("name", ["eve", f"eve_{RING}.ipynb"])
@pytest.mark.parametrize("to", ["anna", f"anna/{RING}.ipynb", "nowhere"])
def test_a_link_is_a_line_and_is_not_followed(tmp_path, name, to):
    found_in(tmp_path, *PLAIN)
    (tmp_path / name).symlink_to(tmp_path / to)
    found = submissions_folder.find(tmp_path, LABS)
    assert students(found) == ["anna", "ben"] and "it is a link" in refused(found)[name]


def test_a_hidden_folder_keeps_its_name(tmp_path):
    (tmp_path / "..hidden").mkdir()
    (tmp_path / "anna").mkdir()
    assert [one.student for one in submissions_folder.find(tmp_path, LABS)] == ["..hidden", "anna"]


def test_a_linked_folder_among_what_was_handed_in_is_named(tmp_path):
    found_in(tmp_path, *PLAIN)
    (tmp_path / "ben" / "more").symlink_to(tmp_path / "anna", target_is_directory=True)
    assert [one.note for one in submissions_folder.find(tmp_path, LABS)] == ["", "more: a link, not followed"]


def test_a_folder_that_holds_everybodys_folders_is_a_mistake_with_the_next_step(tmp_path):
    with pytest.raises(ValueError, match=rf"got only the folder unpacked, in which 3 folders.*{RING}. Grade .*unpacked instead"):
        found_in(tmp_path, *(f"unpacked/{name}/{RING}.ipynb" for name in ("anna", "ben", "carl")))


def test_one_students_attempts_in_two_folders_are_one_row_for_a_person_to_look_at(tmp_path):
    found = found_in(tmp_path, *PLAIN, f"eve/first/{RING}.ipynb", f"eve/second/{RING}.ipynb")
    assert [(one.student, one.copies) for one in found] == [("anna", False), ("ben", False), ("eve", True)]
    assert f"first/{RING}.ipynb counts, not second/{RING}.ipynb" in found[2].note


def test_of_many_copies_the_note_says_how_many_are_not_named(tmp_path):
    (one,) = found_in(tmp_path, f"anna/{RING}.ipynb", *(f"anna/{RING} ({k}).ipynb" for k in range(9)))
    assert one.note.startswith("10 notebooks") and one.note.endswith("and 4 more") and not one.copies


def test_what_systems_put_into_folders_is_nobodys(tmp_path):
    found = found_in(tmp_path, *PLAIN, ".DS_Store", "Thumbs.db", "__MACOSX/x.ipynb", ".ipynb_checkpoints/x.ipynb")
    assert (students(found), refused(found)) == (["anna", "ben"], {})


def test_a_late_upload_is_called_late_as_canvas_does(tmp_path):
    found = found_in(tmp_path, *CANVAS)
    assert [(one.student, one.late) for one in found] == [("annadoe_4701", ""), ("bendoe_4702", "late")]


@pytest.mark.parametrize("files", [["report.pdf"], ["06_ring_all_reduce.ipynb", "report.pdf"]], ids=["no notebook", "a notebook"])
def test_a_folder_of_one_upload_is_late_as_its_name_says_whatever_is_in_it(tmp_path, files):
    found = found_in(tmp_path, *CANVAS, *(f"eve_LATE_4799_90003_work/{file}" for file in files))
    assert {one.late for one in found if one.student == "eve_4799"} == {"late"}


def test_two_names_that_are_no_text_stay_two_students(tmp_path):
    found = found_in(tmp_path, b"eve\xff/06_ring_all_reduce.ipynb", b"eve\xfe/06_ring_all_reduce.ipynb", "eve?/06.ipynb")
    assert len({one.student for one in found}) == 3
    assert all(one.student.encode() for one in found)


def test_a_name_cannot_be_written_like_one_that_is_no_text(tmp_path):
    found = found_in(tmp_path, b"eve\xff/06_ring_all_reduce.ipynb", "eve\\udcff/06_ring_all_reduce.ipynb")
    assert len({one.student for one in found}) == 2


def test_names_that_differ_by_case_are_two_students(tmp_path):
    assert students(found_in(tmp_path, f"Anna/{RING}.ipynb", f"anna/{RING}.ipynb")) == ["Anna", "anna"]


def test_a_link_to_somebodys_folder_is_not_followed(tmp_path):
    found_in(tmp_path, *PLAIN)
    (tmp_path / "eve").symlink_to(tmp_path / "anna", target_is_directory=True)
    assert students(submissions_folder.find(tmp_path, LABS)) == ["anna", "ben"]


@pytest.mark.parametrize(
    ("student", "known"),
    [
        ("Jane Doe_4711", ("Jane Doe", "4711")), ("a_1_2", ("a_1", "2")), ("anna", None), ("_12", None), ("12", None),
        ("submission_4711", None), ("anna_\u0664", None), ("anna_", None), ("an\nna_7", ("an\nna", "7")),
    ],
)  # fmt: skip
def test_the_number_by_which_an_lms_knows_a_student_is_the_last_part_of_the_name(student, known):
    assert submissions_folder.numbered(student) == known
