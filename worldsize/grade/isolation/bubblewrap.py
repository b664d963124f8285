"""The sandbox: bubblewrap's command line, an allow-list and never all of `/`, and what this machine can do.

A submission sees `/usr`, this Python, its packages and this package without the exercises' answers, all read-only, and
five devices; no network, no home, no inherited environment. Where ranks can have their own namespaces inside, one
sandbox serves a whole job ("own"); elsewhere every rank gets a fresh sandbox ("fresh"), with the same result but
slower.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import worldsize
from worldsize.grade.isolation import seccomp
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.isolation.namespaces import EMPTY_FOLDER

SandboxMode = Literal["own", "fresh", "unsafe"]
OWN: SandboxMode = "own"
FRESH: SandboxMode = "fresh"
UNSAFE: SandboxMode = "unsafe"
Framework = Literal["torch", "tensorflow"]  # the one that a server has imported

_PACKAGE = Path(worldsize.__file__).resolve().parent
_DATA = _PACKAGE.parent / "datasets"
# the checks' modules that run beside a submission or play its ranks; the others compute expected values
_OF_CHECKS = (
    "__init__.py", "arena.py", "drivers", "in_one_process.py", "in_rank.py", "index.py", "noted_calls.py", "plain_call.py",
    "verdict.py",
)  # fmt: skip
# answers of lab 16: the model of a step with its fit, and the steps to be predicted
_ANSWERS = {_PACKAGE / "formulas": "measured_clusters.py", _DATA: "vtrain-multi.csv"}
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "USER": "student", "LOGNAME": "student",
    "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1", "MPLBACKEND": "Agg", "TORCH_CPP_LOG_LEVEL": "ERROR",
}  # fmt: skip
# few threads and few heaps on any machine, and no log
_TENSORFLOW = {
    "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2", "MALLOC_ARENA_MAX": "2", "CUDA_VISIBLE_DEVICES": "-1",
}  # fmt: skip
START_S = 120.0


class NoSandbox(ValueError):
    """A machine on which no submission can run safely; the message says why and what to do."""


def environment(framework: Framework) -> dict[str, str]:
    """Return the environment variables of a sandbox's server with this framework.

    In a sandbox, `command` adds those that name the writable folder; without a sandbox, these are all.
    """
    variables = dict(_ENVIRONMENT)
    if framework == "tensorflow":
        variables |= _TENSORFLOW
    return variables


def command(mode: SandboxMode, limits: Limits = Limits(), framework: Framework = "torch") -> list[str]:  # noqa: B008 - frozen
    """Return bubblewrap's command line for a sandbox, to which a program is appended; empty for `UNSAFE`."""
    if mode == UNSAFE:
        return []

    arguments = ["bwrap", "--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
    arguments += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]

    if os.getuid() == 0:  # root needs no user namespace, and gives up root inside (`privileges.become_nobody`)
        arguments += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
            arguments += ["--cap-add", capability]
    else:
        arguments += ["--unshare-user"]
    if mode == FRESH:  # for the last mount, and then given up (`namespaces.hide_processes`)
        arguments += ["--cap-add", "CAP_SYS_ADMIN"]

    room = folders()[0]
    own = dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR"), room)  # torch._dynamo needs the last
    for name, value in {**environment(framework), **own}.items():
        arguments += ["--setenv", name, value]

    arguments += [*_system(), "--proc", "/proc", "--tmpfs", "/dev", "--perms", "1777", "--dir", "/dev/shm"]
    arguments += ["--perms", "0755", "--dir", EMPTY_FOLDER]
    for name in ("null", "zero", "full", "random", "urandom"):  # no terminals, since every sandbox could count those
        arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    arguments += _writable(mode, limits, framework)

    for path in visible():
        for folder in [*reversed(path.parents)][1:]:  # below "/"
            arguments += ["--perms", "0755", "--dir", str(folder)]
        arguments += ["--ro-bind", str(path), str(path)]

    for place in _places_of(_PACKAGE / "checks"):
        arguments += _with_only(place, _OF_CHECKS)
    for folder, hidden in _ANSWERS.items():
        for place in _places_of(folder):
            names = {path.name for path in place.iterdir()} - {hidden, "__pycache__"}
            arguments += _with_only(place, names)
    return [*arguments, "--chdir", "/", "--remount-ro", "/dev", "--remount-ro", "/", "--"]


def _system() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]

    for name in ("ld.so.cache", "alternatives"):
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return arguments


def folders() -> list[str]:
    """Return the folders of a bubblewrap sandbox that a rank may write to.

    A folder that would hide this Python or its packages is left out.
    """
    return [f for f in ("/tmp", "/dev/shm") if not any(path.is_relative_to(f) for path in visible())]


