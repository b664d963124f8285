"""`worldsize join`: who is asked what, where an invitation may come from, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner, Result

from tests.support.bad_guest import ADDRESS, LIMIT_S, change, invited
from tests.support.daemons import until
from worldsize import cli, hosts
from worldsize.engines.hosts import join_command
from worldsize.engines.hosts.engine import HostsEngine
from worldsize.engines.hosts.head_listener import Invitation
from worldsize.files import PRIVATE, write_whole

KEY = "k" * 40
GIVEN = Invitation("10.0.0.5", 50000, KEY, KEY, KEY, user="ada", host="lovelace")


def join(*words: str | Path, given: str = "") -> Result:
    return CliRunner().invoke(cli.app, ["join", *map(str, words)], input=given)


def said(answer: Result) -> str:
    return " ".join(answer.output.split())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_whole(tmp_path / "invitation", GIVEN.text() + "\n", PRIVATE)
    return tmp_path / "invitation"


@pytest.mark.quick
def test_without_a_terminal_nobody_joins_who_did_not_say_yes(file: Path) -> None:
    for answer in (join(given=GIVEN.text()), join("--invitation", file)):
        assert answer.exit_code == 1
        assert "--yes" in said(answer) and "--invitation FILE" in said(answer) and KEY not in said(answer)


@pytest.mark.quick
def test_a_file_that_others_can_read_is_no_place_for_an_invitation(file: Path) -> None:
    file.chmod(0o644)
    answer = join("--yes", "--invitation", file)
    assert answer.exit_code == 1 and "chmod 600" in said(answer) and "644" in said(answer)


@pytest.mark.quick
def test_an_invitation_is_no_word_of_the_command_line() -> None:
    answer = join("--yes", GIVEN.text())
    assert answer.exit_code == 2


@pytest.mark.quick
@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "{}", "[]", "3", '{"address": "x"}',
        replace(GIVEN, host="\x1b[2J").text(),
        replace(GIVEN, user="a\nb").text(),
        replace(GIVEN, address="x" * 300).text(),
        replace(GIVEN, port=0).text(),
        replace(GIVEN, secret_key="short").text(),
        json.dumps({**json.loads(GIVEN.text()), "port": "50000"}),
        json.dumps({**json.loads(GIVEN.text()), "more": 1}),
    ],
)  # fmt: skip
def test_what_is_no_invitation_is_one_paragraph(text: str) -> None:
    answer = join("--yes", given=text + "\n")
    assert answer.exit_code == 1 and said(answer).startswith("expected an invitation")


@pytest.mark.quick
def test_it_says_who_will_run_code_here_and_a_no_ends_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    shown: list[str] = []
    asked: list[str] = []
    assert join_command.join(file, False, shown.append, lambda question: bool(asked.append(question))) == 1
    assert "ada on lovelace (10.0.0.5)" in shown[-1] and "can run any code on this machine" in shown[-1]
    assert len(asked) == 1 and KEY not in " ".join(shown)


# ---- for real, over loopback ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def head() -> Iterator[HostsEngine]:
    engine = HostsEngine()
    engine.open_door(ADDRESS)
    yield engine
    engine.close()


def start(given: Invitation, tmp_path: Path) -> subprocess.Popen:
    write_whole(tmp_path / "invitation", given.text(), PRIVATE)
    command = [sys.executable, "-m", "worldsize.cli", "join", "--yes", "--invitation", str(tmp_path / "invitation")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen) -> tuple[int, str]:
    text, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, " ".join(text.split())


def below(process: subprocess.Popen) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def gone(processes: list[psutil.Process]) -> None:
    until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes), LIMIT_S, "all have ended")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=pytest.mark.soak)])
def test_all_of_it_ends_with_the_command(head: HostsEngine, tmp_path: Path, number: int, code: int) -> None:
    process = start(invited(head), tmp_path)
    assert change(head).state == "joined"
    started = below(process)
    process.send_signal(number)
    assert ended(process)[0] == code
    assert change(head).state == "lost"
    gone(started)


def test_an_invitation_that_is_no_longer_good_is_one_paragraph_and_exit_code_1(head: HostsEngine, tmp_path: Path) -> None:
    code, text = ended(start(invited(head, valid_s=0.0), tmp_path))
    assert code == 1 and "the invitation has been used, has expired, or is not from this head" in text
    assert "Traceback" not in text


# ---- the way that invites ------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize(
    "arguments",
    [{"hosts": 0}, {"hosts": "2"}, {"valid_min": 0}, {"valid_min": "10"}, {"ports": (9, 8)}, {"ports": 5}, {"address": "n1"}],
)
def test_a_wrong_argument_of_invited_says_expected_and_got(arguments: dict) -> None:
    with pytest.raises(ValueError, match="^Invited: expected .*, got "):
        hosts.Invited(**arguments)


def test_invitations_that_expire_end_the_opening() -> None:
    shown: list[str] = []
    way = hosts.Invited(address=ADDRESS, valid_min=0.001, and_this_machine=False, show=shown.append)
    with pytest.raises(hosts.NoHosts, match="the invitations expired .* 0 of 1 hosts have joined"):
        hosts.open(way)
    assert "worldsize join" in shown[0] and len(shown[0].splitlines()) == 2


@pytest.mark.soak
def test_an_address_that_is_not_this_machines_says_so() -> None:
    with pytest.raises(hosts.NoHosts, match="cannot listen at 192.0.2.7"):
        hosts.open(hosts.Invited(address="192.0.2.7"))
