"""Find the notebooks in a folder of submissions, and tell whose they are and of which lab.

The names of all entries decide the layout: students' folders (also nbgrader's `<student>/<assignment>/<lab>.ipynb`) and
plain files, or an export of Canvas or Moodle. The name forms come from Canvas's `lib/content_zipper.rb` and Moodle's
`mod/assign`, which writes a name's underscores as spaces.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

FolderLayout = Literal["plain", "canvas", "moodle"]
_FILES: dict[FolderLayout, re.Pattern] = {
    # doejane_LATE_123_456_06_ring_all_reduce-2.ipynb
    "canvas": re.compile(r"(?P<name>.+?)(?P<late>_LATE)?_(?P<id>[0-9]+)_[0-9]+_(?P<file>.+)", re.DOTALL),
    # Jane Doe_4711_assignsubmission_file_06_ring_all_reduce.ipynb
    "moodle": re.compile(r"(?P<name>.+?)_(?P<id>[0-9]+)_assignsubmission_(?:file|onlinetext)_?(?P<file>.*)", re.DOTALL),
}
# "Jane Doe_4711_assignsubmission_file_": Moodle writes the whole name, so the number at its end is the student's
_MOODLE_FOLDER = re.compile(r"(?P<name>.+)_(?P<id>[0-9]+)_assignsubmission_(?:file|onlinetext)_?(?P<file>)", re.DOTALL)
_FROM: dict[FolderLayout, str] = {"plain": "no LMS", "canvas": "Canvas", "moodle": "Moodle"}
_AGAIN = re.compile(r"-([0-9]+)$")
_DIGITS = re.compile(r"[0-9]+")
_NUMBERED = re.compile(r"(?P<name>.+)_(?P<id>[0-9]+)", re.DOTALL)
_GRADESCOPE = "submission"  # its downloads are folders such as submission_4711, whose number is not a student's
# put into folders by operating systems, Git, Python and Jupyter
_SKIPPED = ("__MACOSX", "__pycache__", ".DS_Store", ".ipynb_checkpoints", ".git", ".gitignore", "Thumbs.db", "desktop.ini")
TICKETS = ("timestamp.txt", "submission_secret.txt")  # put beside a notebook by `nbgrader submit`
_MOST_NAMED = 5
_WRAPS = 3  # this many folders with a notebook of one lab, below the only entry, are students' folders


@dataclass(frozen=True)
class HandedIn:
    """A student's notebook. `lab` is the stem of the release's notebook, "" if the name does not give it.

    `digest` is of the file's bytes, "" until the file is read or if it cannot be. `refused` says why it cannot be
    graded: a folder without a notebook, or a name that gives no student. `late` is the LMS's mark. If `copies` lie in
    several folders, a person should choose one.
    """

    student: str
    lab: str
    path: Path
    note: str = ""
    digest: str = ""
    refused: str = ""
    late: str = ""
    copies: bool = False


def find(folder: Path, labs: Iterable[str]) -> list[HandedIn]:
    """Return one entry per student and lab under `folder`, in order, and an entry for everything that cannot be graded.

    Links are not followed; only plain files are opened. Raises ValueError for no folder, and for an ambiguous layout.
    """
    need(folder)

    labs = sorted(labs)
    groups: dict[tuple[str, str], list[HandedIn]] = {}
    for found in _with_what_lies_beside(list(_all(folder, labs)), labs):
        # a file without a lab in its name stays apart until it is read
        key = (found.student, found.lab or str(found.path))
        groups.setdefault(key, []).append(found)
    return [_best(group) for _, group in sorted(groups.items())]


def need(folder: Path) -> None:
    """Raise ValueError if the submissions' `folder` is not a folder."""
    if not folder.is_dir():
        got = "a file" if folder.exists() else "no such folder"
        raise ValueError(
            f"{folder}: expected a folder of submissions, such as submitted/<student>/06_ring_all_reduce.ipynb, got {got}."
        )


def numbered(student: str) -> tuple[str, str] | None:
    """Return, from a submission, a student's name and LMS number, None if the name has no number."""
    found = _NUMBERED.fullmatch(student)
    if found is None or found["name"] == _GRADESCOPE:
        return None
    return found["name"], found["id"]


def lms_number(student: str) -> str:
    """Return, from a submission, a student's number as an LMS reads it, "" if the name has none."""
    known = numbered(student)
    return same_number(known[1]) if known else ""


def same_number(number: str) -> str:
    """Return, from a submission, a student's number as an LMS reads it: 007 is 7."""
    return number.lstrip("0") or "0"


