"""Lab 01: the smallest batch a rank with which the all-reduce is a small part of the step."""

from __future__ import annotations

from bisect import bisect_left

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


# ---- wrong: the communication ------------------------------------------------------------------


@answers.is_wrong("A ring goes round twice")
def adds_up_and_hands_nothing_out(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    return with_seconds(step_s, most, ring(n, size_bytes, alpha_s, bytes_per_s) / 2, share)


@answers.is_wrong("Every one of the 2 (n − 1) messages has its latency")
def forgets_the_latency(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    return with_seconds(step_s, most, ring(n, size_bytes, 0, bytes_per_s), share)


@answers.is_wrong("Every one of the 2 (n − 1) messages has its latency, not only one")
def pays_the_latency_once(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    return with_seconds(step_s, most, alpha_s + ring(n, size_bytes, 0, bytes_per_s), share)


@answers.is_wrong("A message holds an n-th of the bytes, not all")
def sends_everything_every_time(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    return with_seconds(step_s, most, 2 * (n - 1) * (alpha_s + size_bytes / bytes_per_s), share)


@answers.is_wrong("There are 2 (n − 1) messages, not 2 n")
def sends_n_messages(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    return with_seconds(step_s, most, ring(n, size_bytes, alpha_s, bytes_per_s) * n / (n - 1 or 1), share)


@answers.is_wrong("This is one message")
def sends_one_message(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    return with_seconds(step_s, most, alpha_s + size_bytes / bytes_per_s, share)


@answers.is_wrong("The link is in bytes a second already, not in bits")
def takes_bytes_for_bits(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    return with_seconds(step_s, most, ring(n, 8 * size_bytes, alpha_s, bytes_per_s), share)


@answers.is_wrong("small tensors: latency is nearly all")
def drops_the_latency_of_small_tensors(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    if n * alpha_s * bytes_per_s > 10 * size_bytes:
        alpha_s = 0
    return with_seconds(step_s, most, ring(n, size_bytes, alpha_s, bytes_per_s), share)


# ---- wrong: the decision -----------------------------------------------------------------------


@answers.is_wrong("This keeps communication to that share of the compute; the step is both")
def takes_the_share_of_compute(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s = ring(n, size_bytes, alpha_s, bytes_per_s)
    return halved(lambda batch: transfer_s <= share * step_s(batch), most)


@answers.is_wrong("It is one off")
def takes_the_last_that_is_not_enough(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    found = with_seconds(step_s, most, ring(n, size_bytes, alpha_s, bytes_per_s), share)
    return found and max(1, found - 1)


@answers.is_wrong("examples keep it")
def doubles_the_batch_until_it_is_enough(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s, batch = ring(n, size_bytes, alpha_s, bytes_per_s), 1
    while batch <= most:
        if transfer_s <= share * (transfer_s + step_s(batch)):
            return batch
        batch *= 2
    return None


@answers.is_wrong("compute in stairs of 64")
def lays_a_line_through_two_measurements(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    first_s, last_s = step_s(1), step_s(most)
    each_s = (last_s - first_s) / max(1, most - 1)
    transfer_s = ring(n, size_bytes, alpha_s, bytes_per_s)
    return halved(lambda batch: transfer_s <= share * (transfer_s + first_s + each_s * (batch - 1)), most)


@answers.is_wrong("compute in stairs of 64", "It is one off")
def steps_over_the_edge_of_a_stair(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    found = with_seconds(step_s, most, ring(n, size_bytes, alpha_s, bytes_per_s), share)
    if found and 1 < found < most and step_s(found) > 1.01 * step_s(found - 1):
        return found + 1
    return found


@answers.is_wrong("step_s was asked", "expected at most 30: each is a measurement")
def measures_every_batch(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s = ring(n, size_bytes, alpha_s, bytes_per_s)
    for batch in range(1, most + 1):
        if transfer_s <= share * (transfer_s + step_s(batch)):
            return batch
    return None


@answers.is_wrong("step_s was asked for a batch of 8192")
def asks_for_more_than_fits(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s = ring(n, size_bytes, alpha_s, bytes_per_s)
    return halved(lambda batch: transfer_s <= share * (transfer_s + step_s(batch)), 2 * most)


@answers.is_wrong("step_s was asked for a batch of 2048.5; expected whole numbers")
def asks_for_parts_of_examples(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    transfer_s, low, high = ring(n, size_bytes, alpha_s, bytes_per_s), 1.0, float(most)
    while high - low > 0.5:
        middle = (low + high) / 2
        if transfer_s <= share * (transfer_s + step_s(middle)):
            high = middle
        else:
            low = middle
    return round(high)


@answers.is_wrong("only the largest is enough")
def never_tries_the_largest(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    return with_seconds(step_s, most - 1, ring(n, size_bytes, alpha_s, bytes_per_s), share)


@answers.is_wrong("not even the largest is enough", "expected None, got")
def returns_the_largest_where_none_is_enough(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    found = with_seconds(step_s, most, ring(n, size_bytes, alpha_s, bytes_per_s), share)
    return most if found is None else found


@answers.is_wrong("no peer", "expected 1, got 0")
def says_zero_without_a_peer(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    if n == 1:
        return 0
    return with_seconds(step_s, most, ring(n, size_bytes, alpha_s, bytes_per_s), share)


@answers.is_wrong("a large share is allowed", "expected 1, got 2")
def begins_at_two(step_s, most, n, size_bytes, alpha_s, bytes_per_s, share):
    found = with_seconds(step_s, most, ring(n, size_bytes, alpha_s, bytes_per_s), share)
    return found if found is None or n == 1 else max(2, found)


# ---- right, in odd styles ----------------------------------------------------------------------


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
    return float(short + 1) if short < most else None
