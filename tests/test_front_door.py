"""What stands around the course: the files that other places read, the papers of the house, and the pages in docs/."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import worldsize
from tests.support.parts import PARTS
from worldsize.authoring.notices import FILE, notices
from worldsize.authoring.release import NAMED

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONS = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROSE = [ROOT / "README.md", *sorted(ROOT.glob("labs/*.ipynb"))]
# of what GitHub's filter lets through (html-pipeline's sanitization_filter.rb), the tags that prose here may use
KEPT_BY_GITHUB = {"b", "br", "code", "details", "em", "i", "img", "kbd", "picture", "source", "sub", "summary", "sup"}
INSTALL = [sys.executable, ROOT / "binder/install.py"]


def prose_of(path: Path) -> str:
    """The Markdown of a page or a notebook, without what stands in it as code."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)


def test_github_shows_every_tag_of_the_prose() -> None:
    tags = {(path.name, tag.lower()) for path in PROSE for tag in re.findall(r"<(\w+)(?:\s[^>]*)?>", prose_of(path))}
    assert sorted((name, tag) for name, tag in tags if tag not in KEPT_BY_GITHUB) == []


def test_a_picture_of_the_prose_lies_in_the_repository_and_needs_no_script() -> None:
    links = re.compile(r"!\[[^\]]*\]\(([^)]+)\)|<(?:img|source)\b[^>]*\bsrc(?:set)?=\"([^\"]+)\"")
    pictures = {path.parent / (link or html) for path in PROSE for link, html in links.findall(prose_of(path))}
    assert len([picture for picture in pictures if picture.suffix == ".svg"]) == 2
    assert [picture for picture in pictures if not picture.exists()] == []

    # GitHub shows them as images: nothing in them may run, nor come from elsewhere
    active = re.compile(r"<script|<foreignObject|\shref=|@import|url\(")
    assert [(svg, found) for svg in pictures if svg.suffix == ".svg" for found in active.findall(svg.read_text())] == []


def test_the_citation_has_what_its_format_asks_for_and_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (citation["cff-version"], citation["license"], citation["type"]) == ("1.2.0", "MIT", "software")
    assert str(citation["version"]) == worldsize.__version__


@pytest.mark.parametrize("path", [".devcontainer/devcontainer.json", ".vscode/settings.json", ".vscode/extensions.json"])
def test_what_an_editor_reads_is_json(path: str) -> None:
    assert isinstance(json.loads((ROOT / path).read_text()), dict)


def test_the_dev_container_installs_with_make_and_opens_files_that_are_there() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["updateContentCommand"] == "make setup"
    opened = container["customizations"]["codespaces"]["openFiles"]
    assert [name for name in opened if not (ROOT / name).exists()] == []


def test_the_image_has_the_debian_packages_of_a_user_without_the_browser_of_the_tests() -> None:
    named = re.search(r"--no-install-recommends ([a-z0-9 .+-]+)", DOCKERFILE)
    assert named is not None
    listed = [line.partition("#")[0].strip() for line in (ROOT / "apt.txt").read_text().splitlines()]
    assert set(named[1].split()) == {*filter(None, listed), "ca-certificates", "tini"} - {"chromium"}


def test_the_image_gets_what_a_students_bundle_has_and_no_answer() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    let_in = {line[1:] for line in lines if line[0] == "!"}
    assert lines[0] == "*"
    assert let_in & {"solutions", "tests", ".", "*"} == set()
    assert {name for name in let_in if not (ROOT / name).exists()} == set()
    needed = {"labs", "worldsize", "datasets", "docker", "LICENSE", "Makefile", "README.md", "constraints.txt", "pyproject.toml"}
    assert needed <= let_in


@pytest.mark.parametrize("command", [["true"], ["sh", "-c", "exit 7"]])
def test_a_container_gives_its_command_the_labs_and_its_exit_code(tmp_path: Path, command: list[str]) -> None:
    script = (ROOT / "docker/start.sh").read_text().replace("/opt/worldsize", str(ROOT))
    done = subprocess.run(["sh", "-c", script, "start", *command], env={**os.environ, "HOME": str(tmp_path)}, timeout=30)
    assert done.returncode == (7 if "exit 7" in command else 0)
    assert list((tmp_path / "worldsize/labs").glob("00_*.ipynb"))


