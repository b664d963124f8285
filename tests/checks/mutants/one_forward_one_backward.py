"""Exercise 3.3: the 1F1B schedule."""

from __future__ import annotations

from tests.checks.mutants import Answers

answers = Answers("one_forward_one_backward")


def warm(ahead, micro_batches):
    """`ahead` forwards, then forward and backward in turn, then the backwards that are left."""
    ahead = max(0, min(ahead, micro_batches))
    actions = [("forward", k) for k in range(ahead)]
    for k in range(micro_batches - ahead):
        actions += [("forward", ahead + k), ("backward", k)]
    return actions + [("backward", k) for k in range(micro_batches - ahead, micro_batches)]


@answers.is_wrong("stage 0 holds 4 micro-batches at once", "expected at most 2", "All forwards first: that is GPipe")
def all_forwards_first(stage, stages, micro_batches):
    return [(way, k) for way in ("forward", "backward") for k in range(micro_batches)]


@answers.is_wrong("takes 8 times a forward and a backward, where m + p − 1 = 5 are enough", "One micro-batch at a time")
def no_warm_up(stage, stages, micro_batches):
    return warm(0, micro_batches)


@answers.is_wrong("takes 7 times", "The last stage could go backward straight after its first forward")
def the_same_warm_up_everywhere(stage, stages, micro_batches):
    return warm(stages - 1, micro_batches)


@answers.is_wrong("stage 0 holds 3 micro-batches at once", "expected at most 2")
def one_forward_too_many(stage, stages, micro_batches):
    return warm(stages - stage, micro_batches)


@answers.is_wrong("deadlock: stage 0 can't do backward 0 before stage 1 has done backward 0")
def the_warm_up_turned_round(stage, stages, micro_batches):
    return warm(stage, micro_batches)


@answers.is_wrong("stage 0: micro-batch 3 goes backward never", "F0 F1 B0 F2 B1 F3 B2")
def never_drains(stage, stages, micro_batches):
    return warm(stages - stage - 1, micro_batches)[: 2 * micro_batches - (stages - stage - 1)]


@answers.is_wrong("stage 0: micro-batch 0 goes backward never; expected once. The list: F0 F1 F2 F3")
def steady_state_without_backwards(stage, stages, micro_batches):
    actions = warm(stages - stage - 1, micro_batches)
    return [a for a in actions if a[0] == "forward"]


@answers.is_wrong("4 stages, 2 micro-batches", "is no micro-batch: they are numbered from 0 to 1")
def warms_up_beyond_a_short_batch(stage, stages, micro_batches):
    ahead = stages - stage - 1
    if ahead <= micro_batches:
        return warm(ahead, micro_batches)
    return [("forward", k) for k in range(ahead)] + [("backward", k) for k in range(micro_batches)]


@answers.is_wrong("expected a list of actions, got None (does the function return it?)")
def forgets_to_return(stage, stages, micro_batches):
    warm(stages - stage - 1, micro_batches)


@answers.is_wrong("3 stages, 5 micro-batches", "stage 0 holds 5 micro-batches at once")
def a_warm_up_for_two_stages(stage, stages, micro_batches):
    if stages == 2:
        return warm(1 - stage, micro_batches)
    return all_forwards_first(stage, stages, micro_batches)


@answers.is_wrong("5 stages, 7 micro-batches")
def a_warm_up_for_four_stages_at_most(stage, stages, micro_batches):
    return warm(min(stages, 4) - stage - 1, micro_batches)


@answers.is_wrong("stages 0 and 1 go backward in different orders, [1, 2, 3, 0] and [0, 1, 2, 3]")
def goes_backward_with_the_newest(stage, stages, micro_batches):
    ahead = min(stages - stage - 1, micro_batches)
    actions = [("forward", k) for k in range(ahead)]
    for k in range(ahead, micro_batches):
        actions += [("forward", k), ("backward", k)]
    return actions + [("backward", k) for k in reversed(range(ahead))]


@answers.is_wrong("micro-batch 0 goes forward never; expected once")
def the_steady_state_alone(stage, stages, micro_batches):
    ahead = stages - stage - 1
    pairs = [[("forward", ahead + k), ("backward", k)] for k in range(micro_batches - ahead)]
    return [action for pair in pairs for action in pair]


@answers.is_wrong("takes", "stages wait needlessly")
def half_as_many_in_flight(stage, stages, micro_batches):
    return warm((stages - stage) // 2, micro_batches)


@answers.is_right
def plain(stage, stages, micro_batches):
    return warm(stages - stage - 1, micro_batches)


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
