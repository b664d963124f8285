"""`worldsize start`: what it says, what it opens, and what it refuses, with JupyterLab and the doctor's ranks left out."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import worldsize
from tests.support.small_course import FIRST, RING, answered, exercise, notebook, prose, small_release
from worldsize import cli, doctor
from worldsize.course import opening, shipped_files
from worldsize.doctor import Capability, CapabilitySheet

pytestmark = pytest.mark.quick
ANSWER = "# Exercise 6.1: a ring\nreturn x"


class Desk:
    """A release that is started, and notes of what was examined and opened."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.course = folder / "my-course"
        self.opened: list[Path] = []
        self.examined = 0
        self.state = "ok"
        self._monkeypatch = monkeypatch
        self.publish(small_release(folder / "release"), "0.2.0")
        monkeypatch.setattr(doctor, "examine", self._examine)
        monkeypatch.setattr(opening, "open_lab", lambda folder, notebook: self.opened.append(notebook.relative_to(folder)))
        monkeypatch.chdir(folder)

    def publish(self, release: Path, version: str) -> None:
        """Let the installed package be `version`, which carries `release`."""
        self._monkeypatch.setattr(shipped_files, "source", lambda: release)
        self._monkeypatch.setattr(worldsize, "__version__", version)

    def start(self, *words: str) -> Result:
        """Type `worldsize start` and some words."""
        return CliRunner().invoke(cli.app, ["start", *words])

    def _examine(self) -> CapabilitySheet:
        self.examined += 1
        return CapabilitySheet((Capability("two ranks", "the all-reduce", "what to do", self.state),))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def said(answer: Result) -> str:
    return " ".join(answer.output.split())


def test_it_lays_the_course_checks_the_machine_and_opens_lab_00(desk: Desk) -> None:
    answer = desk.start("my-course")
    assert answer.exit_code == 0 and "put World Size 0.2.0 into" in said(answer) and "two ranks" in said(answer)
    assert f"to come back: worldsize start {desk.course}" in answer.output
    assert desk.opened == [Path(FIRST)]


def test_without_jupyterlab_nothing_is_written_and_one_sentence_says_what_to_type(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    answer = desk.start("my-course")
    assert answer.exit_code == 1 and len(answer.output.splitlines()) == 1
    assert "Type `pip install 'worldsize[lab]'`" in said(answer) and not desk.course.exists()
    assert desk.start("my-course", "--no-open").exit_code == 0 and desk.course.exists()


def test_the_second_time_it_simply_opens(desk: Desk) -> None:
    desk.start("my-course")
    answer = desk.start("my-course")
    assert answer.stdout == f"to come back: worldsize start {desk.course}\n"
    assert desk.examined == 1 and desk.opened == [Path(FIRST)] * 2


def test_another_lab_opens_where_it_is_named(desk: Desk) -> None:
    desk.start("my-course", "--lab", "6")
    assert desk.opened == [Path(RING)]


def test_a_lab_that_is_not_there_is_answered_with_those_that_are(desk: Desk) -> None:
    answer = desk.start("my-course", "--lab", "42")
    assert answer.exit_code == 1 and "The labs are: 00_start_here, 06_ring_all_reduce." in said(answer)


def test_without_opening_it_ends_after_the_check(desk: Desk) -> None:
    assert desk.start("my-course", "--no-open").exit_code == 0
    assert (desk.examined, desk.opened) == (1, [])


def test_on_a_machine_where_no_rank_runs_it_opens_nothing_and_the_next_start_checks_again(desk: Desk) -> None:
    desk.state = "fails"
    answer = desk.start("my-course")
    assert answer.exit_code == 1 and "what to do" in said(answer) and desk.opened == []
    desk.state = "ok"
    assert desk.start("my-course").exit_code == 0 and desk.examined == 2


def test_a_newer_release_says_what_changed_and_what_became_of_each_lab_with_answers(desk: Desk, tmp_path: Path) -> None:
    desk.publish(small_release(tmp_path / "old"), "0.1.0")
    desk.start("my-course")
    answered(desk.course / RING, "ring", ANSWER)
    better = notebook(prose("opening", "# A better lab"), exercise("ring", "# Exercise 6.1: a ring\nraise NotImplementedError"))
    desk.publish(small_release(tmp_path / "new", **{RING: better, "docs/faq.md": b"better"}), "0.2.0")
    lines = desk.start("my-course").output
    assert "updated World Size from 0.1.0 to 0.2.0. Changes:\n  0.2.0  A ring\n  0.2.0  1 line more in " in lines
    assert f"{RING}: 1 answer kept; your old notebook is before-0.2.0/{RING}\n" in lines
    assert "1 file replaced, none of which you had changed" in lines
    assert desk.examined == 2, "another package may do otherwise on this machine"


def test_a_refused_folder_is_one_paragraph_with_the_next_step(desk: Desk) -> None:
    answer = desk.start(".")
    assert answer.exit_code == 1 and len(answer.output.splitlines()) == 1
    assert "got one with release. Nothing was written. Name a new folder: worldsize start my-course" in answer.output


def test_windows_is_told_of_wsl2_before_anything_is_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    answer = desk.start("my-course")
    assert answer.exit_code == 1 and "install WSL2 (`wsl --install`)" in said(answer)
    assert not desk.course.exists()


def test_a_package_without_the_course_says_how_one_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shipped_files, "CHECKOUT", tmp_path)
    answer = CliRunner().invoke(cli.app, ["start", str(tmp_path / "course")])
    assert answer.exit_code == 1 and "pip wheel --no-deps -w dist ." in said(answer) and not (tmp_path / "course").exists()


