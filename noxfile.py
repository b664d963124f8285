"""The matrix of versions, `make matrix`: in each corner an install, `make quick`, the engine's tests, six labs' solutions.

nox, not tox: a corner is a row of data, whose results are read back and recorded, which tox would leave to a script of our
own; nox takes uv's environments and Pythons where uv is there, and names a corner whose Python is not. The corners and the
record: `tests/support/matrix.py`. By hand: `python -m nox -s newest`, `-P 3.12` for another Python,
`-R` to use an environment again, `-- -n 0` for words to pytest, PARTS=rooms,labs in the environment for a part.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nox

from tests.support import matrix
from tests.support.matrix import Corner, Install, Suite

ROOT = Path(__file__).parent
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
SIDE_BY_SIDE = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
TEST_TOOLS = ("coloraide", "ipyparallel", "jupytext", "packaging", "pytest", "pytest-timeout", "pytest-xdist", "PyYAML")
PARTS = os.environ.get("PARTS", "quick,rooms,labs").split(",")
# a person's own settings of pip are no part of a corner; PyTorch without CUDA is enough for all of them
ENV = {"PIP_CONSTRAINT": os.devnull, "UV_TORCH_BACKEND": "cpu", "PYTHONDONTWRITEBYTECODE": None}

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False


def install(session: nox.Session, corner: Corner, folder: Path) -> list[str]:
    """Install the course and its tests' tools. Returns what the course's own install changed of a host's packages."""
    versions = []
    if kept := corner.versions((ROOT / "constraints.txt").read_text()):
        (folder / "versions.txt").write_text(kept)
        versions = ["-c", str(folder / "versions.txt")]
    if session.venv_backend != "uv" and os.environ.get("TORCH") != "pip" and not corner.host:
        # out of reach, pip's build comes with the rest
        small = ["--timeout", "15", "--retries", "1", "--no-deps", "-i", CPU_BUILDS, *versions, f"torch{corner.torch}"]
        session.install(*small, env=ENV, success_codes=[0, 1], silent=True)
    if not corner.host:
        session.install(*versions, "-e", ".[dev]", f"torch{corner.torch}", env=ENV)
        return []

    session.install("-r", corner.host, env=ENV)
    before = packages(session)
    session.install("-e", ".", env=ENV)
    after = packages(session)
    session.install("-c", corner.host, *TEST_TOOLS, env=ENV)
    return [f"{name}: {there} became {after.get(name)}" for name, there in before.items() if after.get(name) != there]


def packages(session: nox.Session) -> dict[str, str]:
    """Return {package: version} of the corner's environment."""
    return matrix.read_packages(session.run("python", "-c", matrix.PACKAGES, silent=True) or "{}")


def tests(session: nox.Session, corner: Corner, folder: Path, name: str, *words: str) -> Suite:
    """Run pytest with these words, in the way of `make`; a failed test is recorded and ends nothing."""
    report = folder / f"{name}.xml"
    started_s = time.monotonic()
    # one package of a host may find another deprecated: no matter of the course's
    quiet = ("-W", "ignore::DeprecationWarning") if corner.host else ()
    words = (*(session.posargs or SIDE_BY_SIDE), *quiet, f"--junitxml={report}", *words)
    session.run("python", "-m", "pytest", *words, env=ENV, success_codes=[0, 1])
    return matrix.read_tests(report.read_text(), time.monotonic() - started_s)


def corner_session(corner: Corner) -> Callable[[nox.Session], None]:
    """Return what nox runs for a corner."""

    def session_of_corner(session: nox.Session) -> None:
        with tempfile.TemporaryDirectory(prefix="worldsize-matrix-") as name:
            folder = Path(name)
            fresh = "torch" not in packages(session)
            started_s = time.monotonic()
            changed = install(session, corner, folder)
            megabytes = matrix.megabytes(Path(session.virtualenv.location))
            installed = Install(round(time.monotonic() - started_s) if fresh else None, megabytes, changed)
            quick = tests(session, corner, folder, "quick", "-m", "quick", *corner.quick) if "quick" in PARTS else None
            rooms = tests(session, corner, folder, "rooms", *matrix.ROOMS) if "rooms" in PARTS else None
            started_s = time.monotonic()
            labs = {}
            for lab in matrix.LABS if "labs" in PARTS else ():
                notebook = next(ROOT.glob(f"solutions/{lab}_*.ipynb"))
                words = ("worldsize", "run", str(notebook), "--out", str(folder / notebook.name))
                labs[lab] = matrix.read_points(session.run(*words, env=ENV, silent=True, success_codes=[0, 1]))
            labs_s = round(time.monotonic() - started_s)
            parts = {"install": installed, "quick": quick, "rooms": rooms, "labs": labs, "labs_seconds": labs_s}
            result = matrix.Result.of(corner, packages(session), **parts)
        matrix.record(ROOT, result)
        if wrong := result.wrong():
            session.error("\n".join(wrong))

    session_of_corner.__doc__ = corner.what
    return session_of_corner


for _corner in matrix.CORNERS:
    nox.session(corner_session(_corner), name=_corner.name, python=_corner.python)
