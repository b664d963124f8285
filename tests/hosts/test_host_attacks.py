"""What strangers and invited hosts may try: they are refused or let go, nothing is unpickled, and the open hosts go on."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
import torch.distributed as dist
import zmq

from tests.support.bad_guest import NAME, BadGuest, hello
from tests.support.daemons import until
from tests.support.open_hosts import lines_of
from worldsize import hosts
from worldsize.engines import current
from worldsize.engines.deadlock import RankMessages
from worldsize.engines.host import HostFacts, Silence
from worldsize.engines.hosts import messages
from worldsize.engines.hosts.door import Door, Invitation
from worldsize.engines.hosts.engine import HostsEngine
from worldsize.engines.hosts.head import HostChange
from worldsize.engines.hosts.line import MAX_MESSAGE_BYTES
from worldsize.engines.job import Progress
from worldsize.engines.ranks.rank_channel import Published, Request
from worldsize.errors import RankFailed
from worldsize.failures import Failure, Return, Wait
from worldsize.launch import launch

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the hosts do not have the tests' modules

LIMIT_S = 20.0
VALID_S = 600.0
SOAK = pytest.mark.soak
ADDRESS = "127.0.0.1"


class Bomb:
    """A pickle of it makes a folder where it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder),)


@pytest.fixture(scope="module")
def invitations() -> Iterator[list[str]]:
    """Two hosts of this machine joined by invitation, and are open. Yields what they were given."""
    with ExitStack() as stack:
        shown: list[str] = []

        def join(text: str) -> None:
            shown.extend(lines_of(text))
            for line in shown:
                command = [sys.executable, "-m", "worldsize.engines.hosts.member"]
                guest = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
                stack.callback(guest.kill)
                guest.stdin.write(line.encode() + b"\n")
                guest.stdin.flush()

        hosts.open(hosts.Invited(hosts=2, address=ADDRESS, and_this_machine=False, show=join))
        stack.callback(hosts.close)
        yield shown


@pytest.fixture
def engine(invitations: list[str]) -> Iterator[HostsEngine]:
    """The engine of the open hosts, which are as they were after the test: a launch is right."""
    opened = current.opened_hosts().engine
    here = set(opened.hosts)
    yield opened
    run = launch(add_up, 2, timeout_s=60)
    assert [float(x) for x in run.results] == [1.0, 1.0] and set(run.hosts) == here
    assert len(here) == 2


def add_up() -> torch.Tensor:
    dist.init_process_group("gloo")
    x = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(x)
    return x


def invited(engine: HostsEngine, valid_s: float = VALID_S) -> Invitation:
    return Invitation.read(engine.invite(1, valid_s)[0])


def change(engine: HostsEngine) -> HostChange:
    """The next thing that becomes of a host."""
    found = None
    end_s = time.monotonic() + LIMIT_S
    while found is None and time.monotonic() < end_s:
        found = engine.next_change(1.0)
    assert found is not None, "nothing became of any host"
    return found


# ---- without an invitation that is good here -------------------------------------------------------


def random_key(given: Invitation) -> Invitation:
    public, secret = zmq.curve_keypair()
    return replace(given, public_key=public.decode(), secret_key=secret.decode())


def of_another_port(given: Invitation) -> Invitation:
    return replace(given, port=invited(current.opened_hosts().engine).port)


def expired(given: Invitation) -> Invitation:
    return invited(current.opened_hosts().engine, valid_s=0.0)


def of_another_head(given: Invitation) -> Invitation:
    door = Door(ADDRESS)
    other, _ = door.invite("other", VALID_S)
    door.close()
    return replace(other, port=given.port)


def key_of_another_head(given: Invitation) -> Invitation:
    public, _ = zmq.curve_keypair()
    return replace(given, head_key=public.decode())


RARE = of_another_port, of_another_head, key_of_another_head


@pytest.mark.parametrize("made", [random_key, expired, *(pytest.param(m, marks=SOAK) for m in RARE)])
def test_a_host_without_a_good_invitation_is_refused(engine: HostsEngine, made: Callable) -> None:
    guest = BadGuest(made(invited(engine)).text())
    until(lambda: guest.said != "", LIMIT_S, "the host is refused")
    assert "invitation" in guest.said or "not the head" in guest.said
    guest.close()


