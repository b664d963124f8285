"""A class that handed in: files as Canvas exports them, and its gradebook's own export.

Each student handed in one lab, and the labs take turns: most solved it, others did a part, nothing, or put the answer
elsewhere; a few handed in late, twice, or what is no notebook. Left out: wrong answers and cheats (`tests.grade.cheats`).
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

from worldsize.grade import course

ROOT = Path(__file__).resolve().parents[2]
LABS = ("06", "00", "01", "02", "03", "13", "14")
KINDS = ("solved", "solved", "in part", "solved", "late", "untouched", "solved", "elsewhere", "twice")
FIRST_ID = 4711
_NAMES = ("Doe, Jane", "O'Brien, Ann", "Ünal, Çem", '李, 明 "Lee"')


def hand_in(folder: Path, count: int, labs: tuple[str, ...] = LABS) -> dict[str, str]:
    """Write the submissions of `count` students into `folder`; {file: kind}."""
    releases = course.load(ROOT)
    stems = [next(stem for stem in releases if stem.startswith(lab)) for lab in labs]
    folder.mkdir(parents=True)
    made = {}
    for k in range(count):
        stem, kind = stems[k % len(stems)], KINDS[(k // len(stems) + k) % len(KINDS)]
        notebook = json.loads((ROOT / "labs" / f"{stem}.ipynb").read_text(encoding="utf-8"))
        exercises = releases[stem].exercises
        answers = {e.id: e.reference for e in exercises}
        if kind == "in part":
            answers = dict(list(answers.items())[:1])
        elif kind == "untouched":
            answers = {}
        elif kind == "elsewhere":
            answers.pop(exercises[0].id)
            notebook["cells"].append(_code(exercises[0].reference))
        for cell in notebook["cells"]:
            cell["source"] = answers.get(cell["metadata"].get("nbgrader", {}).get("grade_id"), cell["source"])
        late = "_LATE" if kind == "late" else ""
        name = f"{'doejane' if k == 0 else f'student{k}'}{late}_{FIRST_ID + k}_{900000 + k}_{stem}"
        made[f"{name}.ipynb"] = kind
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        if kind == "twice":
            (folder / f"{name}.ipynb").write_text(json.dumps({**notebook, "cells": notebook["cells"][:3]}))
            (folder / f"{name}-1.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    for k, name in enumerate(("report.pdf", "06.ipynb"), count):
        name = f"student{k}_{FIRST_ID + k}_{900000 + k}_{name}"
        (folder / name).write_bytes(b"%PDF-1.7 no notebook")
        made[name] = "no notebook"
    return made


def roster(path: Path, count: int, labs: tuple[str, ...] = LABS) -> None:
    """What Canvas's gradebook exports of this class: one student more, who handed in nothing, and its own test student."""
    releases = course.load(ROOT)
    heads = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    stems = [next(stem for stem in releases if stem.startswith(lab)) for lab in labs]
    assignments = [f"Lab {stem[:2]}: {stem[3:].replace('_', ' ')} ({88000 + k})" for k, stem in enumerate(stems)]
    totals = ["Current Score", "Unposted Current Score", "Final Score", "Unposted Final Score"]
    possible = [f"{releases[stem].possible:.2f}" for stem in stems]
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        sheet = csv.writer(file)
        sheet.writerow([*heads, *assignments, *totals])
        sheet.writerow(["    Points Possible", "", "", "", "", *possible, *["(read only)"] * len(totals)])
        for k in range(count + 3):
            name = _NAMES[k] if k < len(_NAMES) else f"Student, {k}"
            sheet.writerow([name, FIRST_ID + k, f"s-{k:03}", f"s{k}@uni.example", "Tue" if k % 2 else "Thu", *[""] * 11])
        sheet.writerow(["Student, Test", FIRST_ID + 900, "", "8f14e45fceea167a5a36dedd4bea2543aaaaaaaa", "Tue", *[""] * 11])


def _code(source: str) -> dict:
    return {"cell_type": "code", "id": "mine", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