def _writable(mode: SandboxMode, limits: Limits, framework: Framework) -> list[str]:
    if mode == OWN:  # each rank mounts a fresh folder over these
        arguments = ["--perms", "1777", "--dir", "/tmp"]
        if framework == "tensorflow":  # its import needs to write
            arguments += ["--perms", "1777", "--size", "65536", "--tmpfs", folders()[0]]
        return arguments

    room = ["--perms", "1777", "--size", str(limits.tmp_bytes), "--tmpfs"]
    return [*room, "/tmp", *room, "/dev/shm"]


def visible() -> list[Path]:
    """Return what a submission in bubblewrap can read besides `/usr`: this Python, its packages, this package and its data."""
    packages = [Path(p) for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    wanted = [Path(sys.base_prefix), Path(sys.prefix), *packages, _PACKAGE]
    if (_DATA / "README.md").is_file():
        wanted.append(_DATA)

    wanted += [path.resolve() for path in wanted]

    kept: list[Path] = []
    for path in sorted({p for p in wanted if p.exists() and not p.is_relative_to("/usr")}):
        if not any(path.is_relative_to(above) for above in kept):
            kept.append(path)
    return kept


def _places_of(folder: Path) -> list[Path]:
    """Return every path at which a sandbox would show a folder of this package or its data."""
    places = {folder, folder.resolve()}
    for path in map(Path, sys.path):
        other = path / folder.relative_to(_PACKAGE.parent)
        if other.is_dir() and other.samefile(folder):
            places.add(other)

    shown = visible()
    return sorted(place for place in places if any(place.is_relative_to(above) for above in shown))


@cache
def files_of(modules: tuple[str, ...]) -> list[str]:
    """Return the paths in a sandbox that hold the code of these modules of this package: files, and folders of compiled ones."""
    paths: dict[str, None] = {}
    for module in modules:
        path = _PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
        for place in _places_of(path.parent):
            paths |= dict.fromkeys((str(place / path.name), str(place / "__pycache__")))
    return list(paths)


def _with_only(folder: Path, names: Iterable[str]) -> list[str]:
    """Return bubblewrap's mounts that show only `names` of a folder."""
    arguments = ["--tmpfs", str(folder)]
    for name in sorted(names):
        arguments += ["--ro-bind", str(folder / name), str(folder / name)]
    return [*arguments, "--remount-ro", str(folder)]


def python(*arguments: str) -> list[str]:
    """Return the command of this Python for bubblewrap, by an absolute path without detours."""
    return [os.path.abspath(sys.executable), "-s", "-P", "-B", *arguments]


def best_mode() -> SandboxMode:
    """Return the best sandbox that bubblewrap can start on this machine: `OWN` or `FRESH`.

    Raises NoSandbox with what was refused and the next step.
    """
    if shutil.which("bwrap") is None:
        raise NoSandbox(
            "grade: expected bubblewrap (the program bwrap), got none; nothing was graded. Install the package bubblewrap "
            "(Debian, Ubuntu, Fedora), then grade again. --unsafe grades without a sandbox: then a submission can read, change "
            "and delete everything that you can, and every row says so."
        )

    try:
        seccomp.program(network=False)
    except ImportError as error:
        raise NoSandbox(f"grade: expected rules on system calls, but {error}, then grade again. Nothing was graded.") from None

    _expect_same_package()
    program = [*command(OWN), *python("-m", "worldsize.grade.isolation.namespaces", *folders())]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=START_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise NoSandbox(refused(f"no answer in {START_S:g} s")) from None

    if not done.stdout.startswith("namespaces: "):
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NoSandbox(refused(said[-1] if said else "no answer"))
    return OWN if done.stdout.strip() == "namespaces: ok" else FRESH


def _expect_same_package() -> None:
    """Raise NoSandbox if a sandbox, which has no environment, would import another package or none."""
    program = python("-c", "import worldsize; print(worldsize.__file__)")
    asked = subprocess.run(program, capture_output=True, text=True, env={}, cwd="/", timeout=START_S, stdin=subprocess.DEVNULL)
    location = asked.stdout.strip()
    if location and Path(location).resolve().parent == _PACKAGE:
        return

    got = f"the one in {Path(location).parents[1]}" if location else "none"
    raise NoSandbox(
        f"grade: expected {sys.executable} to find the package of {_PACKAGE.parent}, as a sandbox sees it, got {got}; nothing "
        "was graded. PYTHONPATH or the current folder names another checkout: leave it, or install this one (pip install -e "
        f"{_PACKAGE.parent})."
    )


def refused(complaint: str) -> str:
    """Return the message of a `NoSandbox` for a bubblewrap that did not start, with what to do."""
    return (
        f"grade: expected a sandbox to start, but bubblewrap said: {complaint}. Nothing was graded. In a container, allow user "
        "namespaces (docker: --security-opt seccomp=unconfined --cap-add SYS_ADMIN); on Ubuntu 24.04 give bwrap an AppArmor "
        "profile; as root, make the Python and this package readable by others (chmod o+rX). --unsafe grades without a sandbox, "
        "and every row says so."
    )
