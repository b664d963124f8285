"""A host that a test scripts: it joins by invitation, answers as any other, and plays a script where it is to start ranks.

It speaks the real protocol, in a thread of the test. What it is asked is unpickled here, since it comes from the test's own head.
"""

import pickle
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import cloudpickle
import msgspec

from worldsize.engines.host import HostFacts
from worldsize.engines.remote import host_checks, host_messages
from worldsize.engines.remote.engine import HostsEngine
from worldsize.engines.remote.head_listener import Invitation
from worldsize.engines.remote.head_orders import HostChange
from worldsize.engines.remote.host_messages import Answered, Chunk, Greeting, Told
from worldsize.engines.remote.host_program import join
from worldsize.engines.remote.line import LineClosed
from worldsize.failures import Return, Standing

NAME = "scripted"
ADDRESS = "127.0.0.1"
LIMIT_S = 60.0  # a bound against a hang
VALID_S = 600.0
Script = Callable[["ScriptedHost", int], None]  # gets the rank that it is to run


def hello(**words: Any) -> Greeting:
    """What a host says of itself, but for `words`."""
    own = {"name": NAME, "user": "u", "address": ADDRESS, "cores": 2, "versions": host_checks.own_versions(), "pid": 1}
    return Greeting(**{**own, **words})


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


class ScriptedHost:
    """`script` is called for each rank that it is to start; `answers` by command are given in place of its own."""

    def __init__(
        self, invitation: str, script: Script | None = None, first: bytes | None = None, answers: Mapping[str, Any] | None = None
    ) -> None:
        self.script = script
        self.answers = dict(answers or {})
        self.mute: set[str] = set()  # commands that it does not answer
        self.carrier, self.line = join(Invitation.read(invitation))
        self.said = ""  # by the head, or why the line ended
        self.run_ended = threading.Event()  # and that was answered
        self._thread = threading.Thread(target=self._serve, args=(first,), name="scripted-host", daemon=True)
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

    def finish(self, rank: int) -> None:
        """End a rank, whose result is its number."""
        self.chunk("result", rank, cloudpickle.dumps(rank))
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
        if command == "start" and self.script is not None:
            self.script(self, arguments[0])
        elif command in host_messages.ANSWER_TYPES and command not in self.mute:
            answer = self.answers[command] if command in self.answers else _own(command, arguments)
            self.send(host_messages.encode(Answered(command, msgspec.Raw(host_messages.encode(answer)))))
        if command == "end":
            self.run_ended.set()


def _own(command: str, arguments: list) -> Any:
    if command == "facts":
        return HostFacts(name=NAME, address=ADDRESS, cores=2)
    if command == "echo":
        return time.monotonic()
    if command == "seen_last":
        return Standing(rank=arguments[0], answered=False)
    return {"open_store": 9, "listen": 9, "keep_addresses": [], "reach": ""}.get(command)
