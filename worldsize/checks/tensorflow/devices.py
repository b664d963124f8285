"""Checks of lab 08 on devices: which of a list are missing, and a sum that meets in a tree.

Both run in one process with as many logical CPUs as the check asks for, and no GPU. The answer of `tree_sum` is its
traced graph, which a process without the student's code runs on copies drawn later; a tensor is sent once to each other
device that takes it. The tree is the binomial one of Thakur, Rabenseifner and Gropp (IJHPCA 19, 2005).
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.devices import ELEMENTS, answers, sum_graphs, sums_and_moves
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, of_both
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import close, has_keys, same, shown
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

PLAIN = "devices that are there, and GPUs that are not"
ODD = "numbers that are too large, other spellings"
PLAIN_CASES = 4
SUMS = "every device gets the sum"
IN_A_TREE = "in a tree: at most ⌈log₂ n⌉ copies into or out of a device, 2⌈log₂ n⌉ moves in a row"
FAR = (60, 160)  # GPU indices that no machine has
SIZES = (2, 3, 4, 1, 5, 6, 8, 11)
IN_FLOAT32 = 8  # powers of ten that add up exactly in float32; more copies are float64
MEAN = 1e-3  # relative: float32 holds 7 of the sum's 8 digits, and other mistakes are far off


@exercise({PLAIN: 0.25, ODD: 0.75}, needs=needs.TENSORFLOW)
def missing_devices(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a query of TensorFlow's devices.

    `missing_devices(devices)` returns the names that this process has no device for, spelled as given.
    """
    n = 11 + arena.draws.randrange(3)  # two digits: a name's last character is not its number
    far = arena.draws.randrange(*FAR)
    cases = [
        ["CPU:0", f"CPU:{n - 1}"],
        ["CPU:0", f"GPU:{far}"],
        ["GPU:0", "CPU:0", "GPU:1"],
        [f"GPU:{far + 1}", "CPU:1", f"GPU:{far}"],
        [f"CPU:{n}", "CPU:1", f"CPU:{n + 10}", "CPU:10", "GPU:10"],
        ["/device:CPU:1", f"/gpu:{far}", "/cpu:0", f"/device:GPU:{far + 2}"],
        ["/device:CPU:10", f"/cpu:{n + 1}", "/cpu:9", f"/device:CPU:{n + 2}"],
        [f"GPU:{far + k}" for k in (5, 2, 7, 0, 3, 6, 1, 4)],  # so many that a set keeps their order once in 40,320 times
    ]

    there = {f"CPU:{k}" for k in range(n)}

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        complaints: dict[str, Complaint] = {PLAIN: None, ODD: None}

        for k, (asked, row) in enumerate(zip(cases, ended.returned[0], strict=True)):
            held = PLAIN if k < PLAIN_CASES else ODD
            complaint = _wrong_names(asked, row["got"], there)
            if complaint and not complaints[held]:
                complaints[held] = f"missing_devices({asked}): {complaint}"

        for asked, row in zip(cases, ended.returned[0], strict=True):
            spoilt = changed(row["left"], asked, "devices")
            complaints[PLAIN] = complaints[PLAIN] or (spoilt and f"missing_devices({asked}): {spoilt}")
        return complaints

    run = Case(
        f"{n} logical CPUs",
        lambda: arena.tensorflow(fn, [cases], logical_devices=n, driver=answers),
        examine,
    )
    return [run]


def _wrong_names(asked: list[str], got: Any, there: set[str]) -> Complaint:
    expected = [name for name in asked if _plain(name) not in there]
    if has_keys(got, "raised"):
        return f"expected {expected}, got {got['raised']}"
    if not isinstance(got, tuple) or not all(isinstance(name, str) for name in got):
        return f"expected a list of names, {expected}, got {shown(got)}"

    if list(got) == expected:
        return None

    for name in got:
        plain = _plain(name)
        if name not in asked or plain not in there:
            continue
        why = f"It is another spelling of {plain}: compare kinds and numbers, as tf.DeviceSpec reads them."
        if name == plain:
            why = (
                f"list_logical_devices spells it /device:{plain}, and list_physical_devices knows only one CPU. Make a variable "
                f"there and look at its .device, or compare names as tf.DeviceSpec reads them."
            )
        return f"{name} exists, but you call it missing. {why}"

    missed = [name for name in expected if name not in got]
    if missed and list(got) == expected[:1]:
        return f"expected {expected}, got the first of them alone: look at every name of the list."
    if missed and list(map(_plain, got)) != list(map(_plain, expected)):
        return (
            f"expected {expected}, got {list(got)}: {missed[0]} does not exist. TensorFlow silently uses CPU:0 "
            f"instead, and num_replicas_in_sync still counts the device: check for each device where a variable really "
            f"is."
        )
    return f"expected {expected}, spelled and ordered as in the list, got {list(got)}"


def _plain(name: str) -> str:
    """Return a TensorFlow device's kind and number: '/device:cpu:1' -> 'CPU:1'."""
    found = re.search(r"(\w+):(\d+)$", name)
    if found is None:
        return name
    return f"{found[1].upper()}:{found[2]}"


