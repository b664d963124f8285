"""Exercise 9.3: an exact score with a coordinator."""

from __future__ import annotations

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

tf = Later("tensorflow")
answers = Answers("score")


@answers.is_wrong("right_in was called on the chief itself")
def works_it_out_alone(coordinator, right_in, parts):
    found = [right_in(part) for part in parts]
    return sum(int(r) for r, _ in found) / sum(int(n) for _, n in found)


@answers.is_wrong("every second closure runs twice", "Closures that ran twice count twice. What a closure returns is there once")
def adds_up_in_variables(coordinator, right_in, parts):
    right, of = tf.Variable(0), tf.Variable(0)

    def add(part):
        r, n = right_in(part)
        right.assign_add(r)
        of.assign_add(n)

    for part in parts:
        coordinator.schedule(add, args=(part,))
    coordinator.join()
    return int(right) / int(of)


@answers.is_wrong("every second closure runs twice", "Closures that ran twice count twice")
def collects_in_a_list(coordinator, right_in, parts):
    found = []
    for part in parts:
        coordinator.schedule(lambda part: found.append(right_in(part)), args=(part,))
    coordinator.join()
    return sum(int(r) for r, _ in found) / sum(int(n) for _, n in found)


@answers.is_wrong("six parts of different size", "Parts differ in size")
def mean_of_shares(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
    coordinator.join()
    return sum(r / n for r, n in coordinator.fetch(later)) / len(parts)


@answers.is_wrong("1 of 6 parts was under way when the first answer was fetched", "Schedule all, then fetch")
def one_after_the_other(coordinator, right_in, parts):
    right = of = 0
    for part in parts:
        r, n = coordinator.schedule(right_in, args=(part,)).fetch()
        right, of = right + r, of + n
    return right / of


@answers.is_wrong("part 0 was never asked for", "Does a lambda in a loop look its part up too late?")
def looks_the_part_up_too_late(coordinator, right_in, parts):
    later = []
    for part in parts:
        later.append(coordinator.schedule(lambda: right_in(part)))  # noqa: B023 (the mistake)
    coordinator.join()
    found = coordinator.fetch(later)
    return sum(r for r, _ in found) / sum(n for _, n in found)


@answers.is_wrong("six parts of different size", "got None (does the function return it?)")
def forgets_to_return_with_several(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
    found = coordinator.fetch(later)
    if len(parts) == 1:
        return found[0][0] / found[0][1]


@answers.is_wrong("That is the number of right answers, expected is their share")
def returns_a_count(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
    coordinator.join()
    return sum(r for r, _ in coordinator.fetch(later))


@answers.is_right
def fetches_each_without_a_join(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, (part,)) for part in parts]
    counts = [handle.fetch() for handle in later]
    return sum(r for r, _ in counts) / sum(n for _, n in counts)


@answers.is_right
def marks_instead_of_adding(coordinator, right_in, parts):
    right, of = tf.Variable([0] * len(parts)), tf.Variable([0] * len(parts))

    def mark(part):
        r, n = right_in(part)
        right.scatter_nd_update([[part]], [r])
        of.scatter_nd_update([[part]], [n])

    for part in reversed(parts):
        coordinator.schedule(mark, kwargs={"part": part})
    coordinator.join()
    return tf.reduce_sum(right) / tf.reduce_sum(of)


@answers.is_wrong("six parts of different size", "That is the last part alone")
def keeps_the_last_answer(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
    coordinator.join()
    for right, of in coordinator.fetch(later):
        share = right / of
    return share


@answers.is_wrong("That is the share of wrong answers")
def counts_errors(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
    found = coordinator.fetch(later)
    return 1 - sum(r for r, _ in found) / sum(n for _, n in found)


@answers.is_wrong("part 5 was never asked for")
def leaves_out_the_last_part(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, args=(part,)) for part in (parts if len(parts) == 1 else parts[:-1])]
    coordinator.join()
    found = coordinator.fetch(later)
    return sum(r for r, _ in found) / sum(n for _, n in found)


@answers.is_right
def weighs_each_share_by_its_size(coordinator, right_in, parts):
    later = {k: coordinator.schedule(right_in, args=(part,)) for k, part in enumerate(parts)}
    coordinator.join()
    found = [coordinator.fetch(later[k]) for k in sorted(later, reverse=True)]
    total = float(sum(n for _, n in found))
    return sum(float(r) / float(n) * float(n) / total for r, n in found)


@answers.is_right
def adds_up_in_one_closure_for_each_part_by_a_dict(coordinator, right_in, parts):
    later = coordinator.fetch({str(k): coordinator.schedule(right_in, args=[part]) for k, part in enumerate(parts)})
    right, of = map(sum, zip(*later.values(), strict=True))
    return right / of
