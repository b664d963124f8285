"""Grade the one submission in a Gradescope container, and write its row as `results.json`.

Any failure still writes a result, without points. The fields follow "Output format" in Gradescope's "Autograder
Specifications".
"""

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
from worldsize.grade.isolation.bubblewrap import NoSandbox
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking.rows import ExerciseRow, GradeRow
from worldsize.grade.marking.submissions_folder import notebooks
from worldsize.grade.marking.tamper import sentence
from worldsize.units import worth

UNFINISHED = "the autograder did not finish"
_MOST_FILES = 20
_MOST_NAMED = 5
# limits by cgroup v2 and v1; v2 says "max" where there is none
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def main(arguments: list[str] | None = None) -> None:
    """Run the program of a Gradescope container: grade the submission and write `results.json`.

    `--look` only prints in one line whether a sandbox works here; the exit code is 1 if none does.
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
        try:
            print(f"sandbox: {bubblewrap.best_mode()}", flush=True)
        except NoSandbox as refused:
            print(f"sandbox: none. {refused}", flush=True)
            sys.exit(1)
        sys.exit(0)

    try:
        made = results(given.course, given.lab, given.submission, given.unsafe, given.seed)
    except BaseException as error:  # an interrupt too: there is always a result
        traceback.print_exc()
        why = "no sandbox works here" if isinstance(error, NoSandbox) else "the grader itself failed"
        made = nothing_graded(why)
    write_whole(given.results, as_text(made), PRIVATE)


def results(course: Path, lab: str, submission: Path, unsafe: bool = False, seed: int | None = None) -> dict[str, Any]:
    """Grade the submission, and return the content of `results.json`.

    `unsafe`: grade without a sandbox if none works. Raises NoSandbox, and ValueError for a wrong course.
    """
    from worldsize.grade.marking.grade_folder import grade

    mode = bubblewrap.UNSAFE
    try:
        mode = bubblewrap.best_mode()
    except NoSandbox as refused:
        if not unsafe:
            raise
        print(refused, file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="grading-") as place:
        folder = Path(place) / "submitted" / "submission"
        folder.mkdir(parents=True)
        # the submitted notebooks, as one student's; links and devices are left out
        found = [path for path in notebooks(submission) if path.is_file() and not path.is_symlink()]
        for path in found[:_MOST_FILES]:
            target = folder / path.relative_to(submission)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target, follow_symlinks=False)

        limits = Limits(memory_bytes=memory_bytes())
        graded = grade(folder.parent, Path(place) / "out", jobs=1, root=course, seed=seed, limits=limits, mode=mode)

    of_lab = [made for made in graded.rows if made.lab == lab]
    made = of_lab[0] if of_lab else _of_no_lab(graded.rows[0], lab, course, submission)
    if made.state == "lost":
        print(f"lost: {made.reason}", file=sys.stderr)  # the output is hidden from students
        return nothing_graded("the grader itself failed")
    return result(made, mode)


def _of_no_lab(made: GradeRow, lab: str, course: Path, submission: Path) -> GradeRow:
    """Return the lab's row when none of its notebooks was found, with the reason or the names of what was submitted."""
    from worldsize.grade.course import load

    reason = made.reason
    if not made.digest:
        there = []
        entries = sorted(submission.iterdir()) if submission.is_dir() else []
        for path in entries:
            kind = "/" if path.is_dir() else ""
            there.append(path.name + (" (a link)" if path.is_symlink() else kind))
        shown = ", ".join(there[:_MOST_NAMED]) or "nothing"
        if len(there) > _MOST_NAMED:
            shown += f" and {len(there) - _MOST_NAMED} more"
        reason = f"the notebook {lab}.ipynb itself is needed, got {shown}"
    return replace(made, lab=lab, possible=load(course)[lab].possible, reason=reason)


def memory_bytes(files: Iterable[str] = _CGROUPS) -> int:
    """Return the memory limit of a submission in bytes: half of the container's, at most the usual limit.

    With half, a memory hog is ended before it takes the grader with it.
    """
    whole = psutil.virtual_memory().total
    for file in files:
        text = Path(file).read_text().strip() if os.access(file, os.R_OK) else ""
        if text.isdigit():
            whole = min(whole, int(text))
    return min(Limits().memory_bytes, whole // 2)


def result(made: GradeRow, mode: str) -> dict[str, Any]:
    """Return a graded row as `results.json`: a score between 0 and the possible points, text, and a test per exercise."""
    score = _score(made.points, made.possible) if made.exercises else 0.0
    lines = [f"{made.lab or 'No lab'}: {made.points:g} of {made.possible:g} points ({made.state})."]
    lines += [made.reason, made.handed_in, *map(sentence, made.tamper)]
    if made.unsafe:
        lines.append("Graded without a sandbox: an instructor checks these points.")

    return {
        **_shown("\n".join(filter(None, lines)), score),
        "execution_time": round(made.seconds),
        "tests": list(map(_test, made.exercises)),
        "extra_data": {"state": made.state, "seed": made.seed, "digest": made.digest, "sandbox": mode},
    }


def nothing_graded(why: str) -> dict[str, Any]:
    """Return the results of a submission that could not be graded: no points, and the reason."""
    output = f"Nothing was graded: {why}. This says nothing about your code."
    return {**_shown(f"{output} Tell your instructor, who can see the cause and run it again.", 0.0), "tests": []}


def _score(points: float, possible: float) -> float:
    """Return the points of `results.json` as Gradescope takes them: from 0 to the possible ones."""
    return min(max(0.0, points), possible)


def _shown(output: str, score: float) -> dict[str, Any]:
    plain = dict.fromkeys(("output_format", "test_output_format", "test_name_format"), "text")
    return {"score": score, "output": output, **plain, "visibility": "visible", "stdout_visibility": "hidden"}


def _test(row: ExerciseRow) -> dict[str, Any]:
    marks = {True: "passed", False: "failed", None: "not examined"}
    lines = [f"{marks[p.passed]}: {p.name} ({worth(p.points)})" for p in row.properties]
    return {
        "name": f"{row.title}: {row.id}",
        "score": _score(row.points, row.possible),
        "max_score": row.possible,
        "status": "passed" if row.state == "pass" or row.earned_all else "failed",
        "output": "\n".join(filter(None, [*lines, row.mismatch, *row.advice])) or row.state,
        "visibility": "visible",
    }


def as_text(made: dict[str, Any]) -> str:
    """Return `results.json` as text: JSON in plain ASCII, whatever a submission says."""
    return json.dumps(made, ensure_ascii=True, allow_nan=False, indent=1)


if __name__ == "__main__":
    main()
