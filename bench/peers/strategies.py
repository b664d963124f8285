"""The work of the TensorFlow bench: a strategy comes up and gives a first result. As a script it is a task of its own,
as TensorFlow's guides start one: `TF_CONFIG` in the environment, the name of the work as argument.
"""

import os
import sys


def mirrored() -> float:
    """A sum over 4 logical devices: 4."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    summed = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
    return float(strategy.experimental_local_results(summed)[0])


def multi_worker() -> float:
    """A sum over 2 workers: 2."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    summed = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
    return float(strategy.experimental_local_results(summed)[0])


def parameter_server() -> float:
    """Ten additions to a variable on the ps, scheduled on 2 workers: 10."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc").join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)
    add = tf.function(lambda: total.assign_add(1.0))
    for _ in range(10):
        coordinator.schedule(add)
    coordinator.join()
    return float(total.numpy())


if __name__ == "__main__":
    import tensorflow

    if sys.argv[1] == "mirrored":
        cpu = tensorflow.config.list_physical_devices("CPU")[0]
        each = [tensorflow.config.LogicalDeviceConfiguration() for _ in range(4)]
        tensorflow.config.set_logical_device_configuration(cpu, each)
    print(globals()[sys.argv[1]](), flush=True)
    os._exit(0)
