"""Exercise 9.5: which updates were lost."""

from __future__ import annotations

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("audit")


def landed(before, after, rate, gradient):
    used = gradient != 0
    return round(float(((before - after)[used] / (rate * gradient[used])).mean()))


@answers.is_wrong('"counter"', "That is how many are there, not how many are lost")
def what_is_there(made, iterations, before, after, rate, gradient):
    return {"counter": iterations, "weights": landed(before, after, rate, gradient)}


@answers.is_wrong("the counter loses", "turn the difference round")
def the_other_way_round(made, iterations, before, after, rate, gradient):
    return {"counter": iterations - sum(made), "weights": sum(made) - landed(before, after, rate, gradient)}


@answers.is_wrong("closures of several updates each", "add up what they say, do not count them")
def counts_closures(made, iterations, before, after, rate, gradient):
    return {"counter": len(made) - iterations, "weights": len(made) - landed(before, after, rate, gradient)}


@answers.is_wrong("the gradient has a 0", "leave that element out")
def divides_by_zero(made, iterations, before, after, rate, gradient):
    with np.errstate(all="ignore"):
        there = float(((before - after) / (rate * gradient)).mean())
    return {"counter": sum(made) - iterations, "weights": sum(made) - there}


@answers.is_wrong("the gradient has a 0", "The weights did not begin at 0")
def begins_at_zero(made, iterations, before, after, rate, gradient):
    return {"counter": sum(made) - iterations, "weights": sum(made) - landed(0 * before, after, rate, gradient)}


@answers.is_wrong('"weights"', "One update moves a weight by rate times its gradient")
def forgets_the_gradient(made, iterations, before, after, rate, gradient):
    return {"counter": sum(made) - iterations, "weights": sum(made) - round(float((before - after).max() / rate))}


@answers.is_wrong('"weights"', "A step goes against the gradient: before - after")
def goes_uphill(made, iterations, before, after, rate, gradient):
    return {"counter": sum(made) - iterations, "weights": sum(made) - landed(after, before, rate, gradient)}


@answers.is_wrong('expected a dict with "counter" and "weights", got (')
def returns_a_pair(made, iterations, before, after, rate, gradient):
    return sum(made) - iterations, sum(made) - landed(before, after, rate, gradient)


@answers.is_wrong("the gradient has a 0", "int cuts 41.999 down to 41: round")
def cuts_down(made, iterations, before, after, rate, gradient):
    used = gradient != 0
    there = int(((before - after)[used] / (rate * gradient[used])).mean())
    return {"counter": sum(made) - iterations, "weights": sum(made) - there}


@answers.is_wrong("closures of several updates each", "ceil lifts 42.001 up to 43: round")
def cuts_up(made, iterations, before, after, rate, gradient):
    used = gradient != 0
    there = np.ceil(((before - after)[used] / (rate * gradient[used])).mean())
    return {"counter": sum(made) - iterations, "weights": sum(made) - int(there)}


@answers.is_wrong('"weights"', "the rate was left out")
def forgets_the_rate(made, iterations, before, after, rate, gradient):
    return {"counter": sum(made) - iterations, "weights": sum(made) - landed(before, after, 1.0, gradient)}


@answers.is_right
def takes_the_median(made, iterations, before, after, rate, gradient):
    used = np.flatnonzero(gradient)
    each = (before.ravel()[used] - after.ravel()[used]) / (rate * gradient.ravel()[used])
    return {"counter": np.int64(sum(made) - iterations), "weights": sum(made) - int(np.median(each) + 0.5)}


@answers.is_right
def lengths_of_the_way(made, iterations, before, after, rate, gradient):
    there = np.linalg.norm(before - after) / np.linalg.norm(rate * gradient)
    return {"counter": sum(made) - iterations, "weights": sum(made) - round(float(there))}


@answers.is_right
def projects_on_the_gradient(made, iterations, before, after, rate, gradient):
    step = rate * gradient.astype(float)
    there = np.rint(np.vdot(before - after, step) / np.vdot(step, step))
    total = np.sum(made)
    return {"weights": int(total - there), "counter": total - iterations, "made": total}


@answers.is_right
def looks_at_the_largest_element(made, iterations, before, after, rate, gradient):
    k = int(np.abs(gradient).argmax())
    moved = (before.ravel()[k] - after.ravel()[k]) / rate / gradient.ravel()[k]
    return dict(counter=float(sum(made) - iterations), weights=float(sum(made) - round(float(moved))))


@answers.is_wrong("the gradient has a 0", "0 / 0 is NaN: leave that element out")
def looks_at_the_first_element(made, iterations, before, after, rate, gradient):
    with np.errstate(all="ignore"):
        there = (before - after).flat[0] / (rate * gradient.flat[0])
    return {"counter": sum(made) - iterations, "weights": sum(made) - round(float(there))}


@answers.is_wrong("closures of several updates each", "0 / 0 is NaN: leave that element out")
def looks_at_the_last_element(made, iterations, before, after, rate, gradient):
    with np.errstate(all="ignore"):
        there = (before - after).flat[-1] / (rate * gradient.flat[-1])
    return {"counter": sum(made) - iterations, "weights": sum(made) - round(float(there))}


@answers.is_wrong('"weights"', "floats are a little off: round")
def rounds_nothing(made, iterations, before, after, rate, gradient):
    used = gradient != 0
    there = float(((before - after)[used] / (rate * gradient[used])).mean())
    return {"counter": sum(made) - iterations, "weights": sum(made) - there}


@answers.is_wrong("the gradient has a 0", "Signs count")
def a_way_without_its_sign(made, iterations, before, after, rate, gradient):
    used = gradient != 0
    there = float((np.abs(before - after)[used] / (rate * gradient[used])).mean())
    return {"counter": sum(made) - iterations, "weights": sum(made) - round(there)}


@answers.is_wrong("the counter loses", 'That is what "weights" lost')
def changes_the_two(made, iterations, before, after, rate, gradient):
    return {"weights": sum(made) - iterations, "counter": sum(made) - landed(before, after, rate, gradient)}


@answers.is_wrong('"weights"', "`iterations` has losses of its own")
def counts_on_from_the_counter(made, iterations, before, after, rate, gradient):
    return {"counter": sum(made) - iterations, "weights": iterations - landed(before, after, rate, gradient)}


@answers.is_wrong("The rate is 0.125 here, as it was handed in")
def takes_the_rate_of_the_notebook(made, iterations, before, after, rate, gradient):
    return {"counter": sum(made) - iterations, "weights": sum(made) - landed(before, after, 0.1, gradient)}


@answers.is_right
def leaves_out_what_is_no_number(made, iterations, before, after, rate, gradient):
    with np.errstate(all="ignore"):
        there = np.nanmean((before - after) / (rate * gradient))
    return {"counter": sum(made) - iterations, "weights": sum(made) - np.rint(there)}


@answers.is_right
def fits_a_line(made, iterations, before, after, rate, gradient):
    steps = (rate * gradient).reshape(-1, 1).astype(float)
    there = np.linalg.lstsq(steps, (before - after).ravel().astype(float), rcond=None)[0]
    return {"counter": np.array(sum(made) - iterations), "weights": sum(made) - round(there.item())}
