"""What a task of TensorFlow has in a sandbox beside a rank's: its devices and its place in a cluster, or it is a server.

The processes of a cluster share one sandbox and its loopback; another submission's are in another world. Left out: a
rank's way through the cells (`rank`).
"""

from __future__ import annotations

import os

from worldsize.engines.cluster import Cluster, fail_fast, prepare_tensorflow, start_server, tf_config


def prepare(job: dict, seed: int) -> bool:
    """Set up a task of TensorFlow in a sandbox before any cell runs: its devices, its seed, its place in a cluster.

    All of it has to be set before TensorFlow's runtime starts. True where this task is a server, which now serves.
    """
    os.environ["RANK"] = str(job["rank"])
    os.environ["TF_USE_LEGACY_KERAS"] = "1" if job["legacy_keras"] else "0"
    prepare_tensorflow(job["logical_devices"], seed)
    if job["cluster"] is None:
        return False

    cluster = Cluster(**job["cluster"])
    task = cluster.tasks()[job["rank"]]
    os.environ |= fail_fast(cluster, job["servers"])
    os.environ["TF_CONFIG"] = tf_config(cluster.spec(job["addresses"]), task)
    if task.partition(":")[0] not in job["servers"]:
        return False

    _serving.append(start_server())
    return True


_serving: list = []  # a server stops when nobody refers to it
