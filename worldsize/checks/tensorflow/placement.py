"""Check of placing variables on parameter servers by bytes: sizes go in, server numbers come out.

The rule is greedy, since TensorFlow asks a `ps_strategy` about one variable at a time: each variable goes to a server
that holds the fewest bytes at that moment, any of several equal ones. Variables cut into parts are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from worldsize.arrays import plain
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import are_whole, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

EACH = "a server for each variable, in their order"
LIGHTEST = "the one that holds the fewest bytes"


@exercise({EACH: 0.5, LIGHTEST: 1.0})
def place_variables(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check the placement of TensorFlow's variables on parameter servers: the least loaded server takes the next.

    `place_variables(sizes_bytes, servers)` returns a list of server numbers.
    """
    generator = np.random.default_rng(arena.draws.getrandbits(32))
    fixed = [([40, 8, 8, 8, 8], 2), ([400, 4, 900, 4, 100, 4], 2), ([8, 8, 8, 64, 8, 8], 3), ([5, 7], 4), ([9, 3], 1)]
    fixed.append(([3 * 10**9, 2 * 10**9, 10**9, 10**9 + 1, 5, 7], 2))  # more bytes than 32 bits count
    fixed.append(([2**30, 2**30, 40, 7, 9, 2], 2))  # float32 loses what comes after the first two
    drawn = []
    for fewest, servers in ((7, 2), (12, 3), (16, 4)):
        length = generator.integers(fewest, fewest + 8)
        drawn.append((generator.choice(5000, length, replace=False).tolist(), servers))

    cases = []
    for sizes, servers in fixed + drawn:
        run = partial(arena.call, fn, list(sizes), servers)
        examine = partial(_examine, sizes=sizes, servers=servers)
        cases.append(Case(f"sizes {sizes}, {count(servers, 'server')}", run, examine))
    return cases


def _examine(ended: ArenaResult, sizes: Sequence[int], servers: int) -> dict[str, Complaint]:
    (got,) = ended.returned
    complaint = _no_servers(got, sizes, servers)
    if complaint:
        return {EACH: complaint, LIGHTEST: UNEXAMINED}
    spoilt = changed(ended.inputs[0], list(sizes), "sizes_bytes")
    return {EACH: spoilt, LIGHTEST: _wrong_choice(list(map(int, got)), sizes, servers)}


def _no_servers(got: Any, sizes: Sequence[int], servers: int) -> Complaint:
    if isinstance(got, np.ndarray):
        got = plain(got.tolist())
    if not isinstance(got, tuple) or not are_whole(*got):
        return f"expected a list of server numbers, got {shown(got)}"

    if len(got) != len(sizes):
        complaint = f"expected {len(sizes)} numbers, one for each variable, got {len(got)}"
        if len(got) == servers:
            complaint += ": are these the servers' loads? Return a server number for each variable"
        return complaint

    for server in got:
        if not 0 <= server < servers:
            first = " The first server is number 0" if min(got) >= 1 else ""
            return f"expected servers from 0 to {servers - 1}, got {server}.{first}".rstrip(".")

    return None


def _wrong_choice(got: list[int], sizes: Sequence[int], servers: int) -> Complaint:
    held = [0] * servers
    for k, (server, size) in enumerate(zip(got, sizes, strict=True)):
        if held[server] > min(held):
            complaint = f"variable {k} ({size} bytes) went to server {server}; the servers held {held} bytes then"
            return f"{complaint}, so {held.index(min(held))} has the fewest. {_mistake(got, sizes, servers)}".rstrip()
        held[server] += size

    return None


def _mistake(got: list[int], sizes: Sequence[int], servers: int) -> str:
    variables = len(sizes)
    if got == [k % servers for k in range(variables)]:
        return "This is round robin: it counts variables, not bytes."
    if len(set(got)) == 1:
        return "All went to one server: add each variable's bytes to its server's load."
    if got == _fewest_variables(sizes, servers):
        return "The number of variables decided, and their bytes only broke ties."
    if got == _by_loads(sizes, servers, lambda load, size, k: float(np.float32(load) + np.float32(size))):
        return "The loads are float32, which holds 24 bits of a number: add up whole numbers."
    if got == _by_loads(sizes, servers, lambda load, size, k: size):
        return "A server's load is the sum of all its variables' bytes, not those of the last one."
    if got == _by_loads(sizes, servers, lambda load, size, k: load + size * (k > 0)):
        return "The first variable's bytes were not added to its server's load."
    if got == [k * servers // variables for k in range(variables)]:
        return "The variables were cut into equal blocks: look at their bytes."

    held, largest_first = [0] * servers, [0] * variables
    for k in sorted(range(variables), key=lambda k: -sizes[k]):
        largest_first[k] = held.index(min(held))
        held[largest_first[k]] += sizes[k]
    if got == largest_first:
        return "The largest were placed first: TensorFlow asks for one variable at a time, in the given order."
    if servers > 2 and max(got) == 1:
        return f"Only servers 0 and 1 were used, but there are {servers}."
    return ""


def _by_loads(sizes: Sequence[int], servers: int, added: Callable[[float, int, int], float]) -> list[int]:
    """Return the servers chosen by the least load, the first of equals; `added(load, size, k)` is a load with variable k."""
    loads: list[float] = [0] * servers
    chosen = []
    for k, size in enumerate(sizes):
        server = loads.index(min(loads))
        loads[server] = added(loads[server], size, k)
        chosen.append(server)
    return chosen


def _fewest_variables(sizes: Sequence[int], servers: int) -> list[int]:
    counts, held, chosen = [0] * servers, [0] * servers, []
    for size in sizes:
        server = min(range(servers), key=lambda k: (counts[k], held[k]))
        chosen.append(server)
        counts[server] += 1
        held[server] += size
    return chosen
