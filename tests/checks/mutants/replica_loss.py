"""Exercise 8.2: the loss of one replica."""

from __future__ import annotations

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

tf = Later("tensorflow")
answers = Answers("replica_loss")


def replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


@answers.is_wrong("This is the mean of each replica added up", "not by a replica's own")
def means_of_its_own(losses, penalty, global_batch):
    return tf.reduce_mean(losses) + penalty / replicas()


@answers.is_wrong("This is divided twice")
def divides_twice(losses, penalty, global_batch):
    return tf.reduce_mean(losses) / global_batch + penalty / replicas()


@answers.is_wrong("This is the sum of all losses: nobody divided")
def adds_up(losses, penalty, global_batch):
    return tf.reduce_sum(losses) + penalty / replicas()


@answers.is_wrong("This is divided by global_batch and by the replicas, too")
def divides_by_the_replicas_too(losses, penalty, global_batch):
    return (tf.reduce_sum(losses) / global_batch + penalty) / replicas()


@answers.is_wrong("This is the mean of the replicas' means: wrong where shares differ")
def means_of_means(losses, penalty, global_batch):
    return (tf.math.divide_no_nan(tf.reduce_sum(losses), tf.cast(tf.size(losses), tf.float32)) + penalty) / replicas()


@answers.is_wrong("replicas with 4, 3 examples")
def lets_tensorflow_guess_the_batch(losses, penalty, global_batch):
    """Its default is the replica's own count times the replicas: right for equal shares alone."""
    return tf.nn.compute_average_loss(losses) + tf.nn.scale_regularization_loss(penalty)


@answers.is_wrong("Each replica adds the whole penalty")
def penalty_for_each(losses, penalty, global_batch):
    return tf.reduce_sum(losses) / global_batch + penalty


@answers.is_wrong("The penalty is divided by the examples")
def penalty_by_the_examples(losses, penalty, global_batch):
    return (tf.reduce_sum(losses) + penalty) / global_batch


@answers.is_wrong("The penalty is left out")
def no_penalty(losses, penalty, global_batch):
    return tf.reduce_sum(losses) / global_batch


@answers.is_wrong("returned NaN: the mean of no examples is 0/0")
def mean_of_nothing(losses, penalty, global_batch):
    share = tf.cast(tf.size(losses), tf.float32) / global_batch
    return tf.reduce_mean(losses) * share + penalty / replicas()


@answers.is_wrong("expected one number, got 4 numbers")
def leaves_them_apart(losses, penalty, global_batch):
    return losses / global_batch + penalty / replicas()


@answers.is_right
def with_tensorflows_own(losses, penalty, global_batch):
    average = tf.nn.compute_average_loss(losses, global_batch_size=tf.cast(global_batch, tf.int32))
    return average + tf.nn.scale_regularization_loss(penalty)


@answers.is_right
def one_example_after_the_other(losses, penalty, global_batch):
    loss = penalty / tf.distribute.get_replica_context().num_replicas_in_sync
    for one in tf.unstack(losses):
        loss = loss + one / global_batch
    return loss


@answers.is_right
def the_first_replica_pays(losses, penalty, global_batch):
    first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
    return tf.reduce_sum(losses / global_batch) + (penalty if first else 0.0)


@answers.is_wrong("every replica returns the whole mean, so it counts once for each")
def the_whole_mean_on_each(losses, penalty, global_batch):
    total = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(losses))
    return total / global_batch + penalty / replicas()


@answers.is_wrong("divided by global_batch with //, which cuts")
def whole_division(losses, penalty, global_batch):
    return tf.reduce_sum(losses) // global_batch + penalty / replicas()


@answers.is_wrong("Each replica adds the whole penalty")
def tensorflows_mean_and_the_whole_penalty(losses, penalty, global_batch):
    return tf.nn.compute_average_loss(losses, global_batch_size=global_batch) + penalty


@answers.is_wrong("The penalty is multiplied by the number of replicas")
def penalty_times_the_replicas(losses, penalty, global_batch):
    return tf.nn.compute_average_loss(losses, global_batch_size=global_batch) + penalty * replicas()


@answers.is_right
def as_the_guide_does(losses, penalty, global_batch):
    loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
    return loss + tf.nn.scale_regularization_loss(penalty)


@answers.is_right
def weights_of_each_example(losses, penalty, global_batch):
    shares = tf.fill(tf.shape(losses), 1 / tf.cast(global_batch, losses.dtype))
    return tf.tensordot(losses, shares, 1) + tf.nn.scale_regularization_loss([penalty])
