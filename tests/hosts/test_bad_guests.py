"""What hosts may try that were invited: they are refused or lost by name, nothing is unpickled, the other hosts go on."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.bad_guest import ADDRESS, NAME, BadGuest, Bomb, change, hello, invited
from tests.support.open_hosts import launch_on
from worldsize.engines.deadlock import RankMessages
from worldsize.engines.host import HostFacts, Silence
from worldsize.engines.hosts import host_messages
from worldsize.engines.hosts.engine import HostsEngine
from worldsize.engines.hosts.line import MAX_MESSAGE_BYTES
from worldsize.engines.job import Progress, Prompt
from worldsize.engines.ranks.rank_channel import Published, Request
from worldsize.errors import RankFailed
from worldsize.failures import Failure, Return, Wait

SOAK = pytest.mark.soak


# ---- what a host may say first -----------------------------------------------------------------------

ODD = ["../../x", "\x1b[2J", "<script>alert(1)</script>", "", "-x", "a" * 300, "a\nb", "n" * 1_900_000]
GREETINGS = {f"name {name[:24]!a}": hello(name=name) for name in ODD} | {
    "user": hello(user="\x1b]0;x\x07"),
    "address": hello(address="10.0.0.1; reboot"),
    "cores below zero": hello(cores=-1),
    "cores beyond all": hello(cores=2**62),
    "versions": hello(versions={"python": "\x1b[31m3.11"}),
    "another version": hello(versions={"python": "2.7"}),
}
IN_SUITE = ("name '../../x'", "another version")
FIRST = {
    **{what: host_messages.encode(words) for what, words in GREETINGS.items()},
    "nothing at all": b"",
    "a pickle": b"",  # made in the test: it needs a folder
    "noise": os.urandom(2000),
    "deep lists": b"\x91" * 100_000,
    "a list that ends too early": b"\xdd\xff\xff\xff\xff",
    "news in place of a greeting": b"\x94\xa4Told\xa5hello\x00\xc0",
}


@pytest.mark.parametrize("what", [*(pytest.param(w, marks=[] if w in IN_SUITE or w == "a pickle" else [SOAK]) for w in FIRST)])
def test_a_host_that_begins_with_what_is_no_greeting_is_refused(engine: HostsEngine, tmp_path: Path, what: str) -> None:
    first = pickle.dumps(Bomb(tmp_path / "made")) if what == "a pickle" else FIRST[what]
    guest = BadGuest(invited(engine).text(), first=first)
    refused = change(engine)
    guest.close()
    assert refused.state == "refused" and refused.reason.isprintable() and len(refused.reason) < 1500
    assert not (tmp_path / "made").exists()
    assert set(refused.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789")


@pytest.mark.parametrize(
    "answers",
    [
        {"echo": float("nan")},
        pytest.param({"echo": "soon"}, marks=SOAK),
        pytest.param({"echo": [1.0]}, marks=SOAK),
    ],
)
def test_a_host_whose_clock_is_none_is_let_go(engine: HostsEngine, answers: dict) -> None:
    guest = BadGuest(invited(engine).text(), answers=answers)
    assert change(engine).state == "lost"
    guest.close()


# ---- what a host may say in a run --------------------------------------------------------------------


def other(rank: int) -> int:
    return 0 if rank else 1


def wait_of(rank: int) -> Wait:
    return Wait(rank, "recv", 0)


HARM: dict[str, Callable[[BadGuest, int], None]] = {
    "noise": lambda guest, rank: guest.send(b"\xc1 no message"),
    "nothing": lambda guest, rank: guest.send(b""),
    "news of a rank that runs elsewhere": lambda guest, rank: guest.tell("result", other(rank), Return()),
    "news of a rank that is not": lambda guest, rank: guest.tell("result", 10**6, Return()),
    "news of a rank below zero": lambda guest, rank: guest.tell("hello", -1),
    "another rank's failure": lambda guest, rank: guest.tell("failure", rank, Failure(other(rank), "exit", 0.0)),
    "another rank's progress": lambda guest, rank: guest.tell("progress", rank, Progress(other(rank), 0.0)),
    "another rank's wait": lambda guest, rank: guest.tell(
        "waits", rank, Published(1, RankMessages(wait_of(other(rank)), {}, {}))
    ),
    "another host's loss": lambda guest, rank: guest.tell("silent", rank, Silence(0.0, lost_host="n1")),
    "another rank's log": lambda guest, rank: guest.chunk("log", other(rank), b"x"),
    "another rank's result": lambda guest, rank: guest.chunk("result", other(rank), b"x"),
    "a file of an odd kind": lambda guest, rank: guest.chunk("../../x", rank, b"x"),
    "a request to kill": lambda guest, rank: guest.tell("request", rank, Request("kill", other(rank))),
    "another rank's debugger": lambda guest, rank: guest.tell("prompt", rank, Prompt(other(rank), "", "(Pdb) ")),
    "content of another type": lambda guest, rank: guest.tell("result", rank, "done"),
    "news of no kind": lambda guest, rank: guest.tell("__reduce__", rank),
    "reports too deep": lambda guest, rank: guest.send(b"\x94\xa4Told\xa8progress\x00" + b"\x91" * 100_000),
    "a message in parts": lambda guest, rank: guest.raw(lambda s: s.send_multipart([b"a"] * 1000)),
    "a message that is too long": lambda guest, rank: guest.raw(lambda s: s.send(bytes(MAX_MESSAGE_BYTES * 2))),
    "a greeting, and the end": lambda guest, rank: (guest.send(host_messages.encode(hello())), guest.hang_up()),
    "an answer that nobody asked for": lambda guest, rank: (
        guest.send(b"\x94\xa8Answered\xa4echo\x01\xa0"), guest.hang_up()
    ),
}  # fmt: skip
QUICK_HARM = ("noise", "news of a rank that runs elsewhere", "a message in parts", "a request to kill")


def with_guest(engine: HostsEngine, attack: Callable[[BadGuest, int], None], **words: Any) -> tuple[BadGuest, int]:
    """A bad guest among the hosts, and how many ranks a run needs for each host to have one."""
    guest = BadGuest(invited(engine).text(), attack, **words)
    assert change(engine).state == "joined"
    return guest, len(engine.hosts)


def named(rank_failed: RankFailed) -> str:
    return str(rank_failed).splitlines()[0]


@pytest.mark.parametrize("what", [*(pytest.param(h, marks=[] if h in QUICK_HARM else [SOAK]) for h in HARM)])
def test_a_host_that_says_what_it_may_not_is_lost_and_named(engine: HostsEngine, what: str) -> None:
    guest, world_size = with_guest(engine, HARM[what])
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=30)
    guest.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


def test_a_result_that_is_a_pickle_is_named_and_never_read(engine: HostsEngine, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "made"))
    guest, world_size = with_guest(engine, lambda guest, rank: guest.finish(rank, bomb))
    with pytest.raises(RankFailed, match=rf"\(on {NAME}\) failed first: BadFrame"):
        launch_on(engine, os.getpid, world_size, timeout_s=30)
    guest.close()
    assert change(engine).state == "lost"
    assert not (tmp_path / "made").exists()


def test_a_record_that_is_a_pickle_is_left_out_and_never_read(engine: HostsEngine, tmp_path: Path) -> None:
    def attack(guest: BadGuest, rank: int) -> None:
        guest.chunk("record", rank, pickle.dumps(Bomb(tmp_path / "made")))
        guest.finish(rank)

    guest, world_size = with_guest(engine, attack)
    run = launch_on(engine, os.getpid, world_size, timeout_s=30)
    guest.close()
    assert change(engine).state == "lost"
    assert run.trace.transfers == () and len(run.results) == world_size
    assert not (tmp_path / "made").exists()


def test_a_host_whose_result_brings_a_pickled_record_is_lost_and_it_is_never_read(engine: HostsEngine, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "made"))
    guest, world_size = with_guest(engine, lambda guest, rank: guest.tell("result", rank, Return(record=bomb)))
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=30)
    guest.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")
    assert not (tmp_path / "made").exists()


def test_a_host_that_speaks_after_its_run_is_let_go(engine: HostsEngine) -> None:
    guest, world_size = with_guest(engine, lambda guest, rank: guest.finish(rank))
    assert launch_on(engine, os.getpid, world_size, timeout_s=30).state == "done"
    assert guest.run_ended.wait(30)
    guest.chunk("log", world_size - 1, b"too late")
    assert change(engine).state == "lost"
    guest.close()


@pytest.mark.parametrize(
    "facts", [*(pytest.param(f, marks=SOAK) for f in ({"cores": -1}, {"address": "$(reboot)"}, {"gpus": ("\x1b[2J",)}))]
)
def test_a_host_that_has_what_cannot_be_is_let_go_at_the_launch(engine: HostsEngine, facts: dict) -> None:
    honest = HostFacts(name=NAME, address=ADDRESS, cores=2)
    guest, world_size = with_guest(engine, lambda guest, rank: None, answers={"facts": replace(honest, **facts)})
    with pytest.raises(ValueError, match=f"the host {NAME} was lost: expected"):
        launch_on(engine, os.getpid, world_size, timeout_s=30)
    guest.close()


@SOAK
def test_a_million_tiny_messages_end_with_the_host_that_sends_them(engine: HostsEngine) -> None:
    def attack(guest: BadGuest, rank: int) -> None:
        note = b"\x94\xa4Told\xa5hello" + bytes([rank]) + b"\xc0"
        for _ in range(1_000_000):
            guest.send(note)
        guest.hang_up()

    guest, world_size = with_guest(engine, attack)
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=110)
    guest.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


@SOAK
def test_a_message_of_a_gigabyte_is_cut_off_before_it_is_kept(engine: HostsEngine) -> None:
    guest, world_size = with_guest(engine, lambda guest, rank: guest.raw(lambda s: s.send(bytes(10**9), copy=False)))
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=60)
    guest.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


@SOAK
def test_a_host_that_never_hands_over_what_its_ranks_wrote_is_lost_after_a_while(engine: HostsEngine) -> None:
    guest, world_size = with_guest(engine, lambda guest, rank: guest.finish(rank))
    guest.mute.add("let_leave")
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=60)
    guest.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")
