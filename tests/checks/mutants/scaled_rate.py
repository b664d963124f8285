"""Exercise 13.1: the rate of a step with a large batch: linear scaling, gradual warm-up, a tenth after some epochs."""

from __future__ import annotations

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


@answers.is_wrong("This is the base rate, whatever the batch", "k times the batch takes k times the rate")
def ignores_the_batch(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    return dropped(base_rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("There is no warm-up: the first steps take the whole rate")
def has_no_warmup(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    return dropped(base_rate * batch / base_batch, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("The base rate is held, and then it jumps")
def warms_up_at_a_constant_rate(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    scaled = base_rate * batch / base_batch
    rate = scaled if step >= warmup_epochs * steps_per_epoch else base_rate
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("It rises from 0: the warm-up begins at the base rate")
def rises_from_zero(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    scaled = base_rate * batch / base_batch
    rate = rising(step, warmup_epochs * steps_per_epoch, 0.0, scaled)
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("It grows with the square root of the batch", "linear")
def scales_by_the_root(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    scaled = base_rate * math.sqrt(batch / base_batch)
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, scaled)
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("It rises once an epoch: a gradual warm-up rises at every step")
def rises_in_stairs(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    scaled = base_rate * batch / base_batch
    rate = rising(step // steps_per_epoch, warmup_epochs, base_rate, scaled)
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("// base_batch cuts 2.5 to 2", "divide with /")
def divides_whole(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    scaled = base_rate * (batch // base_batch)
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, scaled)
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("The rate never drops")
def never_drops(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    return rising(step, warmup_epochs * steps_per_epoch, base_rate, base_rate * batch / base_batch)


@answers.is_wrong("The drops come later by the warm-up")
def counts_epochs_from_the_end_of_the_warmup(
    step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs
):
    length = warmup_epochs * steps_per_epoch
    rate = rising(step, length, base_rate, base_rate * batch / base_batch)
    return dropped(rate, step - length, steps_per_epoch, drop_epochs)


@answers.is_wrong("It drops once and never again")
def drops_once(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, base_rate * batch / base_batch)
    return 0.1 * rate if any(step >= epoch * steps_per_epoch for epoch in drop_epochs) else rate


@answers.is_wrong("It drops for one epoch and is back afterwards")
def drops_for_one_epoch(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, base_rate * batch / base_batch)
    return rate / 10 if step // steps_per_epoch in drop_epochs else rate


@answers.is_wrong("It is divided by 10 times the number of drops")
def divides_by_ten_times_the_drops(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, base_rate * batch / base_batch)
    return rate / max(1, 10 * sum(step >= epoch * steps_per_epoch for epoch in drop_epochs))


@answers.is_wrong("It drops one step late", "step e · steps_per_epoch is after e epochs")
def drops_after_the_first_step_of_the_epoch(
    step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs
):
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, base_rate * batch / base_batch)
    return rate * 0.1 ** sum(step > epoch * steps_per_epoch for epoch in drop_epochs)


@answers.is_wrong("drop_epochs are taken for steps")
def compares_epochs_with_steps(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, base_rate * batch / base_batch)
    return dropped(rate, step, 1, drop_epochs)


@answers.is_wrong("warmup_epochs are taken for steps")
def warms_up_for_so_many_steps(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    rate = rising(step, warmup_epochs, base_rate, base_rate * batch / base_batch)
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("It rises by the same factor at every step")
def rises_by_a_factor(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    length, ratio = warmup_epochs * steps_per_epoch, batch / base_batch
    rate = base_rate * ratio ** min(1.0, step / length if length else 1.0)
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("It never stops to rise")
def rises_for_ever(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    length, scaled = warmup_epochs * steps_per_epoch, base_rate * batch / base_batch
    rate = base_rate + (scaled - base_rate) * step / length if length else scaled
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("The base batch is 256, whatever was given")
def takes_the_papers_base(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, base_rate * batch / 256)
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_wrong("expected the rate, one number, got None (does the function return it?)")
def returns_nothing(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    dropped(base_rate * batch / base_batch, step, steps_per_epoch, drop_epochs)


@answers.is_right
def plain(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    rate = rising(step, warmup_epochs * steps_per_epoch, base_rate, base_rate * batch / base_batch)
    return dropped(rate, step, steps_per_epoch, drop_epochs)


@answers.is_right
def begins_one_increment_on(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    scaled = base_rate * batch / base_batch
    rate = rising(step + 1, warmup_epochs * steps_per_epoch, base_rate, scaled)
    for epoch in drop_epochs:
        if step // steps_per_epoch >= epoch:
            rate /= 10
    return torch.tensor(rate, dtype=torch.float64)


@answers.is_right
def lays_the_warmup_out_as_a_row(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    """The last step of the warm-up has the scaled rate already."""
    scaled = base_rate * batch / base_batch
    row = np.linspace(base_rate, scaled, warmup_epochs * steps_per_epoch)
    rate = row[step] if step < len(row) else scaled
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

    return of_schedulers(step, base_rate * batch / base_batch, schedule)


@answers.is_right
def with_chained_schedules(step, steps_per_epoch, batch, base_rate, base_batch, warmup_epochs, drop_epochs):
    """LinearLR and MultiStepLR side by side: their factors multiply."""
    from torch.optim.lr_scheduler import ChainedScheduler, LinearLR, MultiStepLR

    def schedule(optimizer):
        parts = [MultiStepLR(optimizer, [epoch * steps_per_epoch for epoch in drop_epochs], gamma=0.1)]
        if warmup_epochs:
            length = warmup_epochs * steps_per_epoch
            parts.insert(0, LinearLR(optimizer, start_factor=base_batch / batch, total_iters=length))
        return ChainedScheduler(parts, optimizer=optimizer)

    return of_schedulers(step, base_rate * batch / base_batch, schedule)
