"""Declared time inside a TensorFlow graph: an operation that takes a given time and burns no core.

The operation is tf.data's own sleep, so it also runs on a cluster's workers, where Python does not. For time in a rank's Python,
use `fabric.compute`.
"""

from typing import Any


def pause(seconds: float) -> Any:
    """Return a tensor, 0, that is ready after `seconds`: use it inside a `tf.function`."""
    import tensorflow as tf
    from tensorflow.python.data.experimental.ops import testing

    slow = tf.data.Dataset.from_tensors(tf.constant(0)).apply(testing.sleep(round(1e6 * seconds)))
    # without `take` the sleep would run a second time, before the end of the data set is found
    return slow.take(1).reduce(tf.constant(0), lambda total, element: total + element)
