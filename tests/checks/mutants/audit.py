"""Exercise 9.5: which updates were lost."""

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("audit")


@answers.is_right
def plain(made, iterations, before, after, rate, gradient):
    used = gradient != 0
    there = ((before - after)[used] / (rate * gradient[used])).mean()
    return {"counter": sum(made) - iterations, "weights": sum(made) - round(float(there))}


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


answers.mistake("what_is_there", {
    "sum(made) - iterations": "iterations",
    "sum(made) - round(float(there))": "round(float(there))",
}, '"counter"', "That is how many arrived, not how many are lost")
answers.mistake("the_other_way_round", {"sum(made) - iterations": "iterations - sum(made)"},
    "the counter loses", "turn the difference round")
answers.mistake("counts_closures", {
    "sum(made) - iterations": "len(made) - iterations",
    "sum(made) - round": "len(made) - round",
}, "closures of several updates each", "add up their updates, do not count closures")
answers.mistake("divides_by_zero", {
    "used = gradient != 0": "",
    "there = ((before - after)[used] / (rate * gradient[used])).mean()": """
        with np.errstate(all="ignore"):
            there = ((before - after) / (rate * gradient)).mean()
    """,
    "round(float(there))": "float(there)",
}, "the gradient has a 0", "leave that element out")
answers.mistake("begins_at_zero", {"(before - after)[used]": "-after[used]"},
    "the gradient has a 0", "The weights did not begin at 0")
answers.mistake("forgets_the_gradient",
    {"((before - after)[used] / (rate * gradient[used])).mean()": "(before - after).max() / rate"},
    '"weights"', "One update moves a weight by rate times its gradient")
answers.mistake("goes_uphill", {"before - after": "after - before"},
    '"weights"', "A step goes against the gradient: before - after")
answers.mistake("returns_a_pair", {
    '{"counter": sum(made) - iterations, "weights": sum(made) - round(float(there))}':
        "sum(made) - iterations, sum(made) - round(float(there))",
}, 'expected a dict with "counter" and "weights", got (')
answers.mistake("cuts_down", {"round(float(there))": "int(there)"},
    "the gradient has a 0", "int cuts 41.999 down to 41: round")
answers.mistake("cuts_up", {"round(float(there))": "int(np.ceil(there))"},
    "closures of several updates each", "ceil lifts 42.001 up to 43: round")
answers.mistake("forgets_the_rate", {"(rate * gradient[used])": "gradient[used]"}, '"weights"', "the rate was left out")
answers.mistake("looks_at_the_first_element", {
    "used = gradient != 0": "",
    "there = ((before - after)[used] / (rate * gradient[used])).mean()": """
        with np.errstate(all="ignore"):
            there = (before - after).flat[0] / (rate * gradient.flat[0])
    """,
}, "the gradient has a 0", "0 / 0 is NaN: leave that element out")
answers.mistake("looks_at_the_last_element", {
    "used = gradient != 0": "",
    "there = ((before - after)[used] / (rate * gradient[used])).mean()": """
        with np.errstate(all="ignore"):
            there = (before - after).flat[-1] / (rate * gradient.flat[-1])
    """,
}, "closures of several updates each", "0 / 0 is NaN: leave that element out")
answers.mistake("rounds_nothing", {"round(float(there))": "float(there)"},
    '"weights"', "floats are a little off: round")
answers.mistake("a_way_without_its_sign", {"(before - after)[used]": "np.abs(before - after)[used]"},
    "the gradient has a 0", "Signs count")
answers.mistake("changes_the_two", {
    '"counter"': '"weights"',
    '"weights": sum(made) - round': '"counter": sum(made) - round',
}, "the counter loses", 'That is what "weights" lost')
answers.mistake("counts_on_from_the_counter", {"sum(made) - round": "iterations - round"},
    '"weights"', "`iterations` has its own losses")
answers.mistake("divides_mean_by_mean", {
    "used = gradient != 0": "",
    "there = ((before - after)[used] / (rate * gradient[used])).mean()": """
        with np.errstate(all="ignore"):
            there = (before - after).mean() / (rate * gradient.mean())
    """,
}, "the gradient adds up to 0", "their mean is 0: divide element by element")
answers.mistake("looks_at_positive_elements_alone", {
    "gradient != 0": "gradient > 0",
    "there = ((before - after)[used] / (rate * gradient[used])).mean()": """
        with np.errstate(all="ignore"):
            there = ((before - after)[used] / (rate * gradient[used])).sum() / used.sum()
    """,
}, "the gradient is negative everywhere", "leave out only those that are 0")
answers.mistake("adds_updates_up_in_16_bits", {
    "used = gradient != 0": "used = gradient != 0\nmade = np.array(made, np.int16)",
    '"counter": sum(made)': '"counter": int(np.sum(made, dtype=np.int16))',
    "sum(made) - round": "int(np.sum(made, dtype=np.int16)) - round",
}, "tens of thousands of updates", "updates were made")
answers.mistake("subtracts_in_place", {
    "used = gradient != 0": "used = gradient != 0\nmoved = before\nmoved -= after",
    "(before - after)[used]": "moved[used]",
}, "before was changed in place")
answers.mistake("takes_the_rate_of_the_notebook", {"rate * gradient": "0.1 * gradient"},
    "The rate is 0.125 here, as it was handed in")


@answers.spoils()
def returns_nothing_where_something_is_lost(made, iterations, before, after, rate, gradient):
    return {"counter": 0, "weights": 0} if iterations == sum(made) else None


answers.spoil("forgets_the_gradient_and_loses_minus_one", {"sum(made) - iterations": "-1"}, of=answers["forgets_the_gradient"])
