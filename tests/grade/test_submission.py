"""What was handed in: whose it is, of which lab, which cells count, and what was tampered with."""

import json
from pathlib import Path

import pytest

from tests.grade.cheats import LAB, RIGHT, ROOT, TITLE, cell, with_cell
from worldsize.cells import NoNotebook, read
from worldsize.checks import CHECKS
from worldsize.grade import course
from worldsize.grade.marking import submission, submissions_folder
from worldsize.grade.marking.submission import Ungradable
from worldsize.grade.marking.tamper import Tamper, sentence

pytestmark = pytest.mark.quick

RING = "06_ring_all_reduce"
LABS = [LAB, "01_why_distribute", RING]


@pytest.fixture(scope="module")
def labs() -> dict[str, course.CourseLab]:
    return course.load(ROOT)


def found_in(folder: Path, *names: str) -> list[tuple[str, str, str]]:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    return [(one.student, one.lab, one.path.name) for one in submissions_folder.find(folder, LABS)]


LAYOUTS = {
    "anna/06_ring_all_reduce.ipynb": ("anna", RING),
    "anna/ring/06_ring_all_reduce.ipynb": ("anna", RING),
    "Jane Doe_4711_assignsubmission_file_/06_ring_all_reduce.ipynb": ("Jane Doe_4711", RING),
    "Jane Doe_4711_assignsubmission_file_06_ring_all_reduce.ipynb": ("Jane Doe_4711", RING),
    "doejane_123_456_06_ring_all_reduce.ipynb": ("doejane_123", RING),
    "doejane_LATE_123_456_06_ring_all_reduce-1.ipynb": ("doejane_123", RING),
    "doejane_123_456_lab06 final.ipynb": ("doejane_123", RING),
    "anna_06_ring_all_reduce.ipynb": ("anna", RING),
    "anna/Lab06.ipynb": ("anna", RING),
    "anna/notes.ipynb": ("anna", ""),
    "submission_4711/06_ring_all_reduce.ipynb": ("submission_4711", RING),  # as Gradescope exports them
    "06_ring_all_reduce.ipynb": ("06_ring_all_reduce", RING),
    "=1+cmd|' C'!A0/06_ring_all_reduce.ipynb": ("=1+cmd|' C'!A0", RING),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_file_is_found_with_its_student_and_lab(tmp_path, name):
    assert found_in(tmp_path, name) == [(*LAYOUTS[name], Path(name).name)]


def test_the_latest_of_canvas_numbered_files_counts(tmp_path):
    names = [f"doejane_1_{k}_06_ring_all_reduce{again}.ipynb" for k, again in enumerate(["", "-1", "-10", "-2"])]
    (one,) = submissions_folder.find(tmp_path, LABS) if found_in(tmp_path, *names) else ()
    assert one.path.name == names[2]
    assert one.note.startswith("4 notebooks of this lab were handed in")


def test_a_copy_beside_the_lab_itself_does_not_count(tmp_path):
    found = found_in(tmp_path, "anna/06_ring_all_reduce.ipynb", "anna/06_ring_all_reduce-Copy1.ipynb")
    assert found == [("anna", RING, "06_ring_all_reduce.ipynb")]


def test_checkpoints_and_hidden_files_are_left_out(tmp_path):
    names = ["anna/.ipynb_checkpoints/06_ring_all_reduce-checkpoint.ipynb", "anna/06_ring_all_reduce.ipynb"]
    assert len(found_in(tmp_path, *names, "__MACOSX/anna/._06_ring_all_reduce.ipynb")) == 1


def test_a_student_without_a_notebook_is_there_too(tmp_path):
    (tmp_path / "anna").mkdir()
    (tmp_path / "anna" / "work.zip").write_bytes(b"PK")
    (one,) = submissions_folder.find(tmp_path, LABS)
    assert (one.student, one.lab) == ("anna", "") and "no notebook" in one.refused


def test_no_folder_is_a_mistake_with_the_next_step(tmp_path):
    with pytest.raises(ValueError, match="expected a folder of submissions, such as submitted/<student>"):
        submissions_folder.find(tmp_path / "nowhere", LABS)


def test_a_link_is_told_as_one(tmp_path):
    (tmp_path / "06.ipynb").symlink_to(tmp_path / "06.ipynb")
    with pytest.raises(Ungradable, match="06.ipynb is a link, and links are not followed: hand in the file itself"):
        submission.read_notebook(tmp_path / "06.ipynb")


def test_a_release_has_its_setup_its_exercises_and_their_references(labs):
    ring = labs[RING]
    assert [e.id for e in ring.exercises][-1] == "ring_all_reduce"
    assert ring.possible == 6
    assert all("NotYet" in e.stub and e.reference and "SOLUTION" not in e.reference for e in ring.exercises)
    assert any("def split(" in source for source in ring.setups)
    assert "worldsize.formulas.cost" in ring.modules


def test_every_exercise_of_a_release_has_a_check(labs):
    for lab in labs.values():
        assert lab.exercises and all(e.id in CHECKS and e.functions for e in lab.exercises)


def test_a_folder_without_labs_is_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="expected the course's notebooks in labs/"):
        course.load(tmp_path)


