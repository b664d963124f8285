"""Exercise 3.3: the 1F1B schedule."""

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("one_forward_one_backward")


@answers.is_right
def plain(stage, stages, micro_batches):
    ahead = max(0, min(stages - stage - 1, micro_batches))
    actions = [("forward", k) for k in range(ahead)]
    for k in range(micro_batches - ahead):
        actions += [("forward", ahead + k), ("backward", k)]
    return actions + [("backward", k) for k in range(micro_batches - ahead, micro_batches)]


@answers.is_right
def by_counting_what_is_in_flight(stage, stages, micro_batches):
    actions, gone, back = [], 0, 0
    while back < micro_batches:
        if gone < micro_batches and gone - back < stages - stage:
            actions.append(["forward", gone])
            gone += 1
        else:
            actions.append(["backward", back])
            back += 1
    return actions


@answers.is_right
def backward_then_forward(stage, stages, micro_batches):
    """One forward more before the first backward, and pairs the other way round: the same order."""
    ahead = min(stages - stage, micro_batches)
    actions = [("forward", k) for k in range(ahead)]
    for k in range(micro_batches):
        actions.append(("backward", k))
        if ahead + k < micro_batches:
            actions.append(("forward", ahead + k))
    return tuple(actions)


@answers.is_right
def by_a_queue_of_what_is_in_flight(stage, stages, micro_batches):
    actions, in_flight = [], []
    for k in range(micro_batches):
        if len(in_flight) == stages - stage:
            actions.append(("backward", in_flight.pop(0)))
        in_flight.append(k)
        actions.append(("forward", k))
    return actions + [("backward", k) for k in in_flight]


@answers.is_wrong("stage 0 holds 4 micro-batches at once", "expected at most 2", "All forwards first: that is GPipe")
def all_forwards_first(stage, stages, micro_batches):
    return [(way, k) for way in ("forward", "backward") for k in range(micro_batches)]


answers.mistake("no_warm_up", {"stages - stage - 1": "0"},
    "takes 8 times a forward and a backward, where m + p − 1 = 5 are enough", "The pipeline holds only one micro-batch at a time")
answers.mistake("the_same_warm_up_everywhere", {"stages - stage - 1": "stages - 1"},
    "takes 7 times", "The last stage could go backward straight after its first forward")
answers.mistake("one_forward_too_many", {"stages - stage - 1": "stages - stage"},
    "stage 0 holds 3 micro-batches at once", "expected at most 2")
answers.mistake("the_warm_up_turned_round", {"stages - stage - 1": "stage"},
    "deadlock: stage 0 can't do backward 0 before stage 1 has done backward 0")
answers.mistake("never_drains",
    {'return actions + [("backward", k) for k in range(micro_batches - ahead, micro_batches)]': "return actions"},
    "stage 0: micro-batch 3 goes backward never", "F0 F1 B0 F2 B1 F3 B2")
answers.mistake("steady_state_without_backwards", {
    '[("forward", ahead + k), ("backward", k)]': '[("forward", ahead + k)]',
    'return actions + [("backward", k) for k in range(micro_batches - ahead, micro_batches)]': "return actions",
}, "stage 0: micro-batch 0 goes backward never; expected once. The list: F0 F1 F2 F3")
answers.mistake("warms_up_beyond_a_short_batch", {
    "max(0, min(stages - stage - 1, micro_batches))": "stages - stage - 1",
    "range(micro_batches - ahead, micro_batches)": "range(max(0, micro_batches - ahead), micro_batches)",
}, "4 stages, 2 micro-batches", "names no micro-batch: they are numbered from 0 to 1")
answers.mistake("forgets_to_return", {"return actions": "actions"},
    "expected a list of actions, got None (does the function return it?)")
answers.mistake("a_warm_up_for_two_stages", {"stages - stage - 1": "1 - stage if stages == 2 else micro_batches"},
    "3 stages, 5 micro-batches", "stage 0 holds 5 micro-batches at once")
answers.mistake("a_warm_up_for_four_stages_at_most", {"stages - stage - 1": "min(stages, 4) - stage - 1"},
    "5 stages, 7 micro-batches")
answers.mistake("goes_backward_with_the_newest", {
    '("forward", ahead + k), ("backward", k)': '("forward", ahead + k), ("backward", ahead + k)',
    "range(micro_batches - ahead, micro_batches)": "reversed(range(ahead))",
}, "stages 0 and 1 go backward in different orders, [1, 2, 3, 0] and [0, 1, 2, 3]")
answers.mistake("the_steady_state_alone", {
    'actions = [("forward", k) for k in range(ahead)]': "actions = []",
    ' + [("backward", k) for k in range(micro_batches - ahead, micro_batches)]': "",
}, "micro-batch 0 goes forward never; expected once")
answers.mistake("half_as_many_in_flight", {"stages - stage - 1": "(stages - stage) // 2"},
    "takes", "stages wait needlessly")
answers.mistake("a_warm_up_for_ten_stages_at_most", {"stages - stage - 1": "min(stages, 10) - stage - 1"},
    "stages, ", "stages wait needlessly")
answers.mistake("as_many_pairs_as_were_ever_tried", {
    "range(micro_batches - ahead):": "range(min(micro_batches - ahead, 41)):",
}, "goes forward never; expected once")
answers.mistake("all_forwards_first_in_a_short_batch",
    {"stages - stage - 1": "stages if micro_batches < stages else stages - stage - 1"},
    "4 stages, 2 micro-batches", "stage 3 holds 2 micro-batches at once")
answers.twin("a_generator", {
    "return actions + [": "yield from actions + [",
})
answers.twin("with_letters_of_numpy", {
    'actions = [("forward", k) for k in range(ahead)]': """
        ways = np.array(["forward", "backward"])
        actions = [(ways[0], k) for k in range(ahead)]
    """,
})


@answers.spoils()
def a_schedule_for_two_stages(stage, stages, micro_batches):
    return plain(stage, stages, micro_batches) if stages == 2 else []


answers.spoil("ten_stages_at_most_and_nothing_for_more", {"actions = [": "if stages > 10:\n    return []\nactions = ["},
    of=answers["a_warm_up_for_ten_stages_at_most"])
