"""`worldsize grade` against `nbgrader autograde`, on the same right submissions of one lab.

nbgrader executes each whole notebook in a kernel, with checks that raise where points are missing; ours runs the
exercise cells in sandboxes, every case on fresh ranks. The first `--few` submissions are graded by both, `--many` by
ours alone: the seconds of each, and the most memory that all processes of a grader had together. With `--flat`, ours
alone on batches of those sizes, to show whether a submission's cost, the memory or the open files grow with the batch.
Left out: cheating, which only ours holds off.

    python bench/grading.py [--lab 06] [--few 3] [--many 30] [--jobs 2] [--smoke]
    python bench/grading.py --flat 10 30 100 300 [--lab 06] [--jobs 2]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import report

from worldsize.grade import course
from worldsize.grade.marking.grade_folder import grade

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


def ours(
    lab: course.CourseLab, folder: Path, count: int, jobs: int, progress: Callable[..., None] | None = None
) -> float:
    """Seconds for `count` submissions, everything from the start of the grader to the last row."""
    text = answered(lab, json.loads((ROOT / "labs" / f"{lab.stem}.ipynb").read_text()), raising=False)
    for k in range(count):
        (folder / "submitted" / f"s{k:03d}").mkdir(parents=True)
        (folder / "submitted" / f"s{k:03d}" / f"{lab.stem}.ipynb").write_text(text)
    began_s = time.monotonic()
    batch = grade(folder / "submitted", folder / "out", jobs=jobs, root=ROOT, progress=progress)
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


@dataclass(frozen=True)
class Use:
    """What this process and all below it use at one moment: `memory_mb` counts a shared page once."""

    done: int
    cpu_s: float
    memory_mb: float
    files: int
    processes: int


class Watch:
    """Looks at the processes twice a second, from a thread, and remembers how many submissions were done."""

    def __init__(self) -> None:
        self.seen: list[Use] = []
        self.done = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def most_mb(self) -> float:
        """The most memory that was seen: of this process, where both graders run, and of all below it."""
        return max(use.memory_mb for use in self.seen)

    def progress(self, done: int, total: int, row: object) -> None:
        self.done = done

    def _look(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.5):
            used = [found for p in [me, *me.children(recursive=True)] if (found := self._of(p))]
            cpu_s, memory, files = (sum(numbers) for numbers in zip(*used, strict=True))
            self.seen.append(Use(self.done, cpu_s, memory / 1e6, files, len(used)))

    def _of(self, process: psutil.Process) -> tuple[float, int, int] | None:
        """None for one that ended meanwhile. Ranks that ended are in the times of the server that waited for them."""
        try:
            times = process.cpu_times()
            cpu_s = times.user + times.system + times.children_user + times.children_system
            return cpu_s, process.memory_full_info().pss, process.num_fds()
        except psutil.Error:
            return None


def flat(lab: course.CourseLab, folder: Path, count: int, jobs: int) -> dict[str, float | None]:
    """A batch of `count`: seconds and processor seconds a submission, and what the first and last third of it used.

    `late / early` is of the wall-clock cost of a submission after the first tenth: the start costs once. Of memory, files
    and processes it is the lowest tenth: what is there between two runs of a submission's code.
    """
    with Watch() as watch:
        moments = [time.monotonic()]

        def progress(done: int, total: int, row: object) -> None:
            moments.append(time.monotonic())
            watch.progress(done, total, row)

        seconds = ours(lab, folder, count, jobs, progress)
    busy = [use for use in watch.seen if use.done < count and use.processes > jobs]
    early = [use for use in busy if use.done <= count / 3]
    late = [use for use in busy if use.done >= 2 * count / 3]
    first, half = count // 10, (count + count // 10) // 2
    cost = (moments[-1] - moments[half]) / (count - half), (moments[half] - moments[first]) / (half - first)
    cpu_s = max((use.cpu_s for use in busy), default=0.0)
    found = {"wall s": seconds / count, "cpu s": cpu_s / count, "late / early": report.quotient(*cost)}
    for name, part in (("early", early), ("late", late)):
        for what in ("memory_mb", "files", "processes"):
            values = sorted(getattr(use, what) for use in part)
            found[f"{what}, {name}"] = values[len(values) // 10] if values else None
    return found


def grows(lab: course.CourseLab, options: argparse.Namespace, note: str) -> None:
    rows = {}
    for count in options.flat:
        with tempfile.TemporaryDirectory(prefix="worldsize-") as place:
            rows[count] = flat(lab, Path(place), count, options.jobs)
        print(f"{count}: {json.dumps(rows[count])}", flush=True)
    heads = list(rows[options.flat[0]])
    report.table("each of so many submissions", ["", *heads], [[str(n), *row.values()] for n, row in rows.items()])
    least, most = rows[options.flat[0]], rows[options.flat[-1]]
    report.target("cost of the most / of the fewest", most["wall s"] / least["wall s"], at_most=1.1)
    for what, name in (("memory_mb", "memory"), ("files", "open files"), ("processes", "processes")):
        grown = report.quotient(most[f"{what}, late"], most[f"{what}, early"])
        report.target(f"{name}, late / early", grown, at_most=1.05)
    report.keep(options.out / "grading_flat.json", {"conditions": note, "batches": rows})


def main() -> None:
    parser = report.options(__doc__, repeats=1)
    parser.add_argument("--lab", default="06")
    parser.add_argument("--few", type=int, default=3)
    parser.add_argument("--many", type=int, default=GOAL_SUBMISSIONS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--flat", type=int, nargs="+", metavar="N", help="ours alone, on batches of so many")
    options = parser.parse_args()
    if options.smoke:
        options.lab, options.few, options.many = "00", 1, 4
        options.flat = options.flat and [2, 4]
    # nbgrader starts programs of this environment by name, and its kernels are to draw nothing live
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ["WORLDSIZE_HEADLESS"] = "1"
    (lab,) = [lab for lab in course.load(ROOT).values() if lab.number == options.lab]
    note = f"lab {lab.number}, {options.jobs} jobs, {report.machine()}"
    print(note, flush=True)
    if options.flat:
        grows(lab, options, note)
        return
    with tempfile.TemporaryDirectory(prefix="worldsize-") as place:
        folder = Path(place)
        os.environ["WORLDSIZE_STATE_DIR"] = str(folder / "state")
        with Watch() as few:
            few_s = ours(lab, folder / "few", options.few, options.jobs)
        with Watch() as many:
            many_s = ours(lab, folder / "many", options.many, options.jobs)
        with Watch() as theirs:
            peer_s = peer(lab, folder / "peer", options.few)
    each = {"worldsize": few_s / options.few, "nbgrader": peer_s / options.few, "worldsize, many": many_s / options.many}
    ratio = each["nbgrader"] / each["worldsize, many"]
    memory = {"worldsize": few.most_mb, "nbgrader": theirs.most_mb, "worldsize, many": many.most_mb}
    rows = [[name, seconds, memory[name]] for name, seconds in each.items()]
    report.table(f"a submission ({options.few} of each, {options.many} of many)", ["", "s", "most memory, MB"], rows)
    print(f"\n  nbgrader / ours: {ratio:.3g}")
    if options.many == GOAL_SUBMISSIONS and lab.number == "06":
        report.target(f"seconds for {GOAL_SUBMISSIONS} submissions", many_s, at_most=GOAL_S)
    report.keep(options.out / "grading.json", {"conditions": note, "seconds_each": each, "memory_mb": memory, "many_s": many_s})
    series = {name: [seconds] for name, seconds in each.items()}
    report.bars(options.out / "grading.png", f"Grading\n{note}", ["a submission"], series, axis="s")


if __name__ == "__main__":
    main()
