"""A host that was invited and means harm: it joins as any other, answers what it is asked, and attacks when it is told to.

It speaks the real protocol, in a thread of the test. What it is asked is unpickled here, since it comes from the test's own head.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from worldsize.engines.host import HostFacts
from worldsize.engines.hosts import host_checks, host_messages
from worldsize.engines.hosts.engine import HostsEngine
from worldsize.engines.hosts.head_listener import Invitation
from worldsize.engines.hosts.host_messages import Answered, Chunk, Greeting, Told
from worldsize.engines.hosts.join_connection import join
from worldsize.engines.hosts.kernel_messages import HostChange
from worldsize.engines.hosts.line import LineClosed
from worldsize.engines.results import packed
from worldsize.failures import Return, Standing

NAME = "evil"
ADDRESS = "127.0.0.1"
LIMIT_S = 60.0  # a bound against a hang
VALID_S = 600.0
Raw = Callable[["BadGuest", int], None]  # gets the rank that it is to run


def hello(**words: Any) -> Greeting:
    """What an honest host says of itself, but for `words`."""
    honest = {"name": NAME, "user": "u", "address": ADDRESS, "cores": 2, "versions": host_checks.own_versions(), "pid": 1}
    return Greeting(**{**honest, **words})


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


class Bomb:
    """A pickle of it makes a folder where it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @override
    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder),)


class BadGuest:
    """`attack` is called for each rank that it is to start; `answers` by command are given in place of honest ones."""

    def __init__(
        self, invitation: str, attack: Raw | None = None, first: bytes | None = None, answers: Mapping[str, Any] | None = None
    ) -> None:
        self.attack = attack
        self.answers = dict(answers or {})
        self.mute: set[str] = set()  # commands that it does not answer
        self.carrier, self.line = join(Invitation.read(invitation))
        self.said = ""  # by the head, or why the line ended
        self.run_ended = threading.Event()  # and that was answered
        self._thread = threading.Thread(target=self._serve, args=(first,), name="bad-guest", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.line.close()
        self._thread.join(10)
        self.carrier.close()

    # ---- words of the protocol -------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        with suppress(LineClosed):
            self.line.send(data)

    def raw(self, send: Callable[[Any], Any]) -> None:
        """What only the socket itself can send."""
        with suppress(IndexError):
            self.carrier.do(lambda: send(self.carrier.carried[0].socket))

    def tell(self, kind: str, rank: int, content: Any = None) -> None:
        self.send(host_messages.encode(Told(kind, rank, msgspec.Raw(host_messages.encode(content)))))

    def chunk(self, kind: str, rank: int, data: bytes) -> None:
        self.send(host_messages.encode(Chunk(kind, rank, data)))

    def finish(self, rank: int, result: bytes | None = None) -> None:
        """End a rank as an honest host does."""
        self.chunk("result", rank, packed(rank, plain=True) if result is None else result)
        self.tell("result", rank, Return())

    def hang_up(self) -> None:
        self.line.close()

    # ---- as a host ---------------------------------------------------------------------------------

    def _serve(self, first: bytes | None) -> None:
        self.send(host_messages.encode(hello()) if first is None else first)
        try:
            while not self.line.closed:
                if self.line.poll(0.2):
                    self._obey(self.line.receive())
        except OSError as error:
            self.said = self.said or str(error)

    def _obey(self, data: bytes) -> None:
        if not data.startswith(b"\x80"):
            self.said = data.decode()
            return
        command, *arguments = pickle.loads(data)
        if command == "start" and self.attack is not None:
            self.attack(self, arguments[0])
        elif command in host_messages.ANSWER_TYPES and command not in self.mute:
            answer = self.answers[command] if command in self.answers else _honest(command, arguments)
            self.send(host_messages.encode(Answered(command, msgspec.Raw(host_messages.encode(answer)))))
        if command == "end":
            self.run_ended.set()


def _honest(command: str, arguments: list) -> Any:
    if command == "facts":
        return HostFacts(name=NAME, address=ADDRESS, cores=2)
    if command == "echo":
        return time.monotonic()
    if command == "seen_last":
        return Standing(rank=arguments[0], answered=False)
    return {"open_store": 9, "listen": 9, "keep_addresses": [], "reach": ""}.get(command)