def _layout(folder: Path, entries: Iterable[Path]) -> FolderLayout:
    """Return the layout of the submissions, which most entries are named for. Raises ValueError on a tie."""
    votes = Counter(map(_vote, entries))
    if not votes:
        return "plain"

    (best, most), *others = votes.most_common()
    if others and others[0][1] == most:
        counts = ", ".join(f"{_FROM[layout]}: {count}" for layout, count in sorted(votes.items()))
        raise ValueError(
            f"{folder}: expected entries of one kind, named as Canvas or Moodle exports them or as students' folders, got as "
            f"many of one kind as of another ({counts}). Put each kind into its own folder, and grade each."
        )
    return best


def _vote(entry: Path) -> FolderLayout:
    """Return the layout that a submission's name is of: the one whose number comes first.

    An LMS writes the student's number before the student's own file name.
    """
    found = {layout: match for layout in _FILES if (match := _form(entry, layout))}
    return min(found, key=lambda layout: found[layout].start("id"), default="plain")


def _form(entry: Path, layout: FolderLayout) -> re.Match | None:
    """Match the parts of a submission's name that this LMS wrote, None if it did not write the name."""
    if layout == "plain":
        return None
    if layout == "moodle" and _is_folder(entry):
        return _MOODLE_FOLDER.fullmatch(entry.name)

    form = _FILES[layout].fullmatch(entry.name if _is_folder(entry) else entry.stem)
    if form is None or layout == "moodle":
        return form
    if any(map(_DIGITS.fullmatch, form["name"].split("_"))):
        return None  # Canvas puts a student name's own numbers between hyphens, to find the student again
    return form


def _is_folder(entry: Path) -> bool:
    return entry.is_dir() and not entry.is_symlink()


def _all(folder: Path, labs: list[str]) -> Iterator[HandedIn]:
    every = [entry for entry in sorted(folder.iterdir()) if entry.name not in _SKIPPED]
    entries = list(filter(_counts, every))
    layout = _layout(folder, entries)
    if len(entries) == 1 and layout == "plain" and entries[0].name != _GRADESCOPE:
        _expect_one_student(entries[0], labs)

    for entry in every:
        if not _counts(entry):
            yield _no_notebook(entry, layout, labs)
        elif _vote(entry) != layout and not _form(entry, layout):
            why = f"its name differs from the others here ({_FROM[layout]}), so its student is unknown: rename it"
            yield HandedIn(_told(entry.name), "", entry, refused=why)
        elif _is_folder(entry):
            yield from _below(entry, layout, labs)
        else:
            yield _flat(entry, layout, labs)


def _counts(entry: Path) -> bool:
    """Return whether the folder's entry may hold a notebook, and so votes on the layout."""
    if entry.name.startswith(".") or entry.is_symlink():
        return False
    return entry.is_dir() or entry.suffix.lower() == ".ipynb"


def _no_notebook(entry: Path, layout: FolderLayout, labs: list[str]) -> HandedIn:
    """Return the folder's refused entry for a link, a hidden entry, or a file that is not an `.ipynb`."""
    if entry.is_symlink():
        why = "it is a link, and links are not followed: put the folder or file itself here"
    elif entry.suffix.lower() == ".zip":
        why = "it is a zip: unpack it in its place"
    else:
        why = "it is not a notebook: the .ipynb file itself is needed"
    return replace(_flat(entry, layout, labs), lab="", refused=why)


def _expect_one_student(entry: Path, labs: list[str]) -> None:
    """Raise ValueError if the only entry itself holds students' folders, as unpacked archives often do."""
    folders: dict[str, set[Path]] = {}
    for path in notebooks(entry):
        folders.setdefault(_lab(path.stem, labs), set()).add(path.parent)

    for lab, places in folders.items():
        if lab and len(places) >= _WRAPS:
            raise ValueError(
                f"{entry.parent}: expected a folder or file for each student, got only the folder {entry.name}, in which "
                f"{len(places)} folders have a notebook of {lab}. Grade {entry} instead."
            )


def _with_what_lies_beside(files: list[HandedIn], labs: list[str]) -> Iterator[HandedIn]:
    """Move files that are not notebooks into the note of their student's first notebook; yield the rest.

    A file stays an entry if its name gives a lab, or may mean any lab, of which the student has no notebook.
    """
    first: dict[str, HandedIn] = {}
    have: dict[str, set[str]] = {}
    for file in files:
        if not file.refused:
            first.setdefault(file.student, file)
            have.setdefault(file.student, set()).add(file.lab)

    every = set().union(*have.values()) - {""}
    beside: dict[str, list[str]] = {}
    lines = []
    for file in files:
        lab = _lab(file.path.name, labs)
        wanted = {lab} if lab else every
        theirs = have.get(file.student)
        if file.refused and theirs and theirs >= wanted:
            beside.setdefault(file.student, []).append(file.path.name)
        else:
            lines.append(file)

    for file in lines:
        if file is first.get(file.student) and file.student in beside:
            note = f"{_names(beside[file.student])} beside it: not a notebook, does not count"
            file = replace(file, note=joined(file.note, note))
        yield file


