"""Play all ranks of a case in one sandboxed process, in simulated time, and report how they ended.

Each rank has its own copy of the submission's cells, so ranks share names no more than separate processes do.
Everything runs beside the submission's code, so the grader takes the report as unproven text and arrays
(`outside.played_result`).
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from worldsize.checks.arena import ArenaResult, ByRank, Trial
from worldsize.checks.in_one_process import NotPlayable, play
from worldsize.grade.frames import decode
from worldsize.grade.inside import sandboxed_rank
from worldsize.links import Link
from worldsize.simulate.interleaving import Interleaving

_CLOCKS = ("sleep", "monotonic", "perf_counter")


def play_job(job: dict, blob: bytes) -> dict[str, Any]:
    """Play the case of a job of mode "play", and return its report as plain values."""
    try:
        result = play(_trial(job, blob), Interleaving(job["interleaving"]), job["limit_s"], own_variables=True)
    except NotPlayable as refused:
        return {"played": {"state": "not playable", "message": str(refused)}}
    return {"played": _told(result)}


def _trial(job: dict, blob: bytes) -> Trial:
    _, function, inputs, own, *shared = job["args"]
    own_by_place = decode(own, blob)

    functions: list[Callable] = []
    more: list[list[Any]] = []
    for rank in range(job["world_size"]):
        callable_of = _cells_of(job, rank)
        functions.append(decode(function, blob, callable_of))
        more.append([decode(value, blob, callable_of) for value in shared])
        for place, values in own_by_place.items():
            more[rank][place] = values[rank]

    works, driver = functions, sandboxed_rank.driver_of(job)
    if driver is not None:
        works = [partial(driver, function) for function in functions]
    return Trial(
        "ranks",
        functions[0],
        tuple(decode(inputs, blob)),
        tuple(map(ByRank, zip(*more, strict=True))),
        link=Link(*job["link"]) if job["link"] else None,
        played=dict(enumerate(works)),  # each rank's own cells define its function
    )


def _cells_of(job: dict, rank: int) -> Callable[[Any], Callable]:
    """Run the cells again, for this rank of a played case, and return the lookup of their functions by name."""
    sandboxed_rank.seed_rank(job["seed"], job["run"], rank)
    module, errors = sandboxed_rank.run_cells(job["cells"])

    # `from time import sleep` binds the real clock; look it up at each call, to find simulated time's
    late = {getattr(time, clock): lambda *given, clock=clock: getattr(time, clock)(*given) for clock in _CLOCKS}
    for name, value in list(vars(module).items()):
        if value.__class__ is time.sleep.__class__ and value in late:
            vars(module)[name] = late[value]
    return partial(sandboxed_rank.function_of, vars(module), errors=errors)


def _told(result: ArenaResult) -> dict[str, Any]:
    declared = [span for span in result.trace.spans if span.declared]
    return {
        "state": result.state,
        "message": result.message,
        "returned": result.returned,
        "inputs": result.inputs,
        "unwaited": result.unwaited,
        "waits": tuple((w.rank, w.op, w.peer, w.tag, w.peer_ended) for w in result.waits),
        "transfers": _columns(
            result.trace.transfers, ("src", "dst", "size_bytes", "tag"), ("start_s", "end_s", "recv_start_s")
        ),
        "work": _columns(declared, ("rank",), ("start_s", "end_s")),
    }


def _columns(rows: Sequence[Any], integers: Sequence[str], seconds: Sequence[str]) -> dict[str, np.ndarray]:
    """Return a column of a played case's rows for each of their fields."""
    columns = {}
    for name in (*integers, *seconds):
        columns[name] = np.array([getattr(row, name) for row in rows], np.int64 if name in integers else np.float64)
    return columns
