"""Checks of a host before any rank starts: Python, the frameworks and this package must match the head's.

The package is compared byte for byte. `head_listener.py` decides who may join.
"""

import functools
import hashlib
import platform
from contextlib import suppress
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
    """Return this host's versions: {"python": "3.11", "torch": "2.13.0", …}; "none" for a missing one."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}

    for name, distributions in _DISTRIBUTIONS.items():
        versions[name] = "none"
        for distribution in distributions:
            with suppress(metadata.PackageNotFoundError):
                # without its build: "2.13.0+cpu" and "2.13.0+cu130" are one version of torch
                versions[name] = metadata.version(distribution).partition("+")[0]
                break

    # a digest of the source tells apart two copies with the same version number
    root = Path(worldsize.__file__).parent
    summed = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        summed.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    versions["worldsize"] = f"{worldsize.__version__} ({summed.hexdigest()[:12]})"
    return versions


def differences(theirs: dict[str, str]) -> list[str]:
    """Return how a host's versions differ from this machine's, such as ["torch 2.12.0 there, 2.13.0 here"]."""
    rows = []
    for name, here in own_versions().items():
        there = theirs.get(name, "none")
        if there != here:
            rows.append(f"{name} {there} there, {here} here")
    return rows
