"""`worldsize grade` against `nbgrader autograde`, on the same right submissions of one lab.

nbgrader executes each whole notebook in a kernel, with checks that raise where points are missing; ours runs the
exercise cells in sandboxes, every case on fresh ranks. The first `--few` submissions are graded by both, `--many` by
ours alone, to show whether a submission's cost grows with the batch. Left out: cheating, which only ours holds off.

    python bench/grading.py [--lab 06] [--few 3] [--many 30] [--jobs 2] [--smoke]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import report

from worldsize.grade import course
from worldsize.grade.grader import grade

ROOT = Path(__file__).resolve().parent.parent
GOAL_S, GOAL_SUBMISSIONS = 150.0, 30


def answered(lab: course.CourseLab, notebook: dict, raising: bool) -> str:
    """`notebook` with the course's answers, and with checks that raise where nbgrader is to see points."""
    answers = {exercise.id: exercise.reference for exercise in lab.exercises}
    for cell in notebook["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        if name in answers:
            cell["source"] = f"### BEGIN SOLUTION\n{answers[name]}\n### END SOLUTION" if raising else answers[name]
        elif name.startswith("check_") and raising:
            source = course.text(cell)
            cell["source"] = f"verdict = {source}\nassert verdict.state == 'pass', str(verdict)"
    return json.dumps(notebook)


def ours(lab: course.CourseLab, folder: Path, count: int, jobs: int) -> float:
    """Seconds for `count` submissions, everything from the start of the grader to the last row."""
    text = answered(lab, json.loads((ROOT / "labs" / f"{lab.stem}.ipynb").read_text()), raising=False)
    for k in range(count):
        (folder / "submitted" / f"s{k:03d}").mkdir(parents=True)
        (folder / "submitted" / f"s{k:03d}" / f"{lab.stem}.ipynb").write_text(text)
    began_s = time.monotonic()
    batch = grade(folder / "submitted", folder / "out", jobs=jobs, root=ROOT)
    seconds = time.monotonic() - began_s
    assert all(row.points == lab.possible for row in batch.rows), batch.rows
    return seconds


def peer(lab: course.CourseLab, folder: Path, count: int) -> float:
    """Seconds for `nbgrader autograde` of `count` submissions, one after the other, as it does."""
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    config = Config()
    config.CourseDirectory.root = str(folder)
    config.ExecutePreprocessor.timeout = 600
    (folder / "source" / "lab").mkdir(parents=True)
    source = answered(lab, json.loads((ROOT / "labs" / f"{lab.stem}.ipynb").read_text()), raising=True)
    (folder / "source" / "lab" / f"{lab.stem}.ipynb").write_text(source)
    nbgrader = NbGraderAPI(config=config)
    made = nbgrader.generate_assignment("lab")
    assert made["success"], made
    released = json.loads((folder / "release" / "lab" / f"{lab.stem}.ipynb").read_text())
    text = answered(lab, released, raising=False)
    for k in range(count):
        (folder / "submitted" / f"s{k:03d}" / "lab").mkdir(parents=True)
        (folder / "submitted" / f"s{k:03d}" / "lab" / f"{lab.stem}.ipynb").write_text(text)
    began_s = time.monotonic()
    for k in range(count):
        done = nbgrader.autograde("lab", f"s{k:03d}")
        assert done["success"], done
    return time.monotonic() - began_s


def main() -> None:
    parser = report.options(__doc__, repeats=1)
    parser.add_argument("--lab", default="06")
    parser.add_argument("--few", type=int, default=3)
    parser.add_argument("--many", type=int, default=GOAL_SUBMISSIONS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.smoke:
        options.lab, options.few, options.many = "00", 1, 4
    # nbgrader starts programs of this environment by name, and its kernels are to draw nothing live
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ["WORLDSIZE_HEADLESS"] = "1"
    (lab,) = [lab for lab in course.load(ROOT).values() if lab.number == options.lab]
    note = f"lab {lab.number}, {options.jobs} jobs, {report.machine()}"
    print(note)
    with tempfile.TemporaryDirectory(prefix="worldsize-") as place:
        folder = Path(place)
        os.environ["WORLDSIZE_STATE_DIR"] = str(folder / "state")
        few_s = ours(lab, folder / "few", options.few, options.jobs)
        many_s = ours(lab, folder / "many", options.many, options.jobs)
        peer_s = peer(lab, folder / "peer", options.few)
    each = {"worldsize": few_s / options.few, "nbgrader": peer_s / options.few, "worldsize, many": many_s / options.many}
    ratio = each["nbgrader"] / each["worldsize, many"]
    rows = [[name, seconds] for name, seconds in each.items()]
    report.table(f"seconds a submission ({options.few} of each, {options.many} of many)", ["", "s"], rows)
    print(f"\n  nbgrader / ours: {ratio:.3g}")
    if options.many == GOAL_SUBMISSIONS and lab.number == "06":
        report.target(f"seconds for {GOAL_SUBMISSIONS} submissions", many_s, at_most=GOAL_S)
    report.keep(options.out / "grading.json", {"conditions": note, "seconds_each": each, "many_s": many_s})
    series = {name: [seconds] for name, seconds in each.items()}
    report.bars(options.out / "grading.png", f"Grading\n{note}", ["a submission"], series, axis="s")


if __name__ == "__main__":
    main()
