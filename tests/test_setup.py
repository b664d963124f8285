"""Setting up: one list of dependencies, one set of versions, and the same set through `make` and through conda."""

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from worldsize.course import opening

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PINS = {
    canonicalize_name(name): version
    for name, _, version in (
        line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] != "#"
    )
}
LISTS = ("apt.txt", "apt-dev.txt")
OPENS = f"python -m {opening.__name__} labs/00"
ALL_REQUIREMENTS = [Requirement(text) for texts in (PROJECT["dependencies"], *EXTRAS.values()) for text in texts]


def conda_environment() -> dict:
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def conda_pip_lines() -> list[str]:
    """The lines that conda hands to pip as a requirements file."""
    return next(entry["pip"] for entry in conda_environment()["dependencies"] if isinstance(entry, dict))


def dry_run(target: str, folder: Path, **variables: str) -> str:
    """What `make` would do in a checkout that has no environment yet."""
    words = [f"{name}={value}" for name, value in {"VENV": str(folder / "venv"), **variables}.items()]
    done = subprocess.run(["make", "-n", target, *words], capture_output=True, text=True, timeout=30, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def choice_of_torch(folder: Path, found: str = "", **variables: str) -> str:
    """What `make` would do where of the programs that tell of GPUs or of a cluster only `found` is there."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("bash", "head", "make", "sh", "uname"):
        (programs / name).symlink_to(shutil.which(name))
    if found:
        (programs / found).write_text("#!/bin/sh\necho GPU 0: NVIDIA\n")
        (programs / found).chmod(0o755)
    words = ["make", "-n", "setup", f"VENV={folder / 'venv'}", *(f"{name}={value}" for name, value in variables.items())]
    env = {"PATH": str(programs)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pip_install_words(commands: str) -> list[str]:
    """The arguments of the one `pip install` among the commands."""
    found = re.findall(r"-m (?:uv )?pip install (?!-q)(.*?) 2>&1", commands)
    assert len(found) == 1, commands
    return found[0].replace("'", "").split()


def test_conda_and_make_install_the_same(tmp_path: Path) -> None:
    by_make = pip_install_words(dry_run("setup", tmp_path))
    by_conda = [word for line in conda_pip_lines() for word in line.split()]
    assert by_conda == by_make == ["-c", "constraints.txt", "-e", ".[lab,tensorflow]"]


def test_conda_brings_python_and_pip_and_leaves_the_rest_to_pip() -> None:
    names = [Requirement(entry).name for entry in conda_environment()["dependencies"] if isinstance(entry, str)]
    assert names == ["python", "pip"]


def test_conda_takes_the_pythons_that_the_project_takes() -> None:
    python = next(entry for entry in conda_environment()["dependencies"] if str(entry).startswith("python "))
    assert Requirement(python).specifier == Requirement(f"python {PROJECT['requires-python']}").specifier


def test_the_tests_install_the_same_and_the_extra_dev(tmp_path: Path) -> None:
    assert pip_install_words(dry_run("test", tmp_path)) == ["-c", "constraints.txt", "-e", ".[dev]"]


@pytest.mark.parametrize("backend", ["cpu", "auto"])
def test_another_build_of_torch_comes_under_the_same_constraints(tmp_path: Path, backend: str) -> None:
    words = pip_install_words(dry_run("setup", tmp_path, TORCH=backend))
    assert words == [f"--torch-backend={backend}", "-c", "constraints.txt", "-e", ".[lab,tensorflow]"]


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has an NVIDIA GPU")
def test_without_a_gpu_the_small_build_of_torch_is_tried_first_and_the_rest_comes_as_ever(tmp_path: Path) -> None:
    commands = choice_of_torch(tmp_path)
    small = commands.index("download.pytorch.org/whl/cpu -c constraints.txt torch")
    rest = commands.index("-e '.[lab,tensorflow]'")
    assert "No NVIDIA GPU" in commands[:small] and small < rest
    assert "|| echo" in commands[small:rest], "an index that is out of reach ends the install"
    assert pip_install_words(commands) == ["-c", "constraints.txt", "-e", ".[lab,tensorflow]"]


@pytest.mark.parametrize(("found", "torch"), [("nvidia-smi", ""), ("sbatch", ""), ("", "pip")])
def test_with_a_gpu_or_on_a_cluster_or_where_it_is_asked_for_pips_torch_comes(
    tmp_path: Path, found: str, torch: str
) -> None:
    commands = choice_of_torch(tmp_path, found, TORCH=torch)
    assert "whl/cpu" not in commands and "-m uv" not in commands
    assert pip_install_words(commands) == ["-c", "constraints.txt", "-e", ".[lab,tensorflow]"]


def test_the_headless_lab_runs_through_the_command_line_and_opens_no_jupyter(tmp_path: Path) -> None:
    commands = dry_run("lab", tmp_path, HEADLESS="1")
    assert "worldsize run labs/00" in commands
    assert OPENS not in commands


def test_make_opens_jupyterlab_as_start_does_with_the_options_that_it_is_given(tmp_path: Path) -> None:
    commands = dry_run("lab", tmp_path, LAB="06", ARGS="--no-browser")
    assert f"python -m {opening.__name__} labs/06_ring_all_reduce.ipynb --no-browser" in commands


def test_headless_0_is_not_headless(tmp_path: Path) -> None:
    assert OPENS in dry_run("lab", tmp_path, HEADLESS="0")


def test_a_second_call_installs_nothing(tmp_path: Path) -> None:
    for part in ("venv/bin/pip", "venv/.lab", "venv/.dev"):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).touch()
    assert "pip install" not in dry_run("setup", tmp_path) + dry_run("test", tmp_path)


@pytest.mark.parametrize("ends_well", [True, False])
def test_an_install_that_was_cut_short_begins_anew_and_pip_never_sees_its_halves(tmp_path: Path, ends_well: bool) -> None:
    """With Pythons that only note what they were asked for."""
    notes, venv = tmp_path / "notes", tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    for program in (tmp_path / "python3", venv / "bin/python", venv / "bin/pip"):
        code = 0 if ends_well or program.parent == tmp_path else 1
        program.write_text(f'#!/bin/sh\necho "$*" >> {notes}\nexit {code}\n')
        program.chmod(0o755)
    (venv / ".unfinished").touch()
    command = ["make", "setup", f"VENV={venv}", f"PYTHON={tmp_path / 'python3'}", "TORCH=pip"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT)
    assert "begins anew" in done.stdout
    cleared, installed = notes.read_text().splitlines()
    assert cleared.startswith("-m venv --clear") and installed.startswith("-m pip install")
    assert (done.returncode == 0, (venv / ".lab").exists()) == (ends_well, ends_well)
    assert (venv / ".unfinished").exists() != ends_well


def explained(tmp_path: Path, python: str) -> str:
    """What `make setup` says with this Python; it must fail."""
    command = ["make", "setup", f"VENV={tmp_path / 'venv'}", f"PYTHON={python}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) <= 6
    return done.stderr


def test_a_python_that_is_too_old_is_explained_in_one_paragraph(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && exec echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    said = explained(tmp_path, str(old))
    assert "needs Python 3.11, 3.12, 3.13 or 3.14" in said
    assert "Python 3.9.2" in said


@pytest.mark.parametrize(("there", "taken"), [("python3.12", "python3.12"), ("uv", "of uv")])
def test_where_python3_does_not_fit_another_that_is_there_is_taken_and_named(tmp_path: Path, there: str, taken: str) -> None:
    programs, own = tmp_path / "programs", tmp_path / "of uv"
    programs.mkdir()
    for name in ("bash", "make", "sh", "tail", "head", "id", "uname"):
        (programs / name).symlink_to(shutil.which(name))
    asked = tmp_path / "asked"
    fits = f'[ "$1" = --version ] && echo Python 3.12.1\n[ "$1" = -m ] && echo "$0 $*" >> {asked}\nexit 0'
    texts = {
        programs / "python3": '[ "$1" = --version ] && echo Python 3.16.0\nexit 1',
        programs / "python3.12": fits,
        programs / "uv": f'[ "$2" = find ] && echo "{own}"\nexit 0',
        own: fits,
    }
    for program, text in texts.items():
        if program.name in ("python3", "of uv", there):
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
    command = ["make", str(tmp_path / "venv/bin/pip"), f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT, env={"PATH": str(programs)})
    assert done.returncode == 0, done.stderr
    assert "python3 does not fit (Python 3.16.0)" in done.stdout and taken in done.stdout
    assert f"{taken} -m venv {tmp_path / 'venv'}" in asked.read_text()


def test_a_python_that_is_not_there_is_explained_in_one_paragraph(tmp_path: Path) -> None:
    said = explained(tmp_path, "no-such-python")
    assert "not found" in said
    assert "python3-venv" in said


def test_a_lab_that_is_not_there_is_explained_in_one_paragraph(tmp_path: Path) -> None:
    command = ["make", "-n", "lab", "LAB=99", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT)
    assert done.returncode != 0
    assert "no lab 99" in done.stderr
    assert "install" not in done.stdout


def test_every_requirement_has_its_exact_version() -> None:
    missing = [r.name for r in ALL_REQUIREMENTS if r.name != "worldsize" and canonicalize_name(r.name) not in PINS]
    assert missing == []


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0", "3.13.0"])
def test_every_exact_version_admits_the_first_release_of_each_python(python: str) -> None:
    """Debian 12 has Python 3.11.2: a package that asks for a later 3.11 could not be installed there."""
    refused = []
    for found in distributions():
        pinned = PINS.get(canonicalize_name(found.metadata["Name"])) == found.version
        if pinned and python not in SpecifierSet(found.metadata.get("Requires-Python") or ""):
            refused.append(f"{found.name} {found.version}: {found.metadata['Requires-Python']}")
    assert refused == []


def test_every_exact_version_is_one_that_the_project_admits() -> None:
    others = [r for r in ALL_REQUIREMENTS if r.name != "worldsize"]
    assert [str(r) for r in others if PINS[canonicalize_name(r.name)] not in r.specifier] == []


def test_the_exact_versions_hold_for_builds_with_and_without_cuda() -> None:
    assert [name for name, version in PINS.items() if "+" in version] == []
    assert PINS["torch"] == "2.13.0"


def test_no_requirement_stands_twice() -> None:
    for texts in (PROJECT["dependencies"], *EXTRAS.values()):  # an extra may ask for a newer release than the course does
        names = [canonicalize_name(Requirement(text).name) for text in texts]
        assert sorted(names) == sorted(set(names))


def test_the_package_ships_its_scripts_and_templates() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert config["tool"]["setuptools"]["package-data"] == {
        "*": ["*.js", "*.css", "templates/*.html", "templates/*.css"],
        "worldsize.course": ["jupyter/*.json", "jupyter/labconfig/*.json", "jupyter/workspaces/*"],
    }


def test_ci_runs_what_the_readme_calls() -> None:
    script = (ROOT / ".ci/run").read_text().splitlines()
    assert script[-2:] == ["make lab HEADLESS=1", "make test"]
    assert ".ci/run" in (ROOT / ".github/workflows/ci.yml").read_text()


def test_ci_installs_what_is_missing_of_both_lists_and_starts_no_service(tmp_path: Path) -> None:
    """With programs that only note what they were called with, and nothing installed yet."""
    notes = tmp_path / "notes"
    noting = f'#!/bin/sh\necho "$(basename "$0") $*" >> {notes}\n'
    reading = f"{noting}cat > /dev/null\n"  # as tee does: who writes to it would else be ended by SIGPIPE, or not, by chance
    programs = {"dpkg-query": "#!/bin/sh\nexit 1\n", "id": "#!/bin/sh\necho 1000\n", "sudo": reading, "make": noting}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([ROOT / ".ci/run"], env=env, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    done = notes.read_text().splitlines()
    listed = [line.split()[0] for name in LISTS for line in (ROOT / name).read_text().splitlines() if line[:1] != "#"]
    install = f"sudo apt-get install -q -y --no-install-recommends {' '.join(listed)}"
    kept_still = done.index("sudo tee /usr/sbin/policy-rc.d") if "sudo tee /usr/sbin/policy-rc.d" in done else -1
    assert kept_still < done.index(install) < done.index("make lab HEADLESS=1") < done.index("make test")
    assert kept_still >= 0 or Path("/usr/sbin/policy-rc.d").exists()
