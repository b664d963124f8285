"""Lab 12's record of a step: what a way's two passes send, and nothing that is gathered after them."""

import json
from types import SimpleNamespace

import pytest

from tests.support.lab_functions import ROOT
from worldsize.formulas import sharding
from worldsize.trace import Collective, Span, Trace

pytestmark = pytest.mark.quick
WAYS = ("DDP", "FSDP")
STEP_S = 10  # forward from 0 to 1 s, backward from 2 to 3 s, what comes after a step from 4 s on


def step(begin_s, *ops):
    spans = [Span(0, "compute", begin_s + at, begin_s + at + 1, label=name) for at, name in ((0, "forward"), (2, "backward"))]
    return spans, [Collective(op, 100, 0, begin_s + at, begin_s + at + 0.5) for op, at in ops]


def recorded():
    """Two steps of each way, and after each way's last one an all-gather of all weights, as `full_tensor` does."""
    gathers = ("all_gather", 0.2), ("all_gather", 2.2), ("reduce_scatter", 2.4)
    made = [
        step(0, ("all_reduce", 2.2)), step(STEP_S, ("broadcast", 0.2), ("all_reduce", 2.2)),
        step(2 * STEP_S, *gathers), step(3 * STEP_S, *gathers, ("all_gather", 4.2)),
    ]  # fmt: skip
    spans, collectives = (tuple(one for part in parts for one in part) for parts in zip(*made, strict=True))
    return Trace(2, (), spans, collectives)


def cell(name):
    """What the lab's cell that defines the function `name` defines, given the record of its run."""
    cells = json.loads((ROOT / "solutions" / "12_sharding.ipynb").read_text())["cells"]
    code = next(code for code in ("".join(cell["source"]) for cell in cells) if f"def {name}(" in code)
    names = {"run": SimpleNamespace(trace=recorded()), "ways": dict.fromkeys(WAYS), "ranks": 2, "sharding": sharding}
    exec(code, names)
    return names


def test_a_step_s_bytes_are_those_of_its_passes_and_not_of_what_is_gathered_after_them():
    names = cell("second_step")
    sent = {name: names["sent_in"](names["second_step"](name)) for name in WAYS}
    assert sent == {"DDP": {"all-reduce": 100}, "FSDP": {"all-gather": 200, "reduce-scatter": 50}}
