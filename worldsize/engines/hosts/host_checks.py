"""Checks of a host before any rank starts: Python, the frameworks and this package must match the head's.

The package is compared byte for byte. Text from a host is checked too, because it is shown. `head_listener.py` decides who may
join.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import platform
import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import worldsize
from worldsize.engines.host import HostFacts
from worldsize.engines.hosts.host_messages import Greeting

_DISTRIBUTIONS = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow_intel"),
    "numpy": ("numpy",),
    "cloudpickle": ("cloudpickle",),
}

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_MAX_CORES = 100_000
_MAX_GPUS = 1000


def check_words(hello: Greeting) -> None:
    """Check a greeting's name, user and address, which are shown and used in file names. Raises ValueError."""
    if not _NAME.fullmatch(hello.name):
        raise ValueError(f"expected the name of a host, got {hello.name[:80]!a}")
    if not (hello.user.isprintable() and 0 < len(hello.user) <= 64):
        raise ValueError(f"{hello.name}: expected the name of a user, got {hello.user[:80]!a}")

    _check_place(hello)
    for what, version in hello.versions.items():
        if not (what + version).isprintable() or max(len(what), len(version)) > 64:
            raise ValueError(f"{hello.name}: expected names and versions, got {what[:80]!a}: {version[:80]!a}")


def check_facts(facts: HostFacts) -> None:
    """Check that a host's facts are possible and printable. Raises ValueError."""
    _check_place(facts)
    for words in (facts.interface, *facts.gpus):
        if not (words.isprintable() and len(words) <= 128):
            raise ValueError(f"expected the name of a GPU or an interface, got {words[:80]!a}")
    if len(facts.gpus) > _MAX_GPUS:
        raise ValueError(f"expected at most {_MAX_GPUS} GPUs, got {len(facts.gpus)}")


def _check_place(said: Greeting | HostFacts) -> None:
    if not 0 < said.cores <= _MAX_CORES:
        raise ValueError(f"expected a number of cores, got {said.cores}")
    try:
        ipaddress.ip_address(said.address)
    except ValueError:
        raise ValueError(f"expected the address of a host, got {said.address[:80]!a}") from None


@functools.cache
def own_versions() -> dict[str, str]:
    """Return this host's versions: {"python": "3.11", "torch": "2.13.0", …}; "none" for a missing one."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}

    for name, distributions in _DISTRIBUTIONS.items():
        found[name] = "none"
        for distribution in distributions:
            with suppress(metadata.PackageNotFoundError):
                # without its build: "2.13.0+cpu" and "2.13.0+cu130" are one version of torch
                found[name] = metadata.version(distribution).partition("+")[0]
                break

    # a digest of the source tells apart two copies with the same version number
    root = Path(worldsize.__file__).parent
    summed = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        summed.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    found["worldsize"] = f"{worldsize.__version__} ({summed.hexdigest()[:12]})"
    return found


def differences(theirs: dict[str, str]) -> list[str]:
    """Return how a host's versions differ from this machine's, such as ["torch 2.12.0 there, 2.13.0 here"]."""
    rows = []
    for name, here in own_versions().items():
        there = theirs.get(name, "none")
        if there != here:
            rows.append(f"{name} {there} there, {here} here")
    return rows
