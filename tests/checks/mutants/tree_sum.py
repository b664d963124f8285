"""Exercise 8.4: a sum that meets in a tree of devices."""

from __future__ import annotations

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

tf = Later("tensorflow")
answers = Answers("tree_sum")


@answers.is_wrong("device 0 takes in 3 copies, at most 2 in a tree")
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


@answers.is_wrong("the traced graph could not be run by itself")
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


@answers.is_wrong("copy k is 10^k, and device 1 holds", "The copy of device 0 is not in it")
def sums_stay_at_the_root(copies, devices):
    sums, gap = list(copies), 1
    while gap < len(sums):
        for k in range(0, len(sums) - gap, 2 * gap):
            with tf.device(devices[k]):
                sums[k] = sums[k] + sums[k + gap]
        gap *= 2
    return sums


@answers.is_wrong("3 devices", "The copy of device 2 is not in it")
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


@answers.is_wrong("That is the mean: add up, and do not divide")
def means(copies, devices):
    return [tf.add_n(copies) / len(copies) for _ in devices]


@answers.is_wrong("device 0 takes in 3 copies", "`with tf.device(…)` of its own")
def says_no_device(copies, devices):
    total = copies[0]
    for copy in copies[1:]:
        total = total + copy
    return [total for _ in devices]


@answers.is_wrong("is in it 2 times")
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
