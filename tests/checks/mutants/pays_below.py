"""Exercise 14.5: the bandwidth below which a way that sends less reaches the target first."""

import math

from tests.checks.mutants import Answers

answers = Answers("pays_below")


def totals(way):
    return way["steps"] * way["bytes"], way["steps"] * way["work_s"]


@answers.is_right
def as_its_text_says(plain, other):
    if other["steps"] == math.inf:
        return 0.0
    saved = plain["steps"] * plain["bytes"] - other["steps"] * other["bytes"]
    added_s = other["steps"] * other["work_s"] - plain["steps"] * plain["work_s"]
    if saved <= 0:
        return math.inf if saved == 0 and added_s < 0 else 0.0
    return saved / added_s if added_s > 0 else math.inf


@answers.is_right
def by_halving(plain, other):
    """Looks for the change of the first between a byte in a quarter of an hour and more than any link carries."""

    def first(bytes_per_s):
        seconds = [way["steps"] * (way["work_s"] + way["bytes"] / bytes_per_s) for way in (plain, other)]
        return seconds[1] < seconds[0]

    low, high = 1e-3, 1e21
    if not first(low):
        return 0
    if first(high):
        return float("inf")
    for _ in range(300):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if first(middle) else (low, middle)
    return low


@answers.is_right
def by_ratios(plain, other):
    """In steps of plain: how many of them the other needs."""
    if other["steps"] == math.inf:
        return 0.0
    if plain["steps"] == math.inf:
        return math.inf
    share = other["steps"] / plain["steps"]
    saved, added_s = plain["bytes"] - share * other["bytes"], share * other["work_s"] - plain["work_s"]
    if added_s <= 0:
        return math.inf if saved > 0 or (saved == 0 and added_s < 0) else 0.0
    return max(saved, 0.0) / added_s


answers.mistake("compares_one_step", {
    'plain["steps"] * plain["bytes"] - other["steps"] * other["bytes"]': 'plain["bytes"] - other["bytes"]',
    'other["steps"] * other["work_s"] - plain["steps"] * plain["work_s"]': 'other["work_s"] - plain["work_s"]',
}, "This compares one step of each; they need different numbers of steps")
answers.mistake("cuts_steps_to_whole_ones", {
    "saved = plain": "plain, other = ({**way, 'steps': way['steps'] // 1} for way in (plain, other))\nsaved = plain",
}, "The steps were cut to whole ones: a way reaches the target between two steps")
answers.mistake("writes_totals_into_its_arguments", {
    "saved = plain": "plain['all'] = plain['steps'] * plain['bytes']\nsaved = plain",
}, "plain was changed in place: the caller still needs it unchanged")
answers.mistake("counts_steps_for_bytes_alone",
    {'other["steps"] * other["work_s"] - plain["steps"] * plain["work_s"]': 'other["work_s"] - plain["work_s"]'},
    "The bytes are multiplied by the steps, the work is not: multiply both")
answers.mistake("counts_steps_for_work_alone", {
    'plain["steps"] * plain["bytes"] - other["steps"] * other["bytes"]': 'plain["bytes"] - other["bytes"]',
    """
        if saved <= 0:
            return math.inf if saved == 0 and added_s < 0 else 0.0
    """: "",
}, "The work is multiplied by the steps, the bytes are not: multiply both")
answers.mistake("turns_it_over", {
    """
        if saved <= 0:
            return math.inf if saved == 0 and added_s < 0 else 0.0
    """: "",
    "saved / added_s if added_s > 0 else math.inf": "added_s / saved",
}, "This is seconds a byte")
answers.mistake("answers_in_bits", {"return saved / added_s": "return 8 * saved / added_s"}, "This is in bits a second")
answers.mistake("only_divides", {
    """
        if saved <= 0:
            return math.inf if saved == 0 and added_s < 0 else 0.0
    """: "",
    " if added_s > 0 else math.inf": "",
}, "a shorter step, fewer bytes", "expected inf, got -", "A bandwidth is never negative")
answers.mistake("divides_by_no_added_work", {"added_s > 0": "added_s >= 0"},
    "fewer bytes, and nothing else", "ZeroDivisionError")
