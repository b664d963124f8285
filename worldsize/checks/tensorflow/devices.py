"""Checks of lab 08 that are about devices: which are not there, and a sum that meets in a tree.

Both run in one process with logical CPUs. The truth about devices is what TensorFlow lists there. What a sum moves is
read from the traced graph: a tensor that an operation on another device takes is sent there, once.
The tree is the binomial one of Thakur, Rabenseifner and Gropp (IJHPCA 19, 2005).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.judge import Case, judge
from worldsize.checks.kit.values import close, has_keys, shown
from worldsize.checks.verdict import Complaint, Verdict
from worldsize.errors import NotYet
from worldsize.units import count

MISSING = {"devices that are there, and GPUs that are not": 0.5, "numbers that are too large, other spellings": 0.5}
PLAIN_CASES = 3
TREE = {
    "every device gets the sum": 0.5,
    "no device takes in or gives out more than ⌈log₂ n⌉ copies": 0.5,
    "at most 2⌈log₂ n⌉ moves one after the other": 0.5,
}
FAR = 60  # an index that no machine's GPUs reach
SIZES = (2, 3, 4, 1, 5, 6, 8)
MEAN = 1e-3  # of a sum: float32 holds eight powers of ten to 7 digits, and other mistakes are far from it


# ---- missing devices -------------------------------------------------------------------------


def missing_devices(arena: Arena, fn: Callable) -> Verdict:
    """Check of asking TensorFlow for its devices.

    `missing_devices(devices)` returns those names that this process has no device for, as they are spelled there.
    """
    n = 2 + arena.draws.randrange(3)
    cases = [
        ["CPU:0", f"CPU:{n - 1}"],
        ["CPU:0", f"GPU:{FAR}"],
        [f"GPU:{FAR + 1}", "CPU:1", f"GPU:{FAR}"],
        [f"CPU:{n}", "CPU:1", f"CPU:{n + 3}"],
        ["/device:CPU:1", f"/gpu:{FAR}", "/cpu:0", f"/device:GPU:{FAR + 2}"],
    ]

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        there, *answers = ended.returned[0]
        plain, odd = MISSING
        found: dict[str, Complaint] = {plain: None, odd: None}

        for k, (asked, got) in enumerate(zip(cases, answers, strict=True)):
            held = plain if k < PLAIN_CASES else odd
            complaint = _wrong_names(asked, got, set(there))
            if complaint and not found[held]:
                found[held] = f"missing_devices({asked}): {complaint}"

        return found

    run = Case(
        f"{n} logical CPUs",
        lambda: arena.tensorflow(fn, [cases], logical_devices=n, driver=answers_and_devices),
        examine,
    )
    return judge("missing_devices", MISSING, [run])


def answers_and_devices(fn: Callable, cases: list[list[str]]) -> list[Any]:
    """The names of the devices that there are, then the answer to each case; an error as {"raised": message}."""
    import tensorflow as tf

    there = [logical.name.rpartition("device:")[2] for logical in tf.config.list_logical_devices()]
    return [there, *(answer(fn, list(case)) for case in cases)]


def answer(fn: Callable, case: list[str]) -> Any:
    try:
        return fn(case)
    except NotYet:
        raise
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {str(error)[:200]}"}


def _wrong_names(asked: list[str], got: Any, there: set[str]) -> Complaint:
    expected = [name for name in asked if _plain(name) not in there]
    if has_keys(got, "raised"):
        return f"expected {expected}, got {got['raised']}"
    if not isinstance(got, tuple) or not all(isinstance(name, str) for name in got):
        return f"expected a list of names, {expected}, got {shown(got)}"

    if list(got) == expected:
        return None
    return _called_missing(asked, got, there) or _not_noticed(expected, got)


def _called_missing(asked: list[str], got: tuple[str, ...], there: set[str]) -> Complaint:
    wrong = [name for name in got if name in asked and _plain(name) in there]
    if not wrong:
        return None

    name, plain = wrong[0], _plain(wrong[0])
    if name != plain:
        why = f"It is another spelling of {plain}: compare kinds and numbers, as tf.DeviceSpec reads them."
    else:
        why = "The machine has one physical CPU; ask for logical devices, or make a variable and look at its .device."

    return f"{name} is there, and you call it missing. {why}"


def _not_noticed(expected: list[str], got: tuple[str, ...]) -> str:
    missed = [name for name in expected if name not in got]
    if missed:
        return (
            f"expected {expected}, got {list(got)}: {missed[0]} is not there. TensorFlow puts what it cannot put there on "
            f"CPU:0 and says nothing, and num_replicas_in_sync counts it all the same: look at where a variable really is, "
            f"for each device."
        )
    return f"expected {expected}, spelled and in the order as in the list, got {list(got)}"


def _plain(name: str) -> str:
    """'/device:cpu:1' -> 'CPU:1'."""
    found = re.search(r"(\w+):(\d+)$", name)
    if found is None:
        return name
    return f"{found[1].upper()}:{found[2]}"


# ---- a sum that meets in a tree --------------------------------------------------------------


def tree_sum(arena: Arena, fn: Callable) -> Verdict:
    """Check of a sum over TensorFlow's devices in a tree.

    `tree_sum(copies, devices)` returns the sum of the copies, once for each device; copy k is on device k.
    """

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        for n, row in zip(SIZES, ended.returned[0], strict=True):
            found = _wrong_tree(n, row)
            if any(found.values()):
                return {held: f"{count(n, 'device')}: {said}" if said else None for held, said in found.items()}
        return dict.fromkeys(TREE)

    run = Case(
        "one sum", lambda: arena.tensorflow(fn, [list(SIZES)], logical_devices=max(SIZES), driver=traced_sums), examine
    )
    return judge("tree_sum", TREE, [run])


def traced_sums(fn: Callable, sizes: list[int]) -> list[dict[str, Any]]:
    """What sums over a tree of devices did, by their traced graphs: the sum on each, moves, and the longest way.

    For each n: "sums" by device, "moves" as (from, to) in the traced graph, "depth": the longest way of moves. Copy k is
    10**k in each of three elements, so that the digits of a sum tell whose copies are in it.
    """
    return [_traced_sum(fn, n) for n in sizes]


def _traced_sum(fn: Callable, n: int) -> dict[str, Any]:
    import tensorflow as tf

    names = [f"/job:localhost/replica:0/task:0/device:CPU:{k}" for k in range(n)]
    held, results = [], []
    for k, name in enumerate(names):
        with tf.device(name):
            held.append(tf.Variable(tf.fill([3], 10.0**k)))
            results.append(tf.Variable(tf.zeros([3])))

    said = {}

    @tf.function(autograph=False)
    def step():
        copies = []
        for name, variable in zip(names, held, strict=True):
            with tf.device(name):
                copies.append(variable.read_value())

        sums = fn(copies, list(names))
        if not isinstance(sums, (list, tuple)):
            said["kind"] = f"a {type(sums).__name__}"
            return
        if len(sums) != n:
            said["kind"] = f"{len(sums)} of them"
            return

        for name, variable, value in zip(names, results, sums, strict=True):
            with tf.device(name):
                variable.assign(value)

    traced = step.get_concrete_function()
    if said:
        return said

    step()
    moves, depth = _moves(traced.graph)
    return {"sums": [variable.numpy() for variable in results], "moves": moves, "depth": depth}


def _moves(graph: Any) -> tuple[list[tuple[int, int]], int]:
    """(from, to) for each tensor that goes to another device, once for each; and the longest chain of them.

    What nobody uses is not run, so it does not count.
    """
    moves, depths = {}, {}
    used = _used(graph)
    for op in graph.get_operations():  # inputs come first
        if op.name not in used:
            continue

        here = _number(op.device)
        depths[op.name] = 0
        for tensor in op.inputs:
            there = _number(tensor.op.device)
            away = there != here and tensor.op.type != "Const" and tensor.dtype.name != "resource"
            depths[op.name] = max(depths[op.name], depths[tensor.op.name] + away)
            if away:
                moves[tensor.name, here] = (there, here)

    return list(moves.values()), max(depths.values(), default=0)


def _used(graph: Any) -> set[str]:
    """The names of the operations that something is assigned from, directly or not."""
    waiting = [op for op in graph.get_operations() if op.type == "AssignVariableOp"]
    found: set[str] = set()
    while waiting:
        op = waiting.pop()
        if op.name not in found:
            found.add(op.name)
            waiting += [tensor.op for tensor in op.inputs]

    return found


def _number(device: str) -> int:
    """The device's number; TensorFlow puts an operation with no device on CPU:0."""
    found = re.search(r":(\d+)$", device)
    return int(found[1]) if found else 0


