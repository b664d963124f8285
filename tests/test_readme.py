"""What the README says still holds: its commands, packages, links and its table of labs; and the table of places."""

import re
import subprocess
from pathlib import Path

import pytest
import typer

from worldsize import cli
from worldsize.lab.lab import LABS

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
FAQ = (ROOT / "docs" / "faq.md").read_text()
PLATFORMS = (ROOT / "docs" / "platforms.md").read_text()
BOTH = README + CONTRIBUTING
CODE = "\n".join(re.findall(r"^```.*?^```|`[^`\n]+`", BOTH, re.MULTILINE | re.DOTALL))
ROW = re.compile(r"^\| (\d\d) \| \[(.+?)\]\((.+?)\) \| (\d+) \| (\d+) \|$", re.MULTILINE)
PATTERNS = {"solutions/NN_topic.py", "build/site/"}
PATHS = set(re.findall(r"`([\w./]+/[\w./]*|[\w-]+\.(?:txt|toml|yml))`", BOTH)) - PATTERNS
LABS_IN_README = {found[0]: found[1:] for found in ROW.findall(README)}


def debian_packages(list_name: str = "apt.txt") -> list[str]:
    """The list without its comments."""
    lines = (ROOT / list_name).read_text().splitlines()
    return [name for line in lines for name in line.partition("#")[0].split()]


def test_a_make_target_that_is_named_exists() -> None:
    for target in sorted(set(re.findall(r"(?:^|`)make ([a-z]+)", CODE, re.MULTILINE))):
        done = subprocess.run(["make", "-n", target, "HEADLESS=1"], capture_output=True, text=True, timeout=30, cwd=ROOT)
        assert done.returncode == 0, f"make {target}: {done.stderr}"


def test_a_make_variable_that_is_named_is_used() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert [name for name in sorted(set(re.findall(r"\b([A-Z]+)=", BOTH))) if f"$({name})" not in makefile] == []


def test_a_command_that_is_named_exists() -> None:
    texts = [BOTH, PLATFORMS, FAQ]
    named = {name for text in texts for name in re.findall(r"\bworldsize ([a-z]+)\b", "\n".join(re.findall(r"`[^`]+`", text)))}
    assert "start" in named and named <= set(typer.main.get_command(cli.app).commands)


def test_a_path_that_is_named_exists() -> None:
    assert [path for path in sorted(PATHS) if not (ROOT / path).exists()] == []


def test_the_map_names_every_room_and_every_file_beside_them() -> None:
    package = ROOT / "worldsize"
    rooms = {f"worldsize/{path.parent.name}/" for path in package.glob("*/__init__.py")}
    files = {path.stem for path in package.glob("*.py")} - {"__init__"}
    rows = [line.split("|") for line in CONTRIBUTING.splitlines() if line.startswith("| ")]
    named = {word for row in rows for word in re.findall(r"`([^`]+)`", row[1])}
    vocabulary = next(row[2] for row in rows if row[1].strip() == "vocabulary")
    beside = set(re.findall(r"`(\w+)`", vocabulary)) | {Path(name).stem for name in named if name.endswith(".py")}
    assert (rooms - named, files ^ beside) == (set(), set())


def test_the_debian_packages_are_those_of_apt_txt_and_the_first_line_has_what_a_lab_needs() -> None:
    students, contributors = re.findall(r"apt-get install ([a-z0-9 .+-]+)`", README)
    assert students.split() == ["make", "python3", "python3-venv"]
    assert sorted([*students.split(), *contributors.split()]) == sorted(debian_packages())


def test_what_only_contributors_tests_need_is_not_asked_of_a_user() -> None:
    assert set(debian_packages("apt-dev.txt")) & {*debian_packages(), *re.findall(r"[a-z0-9.+-]+", README)} == set()


def test_every_lab_of_the_course_has_its_row() -> None:
    assert {number: (listing.title, str(listing.points)) for number, listing in LABS.items()} == {
        number: (title, points) for number, (title, _, _, points) in LABS_IN_README.items()
    }


def test_the_points_add_up_to_what_is_said() -> None:
    said = int(re.search(r"^(\d+) points in all", README, re.MULTILINE)[1])
    assert sum(int(points) for _, _, _, points in LABS_IN_README.values()) == said


def test_a_row_leads_to_the_notebook_of_its_lab() -> None:
    there = {n: [path.relative_to(ROOT).as_posix() for path in ROOT.glob(f"labs/{n}_*.ipynb")] for n in LABS}
    assert there == {number: [LABS_IN_README[number][1]] for number in LABS}


def test_a_lab_has_the_minutes_and_points_that_its_opening_says() -> None:
    opening = re.compile(r"\*\*Minutes:\*\* (\d+)(?:\s[^·]*)? · \*\*Points:\*\* (\d+)")
    openings = {number: opening.findall(next(ROOT.glob(f"solutions/{number}_*.py")).read_text()) for number in LABS}
    assert openings == {number: [LABS_IN_README[number][2:4]] for number in LABS}


def test_every_place_says_how_it_was_tested_and_when_or_that_it_was_not() -> None:
    table = PLATFORMS.partition("| where | how | tested |")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    assert len(rows) >= 10
    assert [row[1] for row in rows if not re.search(r"untested|every change|release \d|20\d\d-\d\d-\d\d", row[3])] == []


def test_commands_and_picture_are_on_the_first_screen() -> None:
    first = "\n".join(README.splitlines()[:16])
    assert "labs/covers/06.svg" in first and "make test" not in first
    assert 0 < first.find("make lab") < first.find("<picture>")


def test_on_a_telephone_no_command_is_cut() -> None:
    """45 columns: 390 pixels without GitHub's margins and those of a block."""
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL) for line in block.splitlines()]
    assert lines and [line for line in lines if len(line) > 45] == []


def test_a_picture_has_a_twin_for_dark_pages() -> None:
    shown = re.findall(r'<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\n<img src="([^"]+)"', README)
    assert len(shown) == README.count("<img ") == 2
    assert {light: dark for dark, light in shown} == {light: re.sub(r"(?=\.\w+$)", "-dark", light) for _, light in shown}


def test_the_readme_is_short() -> None:
    prose = [line for line in README.splitlines() if not line.startswith("|")]
    assert len(" ".join(prose).split()) <= 700 and len(README.splitlines()) <= 100