answers.mistake("gives_negative_bandwidths", {
    """
        if saved <= 0:
            return math.inf if saved == 0 and added_s < 0 else 0.0
    """: "",
}, "more work, more bytes", "expected 0 bytes/s, got -", "A bandwidth is never negative")
answers.mistake("never_where_it_is_always", {"if added_s > 0 else math.inf": "if added_s > 0 else 0.0"},
    "a shorter step, fewer bytes", "expected inf, got 0 bytes/s", "so the other is first at any bandwidth")
answers.mistake("zero_and_infinity_the_wrong_way_round", {
    "math.inf if saved == 0 and added_s < 0 else 0.0": "math.inf",
    "if added_s > 0 else math.inf": "if added_s > 0 else 0.0",
},
    "a shorter step, fewer bytes", "expected inf, got 0 bytes/s")


@answers.is_wrong("This is where plain's messages take as long as its work")
def balances_work_and_messages(plain, other):
    return plain["bytes"] / plain["work_s"]


answers.mistake("divides_by_all_work", {' - plain["steps"] * plain["work_s"]': ""},
    "divided by all of the other's work, not by the work it adds")
answers.mistake("forgets_what_the_other_sends", {' - other["steps"] * other["bytes"]': ""},
    "This is where plain's messages take as long as the work that is added")
answers.mistake("returns_nothing", {"return saved / added_s": "saved / added_s"},
    "expected bytes a second as one number, got None")
answers.mistake("never_where_it_sends_as_much", {"math.inf if saved == 0 and added_s < 0 else 0.0": "0.0"},
    "less work, as many bytes", "expected inf, got 0 bytes/s", "so the other is first at any bandwidth")
answers.mistake("always_where_nothing_differs", {"added_s < 0 else": "added_s <= 0 else"},
    "as much work, as many bytes", "expected 0 bytes/s, got inf", "never before plain: both take equally long")
answers.mistake("always_where_it_sends_as_much", {"saved == 0 and added_s < 0": "saved == 0"},
    "more work, as many bytes", "expected 0 bytes/s, got inf", "so the other is never first")
answers.mistake("compares_two_that_never_get_there", {"""
    if other["steps"] == math.inf:
        return 0.0
""": ""}, "neither reaches the target", "expected 0 bytes/s, got inf", "nor does plain")
# More bytes a step are fewer in all where there are far fewer steps.
answers.mistake("asks_only_for_one_steps_bytes", {
    "saved <= 0": 'plain["bytes"] <= other["bytes"]',
    "return saved / added_s": "return abs(saved) / added_s",
}, "far fewer steps", "expected inf, got 0 bytes/s: in all, the other sends", "first at any bandwidth")


@answers.is_wrong("but many more steps", "expected 0 bytes/s, got", "in all, the other sends", "so the other is never first")
def takes_its_size_for_its_sign(plain, other):
    (sent, work_s), (less, more_s) = totals(plain), totals(other)
    if more_s <= work_s:
        return math.inf
    if plain["bytes"] <= other["bytes"] and less >= sent:
        return 0.0
    return abs(sent - less) / (more_s - work_s)


@answers.is_wrong("as much work, more bytes", "expected 0 bytes/s, got inf", "so the other is never first")
def asks_for_time_first(plain, other):
    (sent, work_s), (less, more_s) = totals(plain), totals(other)
    if more_s <= work_s and other["steps"] < math.inf:
        return math.inf if plain["steps"] == math.inf or less <= sent or more_s == work_s else 0.0
    return max(0.0, (sent - less) / (more_s - work_s))


@answers.is_wrong("less work, more bytes", "expected 0 bytes/s, got", "first only above some bandwidth")
def divides_where_both_have_the_other_sign(plain, other):
    (sent, work_s), (less, more_s) = totals(plain), totals(other)
    if sent > less:
        return (sent - less) / (more_s - work_s) if more_s > work_s else math.inf
    return (sent - less) / (more_s - work_s) if more_s < work_s else 0.0


@answers.spoils()
def knows_the_edges_alone(plain, other):
    """A crossing is not among its answers: every bandwidth or none."""
    return 0.0 if as_its_text_says(plain, other) == 0 else math.inf


def always_finds_a_crossing(plain, other):
    found = as_its_text_says(plain, other)
    return found if 0 < found < math.inf else 1.0


answers.spoil("always_finds_a_crossing_in_bits", {"return found if": "return 8 * found if"}, of=always_finds_a_crossing)
