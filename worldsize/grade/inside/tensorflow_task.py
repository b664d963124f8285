"""Set up a TensorFlow task in a sandbox: its devices and its place in a cluster, or its server.

The processes of a cluster share one sandbox and its loopback, which no other submission can reach.
"""

import os

from worldsize.engines.cluster_spec import Cluster, fail_fast, prepare_tensorflow, start_server, tf_config


def prepare(job: dict, seed: int) -> bool:
    """Set up a TensorFlow task before any cell runs: its devices, its seed, its place in a cluster.

    All of this must precede the start of TensorFlow's runtime. Returns True if this task is a server, which now serves.
    """
    os.environ["RANK"] = str(job["rank"])
    os.environ["TF_USE_LEGACY_KERAS"] = "1" if job["legacy_keras"] else "0"
    prepare_tensorflow(job["logical_devices"], seed)
    if job["cluster"] is None:
        return False

    spec = {}
    for kind, ranks in job["spec"].items():
        spec[kind] = [job["addresses"][int(rank)] for rank in ranks]
    task = job["task"]
    os.environ |= fail_fast(Cluster(**job["cluster"]), job["servers"])
    os.environ["TF_CONFIG"] = tf_config(spec, task)
    if task.partition(":")[0] not in job["servers"]:
        return False

    _serving.append(start_server())
    return True


_serving: list = []  # an unreferenced server stops