def test_an_invitation_is_good_once(engine: HostsEngine) -> None:
    given = invited(engine)
    first = BadGuest(given.text())
    assert change(engine).state == "joined"

    while_it_is_here = BadGuest(given.text())
    until(lambda: while_it_is_here.said != "", LIMIT_S, "the second is refused")
    assert "the invitation was used already" in while_it_is_here.said
    first.close()
    assert change(engine).state == "lost"

    afterwards = BadGuest(given.text())
    until(lambda: afterwards.said != "", LIMIT_S, "the third is refused")
    assert afterwards.said != "welcome"
    while_it_is_here.close()
    afterwards.close()


def plain(client: zmq.Socket) -> None:
    client.plain_username, client.plain_password = b"user", b"password"


@pytest.mark.parametrize("mechanism", [lambda client: None, plain], ids=["NULL", "PLAIN"])
def test_a_peer_without_keys_gets_no_word_in(engine: HostsEngine, mechanism: Callable) -> None:
    given = invited(engine)
    with zmq.Context() as context, context.socket(zmq.PAIR) as client:
        client.linger = 0
        mechanism(client)
        monitor = client.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        client.connect(f"tcp://{given.address}:{given.port}")
        told = zmq.utils.monitor.recv_monitor_message(monitor)["event"] if monitor.poll(LIMIT_S * 1000) else None
        client.disable_monitor()
        monitor.close()
    assert told == zmq.EVENT_DISCONNECTED
    joins(engine, given)


def joins(engine: HostsEngine, given: Invitation) -> None:
    """The one who was invited still gets in."""
    guest = BadGuest(given.text())
    assert change(engine).state == "joined"
    guest.close()
    assert change(engine).state == "lost"


NOISE = {
    "random bytes": os.urandom(5000),
    "a web browser": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "the greeting of a long past version": b"\x01\x00",
    "a frame of an absurd length": b"\xff" + b"\x00" * 8 + b"\x7f" + b"\x03\x00CURVE" + b"\x00" * 48 + b"\x06" + b"\xff" * 8,
}


@pytest.mark.parametrize("noise", [*(pytest.param(n, id=i, marks=[SOAK] if i[0] == "t" else []) for i, n in NOISE.items())])
def test_noise_on_the_port_leaves_the_way_free_for_who_is_invited(engine: HostsEngine, noise: bytes) -> None:
    given = invited(engine)
    with socket.create_connection((given.address, given.port), timeout=LIMIT_S) as stranger:
        with suppress(OSError):
            stranger.sendall(noise)
            while stranger.recv(65536):  # until it is shown out
                pass
    joins(engine, given)


def test_silent_connections_are_shown_out_and_leave_the_way_free(engine: HostsEngine) -> None:
    given = invited(engine)
    with ExitStack() as stack:
        where = given.address, given.port
        strangers = [stack.enter_context(socket.create_connection(where, timeout=LIMIT_S)) for _ in range(200)]
        joins(engine, given)
        for stranger in strangers:
            with suppress(ConnectionError):
                while stranger.recv(65536):
                    pass


@SOAK
def test_an_endless_stream_is_cut_off(engine: HostsEngine) -> None:
    given = invited(engine)
    sent = 0
    with socket.create_connection((given.address, given.port), timeout=LIMIT_S) as stranger, suppress(OSError):
        while sent < 2_000_000_000:
            sent += stranger.send(b"\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f" * 6553)
    assert sent < 200_000_000
    joins(engine, given)


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
IN_SUITE = ("name '../../x'", "user", "address")
FIRST = {
    **{what: messages.encode(words) for what, words in GREETINGS.items()},
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
    "content of another type": lambda guest, rank: guest.tell("result", rank, "done"),
    "news of no kind": lambda guest, rank: guest.tell("__reduce__", rank),
    "reports too deep": lambda guest, rank: guest.send(b"\x94\xa4Told\xa8progress\x00" + b"\x91" * 100_000),
    "a message in parts": lambda guest, rank: guest.raw(lambda s: s.send_multipart([b"a"] * 1000)),
    "a message that is too long": lambda guest, rank: guest.raw(lambda s: s.send(bytes(MAX_MESSAGE_BYTES * 2))),
    "a greeting, and the end": lambda guest, rank: (guest.send(messages.encode(hello())), guest.hang_up()),
    "an answer that nobody asked for": lambda guest, rank: (
        guest.send(b"\x94\xa8Answered\xa4echo\x01\xa0"), guest.hang_up()
    ),
}  # fmt: skip
QUICK_HARM = ("noise", "news of a rank that runs elsewhere", "another rank's result", "a message in parts", "a request to kill")


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
        launch(os.getpid, world_size, timeout_s=30)
    guest.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


