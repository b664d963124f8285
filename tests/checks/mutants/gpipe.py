"""Exercise 3.2: the GPipe schedule."""

from __future__ import annotations

from itertools import product

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("gpipe")


def both(micros):
    return [("forward", k) for k in micros] + [("backward", k) for k in micros]


@answers.is_wrong("stage 0 goes forward with 1 after its first backward; GPipe goes forward with all first")
def forward_and_backward_in_turn(stage, stages, micro_batches):
    return [action for k in range(micro_batches) for action in (("forward", k), ("backward", k))]


@answers.is_wrong("micro-batch 0 goes backward never; expected once")
def forgets_to_go_backward(stage, stages, micro_batches):
    return [("forward", k) for k in range(micro_batches)]


@answers.is_wrong("backward 4 is no micro-batch: they are numbered from 0 to 3")
def counts_from_one_on_the_way_back(stage, stages, micro_batches):
    return [("forward", k) for k in range(micro_batches)] + [("backward", k + 1) for k in range(micro_batches)]


@answers.is_wrong("stage 0: backward 0 stands before forward 0")
def backward_first(stage, stages, micro_batches):
    actions = both(range(micro_batches))
    return actions[micro_batches:] + actions[:micro_batches]


@answers.is_wrong("stages 0 and 1 go backward in different orders, [0, 1, 2, 3] and [3, 2, 1, 0]")
def the_last_stage_turns_round(stage, stages, micro_batches):
    actions = both(range(micro_batches))
    return actions if stage < stages - 1 else actions[:micro_batches] + actions[: micro_batches - 1 : -1]


@answers.is_wrong("micro-batch 1 goes forward never; expected once")
def a_micro_batch_a_stage(stage, stages, micro_batches):
    return both([stage])


@answers.is_wrong("entry 0 is ('F', 0); expected (\"forward\", k) or (\"backward\", k)")
def letters(stage, stages, micro_batches):
    return [(way, k) for way in "FB" for k in range(micro_batches)]


@answers.is_wrong("expected a list of actions, got None (does the function return it?)")
def forgets_to_return(stage, stages, micro_batches):
    both(range(micro_batches))


@answers.is_wrong("stage 0 goes forward with 2 after its first backward; GPipe goes forward with all first")
def one_forward_one_backward(stage, stages, micro_batches):
    ahead = min(stages - stage - 1, micro_batches - 1)
    actions = [("forward", k) for k in range(ahead)]
    for k in range(micro_batches - ahead):
        actions += [("forward", ahead + k), ("backward", k)]
    return actions + [("backward", k) for k in range(micro_batches - ahead, micro_batches)]


@answers.is_wrong("stage 0: micro-batch 1 goes forward never; expected once. The list: F0 B0")
def the_whole_batch_at_once(stage, stages, micro_batches):
    return [("forward", 0), ("backward", 0)]


@answers.is_wrong("3 stages, 5 micro-batches: stages 0 and 1 go backward in different orders")
def backward_from_the_stages_own_number_on(stage, stages, micro_batches):
    half = [(k + 2 * (stage // 2) + stage) % micro_batches for k in range(micro_batches)]
    if stages == 2:
        half = range(micro_batches)
    return [("forward", k) for k in range(micro_batches)] + [("backward", k) for k in half]


@answers.is_wrong("expected a list of actions, got")
def numbers_without_a_way(stage, stages, micro_batches):
    return micro_batches


@answers.is_wrong("entry 0 is 'forward'; expected (\"forward\", k) or (\"backward\", k)")
def one_flat_list(stage, stages, micro_batches):
    return [word for action in both(range(micro_batches)) for word in action]


@answers.is_right
def plain(stage, stages, micro_batches):
    return both(range(micro_batches))


@answers.is_right
def backward_from_the_last_as_in_the_paper(stage, stages, micro_batches):
    actions = [["forward", k] for k in range(micro_batches)]
    while len(actions) < 2 * micro_batches:
        actions.append(["backward", 2 * micro_batches - 1 - len(actions)])
    return tuple(actions)


@answers.is_right
def a_product(stage, stages, micro_batches):
    return list(product(("forward", "backward"), range(micro_batches)))


@answers.is_right
def numbers_of_numpy_in_an_order_of_their_own(stage, stages, micro_batches):
    """Any order will do, if all stages have the same one."""
    micros = np.roll(np.arange(micro_batches), 1)
    return [("forward", k) for k in micros] + [("backward", k) for k in micros[::-1]]