def test_an_editable_installation_lays_the_checkouts_files(root: Path) -> None:
    assert shipped_files.source() == root and len(shipped_files.course_files(root)) > 40


def test_jupyterlab_gets_the_courses_quiet_settings_before_those_that_were_there(tmp_path: Path) -> None:
    given = opening.environment({"JUPYTER_CONFIG_PATH": "/etc/ours", "PATH": "/bin"}, tmp_path)
    assert given["JUPYTER_CONFIG_PATH"].split(os.pathsep) == [str(opening.JUPYTER_CONFIG), "/etc/ours"]
    settings = json.loads((opening.JUPYTER_CONFIG / "labconfig" / "default_setting_overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"] == {"fetchNews": "false", "checkForUpdates": False}


def test_jupyterlab_lists_the_labs_without_the_folder_of_their_covers_and_serves_it(tmp_path: Path) -> None:
    contents = pytest.importorskip("jupyter_server.services.contents.largefilemanager")
    asks = [sys.executable, "-m", "jupyter_server", "--show-config-json"]
    env = opening.environment({**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path / "of nobody")}, tmp_path)
    done = subprocess.run(asks, capture_output=True, text=True, timeout=60, env=env, check=True)
    settings = json.loads(done.stdout)["ContentsManager"]
    (tmp_path / "labs" / "covers").mkdir(parents=True)
    (tmp_path / "labs" / "covers" / "06.svg").write_text("<svg/>")
    (tmp_path / "labs" / "06.ipynb").write_text("{}")
    manager = contents.LargeFileManager(root_dir=str(tmp_path / "labs"), **settings)
    assert [row["name"] for row in manager.get("", content=True)["content"]] == ["06.ipynb"]
    assert manager.get("covers/06.svg")["content"] == "<svg/>"


def test_a_terminal_of_jupyterlab_finds_the_programs_of_this_python_first(tmp_path: Path) -> None:
    programs = opening.environment({"PATH": "/bin"}, tmp_path)["PATH"].split(os.pathsep)
    assert programs == [str(Path(sys.executable).parent), "/bin"]


def test_a_layout_that_a_student_has_changed_stays_at_the_next_start(tmp_path: Path) -> None:
    layout = Path(opening.environment({}, tmp_path)["JUPYTERLAB_WORKSPACES_DIR"]) / opening.FIRST_LAYOUT.name
    assert layout.is_relative_to(tmp_path) and layout.read_text() == opening.FIRST_LAYOUT.read_text()
    layout.write_text("{}")
    opening.environment({}, tmp_path)
    assert layout.read_text() == "{}"


def test_a_folder_for_layouts_that_the_user_has_named_is_used(tmp_path: Path) -> None:
    named = {"JUPYTERLAB_WORKSPACES_DIR": "/mnt/ada/layouts"}
    assert opening.environment(named, tmp_path)["JUPYTERLAB_WORKSPACES_DIR"] == "/mnt/ada/layouts"


def test_jupyterlab_lists_the_whole_course_and_opens_at_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    words = opening.command(Path("/course"), Path("/course/labs/00_start_here.ipynb"))
    assert words[1:] == ["-m", "jupyterlab", "--ServerApp.root_dir=/course", "/course/labs/00_start_here.ipynb"]