def test_a_result_that_is_a_pickle_is_named_and_never_read(engine: HostsEngine, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "made"))
    guest, world_size = with_guest(engine, lambda guest, rank: guest.finish(rank, bomb))
    with pytest.raises(RankFailed, match=rf"\(on {NAME}\) failed first: BadFrame"):
        launch(os.getpid, world_size, timeout_s=30)
    guest.close()
    assert change(engine).state == "lost"
    assert not (tmp_path / "made").exists()


def test_a_record_that_is_a_pickle_is_left_out_and_never_read(engine: HostsEngine, tmp_path: Path) -> None:
    def attack(guest: BadGuest, rank: int) -> None:
        guest.chunk("record", rank, pickle.dumps(Bomb(tmp_path / "made")))
        guest.finish(rank)

    guest, world_size = with_guest(engine, attack)
    run = launch(os.getpid, world_size, timeout_s=30)
    guest.close()
    assert change(engine).state == "lost"
    assert run.trace.transfers == () and len(run.results) == world_size
    assert not (tmp_path / "made").exists()


def test_a_host_that_speaks_after_its_run_is_let_go(engine: HostsEngine) -> None:
    guest, world_size = with_guest(engine, lambda guest, rank: guest.finish(rank))
    assert launch(os.getpid, world_size, timeout_s=30).state == "done"
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
        launch(os.getpid, world_size, timeout_s=30)
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
        launch(os.getpid, world_size, timeout_s=110)
    guest.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


@SOAK
def test_a_message_of_a_gigabyte_is_cut_off_before_it_is_kept(engine: HostsEngine) -> None:
    guest, world_size = with_guest(engine, lambda guest, rank: guest.raw(lambda s: s.send(bytes(10**9), copy=False)))
    with pytest.raises(RankFailed) as caught:
        launch(os.getpid, world_size, timeout_s=60)
    guest.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


@SOAK
def test_a_host_that_does_not_end_a_run_is_lost_after_a_while(engine: HostsEngine) -> None:
    guest, world_size = with_guest(engine, lambda guest, rank: guest.finish(rank))
    guest.mute.add("end")
    with pytest.raises(RankFailed) as caught:
        launch(os.getpid, world_size, timeout_s=60)
    guest.close()
    assert named(caught.value).endswith(f"lost with the host {NAME}")


# ---- another user of the same machine ------------------------------------------------------------------

LOOK = """
import os, stat, sys, time
words = [word.encode() for word in sys.stdin.read().split("\\n") if word]
places = [f"/proc/{name}/{part}" for name in os.listdir("/proc") if name.isdecimal()
          for part in ("cmdline", "environ", "mem", "fd", "maps")]
for top in sys.argv[1:]:
    for folder, _, names in os.walk(top):
        places += [os.path.join(folder, name) for name in names]

def is_new(place):
    try:
        found = os.lstat(place)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and (place.startswith("/proc/") or time.time() - found.st_mtime < 1000)

seen = 0
for place in filter(is_new, places):
    try:
        with open(place, "rb") as file:
            data = file.read(10_000_000)
    except OSError:
        continue
    seen += 1
    if any(word in data for word in words):
        print(place)
print("looked at", seen > 0)
"""


def test_another_user_finds_no_invitation_and_no_key(invitations: list[str], engine: HostsEngine) -> None:
    if os.geteuid():
        pytest.skip("to be another user one has to be root")
    waiting = invited(engine)  # one that is still good
    keys = [Invitation.read(line).secret_key for line in invitations] + [waiting.secret_key]
    tops = {"/tmp", "/var/tmp", "/dev/shm", os.environ.get("TMPDIR", "/tmp")}
    python = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or os.path.realpath(sys.executable)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", "/usr/bin/env", "-i"]
    command = [*nobody, python, "-I", "-S", "-c", LOOK, *tops]
    done = subprocess.run(command, input="\n".join(keys), capture_output=True, text=True, timeout=60, cwd="/")
    if done.returncode in (126, 127):
        pytest.skip("another user cannot run this Python")
    assert (done.stdout, done.stderr) == ("looked at True\n", "")
