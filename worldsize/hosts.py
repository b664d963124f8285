"""Ranks on other machines: open hosts, and every later launch of this notebook runs there, unedited.

    from worldsize import hosts

    hosts.open(hosts.Ssh(["n1", "n2"]))
    launch(train, 8)            # "8 ranks · gloo on CPU · … · 2 hosts (n1, n2)"
    hosts.close()

Hosts belong to this notebook's kernel and end with it. The notebook's user runs code on every host.
Checks of exercises stay on this machine. `WORLDSIZE_HOSTS="ssh:n1,n2"`, or "slurm:nodes=2,partition=gpu", opens hosts at the
first launch of an unedited notebook. `engines/remote` has the implementation.
"""

from collections.abc import Sequence

from worldsize.engines import current_engine
from worldsize.engines.remote.ways.dask import Dask
from worldsize.engines.remote.ways.from_text import IDLE_MIN
from worldsize.engines.remote.ways.opening import open_hosts
from worldsize.engines.remote.ways.programs import Programs, Ssh
from worldsize.engines.remote.ways.slurm import Slurm
from worldsize.engines.remote.ways.way import NoHosts, Way

__all__ = ["Dask", "NoHosts", "Programs", "Slurm", "Ssh", "close", "names", "open"]


def open(  # noqa: A001 - hosts.open, as webbrowser.open
    way: Way,
    *,
    env: Sequence[str] = (),
    trusted_network: bool = False,
    timeout_s: float = 600.0,
    idle_min: float = IDLE_MIN,
) -> None:
    """Open the hosts of `way` and let every later launch of this kernel run on them; returns when all have joined.

    `env`: names of this notebook's environment variables that go along to the ranks; all others stay here.
    `trusted_network`: True lets TensorFlow's tasks run on several hosts, where anyone who reaches their ports can run code.
    `timeout_s`: time to wait for the hosts, including a queue. `idle_min`: after so many minutes without a launch the hosts
    close, and the next launch says so; math.inf keeps them. Raises NoHosts, which says what to do, and ValueError for an invalid
    argument.
    """
    if isinstance(env, str) or not all(isinstance(name, str) for name in env):
        raise ValueError(f'hosts.open: expected env as a list of names, such as ["HF_HOME"], got {env!r}')
    if not callable(getattr(way, "begin", None)):
        raise ValueError(f'hosts.open: expected a way to hosts, such as Ssh(["n1", "n2"]), got {way!r}')
    for name, value in (("timeout_s", timeout_s), ("idle_min", idle_min)):
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
            raise ValueError(f"hosts.open: expected {name} as a number above 0, got {value!r}")

    current_engine.close()
    current_engine.use(open_hosts(way, env, trusted_network, timeout_s, idle_min))


def close() -> None:
    """End the agents on all hosts; later launches run on this machine. Does nothing if no host is open."""
    current_engine.close()


def names() -> tuple[str, ...]:
    """Return the names of the open hosts; () if launches run on this machine."""
    opened = current_engine.opened_hosts()
    if opened is None:
        return ()
    opened.engine.note_changes()
    return tuple(opened.engine.hosts)
