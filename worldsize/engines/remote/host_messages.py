"""Messages between the head and a host: commands one way, news the other.

The kernel's user runs code on every host, so a host unpickles its head's commands. A host's messages are MessagePack, decoded
into the expected data classes and type-checked (msgspec); the kernel unpickles its ranks' results. `line.py` transports them.
"""

from collections import Counter
from typing import Any, Literal

import msgspec

from worldsize.engines.deadlock import Posts
from worldsize.engines.host import HostFacts, NewsKind, Silence
from worldsize.engines.job import Progress, Prompt
from worldsize.engines.ranks.rank_channel import Published, Request
from worldsize.failures import Failure, Return, Standing

Command = Literal[
    "warm", "facts", "payload", "begin", "open_store", "keep_addresses", "start", "use", "bring", "tell", "kill", "seen_last",
    "let_leave", "end", "listen", "reach", "echo", "also",
]  # fmt: skip
FileKind = Literal["log", "native_log", "result", "record", "shown"]
MAX_CHUNK_BYTES = 1_000_000

NEWS_TYPES: dict[NewsKind, Any] = {
    "hello": None,
    "entered": float,
    "progress": Progress,
    "blocked": int,
    "stalled": bool,
    "request": Request,
    "waits": Published | None,
    "posts": Posts | None,
    "where": Standing,
    "prompt": Prompt,
    "result": Return,
    "failure": Failure,
    "silent": Silence,
    "exited": int | None,
}
ANSWER_TYPES: dict[Command, Any] = {
    "warm": None,
    "facts": HostFacts,
    "open_store": int,
    "keep_addresses": list[str],
    "bring": None,
    "kill": None,
    "seen_last": Standing,
    "let_leave": None,
    "end": None,
    "listen": int,
    "reach": str,
    "echo": float,
    "also": None,
}


class BadMessage(ValueError):
    """The data is no message of a host, or not of the expected type."""


class FromHost(msgspec.Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    """A message from a host to its head."""


class Told(FromHost):
    """A host's message, news of one rank; `body` is encoded separately, because its type depends on `kind`."""

    kind: NewsKind
    rank: int
    body: msgspec.Raw


class Answered(FromHost):
    """A host's message, the answer to a command that has one; `error` if the command raised."""

    command: Command
    body: msgspec.Raw
    error: str = ""


class Chunk(FromHost):
    """A host's message, the next part of a rank's file, in order."""

    kind: FileKind
    rank: int
    data: bytes


class Greeting(FromHost):
    """A host's first message. `versions` has Python, the frameworks and this package, by name."""

    name: str
    user: str
    address: str
    cores: int
    versions: dict[str, str]
    pid: int


_decoder = msgspec.msgpack.Decoder(Told | Answered | Chunk | Greeting)


def encode(message: Any) -> bytes:
    """Return the bytes of a host's message, or of a part of it. Characters that UTF-8 cannot encode become "?"."""
    try:
        return msgspec.msgpack.encode(message)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(_writable(msgspec.to_builtins(message, builtin_types=(bytes,))))


def _writable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_writable(k): _writable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_writable(v) for v in value]
    return value


def decode(data: bytes) -> FromHost:
    """Return a host's message. Raises BadMessage."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadMessage(str(error)[:300]) from None


def body(data: msgspec.Raw | bytes, expected: Any) -> Any:
    """Return the content of a host's message as the expected type. Raises BadMessage."""
    try:
        return msgspec.msgpack.decode(data, type=expected, dec_hook=_counter)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadMessage(str(error)[:300]) from None


def _counter(expected: type, value: Any) -> Any:
    """Return the `Counter` of a rank's messages, by (peer, tag): msgspec's hook for a type it does not know."""
    if expected is not Counter:
        raise NotImplementedError(expected)
    return Counter(msgspec.convert(value, dict[tuple[int, int], int]))
