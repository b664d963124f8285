"""A digest per lab of all but the submission that decides a mark; a row holds while its digest is the same.

The digest covers the release's own cells with their references, the package's version, and its sources except those
that only display. `constraints.txt` pins the versions of other packages.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import worldsize
from worldsize.grade.course import CourseLab

_PACKAGE = Path(worldsize.__file__).resolve().parent
# these show marks or make files for people, and decide no mark
_SHOWS = (
    "authoring", "cli", "doctor.py", "figures", "live", "pages",
    "grade/gradescope", "grade/nbgrader", "grade/reports",
)  # fmt: skip


def release_digests(labs: Mapping[str, CourseLab], package: Path = _PACKAGE) -> dict[str, str]:
    """Return {lab: digest}. The key "", for files of no known lab, covers every lab."""
    sources = hashlib.sha256(worldsize.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if not any(map(name.is_relative_to, _SHOWS)):
            data = path.read_bytes()
            sources.update(f"\0{name.as_posix()}\0{len(data)}\0".encode() + data)

    told = {}
    for stem, lab in labs.items():
        told[stem] = _digest(sources.hexdigest(), asdict(replace(lab, heading="", given=(), code=())))
    return told | {"": _digest(sources.hexdigest(), sorted(told.items()))}


def _digest(sources: str, data: object) -> str:
    return hashlib.sha256(f"{sources}\0{json.dumps(data, sort_keys=True)}".encode()).hexdigest()[:16]
