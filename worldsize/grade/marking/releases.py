"""What decides a mark besides the submission, as one digest a lab: a row holds for as long as that is the same.

It is over the release's own cells with their references, the package's version, and its sources but for those that
only show. Left out: how the release is read (`course`), versions of other packages (`constraints.txt`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import worldsize
from worldsize.grade.course import CourseLab

_PACKAGE = Path(worldsize.__file__).resolve().parent
# what shows marks, or makes files for people, and decides none
_SHOWS = (
    "authoring", "cli", "doctor.py", "figures", "live", "pages",
    "grade/gradescope", "grade/nbgrader", "grade/reports",
)  # fmt: skip


def releases(labs: Mapping[str, CourseLab], package: Path = _PACKAGE) -> dict[str, str]:
    """{lab: digest}; that of "", for what is of no known lab, is over every lab."""
    sources = _sources(package)
    told = {stem: _digest(sources, asdict(replace(lab, heading="", given=(), code=()))) for stem, lab in labs.items()}
    return told | {"": _digest(sources, sorted(told.items()))}


def _sources(package: Path) -> str:
    """A digest over the package's version and the sources that decide a mark."""
    found = hashlib.sha256(worldsize.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if not any(name.is_relative_to(shows) for shows in _SHOWS):
            data = path.read_bytes()
            found.update(f"\0{name.as_posix()}\0{len(data)}\0".encode() + data)
    return found.hexdigest()


def _digest(sources: str, data: object) -> str:
    return hashlib.sha256(f"{sources}\0{json.dumps(data, sort_keys=True)}".encode()).hexdigest()[:16]
