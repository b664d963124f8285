"""Exercise 8.3: one training step on every replica."""

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


@answers.is_right
def plain(strategy, model, optimizer, x, y):
    def on_replica(x, y):
        count = everybody(x)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(per_example(model, x, y)) / count + sum(model.losses) / replicas()
        slopes = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        return loss

    return strategy.reduce("SUM", strategy.run(on_replica, args=(x, y)), axis=None)


answers.twin("counts_before_the_run", {
    """
        def on_replica(x, y):
            count = everybody(x)
    """: """
        count = strategy.reduce("SUM", strategy.run(lambda x: tf.shape(x)[0], args=(x,)), axis=None)
        count = tf.cast(count, tf.float32)

        def on_replica(x, y):
    """,
    "sum(model.losses) / replicas()": "tf.nn.scale_regularization_loss(sum(model.losses, 0.0))",
})


@answers.is_right
def weighs_gradients_instead(strategy, model, optimizer, x, y):
    """Gradients of sums, weighed when they are applied; the loss is made up of two parts."""

    def on_replica(x, y):
        count = everybody(x)
        with tf.GradientTape(persistent=True) as tape:
            losses = tf.reduce_sum(per_example(model, x, y))
            penalty = sum(model.losses, tf.constant(0.0))
        variables = model.trainable_variables
        slopes = [slope / count for slope in tape.gradient(losses, variables)]
        if model.losses:
            slopes = [
                slope + own / replicas() for slope, own in zip(slopes, tape.gradient(penalty, variables), strict=True)
            ]
        optimizer.apply_gradients(zip(slopes, variables, strict=True))
        return losses, penalty, count

    losses, penalty, count = strategy.run(on_replica, args=(x, y))
    total, n = strategy.reduce("SUM", losses, axis=None), strategy.reduce("MEAN", count, axis=None)
    return total / n + strategy.reduce("MEAN", penalty, axis=None)


answers.twin("with_tensorflows_helpers", {
    "everybody(x)": 'tf.distribute.get_replica_context().all_reduce("SUM", tf.shape(x)[0])',
    "tf.reduce_sum(per_example(model, x, y)) / count + sum(model.losses) / replicas()": """
        tf.nn.compute_average_loss(per_example(model, x, y), global_batch_size=count)
        loss += tf.nn.scale_regularization_loss(sum(model.losses, 0.0))
    """,
})
answers.twin("the_optimizers_other_name", {
    "optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))":
        "optimizer.apply(slopes, model.trainable_variables)",
})

answers.mistake("add_n_of_no_penalties", {"sum(model.losses)": "tf.add_n(model.losses)"},
    "2 replicas, a model without penalties, eager: ValueError", "its model.losses is an empty list: sum(model.losses, 0.0)")
answers.mistake("adds_up_the_values_of_replicas", {
    'strategy.reduce("SUM", strategy.run(on_replica, args=(x, y)), axis=None)':
        "sum(strategy.run(on_replica, args=(x, y)).values)",
}, "1 replica, eager: AttributeError", "With one replica strategy.run returns a plain value")
answers.mistake("makes_it_a_number_of_python", {
    'return strategy.reduce("SUM", strategy.run(on_replica, args=(x, y)), axis=None)':
        'return float(strategy.reduce("SUM", strategy.run(on_replica, args=(x, y)), axis=None))',
}, "2 replicas, in a tf.function: TypeError")
answers.mistake("means_of_its_own",
    {"tf.reduce_sum(per_example(model, x, y)) / count": "tf.reduce_mean(per_example(model, x, y))"},
    "The step is 2 times", "either each replica takes the mean over its own examples")
answers.mistake("divides_twice", {
    "loss = tf.reduce_sum(per_example(model, x, y)) / count + sum(model.losses) / replicas()":
        "loss = (tf.reduce_sum(per_example(model, x, y)) / count + sum(model.losses) / replicas()) / replicas()",
}, "The step is too short: it was also divided by the number of replicas")
answers.mistake("reads_the_penalties_outside_the_tape", {
    "with tf.GradientTape() as tape:": "penalty = sum(model.losses)\nwith tf.GradientTape() as tape:",
    "sum(model.losses) / replicas()": "penalty / replicas()",
}, "The model's own penalties, model.losses, are left out of the gradient", "inside the tape")
answers.mistake("adds_up", {" / count": ""}, "but not divided")
answers.mistake("assumes_equal_shares", {
    "count = everybody(x)": "count = tf.cast(tf.shape(x)[0], tf.float32) * replicas()",
    "tf.reduce_sum(per_example(model, x, y)) / count":
        "tf.math.divide_no_nan(tf.reduce_sum(per_example(model, x, y)), count)",
}, "3 examples", "This is the mean of the replicas' means")
answers.mistake("penalty_for_each", {"sum(model.losses) / replicas()": "sum(model.losses)"},
    "Each replica adds the whole penalty")
