"""What TensorFlow says of a graph that ran: which device held what, and which tensors went from device to device.

Read from the partitions that the runtime cut the graph into, with a `_Send` and a `_Recv` wherever an edge crosses
devices, and from the trace of a step; nothing is guessed from the source. Plain data comes out, to leave a process with.
Left out: drawing (`figures.placement_and_route`).
M. Abadi et al., "TensorFlow: a system for large-scale machine learning", OSDI 2016,
section 3.3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

_CROSSING = ("_Send", "_HostSend")
_SILENT = {*_CROSSING, "Const", "Identity", "NoOp", "Placeholder", "_Recv", "_HostRecv", "_Arg", "_Retval"}
_PART = re.compile(r"/(job|task|device):([^/]+)")


class Move(NamedTuple):
    """A tensor that went from one device to another in a step. `what` is its operation's name, or the variable's that was
    read; `at` orders the moves of the step."""

    src: str
    dst: str
    what: str
    size_bytes: int
    at: float

    @property
    def kind(self) -> str:
        """The first part of its name: "gradients" of "gradients_1/MatMul_grad/MatMul_1"."""
        return re.sub(r"_\d+$", "", self.what.split("/")[0])


def short(device: str) -> str:
    """Of TensorFlow graphs that ran: a device's name in short, such as "worker 1, CPU:2".

    "/job:worker/replica:0/task:1/device:CPU:2" gives that one; "" where no device is said.
    """
    parts = dict(_PART.findall(device))
    job = ""
    if parts.get("job", "localhost") != "localhost":
        job = f"{parts['job']} {parts.get('task', '(any)')}"
    return ", ".join(filter(None, [job, parts.get("device", "").replace("device:", "")]))


def placed(graphs: Iterable[Any], variables: Iterable[Any] = ()) -> dict[str, dict[str, dict[str, int]]]:
    """Read from TensorFlow graphs that ran: what each device held, variables with their bytes, operations by type.

    {device: {"variables": {name: bytes}, "operations": {type: count}}} from GraphDefs.

    `variables` are those that were made outside these graphs, as a `tf.function` uses them: TensorFlow's or
    Keras's. Operations that no device was asked for are left out.
    """
    from tensorflow import TensorShape, as_dtype

    found: dict[str, dict[str, dict[str, int]]] = {}

    def on(device: str) -> dict[str, dict[str, int]]:
        return found.setdefault(short(device), {"variables": {}, "operations": {}})

    for variable in variables:
        held = variable.value if hasattr(variable, "path") else variable
        name = "/".join(getattr(variable, "path", variable.name).split("/")[-2:])
        on(held.device)["variables"][name] = math.prod(held.shape) * held.dtype.size

    for graph in graphs:
        for node in graph.node:
            if node.op == "VarHandleOp":
                shape = TensorShape(node.attr["shape"].shape)
                on(node.device)["variables"][node.name] = math.prod(shape) * as_dtype(node.attr["dtype"].type).size
            elif node.op not in _SILENT and short(node.device):
                counts = on(node.device)["operations"]
                kind = re.sub("^_Mkl(Native)?", "", node.op)
                counts[kind] = counts.get(kind, 0) + 1

    return dict(sorted(found.items(), key=lambda row: order(row[0])))


def moves(metadata: Any, graph: Any) -> list[Move]:
    """Read from the graphs of a TensorFlow session's run: the tensors that went from device to device, in order.

    `metadata` is the step's RunMetadata, with trace and partition graphs.
    """
    made = _made(metadata.step_stats)
    found = []

    for part in metadata.partition_graphs:
        read = {node.name: node.input[0] for node in part.node if node.op == "ReadVariableOp"}
        for node in part.node:
            if node.op not in _CROSSING or node.attr["send_device"].s == node.attr["recv_device"].s:
                continue

            name, _, slot = node.input[0].partition(":")
            sizes, at = made.get(name, ({}, 0.0))
            fed = re.fullmatch(r"_recv_(.+)_(\d+)", name)  # what a client feeds comes in under such a name
            if fed:
                what, size_bytes = fed[1], _size(graph, fed[1], int(fed[2]))
            else:
                what, size_bytes = read.get(name, name), sizes.get(int(slot or 0), 0)

            src = short(node.attr["send_device"].s.decode())
            dst = short(node.attr["recv_device"].s.decode())
            found.append(Move(src=src, dst=dst, what=what, size_bytes=size_bytes, at=at))

    return sorted(found, key=lambda move: move.at)


def _made(stats: Any) -> dict[str, tuple[dict[int, int], float]]:
    """{operation: ({output: bytes}, when it ended)} of a step."""
    from tensorflow import as_dtype

    found = {}
    for device in stats.dev_stats:
        for node in device.node_stats:
            sizes = {}
            for output in node.output:
                tensor = output.tensor_description
                numbers = math.prod(dim.size for dim in tensor.shape.dim)
                sizes[output.slot] = numbers * as_dtype(tensor.dtype).size if tensor.dtype else 0
            found[node.node_name] = (sizes, node.all_start_micros + node.all_end_rel_micros)

    return found


def _size(graph: Any, name: str, slot: int) -> int:
    """The bytes of a tensor of known shape."""
    tensor = graph.get_tensor_by_name(f"{name}:{slot}")
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size


def order(device: str) -> tuple[bool, str]:
    """For graphs that TensorFlow ran, the sort key of devices: parameter servers and the chief first."""
    return (not device.startswith(("ps", "chief")), device)
