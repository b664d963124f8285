"""Exercise 11.3: which gradients travel together."""

from __future__ import annotations

from tests.checks.mutants import Answers

answers = Answers("fill_buckets")


def closed(sizes, cap):
    """As it should be."""
    buckets, held = [[]], 0
    for i in reversed(range(len(sizes))):
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += sizes[i]
    return buckets


@answers.is_wrong("begins with the first layer, whose gradient is ready last")
def first_layer_first(sizes, cap):
    last = len(sizes) - 1
    return [[last - i for i in bucket] for bucket in closed(sizes[::-1], cap)]


@answers.is_wrong("leaves tensor 0 out: is the last bucket")
def loses_the_last_bucket(sizes, cap):
    buckets, bucket = [], []
    for i in reversed(range(len(sizes))):
        bucket.append(i)
        if sum(sizes[k] for k in bucket) >= cap:
            buckets.append(bucket)
            bucket = []
    return buckets


@answers.is_wrong("has an empty bucket")
def ends_with_an_empty_bucket(sizes, cap):
    buckets = [[]]
    for i in reversed(range(len(sizes))):
        buckets[-1].append(i)
        if sum(sizes[k] for k in buckets[-1]) >= cap:
            buckets.append([])
    return buckets


@answers.is_wrong("before it holds the cap of 10", "a tensor that goes over the cap still goes in")
def never_over_the_cap(sizes, cap):
    buckets = [[]]
    for i in reversed(range(len(sizes))):
        if buckets[-1] and sum(sizes[k] for k in buckets[-1]) + sizes[i] > cap:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@answers.is_wrong("it had the cap of 20 already before its last tensor")
def closes_only_over_the_cap(sizes, cap):
    return closed(sizes, cap + 1)


@answers.is_wrong("closes with 10, before it holds the cap of 20")
def one_each(sizes, cap):
    return [[i] for i in reversed(range(len(sizes)))]


@answers.is_wrong("got None (does the function return it?)")
def prints(sizes, cap):
    print(closed(sizes, cap))


@answers.is_right
def plain(sizes, cap):
    return closed(sizes, cap)


@answers.is_right
def by_recursion_in_tuples(sizes, cap):
    def take(rest):
        if not rest:
            return ()
        k = 1
        while k < len(rest) and sum(sizes[i] for i in rest[:k]) < cap:
            k += 1
        return (tuple(rest[:k]), *take(rest[k:]))

    return take(list(range(len(sizes)))[::-1])


@answers.is_right
def takes_the_sizes_off_their_list(sizes, cap):
    """The list is the function's own: what it pops is gone for nobody else."""
    buckets, held = [[]], 0
    while sizes:
        if held >= cap:
            buckets.append([])
            held = 0
        held += sizes.pop()
        buckets[-1].append(len(sizes))
    return buckets


@answers.is_wrong("had not ended")
def never_ends(sizes, cap):
    while sizes:
        cap += 0


@answers.is_wrong("the function's process exited with code 3 and no result")
def leaves(sizes, cap):
    raise SystemExit(3)


@answers.is_wrong("KeyError: 'bucket'")
def raises(sizes, cap):
    return {}["bucket"]


@answers.is_wrong("it had the cap of 20 already before its last tensor")
def counts_tensors_in_place_of_their_sizes(sizes, cap):
    return closed([1] * len(sizes), cap)


@answers.is_wrong("before it holds the cap of")
def never_begins_to_count_anew(sizes, cap):
    """Once the cap is reached every further tensor closes a bucket."""
    buckets, held = [[]], 0
    for i in reversed(range(len(sizes))):
        if held >= cap:
            buckets.append([])
        buckets[-1].append(i)
        held += sizes[i]
    return buckets


@answers.is_wrong("before it holds the cap of")
def closes_at_each_multiple_of_the_cap(sizes, cap):
    """What a bucket holds over the cap is taken off the next one."""
    buckets, held = [[]], 0
    for i in reversed(range(len(sizes))):
        if held >= cap * len(buckets):
            buckets.append([])
        buckets[-1].append(i)
        held += sizes[i]
    return buckets


@answers.is_wrong("before it holds the cap of")
def gives_a_large_tensor_a_bucket_of_its_own(sizes, cap):
    buckets = [[]]
    for i in reversed(range(len(sizes))):
        if buckets[-1] and (sizes[i] >= cap or sum(sizes[k] for k in buckets[-1]) >= cap):
            buckets.append([])
        buckets[-1].append(i)
    return buckets


@answers.is_wrong("expected a list of lists of numbers of tensors")
def gives_sizes_with_their_numbers(sizes, cap):
    return [[(i, sizes[i]) for i in bucket] for bucket in closed(sizes, cap)]


@answers.is_right
def with_sums_from_the_end_in_numpy(sizes, cap):
    import numpy as np

    rest, buckets = np.arange(len(sizes))[::-1], []
    while len(rest):
        held = np.cumsum(np.asarray(sizes)[rest])
        close = int(np.searchsorted(held, cap)) + 1
        buckets.append(list(rest[:close]))
        rest = rest[close:]
    return buckets


@answers.is_right
def turns_everything_round_at_the_end(sizes, cap):
    """It empties the list that it was given, and counts down what room is left."""
    room, open_one, closed_ones = cap, [], []
    while sizes:
        room -= sizes.pop(-1)
        open_one.append(len(sizes))
        if room <= 0 or not sizes:
            closed_ones, open_one, room = [*closed_ones, open_one], [], cap
    return closed_ones
