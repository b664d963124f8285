"""Grading in a Gradescope container: the same grader on the one submission there is, and its row as `results.json`.

Whatever happens there is a result, and one that could not be graded has no points. The fields are those of Gradescope's
"Autograder Specifications", "Output format". What the grader prints is for instructors: students are shown the row's
words alone, as plain text. Left out: how the container is made (`bundle`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from worldsize.files import PRIVATE, write_whole
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import NoSandbox, SandboxMode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.marking.submissions_folder import notebooks
from worldsize.grade.marking.tamper import sentence
from worldsize.units import worth

UNFINISHED = "the autograder did not come to its end"
_MOST_FILES = 20
_MOST_NAMED = 5
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def main(arguments: list[str] | None = None) -> None:
    """The program in a Gradescope container: it grades what was handed in and writes `results.json`.

    `--look` says only whether a sandbox works here, with exit code 1 where none does.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--look", action="store_true")
    for name in ("course", "submission", "results"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--lab")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--unsafe", action="store_true")
    given = parser.parse_args(arguments)

    if given.look:
        sys.exit(probe_sandbox())
    try:
        made = results(given.course, given.lab, given.submission, given.unsafe, given.seed)
    except BaseException as error:  # also an interrupt: there is always a result
        traceback.print_exc()
        why = "no sandbox works here" if isinstance(error, NoSandbox) else "the grader itself failed"
        made = nothing_graded(why)
    write_whole(given.results, as_text(made), PRIVATE)


def probe_sandbox() -> int:
    """Whether a sandbox works in this Gradescope container, where results are to be made; 0 where one does.

    Says so in a line; 1 where none does.
    """
    try:
        print(f"sandbox: {bubblewrap.best_mode()}", flush=True)
    except NoSandbox as refused:
        print(f"sandbox: none. {refused}", flush=True)
        return 1
    return 0


def results(course: Path, lab: str, submission: Path, unsafe: bool = False, seed: int | None = None) -> dict[str, Any]:
    """Grade the submission in a Gradescope container: the content of `results.json`, all that Gradescope is told.

    `unsafe`: grade without a sandbox where none works. Raises NoSandbox, and ValueError for a wrong course.
    """
    from worldsize.grade.marking.batch import grade

    mode = _mode(unsafe)

    with tempfile.TemporaryDirectory(prefix="grading-") as place:
        folder = Path(place) / "submitted" / "submission"
        _copy(submission, folder)
        batch = grade(
            folder.parent, Path(place) / "out", jobs=1, unsafe=mode == bubblewrap.UNSAFE, root=course, seed=seed,
            mode=mode, limits=Limits(memory_bytes=memory_bytes()),
        )  # fmt: skip

    of_lab = [made for made in batch.rows if made.lab == lab]
    made = of_lab[0] if of_lab else _of_no_lab(batch.rows[0], lab, course, submission)
    if made.state == "lost":
        print(f"lost: {made.reason}", file=sys.stderr)  # for instructors
        return nothing_graded("the grader itself failed")
    return result(made, mode)


def _of_no_lab(made: GradeRow, lab: str, course: Path, submission: Path) -> GradeRow:
    """The row of what is no notebook of the lab: it says what was handed in."""
    from worldsize.grade.course import load

    entries = sorted(submission.iterdir()) if submission.is_dir() else []
    there = [f"{path.name}{' (a link)' if path.is_symlink() else '/' if path.is_dir() else ''}" for path in entries]
    shown = ", ".join(there[:_MOST_NAMED]) + (f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else "")
    reason = made.reason if made.digest else f"the notebook {lab}.ipynb itself is needed, got {shown or 'nothing'}"
    return replace(made, lab=lab, possible=load(course)[lab].possible, reason=reason)


def _mode(unsafe: bool) -> SandboxMode:
    try:
        return bubblewrap.best_mode()
    except NoSandbox as refused:
        if not unsafe:
            raise
        print(refused, file=sys.stderr)
        return bubblewrap.UNSAFE


def memory_bytes(files: Iterable[str] = _CGROUPS) -> int:
    """What a submission may use while a Gradescope container makes its results: half of the container's memory.

    So a hog is ended before it takes the grader along. In bytes, and never more than the limit elsewhere.
    """
    whole = psutil.virtual_memory().total
    for file in files:
        text = Path(file).read_text().strip() if os.access(file, os.R_OK) else ""
        if text.isdigit():
            whole = min(whole, int(text))
    return min(Limits().memory_bytes, whole // 2)


def _copy(submission: Path, folder: Path) -> None:
    """The notebooks that were handed in, as one student's; links and devices stay behind."""
    folder.mkdir(parents=True)
    found = [path for path in notebooks(submission) if path.is_file() and not path.is_symlink()]
    for path in found[:_MOST_FILES]:
        target = folder / path.relative_to(submission)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target, follow_symlinks=False)


# ---- as Gradescope wants it ------------------------------------------------------------------


def result(made: GradeRow, mode: str) -> dict[str, Any]:
    """A graded row as Gradescope's `results.json` has it: a score, words, and one test for each exercise.

    Its score is the row's, and never more than is possible.
    """
    score = _score(made.points, made.possible) if made.exercises else 0.0
    return {
        **_shown(_words(made), score),
        "execution_time": round(made.seconds),
        "tests": [_test(one) for one in made.exercises],
        "extra_data": {"state": made.state, "seed": made.seed, "digest": made.digest, "sandbox": mode},
    }


def _score(points: float, possible: float) -> float:
    return min(max(0.0, points), possible)


def nothing_graded(why: str) -> dict[str, Any]:
    """Gradescope's results for a submission that could not be graded: no points, and why."""
    output = f"Nothing was graded: {why}. This says nothing about your code."
    return {**_shown(f"{output} Tell your instructor, who can read why and run it again.", 0.0), "tests": []}


def _shown(output: str, score: float) -> dict[str, Any]:
    plain = dict.fromkeys(("output_format", "test_output_format", "test_name_format"), "text")
    return {"score": score, "output": output, **plain, "visibility": "visible", "stdout_visibility": "hidden"}


def _words(made: GradeRow) -> str:
    lines = [f"{made.lab or 'No lab'}: {made.points:g} of {made.possible:g} points ({made.state})."]
    lines += [made.reason, made.handed_in, *map(sentence, made.tamper)]
    if made.unsafe:
        lines.append("Graded without a sandbox: an instructor looks at these points.")
    return "\n".join(filter(None, lines))


def _test(one: ExerciseRow) -> dict[str, Any]:
    marks = {True: "passed", False: "failed", None: "not reached"}
    lines = [f"{marks[p.passed]}: {p.name} ({worth(p.points)})" for p in one.properties]
    return {
        "name": f"{one.title}: {one.id}",
        "score": _score(one.points, one.possible),
        "max_score": one.possible,
        "status": "passed" if one.state == "pass" else "failed",
        "output": "\n".join(filter(None, [*lines, one.mismatch, *one.advice])) or one.state,
        "visibility": "visible",
    }


def as_text(made: dict[str, Any]) -> str:
    """Gradescope's `results.json` as text: JSON in plain ASCII, whatever a submission says."""
    return json.dumps(made, ensure_ascii=True, allow_nan=False, indent=1)


if __name__ == "__main__":
    main()
