"""A way to hosts: what `worldsize.hosts.open` takes. Each gets an agent onto every one of its machines.

Left out: the line that the agents then speak over (`engines/hosts`).
"""

from __future__ import annotations

from typing import Protocol

from worldsize.engines.hosts.engine import HostsEngine


class NoHosts(RuntimeError):
    """The hosts did not come to be; the message says where, what was expected and what to do."""


class Way(Protocol):
    """What comes of the names in it is told in words: they are shown while a person waits."""

    @property
    def count(self) -> int:
        """How many hosts will come."""

    def begin(self, engine: HostsEngine) -> None:
        """Start what will bring the hosts. Raises NoHosts, ValueError."""

    def label(self) -> str:
        """How runs call it, such as "Slurm job 4711"; may be ""."""

    def standing(self) -> str:
        """What it waits for now, such as "Slurm job 4711 is pending (Resources)"."""

    def hopeless(self) -> str:
        """Why no more hosts will come, and what to do; "" while they may."""

    def close(self) -> None:
        """Give back what it started, whatever has become of it."""
