"""A way to hosts, the argument of `worldsize.hosts.open`: it gets an agent onto each of its machines.

The agents then speak over lines (`engines/remote`).
"""

from worldsize.engines.remote.engine import HostsEngine


class NoHosts(RuntimeError):
    """A way's hosts did not come up; the message says where, what was expected and what to do."""


class Way:
    """A way to `count` hosts. Its texts are shown to a waiting person."""

    count: int

    def begin(self, engine: HostsEngine) -> None:
        """Start bringing up the way's hosts. Raises NoHosts, ValueError."""
        raise NotImplementedError

    def label(self) -> str:
        """Return the way's name for runs' setup lines, such as "Slurm job 4711"; may be ""."""
        return ""

    def standing(self) -> str:
        """Return what the way waits for now, such as "Slurm job 4711 is pending (Resources)"."""
        raise NotImplementedError

    def hopeless(self) -> str:
        """Return why no more hosts will come this way, and what to do; "" while they may."""
        return ""

    def close(self) -> None:
        """Release everything the way started, in any state; nothing where hosts end with their lines."""
