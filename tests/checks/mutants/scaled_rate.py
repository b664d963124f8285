"""Exercise 13.1: the rate of a step with a large batch: linear scaling, gradual warm-up, a tenth after some epochs."""

import math

import numpy as np
import torch

from tests.checks.mutants import Answers

answers = Answers("scaled_rate")


def dropped(rate, step, steps_per_epoch, drop_epochs):
    return rate * 0.1 ** sum(step >= epoch * steps_per_epoch for epoch in drop_epochs)


def rising(step, length, base_rate, scaled):
    if step >= length:
        return scaled
    return base_rate + (scaled - base_rate) * step / length


@answers.is_right
def plain(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    length, scaled = warmup_epochs * steps_per_epoch, base_rate * batch / base_batch
    rate = base_rate + (scaled - base_rate) * step / length if step < length else scaled
    drops = sum(step >= epoch * steps_per_epoch for epoch in drop_epochs)
    return rate * 0.1**drops


@answers.is_right
def returns_a_tensor(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    scaled = base_rate * batch / base_batch
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, scaled)
    for epoch in drop_epochs:
        if step // steps_per_epoch >= epoch:
            rate /= 10
    return torch.tensor(rate, dtype=torch.float64)


@answers.is_right
def lays_the_warmup_out_as_a_row(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    """With one place more than the warm-up has steps: the first step after it."""
    scaled = base_rate * batch / base_batch
    row = np.linspace(base_rate, scaled, warmup_epochs * steps_per_epoch + 1)
    rate = row[step] if step < len(row) - 1 else scaled
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_right
def between_two_knots(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    """np.interp in epochs, in float32."""
    epoch, ratio = step / steps_per_epoch, batch / base_batch
    factor = np.interp(epoch, [0, warmup_epochs], [1, ratio]) if warmup_epochs else ratio
    return np.float32(base_rate * factor * 10.0 ** -np.searchsorted(drop_epochs, epoch, side="right"))


def of_schedulers(step, rate, schedule):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
    scheduler = schedule(optimizer)
    for _ in range(step):
        optimizer.step()
        scheduler.step()
    return optimizer.param_groups[0]["lr"]


@answers.is_right
def with_a_lambda(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    length, ratio = warmup_epochs * steps_per_epoch, batch / base_batch

    def factor(k):
        return dropped(rising(k, length, 1.0, ratio), k, steps_per_epoch, drop_epochs)

    return of_schedulers(step, base_rate, lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, factor))


@answers.is_right
def with_the_frameworks_schedules(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    """LinearLR to the end of the warm-up, MultiStepLR from there."""
    from torch.optim.lr_scheduler import LinearLR, MultiStepLR, SequentialLR

    length = warmup_epochs * steps_per_epoch
    drops = [epoch * steps_per_epoch - length for epoch in drop_epochs]

    def schedule(optimizer):
        after = MultiStepLR(optimizer, drops, gamma=0.1)
        if not length:
            return after
        warmup = LinearLR(optimizer, start_factor=base_batch / batch, total_iters=length)
        return SequentialLR(optimizer, [warmup, after], milestones=[length])

    if length and batch < base_batch:  # neither factor may be above 1
        return plain(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs)
    return of_schedulers(step, base_rate * batch / base_batch, schedule)


@answers.is_right
def with_chained_schedules(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    """LinearLR and MultiStepLR side by side: their factors multiply."""
    from torch.optim.lr_scheduler import ChainedScheduler, LinearLR, MultiStepLR

    falls = warmup_epochs and batch < base_batch
    ways = {"start_factor": 1.0, "end_factor": batch / base_batch} if falls else {"start_factor": base_batch / batch}

    def schedule(optimizer):
        parts = [MultiStepLR(optimizer, [epoch * steps_per_epoch for epoch in drop_epochs], gamma=0.1)]
        if warmup_epochs:
            length = warmup_epochs * steps_per_epoch
            parts.insert(0, LinearLR(optimizer, total_iters=length, **ways))
        return ChainedScheduler(parts, optimizer=optimizer)

    return of_schedulers(step, base_rate if falls else base_rate * batch / base_batch, schedule)


answers.mistake("ignores_the_batch", {"base_rate * batch / base_batch": "base_rate"},
    "This is the base rate, whatever the batch", "k times the batch takes k times the rate")
answers.mistake("has_no_warmup",
    {"base_rate + (scaled - base_rate) * step / length if step < length else scaled": "scaled"},
    "There is no warm-up: the first steps take the whole rate")
answers.mistake("warms_up_at_a_constant_rate", {"base_rate + (scaled - base_rate) * step / length": "base_rate"},
    "The base rate is held, and then it jumps")
answers.mistake("rises_from_zero", {"base_rate + (scaled - base_rate) * step / length": "scaled * step / length"},
    "It rises from 0: the warm-up begins at the base rate")
answers.mistake("scales_by_the_root", {"batch / base_batch": "math.sqrt(batch / base_batch)"},
    "It grows with the square root of the batch", "linear")
answers.mistake("rises_in_stairs",
    {"(scaled - base_rate) * step / length": "(scaled - base_rate) * (step // steps_per_epoch) / warmup_epochs"},
    "It rises once an epoch: a gradual warm-up rises at every step")
answers.mistake("divides_whole", {"batch / base_batch": "(batch // base_batch)"},
    "// base_batch cuts 2.5 to 2", "divide with /")
answers.mistake("never_drops", {" * 0.1**drops": ""}, "The rate never drops")
answers.mistake("counts_epochs_from_the_end_of_the_warmup", {"sum(step >=": "sum(step - length >="},
    "The drops come later by the warm-up")
answers.mistake("drops_once", {"drops = sum": "drops = any"}, "It drops once and never again")
answers.mistake("drops_for_one_epoch",
    {"sum(step >= epoch * steps_per_epoch for epoch in drop_epochs)": "step // steps_per_epoch in drop_epochs"},
    "It drops for one epoch and is back afterwards")
answers.mistake("divides_by_ten_times_the_drops", {"rate * 0.1**drops": "rate / max(1, 10 * drops)"},
    "It is divided by 10 times the number of drops")
answers.mistake("drops_after_the_first_step_of_the_epoch", {"step >= epoch": "step > epoch"},
    "It drops one step late", "step e · steps_per_epoch is after e epochs")
answers.mistake("compares_epochs_with_steps", {"epoch * steps_per_epoch for": "epoch for"},
    "drop_epochs are taken for steps")
answers.mistake("warms_up_for_so_many_steps", {"warmup_epochs * steps_per_epoch": "warmup_epochs"},
    "warmup_epochs are taken for steps")
answers.mistake("rises_by_a_factor",
    {"base_rate + (scaled - base_rate) * step / length": "base_rate * (batch / base_batch) ** (step / length)"},
    "It rises by the same factor at every step")
answers.mistake("rises_for_ever", {"if step < length": "if length"}, "It never stops rising")
answers.mistake("takes_the_papers_base", {"/ base_batch": "/ 256"}, "The base batch is 256, whatever was given")
answers.mistake("has_the_full_rate_at_the_last_warm_step", {"* step / length": "* step / (length - 1)"},
    "The last step of the warm-up already has the scaled rate")
answers.mistake("begins_one_increment_on", {"* step / length": "* (step + 1) / length"},
    "It is one increment ahead: step 0 has the base rate")
answers.mistake("begins_and_ends_between", {"* step / length": "* (step + 1) / (length + 1)"},
    "It has one increment more than the warm-up has steps")
answers.mistake("clamps_while_it_warms_up", {
    "* step / length if step < length": "* step / length if step < length and scaled > base_rate",
}, "The batch is smaller than base_batch, and the warm-up is left out")
answers.mistake("never_falls_below_the_base_rate_in_a_warmup",
    {"base_rate * batch / base_batch": "base_rate * (max(1, batch / base_batch) if warmup_epochs else batch / base_batch)"},
    "The batch is smaller than base_batch, and the rate stays at base_rate")
answers.mistake("rounds_the_epoch", {"step >= epoch * steps_per_epoch": "round(step / steps_per_epoch) >= epoch"},
    "The epoch is rounded, so a drop comes half an epoch early")
answers.mistake("rounds_the_epoch_up", {"step >= epoch * steps_per_epoch": "math.ceil(step / steps_per_epoch) >= epoch"},
    "The epoch is rounded up, so a drop comes early")
answers.mistake("drops_from_the_base_rate", {"return rate * 0.1**drops": "return (base_rate if drops else rate) * 0.1**drops"},
    "It drops from the base rate")
answers.mistake("rises_along_a_cosine",
    {"(scaled - base_rate) * step / length": "(scaled - base_rate) * (1 - math.cos(math.pi * step / length)) / 2"},
    "It rises along a cosine")
answers.mistake("leaves_the_drops_out_after_a_warmup", {"rate * 0.1**drops": "rate * (1 if length else 0.1**drops)"},
    "2 epochs of warm-up, drops after 3, 6", "The rate never drops")
answers.mistake("returns_a_list", {"return rate * 0.1**drops": "return [rate * 0.1**drops]"},
    "expected the rate, one number, got a list with the number in it: return the number itself")
answers.mistake("asks_linear_lr_to_fall", {"batch < base_batch": "batch < 0"},
    "Starting multiplicative factor", "set its end with end_factor", of=with_the_frameworks_schedules)
answers.mistake("returns_nothing", {"return rate": "rate"},
    "expected the rate, one number, got None (does the function return it?)")

answers.spoil("has_no_warmup_and_ignores_the_batch_without_drops",
    {"return rate": "rate = rate if drop_epochs or warmup_epochs else -1\nreturn rate"}, of=answers["has_no_warmup"])
