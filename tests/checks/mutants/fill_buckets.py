"""Exercise 11.3: which gradients travel together."""

from tests.checks.mutants import Answers

answers = Answers("fill_buckets")


@answers.is_right
def plain(sizes, cap):
    buckets, held = [[]], 0
    for i in reversed(range(len(sizes))):
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += sizes[i]
    return buckets


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
def takes_the_sizes_off_a_copy(sizes, cap):
    sizes, buckets, held = list(sizes), [[]], 0
    while sizes:
        if held >= cap:
            buckets.append([])
            held = 0
        held += sizes.pop()
        buckets[-1].append(len(sizes))
    return buckets


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
    """It counts down what room is left."""
    room, open_one, closed_ones = cap, [], []
    sizes = [*sizes]
    while sizes:
        room -= sizes.pop(-1)
        open_one.append(len(sizes))
        if room <= 0 or not sizes:
            closed_ones, open_one, room = [*closed_ones, open_one], [], cap
    return closed_ones


answers.twin("gives_ranges", {"return buckets": "return [range(bucket[0], bucket[-1] - 1, -1) for bucket in buckets]"})
answers.mistake("first_layer_first", {"reversed(range(len(sizes)))": "range(len(sizes))"},
    "begins with the first layer, whose gradient is ready last")
answers.mistake("loses_the_last_bucket", {"return buckets": "return buckets if held >= cap else buckets[:-1]"},
    "leaves tensor 0 out: the last bucket is missing, which may not be full")
answers.mistake("ends_with_an_empty_bucket", {"return buckets": "return [*buckets, []] if held >= cap else buckets"},
    "has an empty bucket")
answers.mistake("never_over_the_cap", {"if held >= cap:": "if buckets[-1] and held + sizes[i] > cap:"},
    "before it holds the cap of 10", "a tensor that goes over the cap still goes in")
answers.mistake("closes_only_over_the_cap", {"held >= cap": "held > cap"},
    "it had reached the cap of 20 before its last tensor")
answers.mistake("one_each", {"if held >= cap:": "if buckets[-1]:"}, "closes with 10, before it holds the cap of 20")
answers.mistake("prints", {"return buckets": "print(buckets)"}, "got None (does the function return it?)")


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


answers.mistake("counts_tensors_in_place_of_their_sizes", {"held += sizes[i]": "held += 1"},
    "it had reached the cap of 20 before its last tensor")
# Once the cap is reached every further tensor closes a bucket.
answers.mistake("never_begins_to_count_anew", {"held = 0": ""}, "before it holds the cap of")
# What a bucket holds over the cap is taken off the next one.
answers.mistake("closes_at_each_multiple_of_the_cap", {"held >= cap": "held >= cap * len(buckets)", "held = 0": ""},
    "before it holds the cap of")
answers.mistake("gives_a_large_tensor_a_bucket_of_its_own",
    {"if held >= cap:": "if buckets[-1] and (held >= cap or sizes[i] >= cap):"},
    "before it holds the cap of")
answers.mistake("gives_sizes_with_their_numbers", {"append(i)": "append((i, sizes[i]))"},
    "expected a list of lists of tensor numbers")
answers.mistake("gives_sizes", {"append(i)": "append(sizes[i])"}, "are sizes: a bucket holds its tensors' numbers, 0 to 3")
answers.mistake("takes_the_sizes_off_their_list",
    {"sizes, buckets, held = list(sizes), [[]], 0": "buckets, held = [[]], 0"},
    "sizes was changed in place: the caller still needs it", of=takes_the_sizes_off_a_copy)
answers.mistake("turns_the_sizes_round",
    {"buckets, held = [[]], 0": "sizes.reverse()\nsizes, buckets, held = sizes[::-1], [[]], 0"},
    "sizes was changed in place: the caller still needs it")
answers.mistake("looks_tensors_up_by_their_size", {"buckets[-1].append(i)": "buckets[-1].append(sizes.index(sizes[i]))"},
    "[[0, 0], [0, 0]] leaves tensor 1 out and has tensor 0 twice")
answers.mistake("gives_arrays", {"return buckets": "import numpy as np\nreturn [np.array(bucket) for bucket in buckets]"},
    "expected a list of lists of tensor numbers, got a tensor of shape [2] as bucket 0")
answers.mistake("gives_a_generator", {"return buckets": "return (bucket for bucket in buckets)"},
    "got a generator (make it a list")
answers.mistake("counts_from_one", {"append(i)": "append(i + 1)"}, "has other numbers than 0 to 3")


@answers.spoils()
def knows_the_first_sizes(sizes, cap):
    return [[3, 2], [1, 0]] if sizes == [10, 10, 10, 10] else []


@answers.spoils()
def gives_the_last_tensor_alone(sizes, cap):
    return [[len(sizes) - 1]]
