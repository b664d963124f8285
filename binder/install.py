"""Installs the course into a Python that is there already, where not all of it is wanted: Binder, Colab, Kaggle.

`pyproject.toml` stays the one list of what is needed. `--without NAME` leaves a package out; `--keep-installed` leaves every
package as it is that this Python has already, whatever its version, so that a host keeps its own PyTorch, TensorFlow
and Jupyter; `--small-torch` takes PyTorch from its own index, without CUDA, where that can be reached. Versions are those
of `constraints.txt`, except with `--keep-installed`, where what is there decides. Left out: a virtual environment (`make`),
and the extra `lab`, because these hosts show notebooks themselves.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "install", "-q"]
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"


def name_of(requirement: str) -> str:
    """A requirement's package, as pip compares names."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def is_installed(name: str) -> bool:
    """Whether this Python has the package, in any version."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def wanted(requirements: list[str], without: set[str], keep_installed: bool) -> list[str]:
    """What pip has to install of the course's requirements."""
    found = [text for text in requirements if name_of(text) not in without]
    return [text for text in found if not (keep_installed and is_installed(name_of(text)))]


def main() -> None:
    """Install, and say what was kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--keep-installed", action="store_true")
    parser.add_argument("--small-torch", action="store_true")
    parser.add_argument("--list", action="store_true", help="only say what would be installed")
    asked = parser.parse_args()

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["tensorflow"]]
    packages = wanted(listed, {name_of(name) for name in asked.without}, asked.keep_installed)
    for text in packages:
        print(text, flush=True)
    if asked.list:
        return

    versions = [] if asked.keep_installed else ["-c", str(ROOT / "constraints.txt")]
    if asked.small_torch and any(name_of(text) == "torch" for text in packages):
        subprocess.run([*PIP, "--timeout", "15", "--retries", "1", "--no-deps", "-i", CPU_BUILDS, *versions, "torch"])
    if packages:
        subprocess.run([*PIP, *versions, *packages], check=True)
    subprocess.run([*PIP, "--no-deps", "-e", str(ROOT)], check=True)


if __name__ == "__main__":
    main()
