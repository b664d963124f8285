"""`launch(fn, …)` for TensorFlow: one fresh process with logical devices, or a cluster of tasks with `TF_CONFIG`.

The calls are in `launch_tensorflow`; the other modules are helpers for labs on TensorFlow.
"""

from worldsize.engines.cluster_spec import Cluster, Task
from worldsize.tf.errors import first_words
from worldsize.tf.launch_tensorflow import launch, quiet_launch, warm

__all__ = ["Cluster", "Task", "first_words", "launch", "quiet_launch", "warm"]
