"""A way to hosts, the argument of `worldsize.hosts.open`: it gets an agent onto each of its machines.

The agents then speak over lines (`engines/hosts`).
"""

from __future__ import annotations

from typing import Protocol

from worldsize.engines.hosts.engine import HostsEngine


class NoHosts(RuntimeError):
    """The hosts did not come up; the message says where, what was expected and what to do."""


class Way(Protocol):
    """A way to hosts. Its texts are shown to a waiting person."""

    @property
    def count(self) -> int:
        """The number of hosts that will join."""

    def begin(self, engine: HostsEngine) -> None:
        """Start bringing up the hosts. Raises NoHosts, ValueError."""

    def label(self) -> str:
        """Return the name for runs' setup lines, such as "Slurm job 4711"; may be ""."""

    def standing(self) -> str:
        """Return what the way waits for now, such as "Slurm job 4711 is pending (Resources)"."""

    def hopeless(self) -> str:
        """Return why no more hosts will come, and what to do; "" while they may."""

    def close(self) -> None:
        """Release everything the way started, in any state."""
