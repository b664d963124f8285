"""`launch(fn, …)` for TensorFlow: one fresh process with logical devices, or a cluster of tasks with `TF_CONFIG`.

This is the room's face: the calls are in `api`, and what labs on TensorFlow are given stands beside it.
"""

from __future__ import annotations

from worldsize.engines.cluster import Cluster, Task
from worldsize.tf.api import launch, quiet_launch, warm

__all__ = ["Cluster", "Task", "launch", "quiet_launch", "warm"]
