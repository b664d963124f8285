"""`simulate(fn, world_size)`: run a function over the fabric as simulated ranks, and return the whole run.

    run = simulate(ring_all_reduce, 1024, args=(torch.ones(1024),), link=Link("10 GB/s", "5 us"))
    run.simulated_s; run[2]; run.trace

`world.py` has turns and clocks, `process_state.py` the ranks' process state, `symmetry.py` ranks that stand for others.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from worldsize.engines.payload import Payload, first_parameter
from worldsize.launch.execute import check_arguments
from worldsize.launch.run import STUDENTS_LAUNCHES
from worldsize.links import Link, Nodes
from worldsize.simulate.simulated_run import SimulatedRun
from worldsize.simulate.simulation import MOST_MESSAGES, Setting, simulated

MOST_RANKS = 1_000_000

Stragglers = dict[int, float] | Callable[[np.random.Generator, int], Any] | None


def simulate(
    fn: Callable,
    world_size: int = 2,
    args: tuple = (),
    kwargs: dict[str, Any] | None = None,
    *,
    link: Link | None = None,
    nodes: Nodes | None = None,
    stragglers: Stragglers = None,
    failures_per_s: float = 0.0,
    seed: int = 0,
    timeout_s: float = 120.0,
    most_messages: int = MOST_MESSAGES,
) -> SimulatedRun:
    """Run `fn(fabric, *args, **kwargs)` on `world_size` simulated ranks of this process, and return the `SimulatedRun`.

    `link` is every rank's, or `nodes` describes the network. `stragglers` {rank: factor} makes a rank's declared work
    (`fabric.compute`) take that many times as long; or a function of (generator, world size) draws all factors. `failures_per_s`
    is a rank's failure rate. Draws depend on `seed` alone, so every run is the same. `timeout_s` is in real seconds.

    Up to `most_messages` are simulated one by one. Beyond that, if all ranks (or nodes) do the same, one of them stands for all
    others: such a run has times and no values, and its notes give the evidence of symmetry.

    Each rank gets a copy of `args`. Raises ValueError for a wrong argument, and `RankFailed`, `Deadlock` and `RunTimedOut` as
    `launch` does. A stub's `NotYet` does not raise: the run's state is "not yet".
    """
    check_arguments(fn, args, timeout_s, seed)
    _check(world_size, link, nodes)

    if not isinstance(most_messages, int) or not 1 <= most_messages <= 10**8:
        raise ValueError(f"simulate: expected most_messages from 1 to 100,000,000, got {most_messages!r}")
    if first_parameter(fn) != "fabric":
        raise ValueError(
            f"simulate: expected a function whose first parameter is named fabric, got {getattr(fn, '__name__', fn)}: "
            f"simulated ranks communicate through it alone"
        )

    generator = np.random.default_rng([seed, 17])
    slowness = _slowness(stragglers, generator, world_size)
    if not isinstance(failures_per_s, (int, float)) or isinstance(failures_per_s, bool) or not 0 <= failures_per_s < 1e9:
        raise ValueError(f"simulate: expected failures_per_s, a rank's rate, as 0 or more, got {failures_per_s!r}")
    dies_s = np.full(world_size, np.inf)  # the moment at which each rank fails
    if failures_per_s:
        dies_s = generator.exponential(1 / failures_per_s, world_size)

    setting = Setting(world_size, link, nodes, seed, timeout_s, slowness, dies_s, most_messages)
    return simulated(Payload(fn, tuple(args), dict(kwargs or {})), setting, STUDENTS_LAUNCHES)


def _check(world_size: Any, link: Any, nodes: Any) -> None:
    if not isinstance(world_size, int) or isinstance(world_size, bool) or not 1 <= world_size <= MOST_RANKS:
        raise ValueError(
            f"simulate: expected a world_size from 1 to {MOST_RANKS:,} (the number of ranks), got {world_size!r}. Each rank has "
            f"its own stack in this process; write for example simulate(ring, world_size=1000)."
        )
    if link is not None and not isinstance(link, Link):
        raise ValueError(f'simulate: expected link=Link("10 GB/s", "5 us") or None, got {link!r}')

    if nodes is None:
        return
    if not isinstance(nodes, Nodes):
        raise ValueError(f"simulate: expected nodes=Nodes(8, inside=Link(…), between=Link(…)) or None, got {nodes!r}")
    if link is not None:
        raise ValueError("simulate: expected link= or nodes=, got both. Nodes have a link inside and one between them.")
    if world_size % nodes.ranks:
        below = world_size // nodes.ranks * nodes.ranks
        nearest = f"{below + nodes.ranks}"
        if below:
            nearest = f"{below} or {nearest}"
        raise ValueError(
            f"simulate: expected a world_size that nodes of {nodes.ranks} ranks divide, got {world_size}. "
            f"Take {nearest}."
        )


def _slowness(stragglers: Stragglers, generator: np.random.Generator, n: int) -> np.ndarray:
    """Return each rank's factor on the time of declared work, [ranks]."""
    factors = np.ones(n)
    if callable(stragglers):
        factors = np.asarray(stragglers(generator, n), float)
    elif stragglers is not None:
        if not isinstance(stragglers, dict) or not all(isinstance(rank, int) and 0 <= rank < n for rank in stragglers):
            ranks = f"{{rank: factor}} with ranks from 0 to {n - 1}"
            raise ValueError(f"simulate: expected stragglers as {ranks}, got {stragglers!r}")
        for rank, factor in stragglers.items():
            factors[rank] = factor

    if factors.shape != (n,) or not (np.isfinite(factors) & (factors > 0)).all():
        raise ValueError(
            f"simulate: expected from stragglers a finite factor above 0 for each of {n} ranks, got other factors or another "
            f"number of them: shape {factors.shape}"
        )
    return factors