def joined(*notes: str) -> str:
    """Join notes on a submission, each once."""
    return "; ".join(filter(None, dict.fromkeys(notes)))


def _names(names: Iterable[str]) -> str:
    """Return the first few submissions' names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return ", ".join(every[:_MOST_NAMED]) + more


def _below(folder: Path, layout: FolderLayout, labs: list[str]) -> Iterator[HandedIn]:
    form = _form(folder, layout)
    student, late = _student_and_late(form) if form else (_told(folder.name), "")

    notebook_paths = list(notebooks(folder))
    links: list[Path] = []
    others: list[Path] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - set(_SKIPPED))
        links += filter(Path.is_symlink, (Path(place) / name for name in folders))
        for name in sorted(set(files) - set(_SKIPPED)):
            if not _is_notebook(name):
                others.append(Path(place) / name)

    note = f"{_names([path.name for path in links])}: a link, not followed" if links else ""
    for path in notebook_paths:
        yield HandedIn(student, _lab(path.stem, labs) or _lab(path.parent.name, labs), path, note, late=late)

    without = {folder: [*others, *links]} if not notebook_paths else _without_notebook(folder, notebook_paths, others, labs)
    for place, got in without.items():
        names = _names([path.name for path in got]) or "nothing"
        why = f"no notebook was handed in (got {names}): the .ipynb file itself is needed"
        yield HandedIn(student, "", place, refused=why, late=late)


def _without_notebook(folder: Path, notebook_paths: list[Path], others: list[Path], labs: list[str]) -> dict[Path, list[Path]]:
    """Map the entries of a student's folder that lack a notebook, assignments or a lab's files, to their files."""
    have = {"", *(_lab(path.stem, labs) for path in notebook_paths)}
    with_one = {folder / path.relative_to(folder).parts[0] for path in notebook_paths}

    lines: dict[Path, list[Path]] = {}
    for path in others:
        if path.name in TICKETS:
            continue

        top = folder / path.relative_to(folder).parts[0]
        missing = _lab(path.name, labs) not in have if top == path else top not in with_one
        if missing:
            lines.setdefault(top, []).append(path)
    return lines


def notebooks(folder: Path) -> Iterator[Path]:
    """Yield every notebook below a submitted folder, in order, except in hidden folders."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(files):
            if _is_notebook(name):
                yield Path(place) / name


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(".ipynb") and not name.startswith(".")


def _flat(path: Path, layout: FolderLayout, labs: list[str]) -> HandedIn:
    form = _form(path, layout)
    if form:
        student, late = _student_and_late(form)
        return HandedIn(student, _lab(form["file"], labs), path, late=late)

    # the stem of "..hidden" is "."
    stem = path.name if path.name.startswith(".") or _is_folder(path) else path.stem
    lab = _lab(stem, labs)
    student = stem.partition(lab)[0] if lab else stem
    return HandedIn(_told(student.strip("_- ") or stem), lab, path)


def _student_and_late(form: re.Match) -> tuple[str, str]:
    """Return a submission's student, and "late" if Canvas marked the name as past the due date, else ""."""
    return _told(f"{form['name']}_{form['id']}"), "late" if form.groupdict().get("late") else ""


def _told(name: str) -> str:
    """Return a submission's name as text, with bytes that are not text escaped; no two names become one."""
    return name.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode()


def _lab(name: str, labs: list[str]) -> str:
    """Return the lab that a submission's name gives: its whole stem, or its number at the start of a word."""
    whole = [lab for lab in labs if lab in name]
    if whole:
        return max(whole, key=len)

    numbers = set(re.findall(r"(?:^|[^0-9a-z]|lab)([0-9]{2})(?=[^0-9]|$)", name.lower()))
    numbered_labs = [lab for lab in labs if lab[:2] in numbers]
    return numbered_labs[0] if len(numbered_labs) == 1 else ""


def _best(group: list[HandedIn]) -> HandedIn:
    """Return the submitted notebook that counts: the lab's own name before copies, then the last that Canvas numbered."""
    if len(group) == 1:
        return group[0]

    def worth(file: HandedIn) -> tuple[bool, int, str]:
        again = _AGAIN.search(file.path.stem)
        number = int(again[1][:6]) if again else 0
        bare = _AGAIN.sub("", file.path.stem)
        return bare.endswith(file.lab), number, file.path.name

    best = max(group, key=worth)
    apart = len({file.path.parent for file in group}) > 1
    notes, shown = [], []
    for file in group:
        notes.append(file.note)
        shown.append(f"{file.path.parent.name}/{file.path.name}" if apart else file.path.name)

    counts = shown.pop(group.index(best))
    note = f"{len(group)} notebooks of this lab were handed in: {counts} counts, not {_names(sorted(shown))}"
    return replace(best, note=joined(*notes, note), copies=apart)
