"""Transfers between devices in one step of a traced TensorFlow program, and the devices of its variables.

TensorFlow cuts a traced function into one graph per device, with a send and a receive where a tensor crosses.
`crossings` runs the function, takes the graphs that really ran, and returns each send with the bytes of its tensor. All graph
optimizers except pruning are off meanwhile, so that a tensor keeps the name and shape with which it was traced. Collective ops
are listed, but their messages are in no graph; `graphs.py` reads sessions. M. Abadi et al., "TensorFlow: a system for
large-scale machine learning", OSDI 2016, section 3.3.
"""

from collections.abc import Iterable, Iterator
from typing import Any

COLLECTIVES = ("CollectiveReduceV2", "CollectiveReduceV3", "NcclAllReduce")
SENDS = ("_Send", "_HostSend")
SCALAR_BYTES = 8
KINDS = {"ReadVariableOp": "weights", "Placeholder": "inputs"}  # by the type of the operation that made a tensor
RENAMING = (
    "layout_optimizer", "constant_folding", "shape_optimization", "remapping", "arithmetic_optimization",
    "dependency_optimization", "loop_optimization", "function_optimization", "scoped_allocator_optimization",
    "pin_to_host_optimization", "implementation_selector", "auto_mixed_precision",
)  # fmt: skip


def crossings(step: Any, args: tuple, variables: Iterable[Any] = ()) -> dict[str, Any]:
    """Run a traced TensorFlow step once, and return its transfers between devices and its variables' devices.

    `step(*args)` is a `tf.function` that has not run before. Batches must be of a fixed size. The result is plain data:
    {"holds": {device: bytes of `variables` there}, "sends": [{"src", "dst", "bytes", "kind"}], "collectives":
    {device: bytes}}. `kind` is "weights" for a variable that was read, "inputs" for an argument, "scalars" for at most 8 bytes,
    "gradients" for the rest.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context  # there is no public access to a run's own graphs

    tf.config.optimizer.set_experimental_options(dict.fromkeys(RENAMING, False))
    traced = step.get_concrete_function(*args).graph
    nodes: list[Any] = []
    context.enable_run_metadata()  # before the first run: graphs are kept when a function is prepared
    try:
        step(*args)
        for graph in context.export_run_metadata().partition_graphs:  # one per device; inputs' iterators may add theirs
            nodes += graph.node
    finally:
        context.disable_run_metadata()

    names = {op.name: op for op in traced.get_operations()}
    return {"holds": held(variables), "sends": list(_sends(nodes, names)), "collectives": _collectives(nodes, names)}


def held(variables: Iterable[Any]) -> dict[str, int]:
    """Return the bytes of variables on each device; every copy counts.

    {device: bytes}. TensorFlow's variables, a strategy's, or Keras's.
    """
    sizes: dict[str, int] = {}
    for variable in variables:
        inner = variable if hasattr(variable, "device") else variable.value
        for copy in getattr(inner, "values", (inner,)):
            name = device(copy.device)
            sizes[name] = sizes.get(name, 0) + copy.shape.num_elements() * copy.dtype.size

    return sizes


def device(name: str) -> str:
    """Return a crossing's device by its short name: '/job:localhost/replica:0/task:0/device:CPU:1' -> 'CPU:1'."""
    return name.rpartition("device:")[2]


def _sends(nodes: Iterable[Any], names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    seen = set()
    for node in nodes:
        if node.op not in SENDS:
            continue

        source, _, port = node.input[0].partition(":")
        src = device(node.attr["send_device"].s.decode())
        dst = device(node.attr["recv_device"].s.decode())
        key = src, dst, node.input[0]
        if source not in names or src == dst or key in seen:
            continue  # an iterator's own, a second listing, or a control dependency without a tensor

        seen.add(key)
        size = _bytes(names[source].outputs[int(port or 0)])
        kind = KINDS.get(names[source].type, "gradients") if size > SCALAR_BYTES else "scalars"
        yield {"src": src, "dst": dst, "bytes": size, "kind": kind}


def _collectives(nodes: Iterable[Any], names: dict[str, Any]) -> dict[str, int]:
    where: dict[str, str] = {}  # by name: an op may be listed twice
    for node in nodes:
        if node.op in COLLECTIVES and node.name in names:
            where[node.name] = device(node.device)

    found: dict[str, int] = {}
    for name, place in where.items():
        found[place] = found.get(place, 0) + _bytes(names[name].outputs[0])
    return found


def _bytes(tensor: Any) -> int:
    """Return the bytes of a traced tensor that crosses; 0 if it holds no numbers or its shape is unknown."""
    return (tensor.shape.num_elements() or 0) * max(0, tensor.dtype.size)
