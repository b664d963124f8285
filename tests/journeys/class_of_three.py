"""A class of three who hand in all labs: every answer; one answer in each lab, with a known mistake; the labs as shipped.

A mistake is an edit of the course's own answer. What it costs is written beside it, property by property of
`docs/what-earns-points.md`. In `thorough` classes, which are the soak's, who makes a mistake has all other answers, too.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

from worldsize.grade import course
from worldsize.grade.course import CourseLab

ROOT = Path(__file__).resolve().parents[2]
LABS = course.load(ROOT)
FIRST_NUMBER = 4711
SOLVED, MISTAKEN, SHIPPED = (f"{name}_{FIRST_NUMBER + k}" for k, name in enumerate(("doejane", "mistaken", "untouched")))
_NAMES = ("Doe, Jane", "O'Brien, Ann", 'Ünal, Çem "Lee"')


@dataclass(frozen=True)
class Mistake:
    """An edit of the right answer of `exercise`, and the points that it costs. The answer calls those of `needs`."""

    exercise: str
    right: str
    wrong: str
    points: float
    needs: tuple[str, ...] = ()


# by lab
MISTAKES = {
    "00": Mistake("pass_right", "return received", "return received.float()", 1.0),  # another dtype
    "01": Mistake("training_bytes", "batch * one_example", "one_example", 0.5),  # activations
    "02": Mistake(  # noisy times: errors counted absolutely
        "fit_alpha_beta", "wanted = np.ones(len(sizes))", "table, wanted = table * seconds[:, None], seconds", 1.0
    ),
    "03": Mistake(  # as many layers in each stage
        "balanced_cuts", "key=slowest", "key=lambda edges: max(b - a for a, b in zip(edges, edges[1:]))", 0.75
    ),
    "04": Mistake("quicker_way", "2 * model <= memory_bytes", "model <= memory_bytes", 0.5),  # gradients need room too
    "05": Mistake("async_server", "(rate / max(1, age) if scaled else rate)", "rate", 0.5),  # scaled is ignored
    "06": Mistake(  # no ring: one message pattern, one size and one number of rounds
        "ring_all_reduce",
        "chunks = split(len(x), n)\n    reduce_scatter(fabric, x)  # rank r now owns chunk r + 1\n"
        "    all_gather(fabric, x, [chunks[(r + 1) % n] for r in range(n)])",
        "parameter_server(fabric, x)",
        1.25,
        ("parameter_server",),
    ),
    "07": Mistake("place_variables", "+= size_bytes", "+= 1", 1.0),  # round robin
    "08": Mistake("replica_loss", "penalty / replicas_now", "penalty", 0.5),  # the penalty counts for each replica
    "09": Mistake("worker_share", ", drop_remainder=True", "", 0.75),  # a step more, of unequal parts
    "10": Mistake("my_share", "manual_seed(seed + epoch)", "manual_seed(seed)", 1.0),  # the same order in each epoch
    "11": Mistake("fill_buckets", "if room <= 0:", "if not buckets or room < sizes[number]:", 0.25),  # closes a bucket early
    "12": Mistake("vocabulary_loss", "gradient / len(targets)", "gradient", 0.5),  # the gradient of a sum
    "13": Mistake("scaled_rate", "* step / warmup_steps", "* (step + 1) / warmup_steps", 0.5),  # warm-up one step early
    "14": Mistake("pays_below", "math.inf if saved_bytes == 0 and added_s < 0 else 0.0", "0.0", 0.5),  # less work, as many bytes
    "15": Mistake("shares_after_loss", "rate * count / world_size", "rate", 0.25),  # the rate stays
    "16": Mistake("best_plan", '("", "attention", "whole")', '("",)', 1.0),  # never recomputes
    "17": Mistake(  # neighbours: the causal mask leaves the first ranks without work
        "my_tokens",
        "range(rank, length, world_size)",
        "range(rank * length // world_size, (rank + 1) * length // world_size)",
        0.75,
    ),
}


def answers(lab: CourseLab, student: str, thorough: bool = False) -> dict[str, str]:
    """Return {exercise: the text of its cell} of what a student wrote in a lab."""
    if student == SHIPPED:
        return {}
    right = {exercise.id: exercise.reference or "" for exercise in lab.exercises}
    if student == SOLVED:
        return right
    mistake = MISTAKES[lab.number]
    text = right[mistake.exercise]
    assert text.count(mistake.right) == 1, f"lab {lab.number}: {mistake.right!r} stands {text.count(mistake.right)} times"
    right[mistake.exercise] = text.replace(mistake.right, mistake.wrong)
    written = right if thorough else (mistake.exercise, *mistake.needs)
    return {exercise: right[exercise] for exercise in written}


def points(lab: CourseLab, student: str, thorough: bool = False) -> dict[str, float]:
    """Return {exercise: points} that a student has earned in a lab."""
    written = answers(lab, student, thorough)
    earned = {exercise.id: exercise.points if exercise.id in written else 0.0 for exercise in lab.exercises}
    if student == MISTAKEN:
        mistake = MISTAKES[lab.number]
        earned[mistake.exercise] -= mistake.points
    return earned


def notebook(lab: CourseLab, student: str, thorough: bool = False) -> dict:
    """Return a student's notebook of a lab."""
    given = json.loads((ROOT / "labs" / f"{lab.stem}.ipynb").read_text(encoding="utf-8"))
    written = answers(lab, student, thorough)
    for cell in given["cells"]:
        exercise = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        cell["source"] = written.get(exercise, cell["source"])
    return given


def hand_in(folder: Path, thorough: bool = False) -> None:
    """Write the class's notebooks of all labs, as nbgrader lays them out, and a report that is no notebook."""
    for student in (SOLVED, MISTAKEN, SHIPPED):
        (folder / student).mkdir(parents=True)
        for lab in LABS.values():
            text = json.dumps(notebook(lab, student, thorough))
            (folder / student / f"{lab.stem}.ipynb").write_text(text, encoding="utf-8")
    (folder / f"late_{FIRST_NUMBER + 3}").mkdir()
    (folder / f"late_{FIRST_NUMBER + 3}" / "report.pdf").write_bytes(b"%PDF-1.7 no notebook")


def roster(path: Path) -> None:
    """Write what Canvas's gradebook exports of this class, with one student who handed in nothing and its own test student."""
    assignments = [f"Lab {lab.number}: {stem[3:].replace('_', ' ')} ({88000 + k})" for k, (stem, lab) in enumerate(LABS.items())]
    totals = ["Current Score", "Unposted Current Score", "Final Score", "Unposted Final Score"]
    empty = [""] * len([*assignments, *totals])
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow(["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *assignments, *totals])
        possible = [f"{lab.possible:.2f}" for lab in LABS.values()]
        sheet.writerow(["    Points Possible", "", "", "", "", *possible, *["(read only)"] * len(totals)])
        for k, name in enumerate((*_NAMES, "Late, Report", "Absent, Always")):
            sheet.writerow([name, FIRST_NUMBER + k, f"s-{k:03}", f"s{k}@uni.example", "Tue" if k % 2 else "Thu", *empty])
        sheet.writerow(["Student, Test", FIRST_NUMBER + 900, "", "8f14e45fceea167a5a36dedd4bea2543aaaaaaaa", "Tue", *empty])
