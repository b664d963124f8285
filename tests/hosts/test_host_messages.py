"""Messages that the head cannot read or did not expect: their host is refused or lost by name, the other hosts go on."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.open_hosts import launch_on
from tests.support.scripted_host import NAME, ScriptedHost, change, hello, invited
from worldsize.engines.remote import host_messages
from worldsize.engines.remote.engine import HostsEngine
from worldsize.engines.remote.line import MAX_MESSAGE_BYTES
from worldsize.errors import RankFailed
from worldsize.failures import Return
from worldsize.trace import RankRecord

SOAK = pytest.mark.soak


FIRST = {
    "another version": host_messages.encode(hello(versions={"python": "2.7"})),
    "noise": os.urandom(2000),
    "nothing at all": b"",
    "deep lists": b"\x91" * 100_000,
    "a list that ends too early": b"\xdd\xff\xff\xff\xff",
    "news in place of a greeting": b"\x94\xa4Told\xa5hello\x00\xc0",
}
IN_SUITE = ("another version", "noise")


class Bomb:
    """A pickle of it makes a folder where it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("what", [*(pytest.param(w, marks=[] if w in IN_SUITE else SOAK) for w in FIRST)])
def test_a_host_that_begins_with_what_is_no_greeting_is_refused(engine: HostsEngine, what: str) -> None:
    host = ScriptedHost(invited(engine).text(), first=FIRST[what])
    refused = change(engine)
    host.close()
    assert refused.state == "refused" and refused.reason.isprintable() and len(refused.reason) < 1500


def test_the_head_unpickles_no_message(engine: HostsEngine, tmp_path: Path) -> None:
    host = ScriptedHost(invited(engine).text(), first=pickle.dumps(Bomb(tmp_path / "made")))
    assert change(engine).state == "refused"
    host.close()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("answers", [{"echo": "soon"}, pytest.param({"echo": [1.0]}, marks=SOAK)])
def test_a_host_whose_clock_is_none_is_let_go(engine: HostsEngine, answers: dict) -> None:
    host = ScriptedHost(invited(engine).text(), answers=answers)
    assert change(engine).state == "lost"
    host.close()


def other(rank: int) -> int:
    return 0 if rank else 1


UNEXPECTED: dict[str, Callable[[ScriptedHost, int], None]] = {
    "noise": lambda host, rank: host.send(b"\xc1 no message"),
    "nothing": lambda host, rank: host.send(b""),
    "news of a rank that runs elsewhere": lambda host, rank: host.tell("result", other(rank), Return()),
    "news of a rank that is not": lambda host, rank: host.tell("result", 10**6, Return()),
    "news of a rank below zero": lambda host, rank: host.tell("hello", -1),
    "another rank's log": lambda host, rank: host.chunk("log", other(rank), b"x"),
    "a file of an odd kind": lambda host, rank: host.chunk("../../x", rank, b"x"),
    "content of another type": lambda host, rank: host.tell("result", rank, "done"),
    "news of no kind": lambda host, rank: host.tell("__reduce__", rank),
    "reports too deep": lambda host, rank: host.send(b"\x94\xa4Told\xa8progress\x00" + b"\x91" * 100_000),
    "a message in parts": lambda host, rank: host.raw(lambda s: s.send_multipart([b"a"] * 1000)),
    "a message that is too long": lambda host, rank: host.raw(lambda s: s.send(bytes(MAX_MESSAGE_BYTES * 2))),
    "a greeting, and the end": lambda host, rank: (host.send(host_messages.encode(hello())), host.hang_up()),
    "an answer that nobody asked for": lambda host, rank: (host.send(b"\x94\xa8Answered\xa4echo\x01\xa0"), host.hang_up()),
}
QUICK = ("noise", "news of a rank that runs elsewhere", "a message in parts", "content of another type")


