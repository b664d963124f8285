"""A coordinator with something to count, for the chief of a cluster in several tests."""

from __future__ import annotations

from typing import Any


def counter() -> tuple[Any, Any, Any]:
    """A new coordinator, a function to schedule that adds 1 on a worker, and the variable that it adds to."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def update():
        total.assign_add(1.0)

    return coordinator, update, total
