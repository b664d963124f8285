"""The course's files for students, by an allow-list: a wheel's contents, and their place in an installation.

`setup.py` puts the files into the wheel, the students' zip has them beside the package, and `laying` lays them into a folder.
This module imports only Python's own library, because a build has nothing else.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

NAMED = (
    *("CHANGELOG.md", "LICENSE", "SECURITY.md", "THIRD_PARTY_NOTICES.md"),
    *("datasets/README.md", "docs/faq.md", "docs/gpt.py", "docs/own-work.md", "docs/platforms.md"),
    *("docs/two-free-gpus.md", "labs/AGENTS.md"),
)
BY_HAND = ("labs/scratch.ipynb",)  # notebooks without a source, which no build writes or checks
LABS = "labs/[0-9][0-9]_*.ipynb"
PATTERNS = (
    *(LABS, *BY_HAND, "labs/covers/*.png", "labs/covers/*.svg"),
    *("datasets/*.npz", "datasets/*.csv", "datasets/*.LICENSE", "datasets/*.json"),
)
_PACKAGE = Path(__file__).resolve().parents[1]
CARRIED_FOLDER = _PACKAGE / "course" / "release"  # exists only in an installed wheel
CHECKOUT = _PACKAGE.parent  # a checkout in an editable installation; otherwise the folder of installed packages


def found(root: Path, patterns: Iterable[str]) -> list[str]:
    """Return the names of the files below `root` that a pattern lets ship, in order; symbolic links are skipped."""
    paths = {path for pattern in patterns for path in root.glob(pattern)}
    return sorted(path.relative_to(root).as_posix() for path in paths if path.is_file() and not path.is_symlink())


def course_files(root: Path) -> list[str]:
    """Return the names of the course's files below `root`, in order. Raises ValueError if a required file is missing."""
    missing = [name for name in NAMED if not (root / name).is_file()]
    if not any(root.glob(LABS)):
        missing.append("labs/NN_topic.ipynb")
    if missing:
        raise ValueError(f"expected the course's files, with {', '.join(missing)}, got {root}, which lacks them.")
    return found(root, (*NAMED, *PATTERNS))


def carry(root: Path, build: Path) -> None:
    """Copy the course from the repository `root` into a wheel that is built in the folder `build`.

    Raises ValueError for a lab that has been run: a wheel carries no outputs and no answers.
    """
    names = course_files(root)
    worked_in = []
    for name in names:
        if name.endswith(".ipynb"):
            cells = json.loads((root / name).read_text(encoding="utf-8"))["cells"]
            if any(cell.get("outputs") or cell.get("execution_count") for cell in cells):
                worked_in.append(name)

    if worked_in:
        raise ValueError(
            f"expected labs without outputs, got outputs in {', '.join(worked_in)}. Build the wheel from a fresh "
            f"checkout, or install this one as it is: pip install -e ."
        )

    to = build / CARRIED_FOLDER.relative_to(CHECKOUT)
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, to / name)


def source() -> Path:
    """Return the folder from which this installation lays the course: in the package, or the checkout around it.

    Raises ValueError if there is neither.
    """
    if CARRIED_FOLDER.is_dir():
        return CARRIED_FOLDER
    if is_checkout(CHECKOUT):
        return CHECKOUT
    raise ValueError(
        f"expected the course in {CARRIED_FOLDER}, got nothing there: this package was built without the course. Build the wheel "
        f"in the course's repository, with setup.py (pip wheel --no-deps -w dist .), and install that wheel."
    )


def is_checkout(folder: Path) -> bool:
    """Return True if `folder` is a checkout of the course's repository, or the unpacked zip of a release."""
    return (folder / "worldsize" / "__init__.py").is_file() and (folder / "labs").is_dir()
