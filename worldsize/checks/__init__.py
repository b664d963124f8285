"""The checks of exercises, one module a topic. A check is open: a property over fresh inputs and recorded messages.

A check is `check(arena, fn, …) -> Verdict`; `CHECKS` names them by exercise. They hold no answers.
"""

from __future__ import annotations

from importlib import import_module

from worldsize.verdict import Verdict

CHECKS = {
    "pass_right": "neighbours",
    "seconds_per_step": "timer",
    "amdahl_fit": "scaling",
    "gustafson_fit": "scaling",
    "training_bytes": "memory",
    "tree_broadcast": "trees",
    "tree_reduce": "trees",
    "tree_gather": "trees",
    "fit_alpha_beta": "fits",
    "run_stage": "stages",
    "gpipe": "pipeline",
    "one_forward_one_backward": "pipeline",
    "balanced_cuts": "pipeline",
    "async_server": "updates",
    "bounded_server": "updates",
    "backup_server": "updates",
    "parameter_server": "reduce",
    "sharded_parameter_server": "reduce",
    "reduce_scatter": "reduce",
    "all_gather": "reduce",
    "ring_all_reduce": "reduce",
    "shards": "shards",
    "same_start": "replicas",
    "average_gradients": "replicas",
    "train_replicas": "replicas",
    "average_tower_gradients": "towers",
    "decayed_rate": "decays",
    "place_variables": "placements",
    "between_graph": "between",
    "cluster_config": "clusters",
    "worker_share": "portions",
    "score": "coordination",
    "audit": "audits",
    "train_through": "recoveries",
    "column_parallel": "layers",
    "row_parallel": "layers",
    "parallel_mlp": "layers",
    "sharded_adam": "zero",
    "my_share": "sampling",
    "train_ddp": "distributed",
    "exact_accuracy": "sampling",
    "train_resumable": "resumed",
    "naive": "ddp",
    "flattened": "ddp",
    "overlapped": "ddp",
    "fill_buckets": "fillings",
    "bucketed": "ddp",
    "accumulate": "ddp",
    "missing_devices": "devices",
    "replica_loss": "scaled",
    "mirrored_step": "mirrored",
    "tree_sum": "devices",
}


def run_check(exercise: str, arena: object, fn: object, *more: object) -> Verdict:
    """The verdict on `fn` for `exercise`. Raises ValueError for an exercise that is not there."""
    if exercise not in CHECKS:
        raise ValueError(f"check: expected one of {', '.join(sorted(CHECKS))}, got {exercise!r}")
    module = import_module(f"worldsize.checks.{CHECKS[exercise]}")
    return getattr(module, exercise)(arena, fn, *more)