def test_a_container_that_starts_again_leaves_a_students_work_as_it_is(tmp_path: Path) -> None:
    script = (ROOT / "docker/start.sh").read_text().replace("/opt/worldsize", str(ROOT))
    start = ["sh", "-c", script, "start", "true"]
    subprocess.run(start, env={**os.environ, "HOME": str(tmp_path)}, check=True, timeout=30)
    mine = next((tmp_path / "worldsize/labs").glob("00_*.ipynb"))
    mine.write_text("my work")
    subprocess.run(start, env={**os.environ, "HOME": str(tmp_path)}, timeout=30)
    assert mine.read_text() == "my work"


def listed(*words: str) -> list[str]:
    """What binder/install.py would hand to pip, by name."""
    done = subprocess.run([*INSTALL, "--list", *words], capture_output=True, text=True, timeout=30, check=True)
    return [re.match(r"[\w.-]+", line)[0] for line in done.stdout.splitlines()]


def test_binder_gets_the_whole_list_but_tensorflow() -> None:
    post_build = (ROOT / "binder/postBuild").read_text()
    assert os.access(ROOT / "binder/postBuild", os.X_OK)
    words = shlex.split(re.search(r"binder/install.py (.+)", post_build)[1])
    everything = set(listed())
    assert everything - set(listed(*words)) == {"tensorflow", "keras", "tf_keras"}


def test_labs_that_binder_names_need_no_tensorflow() -> None:
    said = re.search(r"labs ([\d, and]+) are those", (ROOT / "binder/postBuild").read_text())
    for number in re.findall(r"\d\d", said[1]):
        assert "tensorflow" not in next(ROOT.glob(f"solutions/{number}_*.py")).read_text()


def test_a_host_keeps_every_package_that_it_has() -> None:
    assert listed("--keep-installed") == []


def test_an_action_is_pinned_by_commit_and_says_its_version() -> None:
    pinned = re.compile(r"(- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*")
    assert [line for line in ACTIONS if not pinned.fullmatch(line)] == []


def test_every_night_each_part_of_the_soak_runs_and_whoever_changes_a_room_finds_its_part() -> None:
    (nightly,) = [path for path in WORKFLOWS if "matrix.part" in path.read_text()]
    matrix = yaml.safe_load(nightly.read_text())["jobs"]["soak"]["strategy"]["matrix"]["part"]
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| part | its rooms |")[2].partition("\n\n")[0]
    assert matrix == re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(PARTS)


@pytest.mark.parametrize("part", [part for part in PARTS if (ROOT / part).exists()])
def test_a_part_of_the_soak_that_is_named_as_a_folder_is_can_be_asked_for(part: str) -> None:
    told = subprocess.run(["make", "-n", "soak", f"PART={part}"], capture_output=True, text=True, timeout=30, cwd=ROOT)
    words = shlex.split(next(line for line in told.stdout.splitlines() if " pytest " in line))
    asked = words[words.index("pytest") + 1 :]
    command = [sys.executable, "-m", "pytest", *asked, "--collect-only", "-q", "--ignore-glob=*"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr


def test_the_workflow_may_only_read_unless_a_job_says_more() -> None:
    assert [path.name for path in WORKFLOWS if yaml.safe_load(path.read_text())["permissions"] != {"contents": "read"}] == []


def test_known_holes_are_looked_up_for_every_exact_version() -> None:
    assert any("pip-audit" in line and "-r constraints.txt" in line for p in WORKFLOWS for line in p.read_text().splitlines())


def test_the_notices_are_as_the_installed_packages_say() -> None:
    assert (ROOT / FILE).read_text() == notices(ROOT)


def test_a_package_without_a_notice_is_named_until_it_is_installed(tmp_path: Path) -> None:
    project = (ROOT / "pyproject.toml").read_text().replace('"torch>=', '"no-such-package>=')
    (tmp_path / "pyproject.toml").write_text(project)
    with pytest.raises(ValueError, match="expected no-such-package installed"):
        notices(tmp_path)


def test_a_package_that_is_not_installed_keeps_its_line(tmp_path: Path) -> None:
    project = (ROOT / "pyproject.toml").read_text().replace('"torch>=', '"no-such-package>=')
    (tmp_path / "pyproject.toml").write_text(project)
    (tmp_path / FILE).write_text("| no-such-package | the course | MIT |\n")
    assert "| no-such-package | the course | MIT |" in notices(tmp_path)


def test_students_get_the_answers_to_questions_and_the_notices_with_their_bundle() -> None:
    assert {"docs/faq.md", "docs/own-work.md", "docs/platforms.md", FILE, "SECURITY.md"} <= set(NAMED)
