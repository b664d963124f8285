"""Where each property of each check is seen, and in whose process: the table of docs/what-earns-points.md.

`python -m tests.grade.evidence` writes the page. The properties and their points are those of the checks themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import torch

from tests.support.answers import ANSWERS
from worldsize.checks import CHECKS, run_check
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.fabric import Fabric
from worldsize.lab.released import EXERCISES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "what-earns-points.md"


class Evidence(NamedTuple):
    """What a property is judged by, and the process that sees it."""

    what: str
    process: str


V = Evidence("what came back, held against the check's own values", "the grader")
M = Evidence("messages: from whom, to whom, when, how large", "the broker, in the grader")
B = Evidence("what came back, and messages", "the grader, and the broker in it")
C = Evidence("calls of the check's own functions", "the grader, which answers them from afar")
P = Evidence("messages to and from ranks that the check plays", "the grader")
W = Evidence("declared work, opened, closed and weighed column by column, and messages beside it", "the broker, in the grader")
T = Evidence(
    "declared work and messages, as above; tensors that live, which the answer's own process notes, can only take from it",
    "the broker, in the grader",
)
K = Evidence(
    "what came back; tensors that live between steps, which the answer's own process notes, can only take from it", "the grader"
)
N = Evidence(
    "messages, as above; what autograd keeps for backward, which the answer's own process notes, can only take from it",
    "the broker, in the grader",
)
E = Evidence(
    "messages, as above; how often the expert works, which the answer's own process notes, can only take from it",
    "the broker, in the grader",
)
G = Evidence("a graph that the answer built, run without it", "a process of the grader's")
F = Evidence("a folder, read between a writer's system calls; its syncs; its death", "the writer's warden, outside its process")
L = Evidence("what came back of lives whose examples and start the grader deals out", "the grader")
S = Evidence("what the answer's process notes", "the answer's own process")

# by exercise, a letter for each property in the order of its points
SEEN = {
    "pass_right": "VMVV", "seconds_per_step": "CCC", "serial_seconds": "VVVV", "smallest_batch": "VVVC",
    "training_bytes": "VVV", "tree_broadcast": "VMM", "tree_reduce": "VMM", "all_to_all": "VMM", "fit_alpha_beta": "VVV",
    "run_stage": "VMM", "gpipe": "VV", "one_forward_one_backward": "VVV", "balanced_cuts": "VV",
    "async_server": "PPVP", "bounded_server": "PPV", "backup_server": "PPV", "time_at_best_rate": "VVCC",
    "parameter_server": "VM", "sharded_parameter_server": "VMM", "reduce_scatter": "VVMM", "all_gather": "VMM",
    "ring_all_reduce": "VMMM", "shards": "VVV", "same_start": "BV", "average_gradients": "VVM", "train_replicas": "VVMV",
    "average_tower_gradients": "VVV", "decayed_rate": "VV", "place_variables": "VV", "between_graph": "SSSVV",
    "cluster_config": "VV", "worker_share": "VVV", "score": "CCC", "audit": "VV", "train_through": "CCC",
    "parallel_mlp": "VM", "sequence_parallel": "VN", "vocabulary_loss": "VVM", "sharded_adam": "VKM",
    "sharded_optimizer": "VSM", "stage_3": "VMTW", "my_share": "VVV",
    "train_ddp": "VVVVS", "exact_accuracy": "VVV", "train_resumable": "CCC", "flattened": "VM", "overlapped": "VW",
    "fill_buckets": "VV", "bucketed": "VMW", "wrap_module": "VMW", "accumulate": "VMT", "missing_devices": "VV",
    "replica_loss": "VVV", "mirrored_step": "VVV", "tree_sum": "GG", "scaled_rate": "VVV", "big_batch_step": "VVTV",
    "noise_scale": "VV", "synced_norm": "VVVMVV", "one_bit_average": "VVVM", "top_k_average": "VVVM",
    "power_sgd_average": "VVVVM", "local_sgd": "VVVM", "pays_below": "VV",
    "save_atomically": "FFF", "train_to_the_end": "LVS", "goodput": "VVVV", "shares_after_loss": "VVVV",
    "forecast": "VV", "two_level_all_reduce": "VMMM", "predict_steps": "VVVVV", "best_plan": "VV",
    "ring_attention": "VMTW", "my_tokens": "VV", "attention_seconds": "VV", "to_experts": "VVE",
    "metrics_of_all": "VVV", "quicker_way": "VV",
}  # fmt: skip

HEAD = """# What earns points, and where it is seen

