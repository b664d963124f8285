"""Exercise 8.2: the loss of one replica."""

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

tf = Later("tensorflow")
answers = Answers("replica_loss")


def replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


@answers.is_right
def plain(losses, penalty, global_batch):
    return tf.reduce_sum(losses) / global_batch + penalty / replicas()


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


@answers.is_right
def a_share_of_the_penalty_for_each_example(losses, penalty, global_batch):
    return tf.reduce_sum(losses + penalty) / global_batch


@answers.is_right
def as_the_guide_does(losses, penalty, global_batch):
    loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
    return loss + tf.nn.scale_regularization_loss(penalty)


@answers.is_right
def weights_of_each_example(losses, penalty, global_batch):
    shares = tf.fill(tf.shape(losses), 1 / tf.cast(global_batch, losses.dtype))
    return tf.tensordot(losses, shares, 1) + tf.nn.scale_regularization_loss([penalty])


answers.mistake("means_of_its_own", {"tf.reduce_sum(losses) / global_batch": "tf.reduce_mean(losses)"},
    "This is the mean of each replica added up", "not by a replica's own")
answers.mistake("divides_twice", {"tf.reduce_sum": "tf.reduce_mean"}, "This is divided twice")
answers.mistake("adds_up", {"tf.reduce_sum(losses) / global_batch": "tf.reduce_sum(losses)"},
    "This is the sum of all losses: divide by global_batch")
answers.mistake("divides_by_the_replicas_too",
    {"tf.reduce_sum(losses) / global_batch + penalty": "(tf.reduce_sum(losses) / global_batch + penalty)"},
    "This is divided by global_batch and by the replicas, too")
answers.mistake("means_of_means", {
    "tf.reduce_sum(losses) / global_batch":
        "tf.math.divide_no_nan(tf.reduce_sum(losses), tf.cast(tf.size(losses), tf.float32)) / replicas()",
}, "This is the mean of the replicas' means: wrong where shares differ")
# Its default is the replica's own count times the replicas: right for equal shares alone.
answers.mistake("lets_tensorflow_guess_the_batch",
    {"tf.reduce_sum(losses) / global_batch": "tf.nn.compute_average_loss(losses)"},
    "replicas with 4, 3 examples")
answers.mistake("penalty_for_each", {"penalty / replicas()": "penalty"}, "Each replica adds the whole penalty")
answers.mistake("half_the_penalty_for_ever", {"replicas()": "2"}, "The penalty is divided by 2, whatever the number of replicas")
answers.mistake("never_the_whole_penalty", {"penalty / replicas()": "penalty / max(2, replicas())"},
    "1 replica with 5 examples", "The penalty is divided by 2")
answers.mistake("penalty_by_the_examples", {"replicas()": "global_batch"}, "The penalty is divided by the examples")
answers.mistake("no_penalty", {" + penalty / replicas()": ""}, "The penalty is left out")
answers.mistake("mean_of_nothing",
    {"tf.reduce_sum(losses)": "tf.reduce_mean(losses) * tf.cast(tf.size(losses), tf.float32)"},
    "returned NaN: the mean of no examples is 0/0")
answers.mistake("leaves_them_apart", {"tf.reduce_sum(losses)": "losses"}, "expected one number, got 4 numbers")
answers.mistake("the_whole_mean_on_each",
    {"tf.reduce_sum(losses)": 'tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(losses))'},
    "every replica returns the whole mean, so it counts once for each")
answers.mistake("whole_division", {"tf.reduce_sum(losses) / global_batch": "tf.reduce_sum(losses) // global_batch"},
    "divided by global_batch with //, which cuts")
answers.mistake("tensorflows_mean_and_the_whole_penalty", {
    "tf.reduce_sum(losses) / global_batch + penalty / replicas()":
        "tf.nn.compute_average_loss(losses, global_batch_size=global_batch) + penalty",
}, "Each replica adds the whole penalty")
answers.mistake("penalty_times_the_replicas", {"penalty / replicas()": "penalty * replicas()"},
    "The penalty is multiplied by the number of replicas")