def with_host(engine: HostsEngine, script: Callable[[ScriptedHost, int], None], **words: Any) -> tuple[ScriptedHost, int]:
    """A scripted host among the hosts, and how many ranks a run needs for each host to have one."""
    host = ScriptedHost(invited(engine).text(), script, **words)
    assert change(engine).state == "joined"
    return host, len(engine.hosts)


def named(rank_failed: RankFailed) -> str:
    return str(rank_failed).splitlines()[0]


@pytest.mark.parametrize("what", [*(pytest.param(h, marks=[] if h in QUICK else SOAK) for h in UNEXPECTED)])
def test_a_host_that_sends_what_no_host_sends_is_lost_and_named(engine: HostsEngine, what: str) -> None:
    host, world_size = with_host(engine, UNEXPECTED[what])
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=30)
    host.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


def test_a_result_that_cannot_be_read_fails_the_run_and_names_its_rank(engine: HostsEngine) -> None:
    def script(host: ScriptedHost, rank: int) -> None:
        host.chunk("result", rank, b"no pickle")
        host.tell("result", rank, Return())

    host, world_size = with_host(engine, script)
    with pytest.raises(RankFailed, match=rf"\(on {NAME}\) failed first: UnpicklingError: its result cannot be read here"):
        launch_on(engine, os.getpid, world_size, timeout_s=30)
    host.close()
    assert change(engine).state == "lost"


def in_two_pieces(host: ScriptedHost, rank: int) -> None:
    record = pickle.dumps(RankRecord(rank))
    host.chunk("record", rank, record[:10])
    host.chunk("record", rank, record[10:])
    host.finish(rank)


def cut_off(host: ScriptedHost, rank: int) -> None:
    host.chunk("record", rank, pickle.dumps(RankRecord(rank))[:10])
    host.hang_up()


def test_a_record_in_two_pieces_arrives_whole(engine: HostsEngine) -> None:
    host, world_size = with_host(engine, in_two_pieces)
    run = launch_on(engine, os.getpid, world_size, timeout_s=30)
    host.close()
    assert change(engine).state == "lost"
    assert pickle.loads(run.files.of(world_size - 1, "record").read_bytes()) == RankRecord(world_size - 1)


def test_a_record_that_was_cut_off_is_left_out_of_the_trace(engine: HostsEngine) -> None:
    host, world_size = with_host(engine, cut_off)
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=30)
    host.close()
    assert not caught.value.run.files.of(world_size - 1, "record").exists()
    assert caught.value.run.trace.transfers == ()


def test_a_host_that_speaks_after_its_run_is_let_go(engine: HostsEngine) -> None:
    host, world_size = with_host(engine, lambda host, rank: host.finish(rank))
    assert launch_on(engine, os.getpid, world_size, timeout_s=30).state == "done"
    assert host.run_ended.wait(30)
    host.chunk("log", world_size - 1, b"too late")
    assert change(engine).state == "lost"
    host.close()


@SOAK
def test_a_million_tiny_messages_end_with_the_host_that_sends_them(engine: HostsEngine) -> None:
    def script(host: ScriptedHost, rank: int) -> None:
        note = b"\x94\xa4Told\xa5hello" + bytes([rank]) + b"\xc0"
        for _ in range(1_000_000):
            host.send(note)
        host.hang_up()

    host, world_size = with_host(engine, script)
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=110)
    host.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


@SOAK
def test_a_message_of_a_gigabyte_is_cut_off_before_it_is_kept(engine: HostsEngine) -> None:
    host, world_size = with_host(engine, lambda host, rank: host.raw(lambda s: s.send(bytes(10**9), copy=False)))
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=60)
    host.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


@SOAK
def test_a_host_that_never_hands_over_what_its_ranks_wrote_is_lost_after_a_while(engine: HostsEngine) -> None:
    host, world_size = with_host(engine, lambda host, rank: host.finish(rank))
    host.mute.add("let_leave")
    with pytest.raises(RankFailed) as caught:
        launch_on(engine, os.getpid, world_size, timeout_s=60)
    host.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")