@exercise({SUMS: 0.5, IN_A_TREE: 1.0}, seen=dict.fromkeys((SUMS, IN_A_TREE), evidence.GRAPH), needs=needs.TENSORFLOW)
def tree_sum(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check a sum over TensorFlow's devices in a tree.

    `tree_sum(copies, devices)` returns the sum of the copies, once for each device; copy k is on device k.
    """

    drawn = np.random.default_rng(arena.draws.getrandbits(32)).integers(1, 2**20, (max(SIZES), ELEMENTS))
    powers = np.repeat(10.0 ** np.arange(max(SIZES))[:, None], ELEMENTS, axis=1)
    plans = [(n, "float32" if n <= IN_FLOAT32 else "float64") for n in SIZES]

    def run() -> ArenaResult:
        ended = arena.tensorflow(fn, [plans], logical_devices=max(SIZES), driver=sum_graphs)
        if ended.state != "done":
            return ended

        graphs = []
        for (n, dtype), row in zip(plans, ended.returned[0], strict=True):
            feeds = [powers[:n].astype(dtype), drawn[:n].astype(dtype)]
            graphs.append({**row, "feeds": feeds} if has_keys(row, "graph") else {})
        alone = arena.tensorflow(None, [graphs], logical_devices=max(SIZES), driver=sums_and_moves)
        return replace(alone, inputs=ended.returned)

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        complaints: dict[str, Complaint] = dict.fromkeys(tree_sum.points)
        for (n, dtype), traced, row in zip(plans, ended.inputs[0], ended.returned[0], strict=True):
            wrong = _wrong_tree(n, {**traced, **row} if "kind" in traced else row, drawn[:n].astype(dtype))
            for held, complaint in wrong.items():
                if complaint:
                    complaint = f"{count(n, 'device')}: {complaint}"
                complaints[held] = of_both(complaints[held], complaint)

        return complaints

    return [Case("one sum", run, examine)]


def _wrong_tree(n: int, row: dict[str, Any], drawn: np.ndarray) -> dict[str, Complaint]:
    """Return a complaint or None for each property of `tree_sum` over devices; judge the pattern only if the sums are right."""
    if "kind" in row:
        return {SUMS: f"expected a list of {n} sums, one for each device, got {row['kind']}", IN_A_TREE: UNEXAMINED}

    if "raised" in row:
        return {SUMS: f"the traced graph could not run by itself: {row['raised']}", IN_A_TREE: UNEXAMINED}

    told, others = row["sums"]
    wrong, expected = _wrong_sums(n, told, drawn.dtype), drawn.sum(axis=0)
    for k, got in enumerate(others):
        if not wrong and not same(got, expected):
            wrong = f"with other copies device {k} holds {got.tolist()}; expected their sum, {expected.tolist()}."
    if wrong:
        return {SUMS: wrong, IN_A_TREE: UNEXAMINED}

    rounds = (n - 1).bit_length()
    return {SUMS: None, IN_A_TREE: _wrong_pattern(n, row["moves"], row["depth"], rounds)}


def _wrong_sums(n: int, sums: tuple[np.ndarray, ...], dtype: np.dtype) -> Complaint:
    expected = sum(10**k for k in range(n))
    for k, got in enumerate(sums):
        value = float(got[0])
        if value == expected:
            continue

        complaint = f"copy k is 10^k, and device {k} holds {value:g}; expected {expected:g}. "
        if got.dtype != dtype:
            return f"{complaint}It is {got.dtype}, but the copies are {dtype}."
        if close(value * n, expected, MEAN):
            return complaint + "That is the mean: add up, do not divide."
        if not 0 <= value < 10**n or value != int(value):  # NaN, too
            return complaint
        whole = [other for other, total in enumerate(sums) if float(total[0]) == expected]
        return complaint + _miscounted(f"{int(value):0{n}d}"[::-1], whole)

    return None


def _miscounted(digits: str, whole: list[int]) -> str:
    """Name the copy that a sum over devices counts several times, or the copies that it lacks; `digits[k]` counts copy k.

    `whole` are the devices that have the whole sum.
    """
    for device, digit in enumerate(digits):
        if digit not in "01":
            return f"The sum holds device {device}'s copy {digit} times."

    lacks = [str(device) for device, digit in enumerate(digits) if digit == "0"]
    told = f"The sum lacks the copy of device {', '.join(lacks)}."
    if whole:
        return f"{told} Device {whole[0]} has the whole sum: does it come back to every device, largest gap first?"
    return f"{told} No device has the whole sum: on the way up some copy is left out."


def _wrong_pattern(n: int, moves: list[tuple[int, int]], depth: int, rounds: int) -> Complaint:
    up = "Add up pairs of devices, each in its own `with tf.device(…)`, and then pairs of pairs."
    down = "On the way back, too, let every device that has the sum pass it on."
    for end, what, advice in ((1, "takes in", up), (0, "gives out", down)):
        counts = np.bincount([move[end] for move in moves], minlength=n)
        busiest = int(np.argmax(counts))
        if counts[busiest] > rounds:
            return (
                f"the sums are right, but device {busiest} {what} {counts[busiest]} copies; a tree needs at most {rounds}. "
                f"{advice}"
            )

    if depth <= 2 * rounds:
        return None
    return (
        f"the sums are right, but {depth} moves wait for each other; a tree needs at most {2 * rounds} ({rounds} up, {rounds} "
        f"down): is it a chain?"
    )
