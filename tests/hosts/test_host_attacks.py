"""What strangers may try at the door, and another user of this machine: nothing is let in, and the open hosts go on."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support.daemons import until
from tests.support.scripted_host import ADDRESS, LIMIT_S, VALID_S, ScriptedHost, change, invited
from worldsize.engines.remote.engine import HostsEngine
from worldsize.engines.remote.head_listener import Door, Invitation

SOAK = pytest.mark.soak


def random_key(engine: HostsEngine) -> Invitation:
    public, secret = zmq.curve_keypair()
    return replace(invited(engine), public_key=public.decode(), secret_key=secret.decode())


def of_another_port(engine: HostsEngine) -> Invitation:
    return replace(invited(engine), port=invited(engine).port)


def expired(engine: HostsEngine) -> Invitation:
    return invited(engine, valid_s=0.0)


def of_another_head(engine: HostsEngine) -> Invitation:
    door = Door(ADDRESS)
    other, _ = door.invite("other", VALID_S)
    door.close()
    return replace(other, port=invited(engine).port)


def key_of_another_head(engine: HostsEngine) -> Invitation:
    public, _ = zmq.curve_keypair()
    return replace(invited(engine), head_key=public.decode())


@pytest.mark.quick
@pytest.mark.parametrize("text", ["", "hello", "[]", '{"secret_key": "kkkk"}'])
def test_what_is_no_invitation_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="^expected an invitation, the one line that the head makes, got something else$"):
        Invitation.read(text)


RARE = of_another_port, of_another_head, key_of_another_head


@pytest.mark.parametrize("made", [random_key, expired, *(pytest.param(m, marks=SOAK) for m in RARE)])
def test_a_host_without_a_good_invitation_is_refused(engine: HostsEngine, made: Callable) -> None:
    host = ScriptedHost(made(engine).text())
    until(lambda: host.said != "", LIMIT_S, "the host is refused")
    assert "invitation" in host.said or "not the head" in host.said
    host.close()


def test_an_invitation_is_good_once(engine: HostsEngine) -> None:
    given = invited(engine)
    first = ScriptedHost(given.text())
    assert change(engine).state == "joined"

    while_it_is_here = ScriptedHost(given.text())
    until(lambda: while_it_is_here.said != "", LIMIT_S, "the second is refused")
    assert "the invitation has been used" in while_it_is_here.said
    first.close()
    assert change(engine).state == "lost"

    afterwards = ScriptedHost(given.text())
    until(lambda: afterwards.said != "", LIMIT_S, "the third is refused")
    assert afterwards.said != "welcome"
    while_it_is_here.close()
    afterwards.close()


def plain(client: zmq.Socket) -> None:
    client.plain_username, client.plain_password = b"user", b"password"


@pytest.mark.parametrize(
    "mechanism", [pytest.param(lambda client: None, id="NULL"), pytest.param(plain, id="PLAIN", marks=SOAK)]
)
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
    host = ScriptedHost(given.text())
    assert change(engine).state == "joined"
    host.close()
    assert change(engine).state == "lost"


NOISE = {
    "random bytes": os.urandom(5000),
    "a web browser": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "the greeting of a long past version": b"\x01\x00",
    "a frame of an absurd length": b"\xff" + b"\x00" * 8 + b"\x7f" + b"\x03\x00CURVE" + b"\x00" * 48 + b"\x06" + b"\xff" * 8,
}


NOISES = [pytest.param(noise, id=name, marks=[] if name == "random bytes" else SOAK) for name, noise in NOISE.items()]


@pytest.mark.parametrize("noise", NOISES)
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


def of_worldsize(tops: set[str]) -> list[str]:
    """Return what this package has made in those folders, and the shared memory."""
    return [*(str(found) for top in tops for found in Path(top).glob("worldsize-*")), "/dev/shm"]


@pytest.mark.parametrize("places", [of_worldsize, pytest.param(list, id="everywhere", marks=SOAK)])
def test_another_user_finds_no_invitation_and_no_key(invited_hosts: Any, engine: HostsEngine, places: Callable) -> None:
    if os.geteuid():
        pytest.skip("to be another user one has to be root")
    waiting = invited(engine)  # one that is still good
    keys = [Invitation.read(line).secret_key for line in invited_hosts.invitations] + [waiting.secret_key]
    tops = {"/tmp", "/var/tmp", "/dev/shm", os.environ.get("TMPDIR", "/tmp")}
    python = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or os.path.realpath(sys.executable)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", "/usr/bin/env", "-i"]
    command = [*nobody, python, "-I", "-S", "-c", LOOK, *places(tops)]
    done = subprocess.run(command, input="\n".join(keys), capture_output=True, text=True, timeout=60, cwd="/")
    if done.returncode in (126, 127):
        pytest.skip("another user cannot run this Python")
    assert (done.stdout, done.stderr) == ("looked at True\n", "")
