"""Gradescope's harness, stood in for: an autograder's zip in its own places, `/autograder` and `/opt/worldsize`, run as root.

Each command runs in a mount namespace of its own, whose root is a tmpfs on which this machine's folders are mounted, and ours
at `/autograder` and `/opt`; nothing of it is seen outside, and it goes with the command. The zip is unpacked to
`/autograder/source`, `setup.sh` run once, `run_autograder` copied to `/autograder`, and run there for each submission
("Autograder Specifications", "File hierarchy").

What needs a network is stood in for: `apt-get` notes its words, and a wheel `uv`, which pip installs from a folder, makes a
Python that has this one's packages. Left out: Gradescope's image (Ubuntu), its limits of memory and time, what Debian's and
PyPI's packages would bring.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HANG_S = 400  # a bound against a hang
_PROGRAMS = ("unshare", "mount", "umount", "pivot_root")
# $1 an empty folder, $2 what is /autograder, $3 what is /opt, $4 what apt-get is; then the command
_ENTER = """
set -e
new=$1 autograder=$2 opt=$3 apt=$4
shift 4
mount -t tmpfs tmpfs "$new"
for entry in /*; do
  name=${entry#/}
  case $name in autograder|opt) continue;; esac
  if [ -L "$entry" ]; then cp -P "$entry" "$new/"
  elif [ -d "$entry" ]; then mkdir "$new/$name"; mount --rbind "$entry" "$new/$name"; fi
done
mkdir "$new/autograder" "$new/opt" "$new/.old"
mount --bind "$autograder" "$new/autograder"
mount --bind "$opt" "$new/opt"
if [ -e /usr/bin/apt-get ]; then mount --bind "$apt" "$new/usr/bin/apt-get"; fi
cd "$new"
pivot_root . .old
umount -l /.old
cd /autograder
exec "$@"
"""
_APT = "#!/bin/bash\necho \"$*\" >> /autograder/apt-get\n"
_UV = """\
#!/usr/bin/env python3
import json, subprocess, sys
words = sys.argv[1:]
with open("/autograder/uv", "a") as notes:
    print(*words, file=notes)
if words[0] == "venv":
    subprocess.run([{python!r}, "-m", "venv", "--without-pip", words[-1]], check=True)
else:
    python, course = words[words.index("--python") + 1], words[words.index("-e") + 1].partition("[")[0]
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True).stdout.strip()
    with open(packages + "/course.pth", "w") as path:
        print(course, *{installed!r}, sep="\\n", file=path)
"""


@functools.cache
def refusal() -> str:
    """Why such a root cannot be made here, "" where it can."""
    missing = [program for program in _PROGRAMS if not shutil.which(program)]
    if os.getuid() or missing or not Path("/usr/bin/python3").exists():
        return f"needs root, /usr/bin/python3 and {', '.join(_PROGRAMS)}"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, timeout=_HANG_S)
    return tried.stderr.strip()


class Container:
    """A container made of `bundle` below `folder`; `setup` is what `setup.sh` printed."""

    def __init__(self, bundle: Path, folder: Path) -> None:
        self._root, self.autograder, self.opt = folder / "root", folder / "autograder", folder / "opt"
        for place in (self._root, self.autograder, self.opt, self.autograder / "results", folder / "wheels"):
            place.mkdir(parents=True)
        self._apt = folder / "apt-get"
        self._apt.write_text(_APT)
        self._apt.chmod(0o755)
        _wheel(folder / "wheels")
        with zipfile.ZipFile(bundle) as packed:
            for entry in packed.infolist():
                made = Path(packed.extract(entry, self.autograder / "source"))
                made.chmod(entry.external_attr >> 16)
        shutil.copy(self.autograder / "source" / "run_autograder", self.autograder)
        offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "wheels"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.setup = self._run(["bash", "/autograder/source/setup.sh"], offline)

    def result(self, make: Callable[[Path], None], *words: str) -> tuple[dict[str, Any], str]:
        """Hand in the files that `make(folder)` writes: results.json, and what the autograder printed."""
        for name in ("submission", "results"):
            shutil.rmtree(self.autograder / name, ignore_errors=True)
            (self.autograder / name).mkdir()
        make(self.autograder / "submission")
        (self.autograder / "submission_metadata.json").write_text(json.dumps(METADATA))
        said = self._run(["/autograder/run_autograder", *words], {})
        return json.loads((self.autograder / "results" / "results.json").read_text()), said

    def _run(self, command: list[str], environment: Mapping[str, str]) -> str:
        places = map(str, (self._root, self.autograder, self.opt, self._apt))
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "bash", "-c", _ENTER, "harness", *places, *command],
            env={"PATH": PATH, "HOME": "/root", **environment}, capture_output=True, text=True, timeout=_HANG_S, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def _wheel(folder: Path) -> None:
    """A package `uv` whose program is ours."""
    installed = [place for place in sys.path if place.endswith("site-packages")]
    python = str(Path(sys.executable).resolve())
    files = {
        "uv-0.data/scripts/uv": _UV.format(python=python, installed=installed),
        "uv-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: uv\nVersion: 0\n",
        "uv-0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files["uv-0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in [*files, "uv-0.dist-info/RECORD"])
    with zipfile.ZipFile(folder / "uv-0-py3-none-any.whl", "w") as packed:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100755 << 16
            packed.writestr(entry, text)


METADATA = {
    "id": 123456, "created_at": "2026-11-01T23:58:00.000000-07:00",
    "assignment": {
        "due_date": "2026-11-01T23:59:00.000000-07:00", "group_size": None, "group_submission": False, "id": 25828,
        "course_id": 1234, "late_due_date": None, "release_date": "2026-10-25T00:00:00.000000-07:00", "title": "Lab 00",
        "total_points": "4.0",
    },
    "submission_method": "upload",
    "users": [{"email": "ann@uni.example", "id": 1234, "name": "Ann Doe", "sid": "20231001"}],
    "previous_submissions": [],
}  # fmt: skip
_FORMATS = {"text", "html", "simple_format", "md", "ansi"}
_VISIBLE = {"hidden", "after_due_date", "after_published", "visible"}
_NUMBER = (int, float)
_WHOLE: dict[str, Any] = {
    "score": _NUMBER, "execution_time": _NUMBER, "output": str, "output_format": _FORMATS, "test_output_format": _FORMATS,
    "test_name_format": _FORMATS, "visibility": _VISIBLE, "stdout_visibility": _VISIBLE, "extra_data": dict, "tests": list,
}  # fmt: skip
_TEST: dict[str, Any] = {
    "score": _NUMBER, "max_score": _NUMBER, "status": {"passed", "failed"}, "name": str, "name_format": _FORMATS,
    "number": str, "output": str, "output_format": _FORMATS, "tags": list, "visibility": _VISIBLE, "extra_data": dict,
}  # fmt: skip


def faults(result: Any) -> list[str]:
    """What of a `results.json` is not as the specification's "Output format" has it."""
    if not isinstance(result, dict):
        return ["no object"]
    found = _of_fields(result, _WHOLE, "")
    tests = result.get("tests", [])
    if "score" not in result and not tests:
        found.append("neither a score nor tests")
    for k, test in enumerate(tests):
        found += _of_fields(test, _TEST, f"tests[{k}].")
        if "score" not in result and "score" not in test:
            found.append(f"tests[{k}]: no score")
    return found


def _of_fields(given: dict, known: dict[str, Any], where: str) -> list[str]:
    found = [f"{where}{name}: no such field" for name in given.keys() - known.keys()]
    for name in given.keys() & known.keys():
        value, want = given[name], known[name]
        fits = value in want if isinstance(want, set) else isinstance(value, want) and not isinstance(value, bool)
        if not fits:
            found.append(f"{where}{name}: {value!r}")
    return found
