"""A course's folder: whole or not at all, renewed without a loss, and refused where something else would suffer."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.small_course import FIRST, RING, answered, exercise, notebook, prose, small_release, sources
from worldsize.course import start_and_update
from worldsize.course.record import RECORD, course_above, read_record, release_number
from worldsize.course.shipped_files import carry, course_files
from worldsize.course.start_and_update import lay, mark_checked, place_for

pytestmark = pytest.mark.quick

STUB = "# Exercise 6.1: a ring\nraise NotImplementedError"
ANSWER = "# Exercise 6.1: a ring\nreturn x"
NEW_RING = notebook(prose("opening", "# A better lab"), exercise("ring", STUB))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return small_release(tmp_path / "release 0.2.0")


@pytest.fixture
def course(tmp_path: Path, release: Path) -> Path:
    """A course of 0.2.0 that nobody has worked in yet."""
    return lay(tmp_path / "course", release, "0.2.0").folder


def newer(tmp_path: Path, **changed: bytes | None) -> Path:
    return small_release(tmp_path / "release 0.3.0", **changed)


def tree(folder: Path) -> dict[str, bytes]:
    """The files below `folder`, without the record."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {name: content for name, content in found.items() if name != RECORD.as_posix()}


def full_disk_after(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """Let laying write so many files, and then find the disk full."""
    written: list[Path] = []
    write = start_and_update.write_whole

    def until_full(path: Path, content: bytes) -> None:
        if len(written) == files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        write(path, content)

    monkeypatch.setattr(start_and_update, "write_whole", until_full)


def test_a_new_folder_has_every_file_of_the_release_and_nothing_else(course: Path, release: Path) -> None:
    assert tree(course) == tree(release)
    assert read_record(course).version == "0.2.0"


def test_an_empty_folder_that_is_there_is_filled_and_what_is_hidden_in_it_stays(tmp_path: Path, release: Path) -> None:
    folder = tmp_path / "mine"
    (folder / ".git").mkdir(parents=True)
    before = folder.stat().st_ino
    assert lay(place_for(folder), release, "0.2.0").before == ""
    assert tree(folder) == tree(release) and (folder / ".git").is_dir()
    assert folder.stat().st_ino == before, "a shell that stands in it would stand nowhere"


@pytest.mark.parametrize("is_there", [False, True], ids=["a new folder", "an empty folder"])
def test_where_the_disk_is_full_half_way_nothing_is_left(
    tmp_path: Path, release: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    folder = tmp_path / "place" / "course"
    (folder if is_there else folder.parent).mkdir(parents=True)
    full_disk_after(monkeypatch, 4)
    with pytest.raises(OSError, match="full disk or quota: nothing was written. Free some space, then run the command again"):
        lay(folder, release, "0.2.0")
    assert [*(tmp_path / "place").rglob("*")] == ([folder] if is_there else [])


def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_and_update.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_000_000))
    monkeypatch.setattr(start_and_update, "_make", lambda *given: pytest.fail("it would write"))
    with pytest.raises(OSError, match="nothing was written"):
        lay(tmp_path / "course", release, "0.2.0")


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(start_and_update, "write_whole", refuse)
    with pytest.raises(PermissionError) as refused:
        lay(tmp_path / "course", release, "0.2.0")
    assert refused.value.filename == str(tmp_path / "course")


def test_the_progress_counts_every_file(tmp_path: Path, release: Path) -> None:
    steps: list[tuple[int, int]] = []
    lay(tmp_path / "course", release, "0.2.0", lambda done, of, name: steps.append((done, of)))
    count = len(course_files(release))
    assert steps == [(done, count) for done in range(1, count + 1)]


def test_without_a_name_it_is_the_course_in_which_one_stands(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(course / "labs" / "covers")
    assert place_for(None) == course


def test_without_a_name_outside_a_course_it_is_the_empty_folder_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_for(None) == tmp_path


def test_a_folder_with_other_files_is_refused_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"got one with thesis.tex\. Nothing was written\. Name a new folder"):
        place_for(tmp_path)


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "course").touch()
    with pytest.raises(ValueError, match="expected a folder, got a file"):
        place_for(tmp_path / "course")


def test_a_checkout_is_told_of_make(root: Path) -> None:
    with pytest.raises(ValueError, match="got a checkout of the course's repository. Run `make lab` there"):
        place_for(root)


