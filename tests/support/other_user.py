"""Another user of this machine, who has no rights: programs of theirs, which tests that are root can start."""

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

NUMBER = 65534
_ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 300  # a bound against a hang
_TRY = (
    "import importlib.util as util, sys, worldsize;"
    f"assert sys.version_info[:2] == {sys.version_info[:2]} and util.find_spec('torch')"
)
_MAKE = """
import pathlib, sys, venv
made = pathlib.Path(sys.argv[1])
venv.create(made, symlinks=True)
(place,) = made.glob("lib/python*/site-packages")
(place / "shared.pth").write_text("\\n".join(sys.argv[2:]))
"""


def python(code: str, *arguments: object, home: str = "/", env: Mapping[str, str] | None = None) -> str:
    """Run Python as that user, with this package and its dependencies; returns what it prints."""
    done = _run(_interpreter(), code, [str(a) for a in arguments], home, env or {})
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def why_not() -> str:
    """One sentence that says why the tests cannot be another user here; empty if they can."""
    if os.geteuid():
        return "only root can run a program as another user"
    if not _interpreter():
        return f"no Python {sys.version_info.major}.{sys.version_info.minor} here that another user may run"
    return ""


@contextmanager
def home() -> Iterator[str]:
    """A folder that is that user's."""
    with tempfile.TemporaryDirectory(prefix="worldsize-other-", dir="/tmp") as folder:
        os.chown(folder, NUMBER, NUMBER)
        yield folder


@functools.cache
def _interpreter() -> str:
    """The tests' own Python; where that lies in a folder that is closed to others, the system's of the same version."""
    for program in _candidates():
        try:
            if _run(program, _TRY, [], "/", {}).returncode == 0:
                return program
        except OSError:
            continue
    return ""


def _candidates() -> list[str]:
    other = shutil.which(f"python{sys.version_info.major}.{sys.version_info.minor}", path=os.defpath)
    return [program for program in (sys.executable, other) if program]


def _run(
    program: str, code: str, arguments: list[str], folder: str, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(_ROOT), sysconfig.get_path("purelib")])
    own = {"HOME": folder, "TMPDIR": folder, "PATH": os.defpath, "PYTHONPATH": path, **env}
    return subprocess.run(
        [program, "-c", code, *arguments], user=NUMBER, group=NUMBER, extra_groups=[], env=own, cwd=folder,
        capture_output=True, text=True, timeout=_LIMIT_S,
    )  # fmt: skip


def own_python(folder: str) -> str:
    """An environment of that user's in their `folder`, with this package and its dependencies: its Python, for a program
    that starts others without this one's variables; "" where the Python below can be used by root alone."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    for number, program in enumerate(_candidates()):
        made = Path(folder) / f"venv{number}"
        with suppress(OSError):
            _run(program, _MAKE, [str(made), str(_ROOT), *packages], folder, {})
            if _run(str(made / "bin" / "python"), _TRY, [], folder, {}).returncode == 0:
                return str(made / "bin" / "python")
    return ""


def run_as(program: str, code: str, *arguments: object, home: str) -> str:
    """As `python`, with a Python of that user's own."""
    done = _run(program, code, [str(a) for a in arguments], home, {})
    assert done.returncode == 0, done.stderr
    return done.stdout