Only what is seen from outside an answer's own process earns points. This table is made from the checks; a test holds that
each of their properties is in it, and that what the answer's own process alone can see has 0 points: it is shown. "What came
back" is judged where no line of a submission runs, and the right values never enter a sandbox.

With `--unsafe` no writer is watched from outside: what a save does to its folder is then noted in the answer's own process,
and every row says that it was graded without a sandbox.

| lab | exercise | property | points | what it is judged by | whose process sees it |
| --- | --- | --- | --- | --- | --- |
"""


ALONE = """

## What messages alone earn

Messages have points of their own: they are judged also where the values are wrong, so that a mistake in a sum does not cost the
work on its messages. An answer that sends all the right messages with zeros in them, and computes nothing, earns this; the rounds
of such messages are not examined.

| lab | exercise | points |
| --- | --- | --- |
"""
# exercises of a tensor on each rank whose messages have points
COLLECTIVES = (
    "pass_right", "tree_broadcast", "tree_reduce", "all_to_all", "parameter_server", "sharded_parameter_server", "reduce_scatter",
    "all_gather", "ring_all_reduce", "two_level_all_reduce",
)  # fmt: skip


class EvidenceRow(NamedTuple):
    """A property of an exercise, and where it is seen."""

    lab: str
    exercise: str
    name: str
    points: float
    seen: Evidence


def rows() -> list[EvidenceRow]:
    """A row for each property of each released exercise, in the order of the labs."""
    found = []
    for lab, exercises in EXERCISES.items():
        for exercise in exercises:
            properties = points_of(exercise)
            for letter, (name, points) in zip(SEEN[exercise], properties.items(), strict=True):
                found.append(EvidenceRow(lab, exercise, name, points, globals()[letter]))
    return found


def points_of(exercise: str) -> dict[str, float]:
    """The properties of an exercise's check, as it hands them to `judge`."""
    module = import_module(f"worldsize.checks.{CHECKS[exercise]}")
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    (check,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == exercise)
    (call,) = (node for node in ast.walk(check) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "judge")
    return getattr(module, call.args[1].id)


def messages_alone(exercise: str) -> tuple[float, float]:
    """The points of an answer that sends all messages of a right one, with zeros in them, and the exercise's points."""
    (right,) = (answers.right[0] for answers in ANSWERS if answers.exercise == exercise)
    verdict = run_check(exercise, SimulatedArena(seed=7), _with_zeros(right))
    return verdict.points, verdict.possible


def _with_zeros(right: Callable) -> Callable:
    def sends_zeros(fabric: Fabric, x: torch.Tensor, *more: int) -> torch.Tensor:
        right(fabric, torch.zeros_like(x), *more)
        return x

    return sends_zeros


def page() -> str:
    """The page as it is to be."""
    lines = (f"| {r.lab} | `{r.exercise}` | {r.name} | {r.points:g} | {r.seen.what} | {r.seen.process} |" for r in rows())
    found = [(lab, name, *messages_alone(name)) for lab, names in EXERCISES.items() for name in names if name in COLLECTIVES]
    alone = (f"| {lab} | `{name}` | {points:g} of {possible:g} |" for lab, name, points, possible in found)
    return HEAD + "\n".join(lines) + ALONE + "\n".join(alone) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