def test_a_folder_inside_a_course_is_refused(course: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder outside any course, got one inside"):
        place_for(course / "course")


def test_a_folder_whose_parent_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"got no {tmp_path / 'no'}"):
        place_for(tmp_path / "no" / "course")


def test_who_stands_in_a_removed_folder_stands_in_no_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert course_above() is None


def test_a_course_in_which_nobody_worked_becomes_the_newer_release(course: Path, tmp_path: Path) -> None:
    release = newer(tmp_path, **{RING: NEW_RING, "docs/faq.md": b"better\n", "labs/07_more.ipynb": notebook()})
    laid = lay(course, release, "0.3.0")
    assert tree(course) == tree(release) and read_record(course).version == "0.3.0"
    assert {(file.name, file.change) for file in laid.files} == {
        (RING, "replaced"), ("docs/faq.md", "replaced"), ("labs/07_more.ipynb", "new"),
    }  # fmt: skip


def test_an_answer_stays_in_the_newer_lab_and_the_old_notebook_is_kept_aside(course: Path, tmp_path: Path) -> None:
    answered(course / RING, "ring", ANSWER)
    before = (course / RING).read_bytes()
    (said,) = lay(course, newer(tmp_path, **{RING: NEW_RING}), "0.3.0").files
    assert sources(course / RING) == ["# A better lab", ANSWER]
    assert (course / "before-0.3.0" / RING).read_bytes() == before
    assert (said.name, said.change) == (RING, "merged")
    assert said.words == f"1 answer kept; your old notebook is before-0.3.0/{RING}"


def test_a_lab_that_the_release_leaves_as_it_was_is_not_touched(course: Path, tmp_path: Path) -> None:
    answered(course / RING, "ring", ANSWER)
    before = (course / RING).read_bytes()
    assert lay(course, newer(tmp_path), "0.3.0").files == ()
    assert (course / RING).read_bytes() == before


def test_a_notebook_that_cannot_be_merged_stays_and_the_new_one_lies_beside_it(course: Path, tmp_path: Path) -> None:
    (course / RING).write_text("<<<<<<< mine")
    (said,) = lay(course, newer(tmp_path, **{RING: NEW_RING}), "0.3.0").files
    assert (course / RING).read_text() == "<<<<<<< mine"
    assert (course / "labs/new-06_ring_all_reduce.ipynb").read_bytes() == NEW_RING
    assert said.change == "yours" and "labs/new-06_ring_all_reduce.ipynb: copy the cells" in said.words


def test_what_a_student_has_tried_in_the_scratch_notebook_stays(course: Path, tmp_path: Path) -> None:
    mine = notebook(prose("here", "Mine."))
    (course / "labs/scratch.ipynb").write_bytes(mine)
    lay(course, newer(tmp_path, **{"labs/scratch.ipynb": notebook(prose("here", "Newer."))}), "0.3.0")
    assert (course / "labs/scratch.ipynb").read_bytes() == mine


def test_a_text_that_both_have_changed_is_the_new_one_and_the_students_is_kept_aside(course: Path, tmp_path: Path) -> None:
    (course / "docs/faq.md").write_text("mine")
    (said,) = lay(course, newer(tmp_path, **{"docs/faq.md": b"better\n"}), "0.3.0").files
    assert (course / "docs/faq.md").read_text() == "better\n"
    assert (course / "before-0.3.0/docs/faq.md").read_text() == "mine" and said.change == "aside"


def test_what_is_kept_aside_is_never_written_over(course: Path, tmp_path: Path) -> None:
    (course / "before-0.3.0/docs").mkdir(parents=True)
    (course / "before-0.3.0/docs/faq.md").write_text("older")
    (course / "docs/faq.md").write_text("mine")
    lay(course, newer(tmp_path, **{"docs/faq.md": b"better\n"}), "0.3.0")
    assert (course / "before-0.3.0/docs/faq.md").read_text() == "older"
    assert (course / "before-0.3.0-2/docs/faq.md").read_text() == "mine"


def test_a_lab_that_the_release_no_longer_has_goes_if_nobody_worked_in_it(course: Path, tmp_path: Path) -> None:
    (said,) = lay(course, newer(tmp_path, **{RING: None}), "0.3.0").files
    assert not (course / RING).exists() and said.change == "removed"


