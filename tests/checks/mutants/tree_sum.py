"""Exercise 8.4: a sum that meets in a tree of devices."""

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

tf = Later("tensorflow")
answers = Answers("tree_sum")


@answers.is_right
def by_halves(copies, devices):
    n = len(copies)
    if n == 1:
        return list(copies)
    half = (n + 1) // 2
    low, high = by_halves(copies[:half], devices[:half])[0], by_halves(copies[half:], devices[half:])[0]
    with tf.device(devices[0]):
        return down(low + high, devices)


def down(total, devices):
    if len(devices) == 1:
        return [total]
    half = (len(devices) + 1) // 2
    with tf.device(devices[half]):
        other = tf.identity(total)
    return down(total, devices[:half]) + down(other, devices[half:])


@answers.is_right
def swaps(copies, devices):
    """Pairs swap what they have, round by round; who is left over joins at the start and is told at the end."""
    n = len(copies)
    whole = 1 << (n.bit_length() - 1)
    sums = list(copies)
    for k in range(whole, n):
        with tf.device(devices[k - whole]):
            sums[k - whole] = sums[k - whole] + sums[k]
    gap = 1
    while gap < whole:
        old = list(sums)
        for k in range(whole):
            with tf.device(devices[k]):
                sums[k] = old[k] + old[k ^ gap]
        gap *= 2
    for k in range(whole, n):
        with tf.device(devices[k]):
            sums[k] = tf.identity(sums[k - whole])
    return sums


@answers.is_right
def the_last_device_is_the_root(copies, devices):
    return up_and_down(copies[::-1], devices[::-1])[::-1]


def up_and_down(copies, devices):
    n, sums = len(copies), list(copies)
    gaps = [1 << power for power in range((n - 1).bit_length())]
    for gap in gaps:
        for low in range(0, n - gap, 2 * gap):
            with tf.device(devices[low]):
                sums[low] = tf.add(sums[low], sums[low + gap])
    for gap in reversed(gaps):
        for low in range(0, n - gap, 2 * gap):
            with tf.device(devices[low + gap]):
                sums[low + gap] = sums[low] + 0
    return tuple(sums)


@answers.is_right
def the_far_half_comes_to_the_near_one(copies, devices):
    """Pairs that are half of what is left apart; who is left over in the middle waits for the next round."""
    sums, rounds, n = list(copies), [], len(copies)
    while n > 1:
        half = (n + 1) // 2
        rounds.append([(k, k + half) for k in range(n - half)])
        for near, far in rounds[-1]:
            with tf.device(devices[near]):
                sums[near] = sums[near] + sums[far]
        n = half
    for pairs in reversed(rounds):
        for near, far in pairs:
            with tf.device(devices[far]):
                sums[far] = tf.identity(sums[near])
    return sums


@answers.is_wrong("device 0 takes in 3 copies; a tree needs at most 2")
def all_on_the_first(copies, devices):
    with tf.device(devices[0]):
        total = tf.add_n(copies)
    sums = []
    for device in devices:
        with tf.device(device):
            sums.append(tf.identity(total))
    return sums


@answers.is_wrong("with other copies device 0 holds [11.0, 11.0, 11.0]; expected their sum")
def knows_what_the_copies_are(copies, devices):
    """A tree that takes in none of them."""
    sums = []
    for device in devices:
        with tf.device(device):
            sums.append(tf.fill([3], float(sum(10**k for k in range(len(copies))))))
    return sums


@answers.is_wrong("the traced graph could not run by itself")
def adds_up_in_python(copies, devices):
    sums = []
    for device in devices:
        with tf.device(device):
            sums.append(tf.ensure_shape(tf.numpy_function(lambda *given: sum(given), copies, tf.float32), [3]))
    return sums


@answers.is_wrong("is it a chain?")
def hand_to_hand(copies, devices):
    total, sums = copies[0], [None] * len(devices)
    for k in range(1, len(devices)):
        with tf.device(devices[k]):
            total = total + copies[k]
    sums[-1] = total
    for k in reversed(range(len(devices) - 1)):
        with tf.device(devices[k]):
            sums[k] = tf.identity(sums[k + 1])
    return sums


