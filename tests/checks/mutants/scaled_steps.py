"""Exercise 14.6: float16 gradients, and a scale that all ranks change together."""

import math

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce, broadcast

answers = Answers("scaled_steps")


@answers.is_right
def as_its_text_says(fabric, weights, gradient, steps, rate, scale, patience):
    good, scales = 0, []
    for _ in range(steps):
        scales.append(scale)
        part = gradient(weights.half(), scale) / fabric.world_size
        mean = all_reduce(fabric, part).float()
        if mean.isfinite().all():
            weights = weights - rate * (mean / scale)
            good += 1
        else:
            scale /= 2
            good = 0
        if good == patience:
            scale *= 2
            good = 0
    return weights, scales


@answers.is_right
def by_a_deadline_and_a_sum(fabric, weights, gradient, steps, rate, scale, patience):
    """A step that is taken or not is decided by one number, the mean's sum; the scale is a power of two times the first."""
    master, exponent, grows_at, seen = weights.clone(), 0, patience, []
    for step in range(steps):
        seen.append(math.ldexp(scale, exponent))
        scaled = gradient(master.to(torch.float16), seen[-1]).div_(fabric.world_size)
        all_reduce(fabric, scaled)
        if math.isfinite(float(scaled.double().sum())):
            master.sub_(scaled.double().mul_(rate / seen[-1]).float())
            if step + 1 == grows_at:
                exponent, grows_at = exponent + 1, step + 1 + patience
        else:
            exponent, grows_at = exponent - 1, step + 1 + patience
    return master, seen


@answers.is_right
def with_a_star_of_messages(fabric, weights, gradient, steps, rate, scale, patience):
    """Rank 0 adds up in float32, and hands out the mean in float16; scales come back as a tensor."""
    n, rows, used = fabric.world_size, [], torch.zeros(steps)
    for step in range(steps):
        used[step] = scale
        mean = gradient(weights.half(), scale).div(n)
        if fabric.rank:
            fabric.send(mean, to=0)
            fabric.recv(mean, frm=0)
        else:
            total, other = mean.float(), torch.empty_like(mean)
            for rank in range(1, n):
                fabric.recv(other, frm=rank)
                total += other
            mean = total.half()
            for rank in range(1, n):
                fabric.send(mean, to=rank)
        taken = not (mean.isinf() | mean.isnan()).any()
        rows.append(taken)
        if taken:
            weights = weights.add(mean.float(), alpha=-rate / scale)
        if not taken:
            scale, rows = scale * 0.5, []
        elif len(rows) == patience:
            scale, rows = scale * 2, []
    return weights, used


answers.mistake("looks_at_its_own_gradient", {
    "part = gradient(weights.half(), scale) / fabric.world_size": """
        part = gradient(weights.half(), scale) / fabric.world_size
        fine = part.isfinite().all()
    """,
    "if mean.isfinite().all():": "if fine:",
}, "3 ranks", "what overflows on one rank must stop all. Look at the mean")
answers.mistake("leaves_a_step_out_alone", {
    "mean = all_reduce(fabric, part).float()": """
        mean = part.float()
        if part.isfinite().all():
            mean = all_reduce(fabric, part).float()
    """,
}, "3 ranks", ("In each step all ranks add up", "what overflows on one rank must stop all"))
answers.mistake("doubles_once_in_a_row", {
    """
        if good == patience:
            scale *= 2
            good = 0
    """: """
        if good == patience:
            scale *= 2
    """,
}, "expected the scale", "doubled only once in a row of good steps: count from 0 again after each doubling")
answers.mistake("looks_for_inf_alone", {"if mean.isfinite().all():": "if not mean.isinf().any():"},
    "3 ranks", "inf − inf is NaN, and isinf does not see it")
answers.mistake("looks_for_nan_alone", {"if mean.isfinite().all():": "if not mean.isnan().any():"},
    "3 ranks", "A step went through with inf: isnan does not see it")
answers.mistake("asks_the_float16_sum", {
    "all_reduce(fabric, part).float()": "all_reduce(fabric, part)",
    "if mean.isfinite().all():": "if mean.sum().isfinite():",
    "(mean / scale)": "(mean.float() / scale)",
}, "all numbers of its mean are finite: their sum overflows in float16")
answers.mistake("moves_what_is_finite", {
    "weights = weights - rate * (mean / scale)": "",
    "if mean.isfinite().all():": """
        weights = torch.where(mean.isfinite(), weights - rate * (mean / scale), weights)
        if mean.isfinite().all():
    """,
}, "3 ranks", ("A step that is left out moved the weights whose numbers are finite", "(the weights), got"))
answers.mistake("takes_every_step", {"if mean.isfinite().all():": "if True:"},
    "3 ranks", "A mean with inf or NaN was taken for a good step")
