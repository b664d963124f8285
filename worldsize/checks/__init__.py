"""Checks of the exercises, one module a topic.

A check is `check(arena, fn, …) -> Verdict`: a property over fresh inputs and recorded messages. `CHECKS` names the module
of each exercise's check. Checks hold references, formulas and known slips, so a sandbox shows a rank only `__init__`,
`verdict`, `drivers` and the modules that run a function in a rank or play all ranks of a case.
"""

from __future__ import annotations

from importlib import import_module

from worldsize.checks.verdict import Verdict

CHECKS = {
    "pass_right": "collectives.pass_right",
    "seconds_per_step": "measuring.timer",
    "serial_seconds": "measuring.serial_seconds",
    "smallest_batch": "measuring.smallest_batch",
    "metrics_of_all": "measuring.metrics",
    "training_bytes": "measuring.memory",
    "tree_broadcast": "collectives.trees",
    "tree_reduce": "collectives.trees",
    "all_to_all": "collectives.all_to_all",
    "fit_alpha_beta": "measuring.alpha_beta_fit",
    "run_stage": "pipeline.run_stage",
    "gpipe": "pipeline.schedules",
    "one_forward_one_backward": "pipeline.schedules",
    "balanced_cuts": "pipeline.schedules",
    "async_server": "asynchronous.servers",
    "bounded_server": "asynchronous.servers",
    "backup_server": "asynchronous.servers",
    "time_at_best_rate": "asynchronous.best_rate",
    "parameter_server": "collectives.all_reduce",
    "sharded_parameter_server": "collectives.all_reduce",
    "reduce_scatter": "collectives.ring_halves",
    "all_gather": "collectives.ring_halves",
    "ring_all_reduce": "collectives.all_reduce",
    "shards": "replicas.shards",
    "same_start": "replicas.same_start",
    "average_gradients": "replicas.average_gradients",
    "train_replicas": "replicas.train_replicas",
    "quicker_way": "replicas.quicker_way",
    "average_tower_gradients": "tensorflow.towers",
    "decayed_rate": "tensorflow.decayed_rate",
    "place_variables": "tensorflow.placement",
    "between_graph": "tensorflow.between_graph",
    "cluster_config": "tensorflow.tf_config",
    "worker_share": "tensorflow.worker_share",
    "score": "tensorflow.coordinator",
    "audit": "tensorflow.lost_updates",
    "train_through": "tensorflow.recovery",
    "parallel_mlp": "sharding.tensor_parallel",
    "sequence_parallel": "sharding.tensor_parallel",
    "vocabulary_loss": "sharding.vocabulary_loss",
    "sharded_adam": "sharding.sharded_adam",
    "sharded_optimizer": "sharding.sharded_optimizer",
    "stage_3": "sharding.stage_3",
    "ring_attention": "long_sequences.ring_attention",
    "my_tokens": "long_sequences.my_tokens",
    "to_experts": "long_sequences.to_experts",
    "attention_seconds": "long_sequences.attention_seconds",
    "my_share": "replicas.sampler",
    "train_ddp": "replicas.ddp_training",
    "exact_accuracy": "replicas.sampler",
    "train_resumable": "replicas.resume",
    "flattened": "overlap.gradient_averaging",
    "overlapped": "overlap.gradient_averaging",
    "fill_buckets": "overlap.buckets",
    "bucketed": "overlap.gradient_averaging",
    "wrap_module": "overlap.any_module",
    "accumulate": "overlap.gradient_averaging",
    "missing_devices": "tensorflow.devices",
    "replica_loss": "tensorflow.replica_loss",
    "mirrored_step": "tensorflow.mirrored_step",
    "tree_sum": "tensorflow.devices",
    "scaled_rate": "large_batches.rate",
    "big_batch_step": "large_batches.accumulation",
    "noise_scale": "large_batches.noise",
    "synced_norm": "large_batches.synced_norm",
    "one_bit_average": "less_communication.one_bit",
    "top_k_average": "less_communication.top_k",
    "power_sgd_average": "less_communication.power_sgd",
    "local_sgd": "less_communication.local_sgd",
    "pays_below": "less_communication.pays_below",
    "save_atomically": "resilience.save_atomically",
    "train_to_the_end": "resilience.exact_resume",
    "goodput": "resilience.goodput",
    "shares_after_loss": "resilience.shares_after_loss",
    "forecast": "capstone.forecasts",
    "two_level_all_reduce": "capstone.two_level",
    "predict_steps": "capstone.clusters",
    "best_plan": "capstone.plans",
}


def run_check(exercise: str, arena: object, fn: object, *more: object) -> Verdict:
    """Run the check of `exercise` on `fn` and return its verdict. Raises ValueError for an unknown exercise."""
    if exercise not in CHECKS:
        raise ValueError(f"check: expected one of {', '.join(sorted(CHECKS))}, got {exercise!r}")
    module = import_module(f"worldsize.checks.{CHECKS[exercise]}")
    return getattr(module, exercise)(arena, fn, *more)
