"""Run a student's functions among logical CPUs: their answers about device names, and the graphs of their sums.

A sum comes back as a graph, which `sums_and_moves` runs in a process where the student's function never ran.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from worldsize.arrays import gone_through
from worldsize.errors import NotYet

ELEMENTS = 3


def answers(fn: Callable, cases: Sequence[Sequence[str]]) -> list[Any]:
    """Return a student's answer to each case of devices, "got", and the list that it was given afterwards, "left"."""
    rows = []
    for case in cases:
        given = list(case)
        rows.append({"got": answer(lambda names: gone_through(fn(names)), given), "left": given})
    return rows


def answer(fn: Callable, case: Any) -> Any:
    """Return `fn(case)` for devices, or {"raised": message} for an error. Raises NotYet."""
    try:
        return fn(case)
    except NotYet:
        raise
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {str(error)[:200]}"}


def sum_graphs(fn: Callable, plans: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Return, for each (n, dtype), the traced graph of `fn` with n copies of that dtype, copy k on device k.

    "graph" is its bytes, "copies" and "sums" are names of its tensors; or "kind" describes what came in place of n sums.
    """
    graphs = []
    for n, dtype in plans:
        try:
            graphs.append(_sum_graph(fn, n, dtype))
        except Exception as error:
            error.add_note(f"(with {n} devices)")  # tells which plan failed
            raise
    return graphs


def _sum_graph(fn: Callable, n: int, dtype: str) -> dict[str, Any]:
    import tensorflow as tf

    names = [f"/job:localhost/replica:0/task:0/device:CPU:{k}" for k in range(n)]
    outcome: dict[str, Any] = {}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([ELEMENTS], dtype)] * n)
    def step(*given: Any) -> None:
        copies = []
        for name, x in zip(names, given, strict=True):
            with tf.device(name):
                copies.append(tf.identity(x))

        sums = fn(copies, list(names))
        if not isinstance(sums, (list, tuple)):
            outcome["kind"] = f"a {type(sums).__name__}"
            return
        if len(sums) != n:
            outcome["kind"] = f"{len(sums)} of them"
            return

        outcome["sums"] = []
        for name, value in zip(names, sums, strict=True):
            with tf.device(name):
                outcome["sums"].append(tf.identity(value).name)

    traced = step.get_concrete_function()
    if "kind" in outcome:
        return outcome

    graph = np.frombuffer(traced.graph.as_graph_def().SerializeToString(), "uint8")
    return {"graph": graph, "copies": [x.name for x in traced.inputs[:n]], "sums": outcome["sums"]}


def sums_and_moves(_: None, cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Run each graph on devices: "sums" for each of its feeds, "moves" as (from, to), and "depth", the longest chain of moves.

    A feed has a row for each copy. A graph that cannot run by itself gives only "raised", the reason.
    """
    rows = []
    for case in cases:
        try:
            rows.append(_run(case))
        except Exception as error:
            said = str(error).strip().partition("\n")[0]
            rows.append({"raised": f"{type(error).__name__}: {said[:200]}"})

    return rows


def _run(case: Mapping[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    definition = tf.compat.v1.GraphDef.FromString(case["graph"].tobytes())
    whole = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(definition, name=""), [])
    copies = list(map(whole.graph.get_tensor_by_name, case["copies"]))
    results = list(map(whole.graph.get_tensor_by_name, case["sums"]))

    run = whole.prune(copies, results)
    sums = [[x.numpy() for x in run(*map(tf.constant, feed))] for feed in case["feeds"]]
    moves, depth = _moves(whole.graph, copies, results)
    return {"sums": sums, "moves": moves, "depth": depth}


def _moves(graph: Any, copies: Sequence[Any], results: Sequence[Any]) -> tuple[list[tuple[int, int]], int]:
    """Return (from, to) for each tensor and device it moves to, and the length of the longest chain of moves.

    Operations that no result uses do not run, so they do not count; nor do constants and resources. Copy k comes from device k.
    """
    homes = {x.op.name: k for k, x in enumerate(copies)}
    used: set[str] = set()  # names of the operations that the results depend on, directly or not
    waiting = [tensor.op for tensor in results]
    while waiting:
        op = waiting.pop()
        if op.name not in used:
            used.add(op.name)
            waiting += [tensor.op for tensor in op.inputs]

    moves, depths = {}, {}
    for op in graph.get_operations():  # in topological order: inputs come first
        if op.name not in used:
            continue

        here = homes.get(op.name, _number(op.device))
        depths[op.name] = 0
        for tensor in op.inputs:
            there = homes.get(tensor.op.name, _number(tensor.op.device))
            away = there != here and tensor.op.type != "Const" and tensor.dtype.name != "resource"
            depths[op.name] = max(depths[op.name], depths[tensor.op.name] + away)
            if away:
                moves[tensor.name, here] = (there, here)

    for device, tensor in enumerate(results):  # result k belongs on device k
        there = _number(tensor.op.device)
        if there != device:
            moves[tensor.name, device] = (there, device)

    return list(moves.values()), max(depths.values(), default=0)


def _number(device: str) -> int:
    """Return the device's number; TensorFlow puts an operation without a device on CPU:0."""
    found = re.search(r":(\d+)$", device)
    return int(found[1]) if found else 0