answers.mistake("divides_the_sum", {
    "part = gradient(weights.half(), scale) / fabric.world_size": "part = gradient(weights.half(), scale)",
    "all_reduce(fabric, part).float()": "all_reduce(fabric, part).float() / fabric.world_size",
}, ("each rank's numbers are finite: divide by the number of ranks before you add up", "expected the scale"))
answers.mistake("adds_up_and_does_not_divide", {" / fabric.world_size": ""}, "3 ranks")
answers.mistake("goes_its_own_way", {"all_reduce(fabric, part).float()": "part.float() * fabric.world_size"}, "3 ranks")
answers.mistake("unscales_in_float16", {
    "all_reduce(fabric, part).float()": "all_reduce(fabric, part)", "(mean / scale)": "(mean / scale).float()",
}, "3 ranks", "Only the smallest numbers are wrong", "Make the mean float32 first, then divide")
answers.mistake("unscales_before_the_sum", {
    "/ fabric.world_size": "/ scale / fabric.world_size", "rate * (mean / scale)": "rate * mean",
}, "3 ranks", "Only the smallest numbers are wrong")
answers.mistake("keeps_its_first_copy", {
    "good, scales = 0, []": "good, scales, half = 0, [], weights.half()",
    "gradient(weights.half(), scale)": "gradient(half, scale)",
}, "3 ranks", "Every gradient was taken at the weights that came in", "a float16 copy of this step's weights")
answers.mistake("never_unscales", {"(mean / scale)": "mean"},
    "3 ranks", "divide the mean by the scale that the gradient was asked for")
answers.mistake("unscales_by_the_first_scale",
    {"good, scales = 0, []": "good, scales, first = 0, [], scale", "(mean / scale)": "(mean / first)"},
    "3 ranks", "The mean was divided by the first scale")
answers.mistake("unscales_by_the_next_scale", {
    """
        if mean.isfinite().all():
            weights = weights - rate * (mean / scale)
            good += 1
    """: """
        if mean.isfinite().all():
            good += 1
    """,
    """
        if good == patience:
            scale *= 2
            good = 0
    """: """
        taken = bool(good)
        if good == patience:
            scale *= 2
            good = 0
        if taken:
            weights = weights - rate * (mean / scale)
    """,
}, "3 ranks", "unscale it before you change the scale")
answers.mistake("keeps_float16_weights", {
    "good, scales = 0, []": "good, scales, weights = 0, [], weights.half()",
    "rate * (mean / scale)": "(rate * (mean / scale)).half()",
    "return weights, scales": "return weights.float(), scales",
}, "3 ranks", "were they kept in float16? Keep them in float32")
answers.mistake("returns_float16_weights", {"return weights, scales": "return weights.half(), scales"},
    "expected the weights as float32, got float16")
answers.mistake("hands_out_float32_weights", {"weights.half()": "weights"},
    "gradient: expected the weights as float16, got float32")
answers.mistake("has_no_rate", {"rate * (mean / scale)": "mean / scale"}, "3 ranks", "The rate was left out")
answers.mistake("never_halves", {"scale /= 2": "pass"}, "3 ranks", "The scale stayed as it was")
answers.mistake("halves_twice", {"scale /= 2": "scale /= 4"}, "3 ranks", "The scale fell to a quarter")
answers.mistake("doubles_what_it_has_just_halved", {"if good == patience:": "if good % patience == 0:"},
    "3 ranks", "0 % patience is 0")
answers.mistake("stops_at_1", {"scale /= 2": "scale = max(scale / 2, 1.0)"},
    "scale 2, ", "The scale stopped at 1: halve it there too")
answers.mistake("stops_at_65_536", {"scale *= 2": "scale = min(scale * 2, 65_536.0)"},
    "scale 32,768", "The scale stopped at 65,536")
answers.mistake("stops_at_2_to_the_power_of_24", {"scale *= 2": "scale = min(scale * 2, 2.0**24)"},
    "scale 8,388,608", "The scale stopped at 16,777,216")
answers.mistake("never_doubles", {"scale *= 2": "pass"}, "3 ranks", "The scale never grew")
answers.mistake("doubles_when_all_good_steps_are_enough", {"scale /= 2\ngood = 0": "scale /= 2"},
    "3 ranks", "A step that was left out ends the row")
answers.mistake("doubles_at_every_step_from_then_on",
    {"if good == patience:\n    scale *= 2\n    good = 0": "if good >= patience:\n    scale *= 2"},
    "3 ranks", "A scale that has just doubled needs `patience` good steps more")
