"""Several devices for each worker of MultiWorkerMirroredStrategy, also where a worker has no GPU.

TensorFlow's strategy makes a replica of every GPU of a worker, and one replica of a worker without GPUs, into however many
logical CPUs its CPU is split (`CollectiveAllReduceExtended._initialize_local_devices`, TensorFlow 2.21). Left out:
splitting the CPU (`launch(…, logical_devices=2)`).
"""

from __future__ import annotations

from typing import Any


def use_logical_cpus() -> None:
    """In this process, make MultiWorkerMirroredStrategy count a worker's logical CPUs where it has no GPU or TPU.

    To be called before the strategy is made. All workers need the same number of devices.
    """
    import tensorflow as tf
    from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended as Strategy

    own_choice = Strategy._initialize_local_devices

    def local_devices(self: Any, cluster_resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
        devices, kind = own_choice(self, cluster_resolver, worker_device)
        if kind == "CPU":
            cpu = tf.config.list_physical_devices("CPU")[0]
            parts = tf.config.get_logical_device_configuration(cpu) or [cpu]
            devices = tuple(f"{worker_device}/device:CPU:{k}" for k in range(len(parts)))
        return devices, kind

    Strategy._initialize_local_devices = local_devices
