"""Exercise 7.2: a learning rate that falls in stairs, by epochs that all towers take together."""

from __future__ import annotations

import math

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("decayed_rate")


def falls(step, length):
    return int(step // length)


@answers.is_wrong("4 towers", "The rate falls too late, as if there were one tower")
def forgets_the_towers(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** falls(step, epochs_per_decay * examples / batch)


@answers.is_wrong("1 tower", "It slides down", "the exponent is a whole number")
def no_stairs(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** (step / (epochs_per_decay * examples / batch / towers))


@answers.is_wrong("4 towers", "The number of towers counts the wrong way")
def multiplies_by_the_towers(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** falls(step, epochs_per_decay * examples / batch * towers)


@answers.is_wrong("It falls after every epoch: epochs_per_decay of them have to be over")
def every_epoch(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** falls(step, examples / batch / towers)


@answers.is_wrong("It falls every epochs_per_decay steps: count epochs")
def epochs_for_steps(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** falls(step, epochs_per_decay)


@answers.is_wrong("It falls once and never again")
def falls_once(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor if step >= epochs_per_decay * examples / batch / towers else start


@answers.is_wrong("step 0", "The factor was multiplied by the number of falls")
def multiplies_by_the_falls(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor * falls(step, epochs_per_decay * examples / batch / towers)


@answers.is_wrong("step 200", "It falls one step too late")
def one_step_late(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** falls(step - 1, epochs_per_decay * examples / batch / towers) if step else start


@answers.is_wrong("step 0", "It falls one stair too early")
def counts_stairs_from_one(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** (1 + falls(step, epochs_per_decay * examples / batch / towers))


@answers.is_wrong("expected the rate, one number, got None (does the function return it?)")
def prints(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    print(start * factor ** falls(step, epochs_per_decay * examples / batch / towers))


@answers.is_right
def counts_examples(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** (step * batch * towers // (examples * epochs_per_decay))


@answers.is_right
def falls_again_and_again(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    rate, steps = np.float64(start), math.floor(examples / batch / towers * epochs_per_decay)
    while step >= steps:
        rate, step = rate * factor, step - steps
    return np.array([rate])


@answers.is_right
def as_the_classic_script_did(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    num_batches_per_epoch = examples / batch / towers
    return start * math.pow(factor, math.floor(step / int(num_batches_per_epoch * epochs_per_decay)))


@answers.is_wrong("4 towers", "8.333 steps an epoch were cut to 8: multiply by the epochs first")
def cuts_the_epoch(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** (step // (examples // (batch * towers) * epochs_per_decay))


@answers.is_wrong("4 towers", "8.333 steps an epoch were rounded up to 9")
def rounds_the_epoch_up(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** (step // (math.ceil(examples / (batch * towers)) * epochs_per_decay))


@answers.is_wrong("step 199", "It falls one step too early")
def counts_steps_from_one(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** falls(step + 1, epochs_per_decay * examples / batch / towers)


@answers.is_wrong("step 0", "The start is 0.1, whatever was given")
def ignores_the_start(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return 0.1 * factor ** falls(step, epochs_per_decay * examples / batch / towers)


@answers.is_right
def as_keras_does(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    """What `keras.optimizers.schedules.ExponentialDecay(staircase=True)` computes, all of it in float32."""
    decay_steps = np.float32(int(epochs_per_decay * examples / (batch * towers)))
    over = np.floor(np.float32(step) / decay_steps)
    return np.float32(start) * np.power(np.float32(factor), over)


@answers.is_right
def float32_all_along(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    over, _ = divmod(step * batch * towers, examples * epochs_per_decay)
    return np.float32(start) * np.prod(np.full(over, factor, np.float32), dtype=np.float32)
