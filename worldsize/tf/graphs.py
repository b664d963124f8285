"""Placement and transfers in a TensorFlow graph that ran, as plain data for other processes.

The runtime cuts a graph into partitions with a `_Send` and a `_Recv` wherever an edge crosses devices. These partitions and the
trace of a step are read here; nothing is guessed from the source. M. Abadi et al., "TensorFlow: a system for large-scale machine
learning", OSDI 2016, section 3.3.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

_CROSSING = ("_Send", "_HostSend")
_SILENT = {*_CROSSING, "Const", "Identity", "NoOp", "Placeholder", "_Recv", "_HostRecv", "_Arg", "_Retval"}
_PART = re.compile(r"/(job|task|device):([^/]+)")


class Move(NamedTuple):
    """A graph's tensor that went from one device to another in a step. `what` names its operation, or the variable that was read;
    `at` orders the moves of the step."""

    src: str
    dst: str
    what: str
    size_bytes: int
    at: float

    @property
    def kind(self) -> str:
        """The first part of the name in the graph: "gradients" of "gradients_1/MatMul_grad/MatMul_1"."""
        return re.sub(r"_\d+$", "", self.what.split("/")[0])


def short(device: str) -> str:
    """Return the short name of a device in a graph, such as "worker 1, CPU:2".

    That is the result for "/job:worker/replica:0/task:1/device:CPU:2". Without a device the result is "".
    """
    parts = dict(_PART.findall(device))
    job = ""
    if parts.get("job", "localhost") != "localhost":
        job = f"{parts['job']} {parts.get('task', '(any)')}"
    return ", ".join(filter(None, [job, parts.get("device", "").replace("device:", "")]))


def placed(graphs: Iterable[Any], variables: Iterable[Any] = ()) -> dict[str, dict[str, dict[str, int]]]:
    """Return each device's variables with their bytes, and its operations by type, from graphs that ran.

    {device: {"variables": {name: bytes}, "operations": {type: count}}} from GraphDefs.
    `variables` are made outside these graphs, for a `tf.function` for instance: TensorFlow's or Keras's. Operations without a
    requested device are left out.
    """
    from tensorflow import TensorShape, as_dtype

    devices: dict[str, dict[str, dict[str, int]]] = {}

    def on(device: str) -> dict[str, dict[str, int]]:
        return devices.setdefault(short(device), {"variables": {}, "operations": {}})

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

    return dict(sorted(devices.items(), key=lambda row: order(row[0])))


def moves(metadata: Any, graph: Any) -> list[Move]:
    """Return the graph's tensors that went from device to device in a session's run, in order.

    `metadata` is the step's RunMetadata, with trace and partition graphs.
    """
    made = _made(metadata.step_stats)
    transfers = []

    for part in metadata.partition_graphs:
        read = {node.name: node.input[0] for node in part.node if node.op == "ReadVariableOp"}
        for node in part.node:
            if node.op not in _CROSSING or node.attr["send_device"].s == node.attr["recv_device"].s:
                continue

            name, _, slot = node.input[0].partition(":")
            sizes, at = made.get(name, ({}, 0.0))
            fed = re.fullmatch(r"_recv_(.+)_(\d+)", name)  # a tensor fed by a client arrives under such a name
            if fed:
                what, tensor = fed[1], graph.get_tensor_by_name(f"{fed[1]}:{fed[2]}")
                size_bytes = (tensor.shape.num_elements() or 0) * tensor.dtype.size  # 0 if its shape is unknown
            else:
                what, size_bytes = read.get(name, name), sizes.get(int(slot or 0), 0)

            src = short(node.attr["send_device"].s.decode())
            dst = short(node.attr["recv_device"].s.decode())
            transfers.append(Move(src=src, dst=dst, what=what, size_bytes=size_bytes, at=at))

    return sorted(transfers, key=lambda move: move.at)


def _made(stats: Any) -> dict[str, tuple[dict[int, int], float]]:
    """Return for a graph that ran {operation: ({output: bytes}, its end)} of a step."""
    from tensorflow import as_dtype

    outputs = {}
    for device in stats.dev_stats:
        for node in device.node_stats:
            sizes = {}
            for output in node.output:
                tensor = output.tensor_description
                numbers = math.prod(dim.size for dim in tensor.shape.dim)
                sizes[output.slot] = numbers * as_dtype(tensor.dtype).size if tensor.dtype else 0
            outputs[node.node_name] = (sizes, node.all_start_micros + node.all_end_rel_micros)

    return outputs


def order(device: str) -> tuple[bool, str]:
    """Return the sort key of a graph's device: parameter servers and the chief first."""
    return (not device.startswith(("ps", "chief")), device)