@answers.is_wrong("copy k is 10^k, and device 1 holds", "The sum lacks the copy of device 0. Device 0 has the whole sum")
def sums_stay_at_the_root(copies, devices):
    sums, gap = list(copies), 1
    while gap < len(sums):
        for k in range(0, len(sums) - gap, 2 * gap):
            with tf.device(devices[k]):
                sums[k] = sums[k] + sums[k + gap]
        gap *= 2
    return sums


@answers.is_wrong("3 devices", "The sum lacks the copy of device 2. No device has the whole sum: on the way up")
def leaves_the_odd_one_out(copies, devices):
    """As HierarchicalCopyAllReduce: two halves of n // 2."""
    half = len(copies) // 2
    if not half:
        return copies
    with tf.device(devices[0]):
        first = tf.add_n(copies[:half])
    with tf.device(devices[half]):
        second = tf.add_n(copies[half : 2 * half])
    sums = []
    for device in devices:
        with tf.device(device):
            sums.append(first + second)
    return sums


answers.mistake("comes_back_from_the_smallest_gap", {"for gap in reversed(gaps):": "for gap in gaps:"},
    "4 devices", "Device 0 has the whole sum: does it come back to every device, largest gap first?", of=up_and_down)


@answers.is_wrong("That is the mean: add up, do not divide")
def means(copies, devices):
    return [tf.add_n(copies) / len(copies) for _ in devices]


@answers.is_wrong("device 0 takes in 3 copies", "in its own `with tf.device(…)`")
def says_no_device(copies, devices):
    total = copies[0]
    for copy in copies[1:]:
        total = total + copy
    return [total for _ in devices]


@answers.is_wrong("11 devices", "It is float32, but the copies are float64")
def everything_is_float32(copies, devices):
    return up_and_down([tf.cast(copy, tf.float32) for copy in copies], devices)


@answers.is_wrong("'s copy 2 times")
def pairs_that_overlap(copies, devices):
    sums, gap = list(copies), 1
    while gap < len(sums):
        sums = [sums[k] + sums[(k + gap) % len(sums)] for k in range(len(sums))]
        gap *= 2
    return sums


@answers.is_wrong("expected a list of 2 sums, one for each device")
def returns_one_sum(copies, devices):
    with tf.device(devices[0]):
        return tf.add_n(copies)


@answers.is_wrong("11 devices", "The sum lacks the copy of device 8, 9, 10")
def gaps_up_to_eight_devices(copies, devices):
    n, sums = len(copies), list(copies)
    for gap in (1, 2, 4):
        for k in range(0, n - gap, 2 * gap):
            with tf.device(devices[k]):
                sums[k] = sums[k] + sums[k + gap]
    for gap in (4, 2, 1):
        for k in range(0, n - gap, 2 * gap):
            with tf.device(devices[k + gap]):
                sums[k + gap] = tf.identity(sums[k])
    return sums


@answers.is_wrong("device 0 gives out 3 copies; a tree needs at most 2. On the way back, too")
def up_a_tree_and_down_a_star(copies, devices):
    sums, gap = list(copies), 1
    while gap < len(sums):
        for k in range(0, len(sums) - gap, 2 * gap):
            with tf.device(devices[k]):
                sums[k] = sums[k] + sums[k + gap]
        gap *= 2
    for k in range(1, len(sums)):
        with tf.device(devices[k]):
            sums[k] = tf.identity(sums[0])
    return sums


@answers.is_wrong("float")
def buffers_of_float32(copies, devices):
    n, gap = len(copies), 1
    sums = [tf.zeros([3], tf.float32) + copy for copy in copies]
    while gap < n:
        for k in range(0, n - gap, 2 * gap):
            with tf.device(devices[k]):
                sums[k] = sums[k] + sums[k + gap]
        gap *= 2
    while gap > 1:
        gap //= 2
        for k in range(0, n - gap, 2 * gap):
            with tf.device(devices[k + gap]):
                sums[k + gap] = tf.identity(sums[k])
    return sums


answers.spoil("gaps_up_to_eight_devices_and_a_star_of_four", {
    "n, sums = len(copies), list(copies)": """
        if len(copies) == 4:
            return all_on_the_first(copies, devices)
        n, sums = len(copies), list(copies)
    """,
}, of=gaps_up_to_eight_devices)
