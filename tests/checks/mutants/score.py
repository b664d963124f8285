"""Exercise 9.3: an exact score with a coordinator."""

import time

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

tf = Later("tensorflow")
answers = Answers("score")


@answers.is_right
def plain(coordinator, right_in, parts):
    later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
    coordinator.join()
    found = coordinator.fetch(later)
    return sum(right for right, _ in found) / sum(of for _, of in found)


answers.twin("fetches_each_of_them",
    {"found = coordinator.fetch(later)": "found = [handle.fetch() for handle in later]"})
answers.twin("asks_again_and_again_whether_all_have_run", {
    "coordinator.join()": """
        while not coordinator.done():
            time.sleep(0.01)
    """,
})


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


@answers.is_right
def weighs_each_share_by_its_size(coordinator, right_in, parts):
    later = {k: coordinator.schedule(right_in, args=(part,)) for k, part in enumerate(parts)}
    coordinator.join()
    found = [coordinator.fetch(later[k]) for k in sorted(later, reverse=True)]
    total = float(sum(n for _, n in found))
    return sum(float(r) / float(n) * float(n) / total for r, n in found)


@answers.is_right
def adds_up_in_one_closure_for_each_part_by_a_dict(coordinator, right_in, parts):
    later = {str(k): coordinator.schedule(right_in, args=[part]) for k, part in enumerate(parts)}
    coordinator.join()
    right, of = map(sum, zip(*coordinator.fetch(later).values(), strict=True))
    return right / of


def share(found):
    return sum(right for right, _ in found) / sum(of for _, of in found)


answers.twin("gets_tensors_after_the_join", {
    "found = coordinator.fetch(later)": "found = [handle.get() for handle in later]",
    "return sum(right for right, _ in found) / sum(of for _, of in found)":
        "return float(sum(right for right, _ in found) / sum(of for _, of in found))",
})


@answers.is_right
def a_list_in_which_each_part_has_its_place(coordinator, right_in, parts):
    found = [None] * len(parts)

    def put(place, part):
        found[place] = right_in(part)

    for place, part in enumerate(parts):
        coordinator.schedule(put, args=(place, part))
    coordinator.join()
    return share([(int(right), int(of)) for right, of in found])


answers.mistake("works_it_out_alone", {
    """
        later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
        coordinator.join()
        found = coordinator.fetch(later)
    """: "found = [(int(right), int(of)) for right, of in map(right_in, parts)]",
}, "right_in was called on the chief itself")


@answers.is_wrong("every second closure runs twice", "Closures that ran twice count twice. A closure's result arrives once")
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


@answers.is_wrong("This coordinator is simulated", "an addition to a variable may happen twice")
def adds_to_variables_on_the_server(coordinator, right_in, parts):
    import tensorflow as tf

    with coordinator.strategy.scope():
        right, of = tf.Variable(0), tf.Variable(0)

    def add(part):
        for total, more in zip((right, of), right_in(part), strict=True):
            total.assign_add(more)

    for part in parts:
        coordinator.schedule(add, args=(part,))
    coordinator.join()
    return int(right) / int(of)


answers.mistake("mean_of_shares", {
    "sum(right for right, _ in found) / sum(of for _, of in found)":
        "sum(right / of for right, of in found) / len(parts)",
}, "six parts of different size", "Parts differ in size")
answers.mistake("one_after_the_other", {
    """
        later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
        coordinator.join()
        found = coordinator.fetch(later)
    """: "found = [coordinator.schedule(right_in, args=(part,)).fetch() for part in parts]",
}, "1 of 6 parts was under way when the first answer was fetched", "Schedule all parts, then fetch")
answers.mistake("looks_the_part_up_too_late", {
    "[coordinator.schedule(right_in, args=(part,)) for part in parts]":
        "[coordinator.schedule(lambda: right_in(part)) for part in parts]",
}, "part 0 was never asked for", "Does a lambda in a loop look its part up too late?")
answers.mistake("forgets_to_return_with_several", {
    "return sum": """
        if len(parts) == 1:
            return sum
    """,
}, "six parts of different size", "got None (does the function return it?)")
answers.mistake("returns_a_count", {" / sum(of for _, of in found)": ""},
    "That is the number of right answers; expected their share")
