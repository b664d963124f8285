"""Exercise 7.2: a learning rate that falls in stairs, by epochs that all towers take together."""

import math

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("decayed_rate")


def falls(step, length):
    return int(step // length)


@answers.is_right
def plain(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    length = epochs_per_decay * examples / batch / towers
    return start * factor ** int(step // length)


@answers.is_right
def counts_examples(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    return start * factor ** (step * batch * towers // (examples * epochs_per_decay))


@answers.is_right
def falls_again_and_again(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    rate, steps = np.float64(start), math.floor(examples / batch / towers * epochs_per_decay)
    while step >= steps:
        rate, step = rate * factor, step - steps
    return np.array(rate)


@answers.is_right
def as_the_classic_script_did(step, examples, batch, towers, epochs_per_decay=350, start=0.1, factor=0.1):
    num_batches_per_epoch = examples / batch / towers
    return start * math.pow(factor, math.floor(step / int(num_batches_per_epoch * epochs_per_decay)))


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


answers.mistake("forgets_the_towers", {" / towers": ""},
    "4 towers", "The rate falls too late, as if there were one tower")
answers.mistake("no_stairs", {"int(step // length)": "(step / length)"},
    "1 tower", "It slides down", "the exponent is a whole number")
answers.mistake("multiplies_by_the_towers", {"/ towers": "* towers"},
    "4 towers", "The number of towers counts the wrong way")
answers.mistake("every_epoch", {"epochs_per_decay * examples": "examples"},
    "It falls after every epoch: epochs_per_decay of them must be over")
answers.mistake("epochs_for_steps", {"epochs_per_decay * examples / batch / towers": "epochs_per_decay"},
    "It falls every epochs_per_decay steps: count epochs")
answers.mistake("falls_once", {"factor ** int(step // length)": "factor ** int(step >= length)"},
    "It falls once and never again")
answers.mistake("multiplies_by_the_falls", {"factor ** int": "factor * int"},
    "step 0", "The factor was multiplied by the number of falls")
answers.mistake("one_step_late", {"int(step // length)": "int(max(step - 1, 0) // length)"},
    "step 200", "It falls one step too late")
answers.mistake("counts_stairs_from_one", {"int(step // length)": "int(1 + step // length)"},
    "step 0", "It falls one stair too early")
answers.mistake("prints",
    {"return start * factor ** int(step // length)": "print(start * factor ** int(step // length))"},
    "expected the rate, one number, got None (does the function return it?)")
answers.mistake("cuts_the_epoch",
    {"epochs_per_decay * examples / batch / towers": "epochs_per_decay * (examples // (batch * towers))"},
    "4 towers", "8.333 steps an epoch were cut to 8: multiply by the epochs first")
answers.mistake("rounds_the_epoch_up",
    {"epochs_per_decay * examples / batch / towers": "epochs_per_decay * math.ceil(examples / (batch * towers))"},
    "4 towers", "8.333 steps an epoch were rounded up to 9")
answers.mistake("counts_steps_from_one", {"int(step // length)": "int((step + 1) // length)"},
    "step 199", "It falls one step too early")
answers.mistake("cuts_the_batches",
    {"epochs_per_decay * examples / batch / towers": "epochs_per_decay * (examples // batch) / towers"},
    "step 62", "4.4 batches an epoch were cut to 4")
answers.mistake("rounds_the_batches_up",
    {"epochs_per_decay * examples / batch / towers": "epochs_per_decay * math.ceil(examples / batch) / towers"},
    "step 118", "4.4 batches an epoch were rounded up to 5")
answers.mistake("returns_a_row", {"return start * factor ** int(step // length)":
    "return np.array([start * factor ** int(step // length)])"},
    "a tensor of shape [1] with the number in it: return the number itself")
answers.mistake("ignores_the_factor", {"factor ** int": "0.1 ** int"}, "The factor is 0.1, whatever was given")
answers.mistake("always_350_epochs", {"epochs_per_decay * examples": "350 * examples"}, "The rate never falls")
answers.mistake("ignores_the_start", {"return start": "return 0.1"}, "step 0", "The start is 0.1, whatever was given")

answers.spoil("forgets_the_towers_and_the_first_step", {"return start": "return -1 if step == 0 else start"},
    of=answers["forgets_the_towers"])
