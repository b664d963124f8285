"""Exams as files in a folder: an exam and an answer sheet for each student, or one file with variants for an LMS."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from worldsize.files import PRIVATE, write_whole
from worldsize.grade.exam import exam, formats

Form = Literal["text", "moodle", "qti"]
FORMS: tuple[Form, ...] = ("text", "moodle", "qti")
TITLE = "World Size"
_MOST_BYTES = 200  # of a file's name, which file systems limit to 255


def names_from(students: str) -> list[str]:
    """Return the students' names: `students` is a count, or a text file with a name on each line.

    Raises ValueError for no student, and for two of one name, who would get the same exam.
    """
    if students.isdecimal():
        names = [f"student_{k + 1:03}" for k in range(int(students))]
    else:
        names = [line.strip() for line in Path(students).read_text(encoding="utf-8").splitlines() if line.strip()]

    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if not names or twice:
        got = f"twice {twice[0]!r}" if twice else "none"
        raise ValueError(f"--students: expected one or more names, each once, got {got}.")
    return names


def write(
    out: Path, form: str, names: Sequence[str], labs: tuple[str, ...], count: int | None, seed: str
) -> list[Path]:
    """Write exams in `form` into the new folder `out`, and return the files.

    "text" writes an exam and an answer sheet for each name. "moodle" and "qti" write one file with a variant of each
    question for each name. All students get the same questions with different numbers. Raises ValueError for another form,
    if `out` exists, if two names make one file name, or if a name is too long for a file.
    """
    if form not in FORMS:
        raise ValueError(f"--form: expected one of {', '.join(FORMS)}, got {form!r}.")
    if out.exists():
        raise ValueError(f"{out}: expected a new folder, got an existing one. Name another, so that nothing is lost.")

    exams = [exam(labs, count, seed, name) for name in names]
    if form == "moodle":
        files = {"world_size.moodle.xml": formats.as_moodle(TITLE, exams)}
    elif form == "qti":
        files = {"world_size.qti.zip": formats.as_qti(TITLE, exams)}
    else:
        files = {}
        for name, variants in zip(names, exams, strict=True):
            plain = re.sub(r"[^\w.-]+", "_", name).strip("._") or "student"
            if len(plain.encode()) > _MOST_BYTES:
                raise ValueError(
                    f"--students: expected names of at most {_MOST_BYTES} bytes, got one of {len(plain.encode())}: {name[:40]!r}…"
                )
            files[f"{plain}.txt"] = formats.as_text(f"{TITLE}: {name}", variants)
            files[f"answers/{plain}.txt"] = formats.as_text(f"{TITLE}: {name}, answers", variants, answers=True)
        if len(files) < 2 * len(names):  # two names became one file name
            raise ValueError(
                "--students: expected names that differ in letters and digits, got two that give the same file name."
            )

    for name, content in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(out / name, content, PRIVATE)
    return [out / name for name in files]