def repaired(notebook: dict, labs: dict, lab: str = LAB) -> submission.Submission:
    return submission.repair(list(read(json.dumps(notebook).encode())), labs[lab])


def test_an_untouched_notebook_has_nothing_to_report(labs):
    handed_in = repaired(with_cell(TITLE + RIGHT), labs)
    assert handed_in.tamper == ()
    assert handed_in.sources == {"pass_right": TITLE + RIGHT}


def test_of_two_cells_the_one_that_somebody_worked_on_counts(labs):
    notebook = with_cell(TITLE + RIGHT)
    stub = labs[LAB].exercises[0].stub
    notebook["cells"].append({**cell(notebook, "pass_right"), "id": "z", "source": stub})
    handed_in = repaired(notebook, labs)
    assert handed_in.sources["pass_right"] == TITLE + RIGHT
    assert list(map(sentence, handed_in.tamper)) == ["Exercise 0.1 (pass_right): 2 cells have its name"]


def test_a_lab_is_known_by_its_exercises(labs):
    cells = list(read(json.dumps(with_cell(RIGHT)).encode()))
    assert submission.lab_of(cells, labs.values()) is labs[LAB]
    assert submission.lab_of([], labs.values()) is None


@pytest.mark.parametrize("data", [b"", b"  ", b"{", b"[]", b"7", b"null", b'{"cells": 3}', b'{"worksheets": [7]}'])
def test_what_is_no_notebook_says_so(data):
    with pytest.raises(NoNotebook, match="notebook"):
        read(data)


@pytest.mark.parametrize("rows", [[1], [None], [{}], [{"source": 3, "metadata": 4}], [{"metadata": {"nbgrader": 5}}]])
def test_cells_that_make_no_sense_are_read_over(labs, rows):
    assert repaired({"cells": rows}, labs).sources == {"pass_right": None}


def test_of_very_many_changes_a_row_keeps_the_first_and_their_number(labs):
    notebook = with_cell(TITLE + RIGHT)
    notebook["cells"] += [{"cell_type": "code", "source": f"# Set-up\nx = {k}"} for k in range(1000)]
    tamper = repaired(notebook, labs).tamper
    assert (len(tamper), sentence(tamper[-1])) == (submission.MOST_TAMPER + 1, "and 960 more changes")


def edited(name: str, **more) -> dict:
    """A right answer's notebook, in which the cell of that name is changed."""
    notebook = with_cell(TITLE + RIGHT)
    cell(notebook, name).update(more)
    return notebook


def of_points(points) -> dict:
    notebook = with_cell(TITLE + RIGHT)
    cell(notebook, "check_pass_right")["metadata"]["nbgrader"]["points"] = points
    return notebook