def test_a_lab_with_answers_that_the_release_no_longer_has_stays(course: Path, tmp_path: Path) -> None:
    answered(course / RING, "ring", ANSWER)
    (said,) = lay(course, newer(tmp_path, **{RING: None}), "0.3.0").files
    assert ANSWER in sources(course / RING) and said.change == "yours"


def test_points_and_files_of_the_students_own_are_not_touched(course: Path, tmp_path: Path) -> None:
    own = {"labs/.worldsize/lab_06.json": "{}", "labs/mine.py": "x = 1", "notes.md": "mine"}
    for name, text in own.items():
        (course / name).parent.mkdir(exist_ok=True)
        (course / name).write_text(text)
    lay(course, newer(tmp_path, **{RING: NEW_RING}), "0.3.0")
    assert {name: (course / name).read_text() for name in own} == own


@pytest.mark.parametrize("files", [0, 1, 2, 3])
def test_a_renewal_that_was_cut_short_goes_on_and_loses_nothing(
    course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    answered(course / RING, "ring", ANSWER)
    before = (course / RING).read_bytes()
    release = newer(tmp_path, **{RING: NEW_RING, FIRST: notebook(prose("hello", "# Newer")), "docs/faq.md": b"better\n"})
    with monkeypatch.context() as patched:
        full_disk_after(patched, files)
        with pytest.raises(OSError, match="each file is either the old or the new one"):
            lay(course, release, "0.3.0")
        assert read_record(course).version == "0.2.0" and ANSWER in sources(course / RING)

    lay(course, release, "0.3.0")
    assert sources(course / RING) == ["# A better lab", ANSWER] and sources(course / FIRST) == ["# Newer"]
    assert (course / "before-0.3.0" / RING).read_bytes() == before and read_record(course).version == "0.3.0"


def test_a_lab_that_was_deleted_is_laid_anew(course: Path, release: Path) -> None:
    (course / RING).unlink()
    (said,) = lay(course, release, "0.2.0").files
    assert (said.name, said.change) == (RING, "new") and tree(course) == tree(release)


def test_where_there_is_nothing_to_do_nothing_is_written(course: Path, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(course / RING, "ring", ANSWER)
    full_disk_after(monkeypatch, 0)
    monkeypatch.setattr(start_and_update, "write_record", lambda *given: pytest.fail("it would write"))
    assert lay(course, release, "0.2.0").files == ()


def test_a_newer_course_is_not_made_older(course: Path, release: Path) -> None:
    before = tree(course)
    with pytest.raises(ValueError, match="got one of 0.2.0, whose labs need that release: install worldsize 0.2.0"):
        lay(course, release, "0.1.9")
    assert tree(course) == before


def test_a_damaged_record_is_refused_with_what_to_do(course: Path, release: Path) -> None:
    (course / RECORD).write_text("{")
    with pytest.raises(ValueError, match="got a damaged file.*Rename the folder, let `worldsize start course` lay a new one"):
        lay(course, release, "0.2.0")


def test_the_check_of_the_machine_is_noted_and_outlives_a_renewal(course: Path, tmp_path: Path) -> None:
    mark_checked(course, "0.2.0")
    lay(course, newer(tmp_path, **{RING: NEW_RING}), "0.3.0")
    assert read_record(course).checked == "0.2.0"


def test_versions_are_compared_as_numbers() -> None:
    assert release_number("0.10.0") > release_number("0.9.1") and release_number("0.2") == release_number("0.2.0")


def test_a_wheel_gets_what_is_on_the_list_and_nothing_else(release: Path, tmp_path: Path) -> None:
    for name in ("solutions/06_ring.py", "tests/test_ring.py", "labs/.worldsize/lab_06.json", "docs/instructors.md"):
        (release / name).parent.mkdir(parents=True, exist_ok=True)
        (release / name).write_text("x")
    (release / "datasets" / "secret.json").symlink_to(release / "LICENSE")
    carry(release, tmp_path / "build")
    carried = tree(tmp_path / "build" / "worldsize" / "course" / "release")
    assert sorted(carried) == course_files(release)
    assert all(not name.startswith(("solutions", "tests", "docs/inst", "labs/.")) for name in carried)


def test_a_folder_without_the_course_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the course's files, with CHANGELOG.md, .*labs/NN_topic.ipynb, got"):
        course_files(tmp_path)
