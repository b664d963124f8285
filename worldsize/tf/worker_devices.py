"""Several devices for each worker of MultiWorkerMirroredStrategy, even without GPUs.

TensorFlow's strategy makes a replica of every GPU of a worker, but only one replica of a worker without GPUs, into however many
logical CPUs its CPU is split (`CollectiveAllReduceExtended._initialize_local_devices`, TensorFlow 2.21).
`launch(…, logical_devices=2)` splits the CPU.
"""

from typing import Any


def use_logical_cpus() -> None:
    """Make MultiWorkerMirroredStrategy count a worker's logical CPUs if it has no GPU or TPU, in this process.

    Call this before the strategy is made. All workers need the same number of devices.
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
