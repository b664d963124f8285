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


def share(found):
    return sum(right for right, _ in found) / sum(of for _, of in found)


@answers.is_wrong("12 closures were scheduled for 6 parts", "schedule each part once")
def twice_to_be_on_the_safe_side(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, args=(part,)) for part in [*parts, *(parts if len(parts) > 1 else ())]]
    return share(coordinator.fetch(later))


@answers.is_wrong("1 of 6 parts was under way")
def all_parts_in_one_closure(coordinator, right_in, parts):
    later = coordinator.schedule(lambda: [right_in(part) for part in parts])
    return share(coordinator.fetch(later))


@answers.is_wrong("2 of 6 parts were under way when the first answer was fetched")
def one_for_each_worker_then_waits(coordinator, right_in, parts):
    found = []
    for k in range(0, len(parts), 2):
        later = [coordinator.schedule(right_in, args=(part,)) for part in parts[k : k + 2]]
        coordinator.join()
        found += coordinator.fetch(later)
    return share(found)


@answers.is_wrong("A share is a number from 0 to 1, not in per cent")
def in_per_cent(coordinator, right_in, parts):
    return 100 * share(coordinator.fetch([coordinator.schedule(right_in, args=(part,)) for part in parts]))


@answers.is_wrong("`//` leaves out what stands behind the point")
def divides_whole_numbers(coordinator, right_in, parts):
    found = coordinator.fetch([coordinator.schedule(right_in, args=(part,)) for part in parts])
    return sum(right for right, _ in found) // sum(of for _, of in found)


@answers.is_wrong("coordinator.fetch gives the numbers themselves")
def takes_the_promise_for_the_answer(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
    coordinator.join()
    return share(later)


@answers.is_wrong("args=(part,)")
def a_part_that_is_no_tuple(coordinator, right_in, parts):
    return share(coordinator.fetch([coordinator.schedule(right_in, args=part) for part in parts]))


@answers.is_right
def gets_tensors_after_the_join(coordinator, right_in, parts):
    later = tuple(coordinator.schedule(right_in, [part]) for part in parts)
    coordinator.join()
    return float(share([handle.get() for handle in later]))


@answers.is_right
def a_list_in_which_each_part_has_its_place(coordinator, right_in, parts):
    found = [None] * len(parts)

    def put(place, part):
        found[place] = right_in(part)

    for place, part in enumerate(parts):
        coordinator.schedule(put, args=(place, part))
    coordinator.join()
    return share([(int(right), int(of)) for right, of in found])
