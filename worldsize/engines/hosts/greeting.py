"""What a host and its head compare before any rank starts: Python, the frameworks, and this package to the byte.

Left out: who may join at all (`door.py`).
"""

from __future__ import annotations

import functools
import hashlib
import platform
from importlib import metadata
from pathlib import Path

import worldsize

_DISTRIBUTIONS = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow_intel"),
    "numpy": ("numpy",),
    "cloudpickle": ("cloudpickle",),
}


@functools.cache
def own_versions() -> dict[str, str]:
    """The versions of a host, for its greeting: {"python": "3.11", "torch": "2.13.0", …}; "none" where one is missing."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name, distributions in _DISTRIBUTIONS.items():
        found[name] = next(filter(None, map(_version, distributions)), "none")
    found["worldsize"] = f"{worldsize.__version__} ({_digest()})"
    return found


def _version(distribution: str) -> str:
    """Without what a build adds: "2.13.0+cpu" and "2.13.0+cu130" are one version of torch."""
    try:
        return metadata.version(distribution).partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def _digest() -> str:
    """Of the package's source, so that two of the same version number are told apart."""
    root = Path(worldsize.__file__).parent
    summed = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        summed.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return summed.hexdigest()[:12]


def differences(theirs: dict[str, str]) -> list[str]:
    """What a host has otherwise than this machine, in words: "torch 2.12.0 there, 2.13.0 here"."""
    rows = []
    for name, here in own_versions().items():
        there = theirs.get(name, "none")
        if there != here:
            rows.append(f"{name} {there} there, {here} here")
    return rows
