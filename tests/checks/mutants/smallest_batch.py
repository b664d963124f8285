"""Lab 01: the smallest batch a rank with which the all-reduce is a small part of the step."""

from bisect import bisect_left

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("smallest_batch")


def ring(n, size_bytes, alpha_s, bytes_per_s):
    return 2 * (n - 1) * (alpha_s + size_bytes / (n * bytes_per_s))


def halved(enough, most):
    """The smallest batch that is enough, with few questions."""
    if not enough(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


def with_seconds(step_s, most, transfer_s, share):
    return halved(lambda batch: transfer_s <= share * (transfer_s + step_s(batch)), most)


@answers.is_right
def by_halving(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s = 2 * (n - 1) * (alpha_s + size_bytes / (n * bytes_per_s))
    found = halved(lambda batch: transfer_s <= share * (transfer_s + step_s(batch)), most)
    return found


@answers.is_right
def halves_with_bisect(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s = ring(n, size_bytes, alpha_s, bytes_per_s)
    found = bisect_left(range(1, most + 1), True, key=lambda b: transfer_s <= share * (transfer_s + step_s(b))) + 1
    return found if found <= most else None


@answers.is_right
def turns_the_share_into_seconds_of_compute(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    wanted_s = ring(n, size_bytes, alpha_s, bytes_per_s) * (1 - share) / share
    return halved(lambda batch: step_s(batch) >= wanted_s, most)


@answers.is_right
def takes_the_courses_formula(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    from worldsize.formulas import cost
    from worldsize.links import Link

    transfer_s = cost.ring_all_reduce(n, size_bytes, Link(bytes_per_s, alpha_s))
    return with_seconds(step_s, most, transfer_s, share)


@answers.is_right
def doubles_and_then_halves(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s, high = ring(n, size_bytes, alpha_s, bytes_per_s), 1

    def enough(batch):
        return transfer_s / (transfer_s + step_s(batch)) <= share

    while high < most and not enough(high):
        high = min(most, 2 * high)
        if high == most:
            return halved(enough, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if enough(high) else None


@answers.is_right
def sets_bits_from_the_highest_down(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s, short = ring(n, size_bytes, alpha_s, bytes_per_s), 0
    for bit in reversed(range(most.bit_length())):
        tried = short + (1 << bit)
        if tried <= most and transfer_s > share * (transfer_s + step_s(tried)):
            short = tried
    return np.int64(short + 1) if short < most else None


answers.mistake("returns_a_float", {"np.int64(short + 1)": "float(short + 1)"},
    "expected a whole number, an int, got", "the next cells take that many images", of=sets_bits_from_the_highest_down)
answers.mistake("adds_up_the_compute_of_all_ranks", {"step_s(batch)), most)": "n * step_s(batch)), most)"},
    "The ranks compute at the same time")
answers.mistake("returns_the_batch_of_all_ranks", {"return found": "return found and n * found"},
    "This is the batch of all ranks: return the batch of one rank")


answers.mistake("adds_up_and_hands_nothing_out", {"2 * (n - 1)": "(n - 1)"}, "A ring goes round twice")
answers.mistake("forgets_the_latency", {"alpha_s + size_bytes": "size_bytes"},
    "Every one of the 2 (n − 1) messages has its latency")
answers.mistake("pays_the_latency_once", {
    "2 * (n - 1) * (alpha_s + size_bytes / (n * bytes_per_s))":
        "alpha_s + 2 * (n - 1) * size_bytes / (n * bytes_per_s)",
}, "Every one of the 2 (n − 1) messages has its latency, not only one")
answers.mistake("sends_everything_every_time", {"(n * bytes_per_s)": "bytes_per_s"},
    "A message holds an n-th of the bytes, not all")
answers.mistake("sends_n_messages", {"2 * (n - 1)": "2 * (n if n > 1 else 0)"}, "There are 2 (n − 1) messages, not 2 n")
answers.mistake("sends_one_message",
    {"2 * (n - 1) * (alpha_s + size_bytes / (n * bytes_per_s))": "alpha_s + size_bytes / bytes_per_s"},
    "This is one message")
answers.mistake("takes_bytes_for_bits", {"size_bytes / (n": "8 * size_bytes / (n"},
    "The link is in bytes a second already, not in bits")
answers.mistake("drops_the_latency_of_small_tensors", {
    "transfer_s = 2": """
        if n * alpha_s * bytes_per_s > 10 * size_bytes:
            alpha_s = 0
        transfer_s = 2
    """,
}, "small tensors: latency is nearly all")


answers.mistake("takes_the_share_of_compute", {"(transfer_s + step_s(batch))": "step_s(batch)"},
    "This keeps communication to that share of the compute; the step has both")
answers.mistake("takes_less_than_the_share", {"transfer_s <= share": "transfer_s < share"},
    "of some batch just that share", "It is one off")
answers.mistake("takes_the_last_that_is_not_enough", {"return found": "return found and max(1, found - 1)"},
    "It is one off")


@answers.is_wrong("examples are enough")
def doubles_the_batch_until_it_is_enough(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s, batch = ring(n, size_bytes, alpha_s, bytes_per_s), 1
    while batch <= most:
        if transfer_s <= share * (transfer_s + step_s(batch)):
            return batch
        batch *= 2
    return None


answers.mistake("lays_a_line_through_two_measurements", {
    "found =": """
        first_s, last_s = step_s(1), step_s(most)
        each_s = (last_s - first_s) / max(1, most - 1)
        found =
    """,
    "step_s(batch)": "first_s + each_s * (batch - 1)",
}, "compute in stairs of 64")
answers.mistake("steps_over_the_edge_of_a_stair", {
    "return found": """
        if found and 1 < found < most and step_s(found) > 1.01 * step_s(found - 1):
            return found + 1
        return found
    """,
}, "compute in stairs of 64", "It is one off")
answers.mistake("measures_every_batch", {
    "halved(lambda batch: transfer_s <= share * (transfer_s + step_s(batch)), most)":
        "next((b for b in range(1, most + 1) if transfer_s <= share * (transfer_s + step_s(b))), None)",
}, "step_s was called", "expected at most 30: each call is a measurement")
answers.mistake("asks_for_more_than_fits", {"step_s(batch)), most)": "step_s(batch)), 2 * most)"},
    "step_s was called with a batch of 8192")


@answers.is_wrong("step_s was called with a batch of 2048.5; expected whole numbers")
def asks_for_parts_of_examples(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s, low, high = ring(n, size_bytes, alpha_s, bytes_per_s), 1.0, float(most)
    while high - low > 0.5:
        middle = (low + high) / 2
        if transfer_s <= share * (transfer_s + step_s(middle)):
            high = middle
        else:
            low = middle
    return round(high)


answers.mistake("never_tries_the_largest", {"step_s(batch)), most)": "step_s(batch)), most - 1)"},
    "only the largest is enough", "The largest batch may be the answer, too")
answers.mistake("returns_the_largest_where_none_is_enough", {"return found": "return most if found is None else found"},
    "not even the largest is enough", "expected None, got")
answers.mistake("says_zero_without_a_peer", {"return found": "return found if n > 1 else 0"},
    "no peer", "expected 1, got 0")
answers.mistake("begins_at_two", {"return found": "return found if found is None or n == 1 else max(2, found)"},
    "a large share is allowed", "expected 1, got 2")
answers.mistake("knows_bits_up_to_4096", {"reversed(range(most.bit_length()))": "reversed(range(min(13, most.bit_length())))"},
    "up to some hundred thousand examples", "got 8192", of=sets_bits_from_the_highest_down)


@answers.is_wrong("up to some hundred thousand examples", "examples are enough")
def halves_thirteen_times(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s = ring(n, size_bytes, alpha_s, bytes_per_s)
    if transfer_s > share * (transfer_s + step_s(most)):
        return None
    low, high = 0, most
    for _ in range(13):
        middle = (low + high) // 2
        if middle == low:
            break
        low, high = (low, middle) if transfer_s <= share * (transfer_s + step_s(middle)) else (middle, high)
    return high


answers.spoil("measures_every_batch_and_is_wrong_where_they_are_counted", {
    "return found": "return found if found is None or found < 1000 else 1",
}, of=answers["measures_every_batch"])
answers.spoil("asks_for_no_example_on_its_own", {
    "found =": """
        if n == 1:
            step_s(0)
        found =
    """,
}, of=answers["steps_over_the_edge_of_a_stair"])