def _wrong_tree(n: int, row: dict[str, Any]) -> dict[str, Complaint]:
    """Words for each property of TREE; a pattern counts where the sums are right."""
    if "kind" in row:
        return dict.fromkeys(TREE, f"expected a list of {n} sums, one for each device, got {row['kind']}")

    wrong = _wrong_sums(n, row["sums"])
    if wrong:
        return dict.fromkeys(TREE, wrong)

    sums, load, depth = TREE
    rounds = (n - 1).bit_length()
    return {sums: None, load: _wrong_load(n, row["moves"], rounds), depth: _wrong_depth(row["depth"], rounds)}


def _wrong_sums(n: int, sums: tuple[np.ndarray, ...]) -> Complaint:
    expected = sum(10**k for k in range(n))
    for k, got in enumerate(sums):
        value = float(got[0])
        if value == expected:
            continue

        complaint = f"copy k is 10^k, and device {k} holds {value:g}; expected {expected:g}. "
        if close(value * n, expected, MEAN):
            return complaint + "That is the mean: add up, and do not divide."
        if not np.isfinite(value) or value < 0 or value >= 10**n or value != int(value):
            return complaint
        return complaint + _miscounted(f"{int(value):0{n}d}"[::-1])

    return None


def _miscounted(digits: str) -> str:
    """By the digits of a sum, whose copy is in it several times, or not at all."""
    for device, digit in enumerate(digits):
        if digit not in "01":
            return f"The copy of device {device} is in it {digit} times."

    lacks = [str(device) for device, digit in enumerate(digits) if digit == "0"]
    return f"The copy of device {', '.join(lacks)} is not in it."


def _wrong_load(n: int, moves: list[tuple[int, int]], rounds: int) -> Complaint:
    for end, what in ((1, "takes in"), (0, "gives out")):
        counts = np.bincount([move[end] for move in moves], minlength=n)
        busiest = int(np.argmax(counts))
        if counts[busiest] > rounds:
            return (
                f"the sums are right, but device {busiest} {what} {counts[busiest]} copies, at most {rounds} in a tree. "
                f"Let pairs of devices meet, each `with tf.device(…)` of its own, and then pairs of pairs."
            )

    return None


def _wrong_depth(depth: int, rounds: int) -> Complaint:
    if depth <= 2 * rounds:
        return None
    return (
        f"the sums are right, but {depth} moves wait for each other, at most {2 * rounds} in a tree ({rounds} up, {rounds} "
        f"down): is it a chain?"
    )
