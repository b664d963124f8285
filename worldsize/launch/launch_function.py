"""`launch(fn, world_size)`: run a function on real ranks, in fresh processes, and return everything that they did.

    run = launch(train, world_size=4)
    run[2]; run.log(2); run.trace; run.wall_s

The first failure is raised and explained, every launch has a time limit, and no process is left behind. Ranks have
torchrun's environment variables. `tf/` launches TensorFlow.
"""

from collections.abc import Callable
from typing import Any, get_args

from worldsize.engines.current_engine import current_engine, local_engine
from worldsize.engines.job import Device, Job
from worldsize.engines.payload import Payload
from worldsize.launch.execute import callers_state, check_arguments, execute
from worldsize.launch.run import STUDENTS_LAUNCHES, KernelLaunches, Run
from worldsize.links import Link, Nodes

_MAX_WORLD_SIZE = 256


def warm() -> None:
    """Start the agent in the background ahead of the first launch, and return at once."""
    local_engine("torch").warm()


def last_run() -> Run | None:
    """Return the latest launch's run, even if the launch raised: its logs and partial trace remain readable."""
    return STUDENTS_LAUNCHES.latest


def launch(
    fn: Callable,
    world_size: int = 2,
    args: tuple = (),
    kwargs: dict[str, Any] | None = None,
    *,
    link: Link | None = None,
    nodes: Nodes | None = None,
    timeout_s: float = 120.0,
    seed: int | None = None,
    device: Device = "auto",
    **unknown: Any,
) -> Run:
    """Run `fn(*args, **kwargs)` on `world_size` ranks, each a fresh process, and return the `Run`.

    A first parameter named `fabric` gets the rank's `Fabric`, which `link` shapes, or `nodes`, where every rank has a
    card of its own. `seed` replays random numbers.
    `timeout_s` limits the function, from the moment every rank has entered it.
    `device`: "auto" (one GPU a rank if there are enough, else the CPU), "cpu" or "cuda".
    Raises ValueError for a wrong argument or an argument that cannot be pickled, `RankFailed`, `Deadlock`, `RunTimedOut`,
    `EngineLost`, and `Interrupted`. A stub's `NotYet` does not raise: the run's state is "not yet".
    """
    for name in unknown:
        if name in ("cluster", "logical_devices", "servers", "legacy_keras", "env"):
            raise ValueError(
                f"launch: torch's launch takes no {name}. Use TensorFlow's launch: from worldsize.tf import Cluster, launch"
            )
        raise TypeError(f"launch() got an unexpected keyword argument {name!r}")

    check_arguments(fn, args, timeout_s, seed)
    check_run_arguments(world_size, link, device)
    if nodes is not None:
        _check_nodes(world_size, link, nodes)

    job = Job(world_size=world_size, timeout_s=timeout_s, device=device, link=nodes or link, **callers_state(seed))
    engine = current_engine("torch")
    return execute(engine, Payload(fn, tuple(args), dict(kwargs or {})), job, STUDENTS_LAUNCHES)


def quiet_launch(
    fn: Callable,
    world_size: int,
    args: tuple = (),
    link: Link | None = None,
    timeout_s: float = 120.0,
    device: Device = "auto",
) -> Run:
    """Launch a function for a check or a sheet: always on this machine, without observers, and without changing `last_run`."""
    check_arguments(fn, args, timeout_s, None)
    check_run_arguments(world_size, link, device)

    job = Job(world_size=world_size, timeout_s=timeout_s, device=device, link=link, **callers_state(None))
    return execute(local_engine("torch"), Payload(fn, tuple(args), {}), job, KernelLaunches())


def check_run_arguments(world_size: Any, link: Any, device: Any) -> None:
    """Raise ValueError for a world size, link or device that no launch takes."""
    if not isinstance(world_size, int) or isinstance(world_size, bool) or not 1 <= world_size <= _MAX_WORLD_SIZE:
        raise ValueError(
            f"launch: expected a world_size from 1 to {_MAX_WORLD_SIZE} (the number of ranks), got {world_size!r}. "
            f"Write for example launch(train, world_size=2)."
        )
    if link is not None and not isinstance(link, Link):
        raise ValueError(f'launch: expected link=Link("1 Gbit/s", "50 us") or None, got {link!r}')
    if device not in get_args(Device):
        raise ValueError(f'launch: expected device "auto", "cpu" or "cuda", got {device!r}')


def _check_nodes(world_size: int, link: Link | None, nodes: Any) -> None:
    """Raise ValueError for nodes that no launch takes: their cards' clocks would be shared by processes."""
    if not isinstance(nodes, Nodes):
        raise ValueError(f"launch: expected nodes=Nodes(2, inside=Link(…), between=Link(…), cards=2) or None, got {nodes!r}")
    if link is not None:
        raise ValueError("launch: expected link= or nodes=, got both. Nodes have a link inside and one between them.")
    if world_size % nodes.ranks:
        raise ValueError(f"launch: expected nodes whose {nodes.ranks} ranks divide a world size of {world_size}.")
    if nodes.cards != nodes.ranks:
        raise ValueError(
            f"launch: expected a card for each of a node's {nodes.ranks} ranks, got cards={nodes.cards}: real ranks share no "
            f"card. Write cards={nodes.ranks}; simulate shares cards."
        )