answers.mistake("no_penalty", {" + sum(model.losses) / replicas()": ""},
    "The model's own penalties, model.losses, are left out of the gradient", "inside the tape")
answers.mistake("adds_gradients_up_twice", {
    "optimizer.apply": """
        slopes = [tf.distribute.get_replica_context().all_reduce("SUM", slope) for slope in slopes]
        optimizer.apply
    """,
}, "The step is 2 times the mean gradient", "gradients were added up before apply_gradients")
answers.mistake("applies_twice", {
    "optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))": """
        for _ in range(2):
            optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
    """,
}, "The optimizer counts 4 steps in a training of 2: apply the gradients once in each")
answers.mistake("applies_nothing",
    {"optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))": ""},
    "The weights have not moved")
answers.mistake("reduces_with_a_mean", {'strategy.reduce("SUM"': 'strategy.reduce("MEAN"'},
    'reduce with "SUM", each loss is a share already')
answers.mistake("returns_what_replicas_return", {
    'strategy.reduce("SUM", strategy.run(on_replica, args=(x, y)), axis=None)':
        "strategy.run(on_replica, args=(x, y))",
}, "a value for each replica: strategy.reduce adds them up")
answers.mistake("goes_round_the_optimizer", {
    "optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))": """
        context = tf.distribute.get_replica_context()
        for slope, variable in zip(slopes, model.trainable_variables, strict=True):
            variable.assign(variable - optimizer.learning_rate * context.all_reduce("SUM", slope))
    """,
}, "the optimizer counts 0 steps, expected 2: let it apply the gradients")
answers.mistake("goes_round_the_optimizer_with_another_rate", {
    "optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))": """
        context = tf.distribute.get_replica_context()
        for slope, variable in zip(slopes, model.trainable_variables, strict=True):
            variable.assign(variable - 0.2 * context.all_reduce("SUM", slope))
    """,
}, "The optimizer counts no step: let it apply the gradients")
answers.mistake("returns_the_share_of_one_replica", {
    'strategy.reduce("SUM", strategy.run(on_replica, args=(x, y)), axis=None)':
        "strategy.experimental_local_results(strategy.run(on_replica, args=(x, y)))[0]",
}, "This is the share of replica 0 alone: strategy.reduce adds all up")
answers.mistake("weighs_the_mean_of_no_examples",
    {"tf.reduce_sum(per_example(model, x, y)) / count":
        "tf.reduce_mean(per_example(model, x, y)) * tf.cast(tf.shape(x)[0], tf.float32) / count"},
    "got nan. A replica without examples has a mean of 0/0")
answers.mistake("returns_the_loss_after_the_step", {
    "return loss": "return tf.reduce_sum(per_example(model, x, y)) / count + sum(model.losses) / replicas()",
}, "This is the loss after the step")
answers.mistake("tensorflows_guess_of_the_batch",
    {"tf.reduce_sum(per_example(model, x, y)) / count": "tf.nn.compute_average_loss(per_example(model, x, y))"},
    "3 examples", "mean of the replicas' means")
answers.mistake("returns_nothing", {"return strategy": "strategy"},
    "expected the mean loss, got None (does the function return it?)")
answers.mistake("returns_the_loss_without_penalties", {
    "loss = tf.reduce_sum(per_example(model, x, y)) / count + sum(model.losses) / replicas()": """
        own = tf.reduce_sum(per_example(model, x, y)) / count
        loss = own + sum(model.losses) / replicas()
    """,
    "return loss": "return own",
}, "The model's own penalties are left out")

answers.spoil("goes_round_the_optimizer_and_doubles_the_loss", {"return loss": "return 2 * loss"},
    of=answers["goes_round_the_optimizer"])