answers.mistake("counts_the_same_answers_once", {
    "return sum(right": "found = {(int(right), int(of)) for right, of in found}\nreturn sum(right",
}, "six parts of different size", "Parts with the same answers all count")
answers.mistake("keeps_the_last_answer",
    {"sum(right for right, _ in found) / sum(of for _, of in found)": "found[-1][0] / found[-1][1]"},
    "six parts of different size", "That is the last part alone")
answers.mistake("counts_errors", {"return sum": "return 1 - sum"}, "That is the share of wrong answers")
answers.mistake("leaves_out_the_last_part",
    {"for part in parts]": "for part in (parts if len(parts) == 1 else parts[:-1])]"},
    "part 5 was never asked for")
answers.mistake("twice_to_be_on_the_safe_side",
    {"for part in parts]": "for part in (parts if len(parts) == 1 else [*parts, *parts])]"},
    "12 closures were scheduled for 6 parts", "schedule each part once")
answers.mistake("all_parts_in_one_closure", {
    "[coordinator.schedule(right_in, args=(part,)) for part in parts]":
        "coordinator.schedule(lambda: [right_in(part) for part in parts])",
}, "1 of 6 parts was under way")
answers.mistake("one_for_each_worker_then_waits", {
    """
        later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
        coordinator.join()
        found = coordinator.fetch(later)
    """: """
        found = []
        for k in range(0, len(parts), 2):
            later = [coordinator.schedule(right_in, args=(part,)) for part in parts[k : k + 2]]
            coordinator.join()
            found += coordinator.fetch(later)
    """,
}, "2 of 6 parts were under way when the first answer was fetched")
answers.mistake("fetches_without_a_join", {"coordinator.join()": ""},
    "the first answer was fetched before join", "may get that worker's error")
answers.mistake("fetches_each_without_a_join",
    {"coordinator.join()\nfound = coordinator.fetch(later)": "found = [handle.fetch() for handle in later]"},
    "the first answer was fetched before join")
answers.mistake("asks_once_whether_all_have_run", {
    """
        coordinator.join()
        found = coordinator.fetch(later)
    """: "found = coordinator.done() and coordinator.fetch(later)",
}, "'bool' object is not iterable", "done() is False while closures run")
answers.mistake("asks_once_and_goes_on_whatever_it_hears", {"coordinator.join()": "coordinator.done()"},
    "the first answer was fetched before join")
answers.mistake("schedules_what_it_has_worked_out", {
    "coordinator.schedule(right_in, args=(part,))": "coordinator.schedule(right_in(part))",
}, "pass the function itself, without calling it")
answers.mistake("hands_over_all_parts_each_time", {"args=(part,)": "args=(parts,)"}, "one part at a time")
answers.mistake("takes_all_parts_for_as_large_as_the_first",
    {"sum(of for _, of in found)": "(len(found) * found[0][1])"}, "the first part's size is not theirs")
answers.mistake("changes_the_two_numbers", {
    "sum(right for right, _ in found) / sum(of for _, of in found)":
        "sum(of for _, of in found) / sum(right for right, _ in found)",
}, "right_in returns the right answers first, then the examples")
answers.mistake("in_per_cent", {"return sum": "return 100 * sum"}, "A share is a number from 0 to 1, not in per cent")
answers.mistake("divides_whole_numbers", {") / sum": ") // sum"}, "`//` drops the fraction")
answers.mistake("takes_the_promise_for_the_answer", {"found = coordinator.fetch(later)": "found = later"},
    "coordinator.fetch returns the numbers themselves")
answers.mistake("a_part_that_is_no_tuple", {"args=(part,)": "args=part"}, "args=(part,)")


@answers.spoils()
def schedules_a_lone_part_and_does_others_alone(coordinator, right_in, parts):
    if len(parts) > 1:
        return share([(int(right), int(of)) for right, of in map(right_in, parts)])
    return share([coordinator.schedule(right_in, args=(parts[0],)).fetch()])
