"""Fresh virtual environments: `make setup` and conda's pip section install the same set, and that set is whole.

Each test takes minutes and gigabytes, so all of it is in `make soak`. conda itself is not run: the lines of
environment.yml's pip section go to pip as conda hands them over, as a requirements file beside environment.yml.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
INSTALL_S = 1700
# constraints.txt is made with this Python; others take a few packages more, or fewer
exact = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="constraints.txt is made with Python 3.11")


def _run(command: list[str | Path], folder: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, cwd=folder, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _frozen(environment: Path) -> dict[str, str]:
    """Name to version of what is installed, this project and local suffixes such as +cpu left out."""
    lines = _run([_python(environment), "-m", "pip", "freeze", "--exclude-editable"], environment).splitlines()
    pairs = (line.partition("==") for line in lines if not line.startswith("#"))
    return {name.lower().replace("_", "-"): version.partition("+")[0] for name, _, version in pairs}


def _pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return {line.partition("==")[0].lower().replace("_", "-"): line.partition("==")[2] for line in lines}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of what the repository holds, without what was built or installed in it; removed with its gigabytes."""
    copy = tmp_path_factory.mktemp("fresh") / "checkout"
    made = shutil.ignore_patterns(".git", ".venv", "build", "out", "__pycache__", "*.egg-info", ".*_cache", ".worldsize")
    shutil.copytree(ROOT, copy, ignore=made)
    yield copy
    shutil.rmtree(copy.parent)


@pytest.fixture(scope="module")
def by_make(checkout: Path) -> Path:
    _run(["make", "setup", f"PYTHON={sys.executable}"], checkout)
    return checkout / ".venv"


@pytest.fixture(scope="module")
def by_conda(checkout: Path) -> Path:
    environment = checkout.parent / "conda"
    lines = next(
        entry["pip"]
        for entry in yaml.safe_load((checkout / "environment.yml").read_text())["dependencies"]
        if isinstance(entry, dict)
    )
    requirements = checkout / "condaenv.requirements.txt"
    requirements.write_text("\n".join(lines))
    _run([sys.executable, "-m", "venv", environment], checkout)
    _run([_python(environment), "-m", "pip", "install", "-q", "-U", "-r", requirements], checkout)
    return environment


def test_make_and_conda_install_the_same_set(by_make: Path, by_conda: Path) -> None:
    assert _frozen(by_make) == _frozen(by_conda)


@exact
def test_nothing_but_cuda_libraries_is_installed_outside_the_constraints(by_make: Path) -> None:
    pins = _pins()
    outside = {name: version for name, version in _frozen(by_make).items() if pins.get(name) != version}
    assert [name for name in outside if not name.startswith(("nvidia-", "cuda-", "triton"))] == []


@pytest.mark.parametrize("environment", ["by_make", "by_conda"])
def test_the_set_is_whole(environment: str, request: pytest.FixtureRequest) -> None:
    assert "No broken requirements" in _run([_python(request.getfixturevalue(environment)), "-m", "pip", "check"], ROOT)


def test_two_real_ranks_run_in_it(by_make: Path, checkout: Path) -> None:
    assert "two ranks" in _run([by_make / "bin" / "worldsize", "doctor"], checkout)


def test_lab_00_runs_in_it_without_a_browser(by_make: Path, checkout: Path) -> None:
    said = _run(["make", "lab", "HEADLESS=1"], checkout)
    assert "pip install" not in said
    assert "executed notebook" in said


@exact
def test_the_tests_install_every_exact_version_and_nothing_else(by_make: Path, checkout: Path) -> None:
    _run(["make", ".venv/.dev"], checkout)
    extra = {"pip", "setuptools", "wheel"}  # pip freeze leaves them out with the older Pythons
    cuda = {name for name in _frozen(by_make) if name.startswith(("nvidia-", "cuda-", "triton"))}
    assert set(_frozen(by_make)) - cuda - extra == set(_pins()) - extra