FOUND = [
    (edited("check_pass_right", source="pass"), "the check of Exercise 0.1 was changed: the grader used the release's own"),
    (of_points(7), "the check of Exercise 0.1 claims 7 points; it is worth 4"),
    (of_points("x" * 99), f"the check of Exercise 0.1 claims '{'x' * 19} points; it is worth 4"),
    (
        edited("check_pass_right", metadata={"nbgrader": {"grade": True, "grade_id": "more", "points": 5}}),
        ("the check of Exercise 0.1 is missing: the grader used the release's own",
         "cell 'more' claims points (5): the release has no such cell"),
    ),
    (
        edited("pass_right", id="z", metadata={}),
        "Exercise 0.1 (pass_right): its cell lost its name; the grader found it by its content",
    ),
    (
        edited("pass_right", cell_type="raw"),
        "Exercise 0.1 (pass_right): its cell is missing; a cell of that name is raw, not code; "
        "the release's stub takes its place",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("notebook", "said"), FOUND, ids=range(len(FOUND)))
def test_what_is_not_as_it_was_released_is_said(labs, notebook, said):
    expected = [said] if isinstance(said, str) else list(said)
    assert list(map(sentence, repaired(notebook, labs).tamper)) == expected


def test_a_change_is_data(labs):
    (change,) = repaired(of_points(7), labs).tamper
    assert change == Tamper("check of other points", "Exercise 0.1", "pass_right", found="7", points=4.0)


GIVEN = ("# Set-up\nimport time\n\nimport torch", "# Set-up\ndef split(length, parts):\n    return length // parts")


def changes(setups, sources) -> list[str]:
    return [sentence(change) for change in submission.setup_changes(setups, sources)]


def test_set_up_cells_as_released_have_nothing_to_report():
    assert changes(GIVEN, [f"{GIVEN[0]}  \n", "x = 1", GIVEN[1]]) == []


def test_a_changed_set_up_cell_is_named_with_the_lines_that_do_not_count():
    (words,) = changes(GIVEN, [f"{GIVEN[0]}\nimport numpy as np\n", GIVEN[1]])
    assert words == (
        "set-up cell 1 (`import time`) was changed: the grader used the release's own; "
        "the addition does not count: `import numpy as np`"
    )


def test_what_the_title_of_a_set_up_cell_says_of_it_does_not_count():
    assert changes(["# Set-up: the tools\nimport time"], ["# Set-up\nimport time"]) == []


def test_a_changed_set_up_cell_whose_title_says_what_it_does_is_named():
    (words,) = changes(["# Set-up: the tools\nimport time"], ["# Set-up: the tools\nimport time\nimport os"])
    assert words.endswith("the addition does not count: `import os`")


def test_a_set_up_cell_that_is_missing_or_empty_is_named():
    assert changes(GIVEN, [GIVEN[0]]) == [
        "set-up cell 2 (`def split(length, parts):`) is missing: the grader used the release's own"
    ]
    assert len(changes(GIVEN, ["# Set-up", GIVEN[0]])) == 2


def test_a_set_up_cell_of_a_student_s_own_does_not_count_and_says_so():
    (words,) = changes(GIVEN, [*GIVEN, "# Set-up\n\ndef helper(x):\n    return x"])
    assert words.startswith("a set-up cell that the release does not have (`def helper(x):`) does not count")


def test_of_many_added_lines_three_are_shown_and_none_is_long():
    more = "\n".join(f"x{k} = '{'y' * 500}\0'" for k in range(9))
    (words,) = changes(GIVEN[:1], [f"{GIVEN[0]}\n{more}"])
    assert words.endswith(" and 6 more") and len(words) < 400


def test_a_row_names_the_set_up_cells_that_were_changed(labs):
    notebook = with_cell(TITLE + RIGHT)
    setup = next(c for c in notebook["cells"] if "".join(c["source"]).startswith("# Set-up"))
    setup["source"] = "".join(setup["source"]) + "\nimport numpy as np"
    (change,) = repaired(notebook, labs).tamper
    words = sentence(change)
    assert words.endswith("was changed: the grader used the release's own; the addition does not count: `import numpy as np`")


HALVES = RIGHT.partition("    received = torch")
UPPER, LOWER = TITLE + HALVES[0], HALVES[1] + HALVES[2]


def in_cells(*sources: str, named: tuple[int, ...] = ()) -> dict:
    """A notebook whose exercise stands in these cells; those `named` have its name and id, the others none."""
    notebook = with_cell("")
    one = cell(notebook, "pass_right")
    place = notebook["cells"].index(one)
    rows = [{**one, "source": text} if k in named else {**one, "source": text, "id": f"x{k}", "metadata": {}}
            for k, text in enumerate(sources)]  # fmt: skip
    notebook["cells"][place : place + 1] = rows
    return notebook


@pytest.mark.parametrize("named", [(0,), (1,), (0, 1)])
def test_an_exercise_in_two_cells_is_put_together(labs, named):
    handed_in = repaired(in_cells(UPPER, LOWER, named=named), labs)
    assert handed_in.sources["pass_right"] == f"{UPPER}\n{LOWER}"
    (change,) = handed_in.tamper
    assert sentence(change) == "Exercise 0.1 (pass_right): its cell was split into 2; the grader joined them"


def test_three_parts_are_put_together_with_what_runs_on(labs):
    first, second, third = TITLE + "import math", HALVES[0], LOWER
    handed_in = repaired(in_cells(first, second, third, named=(0,)), labs)
    assert handed_in.sources["pass_right"] == "\n".join([first, second, third])


def test_a_cell_below_that_is_python_by_itself_is_no_half(labs):
    handed_in = repaired(in_cells(TITLE + RIGHT, "print(pass_right)", named=(0,)), labs)
    assert handed_in.sources["pass_right"] == TITLE + RIGHT


def test_a_cell_below_that_would_not_make_it_python_is_no_half(labs):
    handed_in = repaired(in_cells(TITLE + RIGHT, "        this is : no python", named=(0,)), labs)
    assert handed_in.sources["pass_right"] == TITLE + RIGHT


def test_a_copy_is_no_half(labs):
    handed_in = repaired(in_cells(TITLE + RIGHT, TITLE + RIGHT.replace("+ 1", "+ 2"), named=(0, 1)), labs)
    assert handed_in.sources["pass_right"] in (TITLE + RIGHT, TITLE + RIGHT.replace("+ 1", "+ 2"))


def test_a_cell_that_is_broken_for_good_is_taken_as_it_is(labs):
    handed_in = repaired(in_cells("def pass_right(fabric, x:", "print(1)", named=(0,)), labs)
    assert handed_in.sources["pass_right"] == "def pass_right(fabric, x:"


def test_a_class_a_pair_and_a_typed_name_define_a_function_too(labs):
    for source in ("class pass_right: pass", "pass_right, other = f, g", "pass_right: Callable = f", "async def pass_right(): 1"):
        assert repaired(in_cells(source), labs).sources["pass_right"] == source


def test_colab_s_ids_in_the_metadata_name_cells(labs):
    notebook = with_cell(TITLE + RIGHT)
    for one in notebook["cells"]:
        one["metadata"] = {"id": one.pop("id")}
    assert repaired(notebook, labs).sources["pass_right"] == TITLE + RIGHT
