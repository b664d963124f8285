"""Exercise 8.3: one training step on every replica."""

from __future__ import annotations

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

keras = Later("keras")
tf = Later("tensorflow")
answers = Answers("mirrored_step")


def per_example(model, x, y):
    """As the lab's set-up gives it."""
    return keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)


def everybody(x):
    return tf.distribute.get_replica_context().all_reduce("SUM", tf.cast(tf.shape(x)[0], tf.float32))


def replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def step(strategy, model, optimizer, x, y, loss_of, apply=None, reduce="SUM"):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(per_example(model, x, y), x)
        gradients = tape.gradient(loss, model.trainable_variables)
        (apply or optimizer.apply_gradients)(list(zip(gradients, model.trainable_variables, strict=True)))
        return loss

    return strategy.reduce(reduce, strategy.run(on_replica, args=(x, y)), axis=None)


@answers.is_wrong("The step is 2 times", "either each replica takes the mean over its own examples")
def means_of_its_own(strategy, model, optimizer, x, y):
    return step(
        strategy, model, optimizer, x, y, lambda losses, x: tf.reduce_mean(losses) + sum(model.losses) / replicas()
    )


@answers.is_wrong("The step is too short: divided by the number of replicas, too")
def divides_twice(strategy, model, optimizer, x, y):
    def loss_of(losses, x):
        return (tf.reduce_sum(losses) / everybody(x) + sum(model.losses) / replicas()) / replicas()

    return step(strategy, model, optimizer, x, y, loss_of)


@answers.is_wrong("nobody divided")
def adds_up(strategy, model, optimizer, x, y):
    return step(
        strategy, model, optimizer, x, y, lambda losses, x: tf.reduce_sum(losses) + sum(model.losses) / replicas()
    )


@answers.is_wrong("3 examples", "This is the mean of the replicas' means")
def assumes_equal_shares(strategy, model, optimizer, x, y):
    def loss_of(losses, x):
        count = tf.cast(tf.shape(x)[0], tf.float32)
        return tf.math.divide_no_nan(tf.reduce_sum(losses), count * replicas()) + sum(model.losses) / replicas()

    return step(strategy, model, optimizer, x, y, loss_of)


@answers.is_wrong("Each replica adds the whole penalty")
def penalty_for_each(strategy, model, optimizer, x, y):
    return step(
        strategy, model, optimizer, x, y, lambda losses, x: tf.reduce_sum(losses) / everybody(x) + sum(model.losses)
    )


@answers.is_wrong("The model's own penalties, model.losses, are left out of the gradient", "inside the tape")
def no_penalty(strategy, model, optimizer, x, y):
    return step(strategy, model, optimizer, x, y, lambda losses, x: tf.reduce_sum(losses) / everybody(x))


@answers.is_wrong("The step is 2 times the mean gradient", "gradients were added up before apply_gradients")
def adds_gradients_up_twice(strategy, model, optimizer, x, y):
    def apply(pairs):
        context = tf.distribute.get_replica_context()
        optimizer.apply_gradients([(context.all_reduce("SUM", slope), variable) for slope, variable in pairs])

    def loss_of(losses, x):
        return tf.reduce_sum(losses) / everybody(x) + sum(model.losses) / replicas()

    return step(strategy, model, optimizer, x, y, loss_of, apply)


@answers.is_wrong("The weights have not moved")
def applies_nothing(strategy, model, optimizer, x, y):
    def loss_of(losses, x):
        return tf.reduce_sum(losses) / everybody(x) + sum(model.losses) / replicas()

    return step(strategy, model, optimizer, x, y, loss_of, lambda pairs: None)


@answers.is_wrong('reduce with "SUM", each loss is a share already')
def reduces_with_a_mean(strategy, model, optimizer, x, y):
    def loss_of(losses, x):
        return tf.reduce_sum(losses) / everybody(x) + sum(model.losses) / replicas()

    return step(strategy, model, optimizer, x, y, loss_of, reduce="MEAN")


@answers.is_wrong("a value for each replica: strategy.reduce adds them up")
def returns_what_replicas_return(strategy, model, optimizer, x, y):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(per_example(model, x, y)) / everybody(x) + sum(model.losses) / replicas()
        slopes = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        return loss

    return strategy.run(on_replica, args=(x, y))


