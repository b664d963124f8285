"""Declared time inside a TensorFlow graph: an operation that takes so long and burns no core.

It is tf.data's own sleep, so it also runs on the workers of a cluster, where Python does not. Left out: time in a
rank's Python (`fabric.compute`).
"""

from __future__ import annotations

from typing import Any


def pause(seconds: float) -> Any:
    """A tensor, 0, that is there after `seconds`: use it inside a `tf.function`."""
    import tensorflow as tf
    from tensorflow.python.data.experimental.ops import testing

    slow = tf.data.Dataset.from_tensors(tf.constant(0)).apply(testing.sleep(round(1e6 * seconds)))
    # without `take` the sleep would come a second time, before the end of the data set is found
    return slow.take(1).reduce(tf.constant(0), lambda total, element: total + element)
