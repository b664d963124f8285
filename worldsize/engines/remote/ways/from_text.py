"""Hosts as one line of text, for notebooks that are not edited: WORLDSIZE_HOSTS="slurm:nodes=2,partition=gpu".

    ssh:n1,me@n2[,python=…]
    slurm:nodes=2[,gpus_per_node=8][,timeout_min=60][,partition=…][,any parameter of submitit's for Slurm]

Either may end in arguments of `hosts.open`: env=A+B, trusted_network=1, timeout_s=600, idle_min=30. Dask, which needs a
client, and values that contain a comma have no text form.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from worldsize.engines.remote.ways.programs import Ssh
from worldsize.engines.remote.ways.slurm import Slurm
from worldsize.engines.remote.ways.way import Way

VARIABLE = "WORLDSIZE_HOSTS"
IDLE_MIN = 30.0
_EXAMPLES = '"ssh:n1,n2" or "slurm:nodes=2,partition=gpu"'


@dataclass(frozen=True)
class Wanted:
    """The request in a line of text: a way, and the other arguments of `hosts.open`."""

    way: Way
    env: tuple[str, ...] = ()
    trusted_network: bool = False
    timeout_s: float = 600.0
    idle_min: float = IDLE_MIN


def hosts_from_text(text: str) -> Wanted:
    """Parse the text of `WORLDSIZE_HOSTS`. Raises ValueError, which names the variable, the part, and what was expected."""
    kind, colon, rest = text.strip().partition(":")
    if not colon or kind not in _WAYS:
        raise ValueError(f"{VARIABLE}: expected {_EXAMPLES}, got {text!r}")

    words: list[str] = []
    given: dict[str, str] = {}
    for part in rest.split(","):
        name, equals, value = map(str.strip, part.partition("="))
        if not name or (equals and not value):
            raise _wrong(text, part, "a part such as nodes=2, or a host")
        if name in given or (not equals and name in words):
            raise _wrong(text, part, f"{name} once")
        if equals:
            given[name] = value
        else:
            words.append(name)

    beside: dict[str, Any] = {}
    for name, read in _BESIDE.items():
        if name in given:
            beside[name] = _read(text, name, given.pop(name), read)

    try:
        return Wanted(_WAYS[kind](text, words, given), **beside)
    except ValueError as error:
        raise error if str(error).startswith(VARIABLE) else ValueError(f"{VARIABLE}={text!r}: {error}") from None


def _ssh(text: str, words: list[str], given: dict[str, str]) -> Way:
    for name, value in given.items():
        if name != "python":
            raise _wrong(text, f"{name}={value}", f"hosts, python=…, or one of {', '.join(_BESIDE)}")
    return Ssh(words, **given)


def _slurm(text: str, words: list[str], given: dict[str, str]) -> Way:
    if words:
        raise _wrong(text, words[0], "name=value, such as nodes=2")

    parameters: dict[str, Any] = {}
    for name, value in given.items():
        if name in _SLURM:
            parameters[name] = _read(text, name, value, _SLURM[name])
        elif name in _SHORT:
            parameters[f"slurm_{name}"] = value
        elif name.startswith("slurm_"):
            parameters[name] = int(value) if re.fullmatch(r"[0-9]+", value) else value
        else:
            known = ", ".join([*_SLURM, *_SHORT, *_BESIDE])
            raise _wrong(text, f"{name}={value}", f"one of {known}, or a parameter of submitit's, such as slurm_mem")
    return Slurm(**parameters)


def _wrong(text: str, part: str, expected: str) -> ValueError:
    return ValueError(f"{VARIABLE}={text!r}: at {part.strip()!r}: expected {expected}")


def _whole(value: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]*", value):
        raise ValueError("a whole number of at least 1")
    return int(value)


def _number(value: str) -> float:
    number = float(value) if re.fullmatch(r"[0-9]*\.?[0-9]+|inf", value) else 0.0
    if number <= 0:
        raise ValueError("a number above 0")
    return number


def _yes_or_no(value: str) -> bool:
    if value not in ("0", "1"):
        raise ValueError("0 or 1")
    return value == "1"


def _names(value: str) -> tuple[str, ...]:
    names = tuple(value.split("+"))
    if not all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in names):
        raise ValueError("names of environment variables, such as HF_HOME+MY_DATA")
    return names


def _ports(value: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", value)
    if found is None or not 0 < int(found[1]) <= int(found[2]) < 65536:
        raise ValueError("a first and a last port, such as 50000-50100")
    return int(found[1]), int(found[2])


def _read(text: str, name: str, value: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise _wrong(text, f"{name}={value}", str(error)) from None


_WAYS: dict[str, Callable[[str, list[str], dict[str, str]], Way]] = {"ssh": _ssh, "slurm": _slurm}
_BESIDE: dict[str, Callable[[str], Any]] = {
    "env": _names, "trusted_network": _yes_or_no, "timeout_s": _number, "idle_min": _number,
}  # fmt: skip
_SLURM: dict[str, Callable[[str], Any]] = {
    "nodes": _whole, "gpus_per_node": _whole, "cpus_per_task": _whole, "timeout_min": _whole, "mem_gb": _number,
    "name": str, "address": str, "ports": _ports, "folder": str,
}  # fmt: skip
_SHORT = ("partition", "account", "qos", "constraint", "nodelist", "exclude", "gres", "comment")