@answers.is_right
def counts_before_the_run(strategy, model, optimizer, x, y):
    count = strategy.reduce("SUM", strategy.run(lambda x: tf.shape(x)[0], args=(x,)), axis=None)
    count = tf.cast(count, tf.float32)

    def loss_of(losses, x):
        return tf.reduce_sum(losses) / count + tf.nn.scale_regularization_loss(tf.add_n(model.losses))

    return step(strategy, model, optimizer, x, y, loss_of)


@answers.is_right
def weighs_gradients_instead(strategy, model, optimizer, x, y):
    """Gradients of sums, weighed when they are applied; the loss is made up of two parts."""

    def on_replica(x, y):
        count = everybody(x)
        with tf.GradientTape(persistent=True) as tape:
            losses = tf.reduce_sum(per_example(model, x, y))
            penalty = sum(model.losses)
        variables = model.trainable_variables
        slopes = [
            data / count + own / replicas()
            for data, own in zip(tape.gradient(losses, variables), tape.gradient(penalty, variables), strict=True)
        ]
        optimizer.apply_gradients(zip(slopes, variables, strict=True))
        return losses, penalty, count

    losses, penalty, count = strategy.run(on_replica, args=(x, y))
    total, n = strategy.reduce("SUM", losses, axis=None), strategy.reduce("MEAN", count, axis=None)
    return total / n + strategy.reduce("MEAN", penalty, axis=None)


@answers.is_wrong("the optimizer counts 0 steps, expected 2: let it apply the gradients")
def goes_round_the_optimizer(strategy, model, optimizer, x, y):
    def apply(pairs):
        context = tf.distribute.get_replica_context()
        for slope, variable in pairs:
            variable.assign(variable - optimizer.learning_rate * context.all_reduce("SUM", slope))

    def loss_of(losses, x):
        return tf.reduce_sum(losses) / everybody(x) + sum(model.losses) / replicas()

    return step(strategy, model, optimizer, x, y, loss_of, apply)


@answers.is_wrong("3 examples", "mean of the replicas' means")
def tensorflows_guess_of_the_batch(strategy, model, optimizer, x, y):
    def loss_of(losses, x):
        return tf.nn.compute_average_loss(losses) + tf.nn.scale_regularization_loss(sum(model.losses))

    return step(strategy, model, optimizer, x, y, loss_of)


@answers.is_wrong("expected the mean loss, got None (does the function return it?)")
def returns_nothing(strategy, model, optimizer, x, y):
    def loss_of(losses, x):
        return tf.reduce_sum(losses) / everybody(x) + sum(model.losses) / replicas()

    step(strategy, model, optimizer, x, y, loss_of)


@answers.is_wrong("The model's own penalties are left out")
def returns_the_loss_without_penalties(strategy, model, optimizer, x, y):
    def on_replica(x, y):
        count = everybody(x)
        with tf.GradientTape() as tape:
            own = tf.reduce_sum(per_example(model, x, y)) / count
            loss = own + sum(model.losses) / replicas()
        slopes = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        return own

    return strategy.reduce("SUM", strategy.run(on_replica, args=(x, y)), axis=None)


@answers.is_right
def with_tensorflows_helpers(strategy, model, optimizer, x, y):
    def loss_of(losses, x):
        count = tf.distribute.get_replica_context().all_reduce("SUM", tf.shape(x)[0])
        average = tf.nn.compute_average_loss(losses, global_batch_size=count)
        return average + tf.nn.scale_regularization_loss(tf.add_n(model.losses))

    return step(strategy, model, optimizer, x, y, loss_of)


@answers.is_right
def the_optimizers_other_name(strategy, model, optimizer, x, y):
    def loss_of(losses, x):
        return tf.reduce_sum(losses) / everybody(x) + sum(model.losses) / replicas()

    def apply(pairs):
        slopes, variables = zip(*pairs, strict=True)
        optimizer.apply(list(slopes), list(variables))

    return step(strategy, model, optimizer, x, y, loss_of, apply)