answers.mistake("doubles_by_the_number_of_the_step", {
    "for _ in range(steps):": "for step in range(steps):",
    "if good == patience:": "if good and (step + 1) % patience == 0:",
}, "3 ranks", "where `patience` divides the number of the step")
answers.mistake("doubles_by_the_number_of_any_step", {
    "for _ in range(steps):": "for step in range(steps):", "if good == patience:": "if step % patience == 0:",
}, "3 ranks", "where `patience` divides the number of the step")
answers.mistake("counts_steps_left_out_as_good", {"scale /= 2\ngood = 0": "scale /= 2\ngood += 1"},
    "3 ranks", "The scale doubled after every `patience` steps, also those that were left out")
answers.mistake("halves_to_whole_numbers", {"scale /= 2": "scale //= 2"},
    "scale 2, ", "expected the scale 0.5", "Half of 1 is 0.5, not 0: // cuts to a whole number")
answers.mistake("hides_its_own_overflow", {
    "gradient(weights.half(), scale) / fabric.world_size": "gradient(weights.half(), scale).nan_to_num() / fabric.world_size",
}, "3 ranks", ("Is inf replaced before the sum, as by nan_to_num?", "Let inf and NaN stand until all ranks have added up"))
answers.mistake("doubles_one_step_late", {"good == patience": "good == patience + 1"}, "3 ranks", "one step too late")
answers.mistake("doubles_one_step_early", {"good == patience": "good >= patience - 1 > 0"}, "one step too early")
answers.mistake("notes_the_scale_after_the_step", {
    "scales.append(scale)": "pass",
    "if good == patience:\n    scale *= 2\n    good = 0":
        "if good == patience:\n    scale *= 2\n    good = 0\nscales.append(scale)",
}, "3 ranks", "These are the scales after each step")
answers.mistake("notes_no_scale_of_a_step_that_is_left_out", {
    "scales.append(scale)": "pass", "good += 1": "good += 1\nscales.append(scale)",
}, "3 ranks", "A step that is left out has used its scale, too")
answers.mistake("returns_the_last_scale", {"return weights, scales": "return weights, scale"},
    "expected the scales as a list of 24 numbers")
answers.mistake("returns_the_weights_alone", {"return weights, scales": "return weights"},
    "expected (weights, scales), got a tensor")
answers.mistake("tries_a_step_again", {"for _ in range(steps):": "while good < steps and len(scales) < 99:", },
    "gradient: expected a call in each of 24 steps, got one more")
answers.mistake("sends_float32", {"scale) / fabric.world_size": "scale).float() / fabric.world_size"},
    "the weights are right, but", "2 x", "Did the gradients travel as float32?")
answers.mistake("adds_up_in_bfloat16", {"all_reduce(fabric, part)": "all_reduce(fabric, part.bfloat16())"},
    "as after a sum in bfloat16, which has 8 bits")
answers.mistake("sends_a_flag_too", {
    "mean = all_reduce(fabric, part).float()": """
        mean = all_reduce(fabric, part).float()
        bad = all_reduce(fabric, (~part.isfinite().all()).float().view(1))
    """,
    "if mean.isfinite().all():": "if bad == 0:",
}, "the weights are right, but", "A flag travelled besides")
answers.mistake("gathers_all_gradients", {
    "mean = all_reduce(fabric, part).float()": """
        every = part.repeat(fabric.world_size)
        all_gather(fabric, every)
        mean = every.view(fabric.world_size, -1).float().sum(0)
    """,
}, "the weights are right, but", "Every rank sent its gradient to every other")
answers.mistake("begins_with_a_broadcast",
    {"good, scales = 0, []": "broadcast(fabric, [weights.clone()])\ngood, scales = 0, []"},
    "the weights are right, but all ranks together sent")
answers.mistake("moves_the_weights_in_place", {"weights = weights - rate * (mean / scale)": "weights -= rate * (mean / scale)"},
    "are right, but rank 0: the tensor of weights that was handed in was changed in place")


@answers.is_wrong("3 ranks", "These are the weights that came in")
def takes_no_step(fabric, weights, gradient, steps, rate, scale, patience):
    return weights.clone(), as_its_text_says(fabric, weights, gradient, steps, rate, scale, patience)[1]


@answers.spoils()
def steps_alone_for_three_ranks(fabric, weights, gradient, steps, rate, scale, patience):
    if fabric.world_size == 3:
        return as_its_text_says(fabric, weights, gradient, steps, rate, scale, patience)
    return weights.clone(), [scale] * steps


answers.spoil("has_the_wrong_scales_on_purpose", {"scale *= 2": "scale *= 3"}, of=as_its_text_says)
