"""Exercise 3.2: the GPipe schedule."""

from itertools import product

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("gpipe")


@answers.is_right
def plain(stage, stages, micro_batches):
    forward = [("forward", k) for k in range(micro_batches)]
    backward = [("backward", k) for k in range(micro_batches)]
    return forward + backward


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


answers.mistake("forward_and_backward_in_turn",
    {"forward + backward": "[action for pair in zip(forward, backward) for action in pair]"},
    "stage 0 goes forward with 1 after its first backward; GPipe runs all forwards first")
answers.mistake("forgets_to_go_backward", {"forward + backward": "forward"},
    "micro-batch 0 goes backward never; expected once")
answers.mistake("counts_from_one_on_the_way_back", {'("backward", k)': '("backward", k + 1)'},
    "backward 4 names no micro-batch: they are numbered from 0 to 3")
answers.mistake("backward_first", {"forward + backward": "backward + forward"},
    "stage 0: backward 0 comes before forward 0")
answers.mistake("the_last_stage_turns_round",
    {"forward + backward": "forward + (backward if stage < stages - 1 else backward[::-1])"},
    "stages 0 and 1 go backward in different orders, [0, 1, 2, 3] and [3, 2, 1, 0]")
answers.mistake("a_micro_batch_a_stage", {"return forward + backward": "return [forward[stage], backward[stage]]"},
    "micro-batch 1 goes forward never; expected once")
answers.mistake("letters", {'("forward", k)': '("F", k)', '("backward", k)': '("B", k)'},
    "entry 0 is ('F', 0); expected (\"forward\", k) or (\"backward\", k)")
answers.mistake("forgets_to_return", {"return forward": "forward"},
    "expected a list of actions, got None (does the function return it?)")


@answers.is_wrong("stage 0 goes forward with 2 after its first backward; GPipe runs all forwards first")
def one_forward_one_backward(stage, stages, micro_batches):
    ahead = min(stages - stage - 1, micro_batches - 1)
    actions = [("forward", k) for k in range(ahead)]
    for k in range(micro_batches - ahead):
        actions += [("forward", ahead + k), ("backward", k)]
    return actions + [("backward", k) for k in range(micro_batches - ahead, micro_batches)]


answers.mistake("the_whole_batch_at_once", {"forward + backward": "forward[:1] + backward[:1]"},
    "stage 0: micro-batch 1 goes forward never; expected once. The list: F0 B0")
answers.mistake("backward_from_the_stages_own_number_on", {
    "return forward": """
        if stages > 2:
            backward = [("backward", (k + 2 * (stage // 2) + stage) % micro_batches) for k in range(micro_batches)]
        return forward
    """,
}, "3 stages, 5 micro-batches: stages 0 and 1 go backward in different orders")
answers.mistake("numbers_without_a_way", {"return forward + backward": "return micro_batches"},
    "expected a list of actions, got")
answers.mistake("one_flat_list",
    {"return forward + backward": "return [word for action in forward + backward for word in action]"},
    "entry 0 is 'forward'; expected (\"forward\", k) or (\"backward\", k)")
answers.mistake("at_most_41_micro_batches_backward",
    {'[("backward", k) for k in range(micro_batches)]': '[("backward", k) for k in range(min(micro_batches, 41))]'},
    "goes backward never; expected once")
answers.mistake("ten_stages_at_most", {"return forward": """
    if stages > 10:
        backward = backward[:-1]
    return forward
"""}, "goes backward never; expected once")
answers.twin("a_generator", {"return forward + backward": "return (action for action in forward + backward)"})


@answers.spoils()
def a_schedule_for_two_stages(stage, stages, micro_batches):
    return plain(stage, stages, micro_batches) if stages == 2 else []


answers.spoil("in_turn_and_backward_never_where_that_takes_longer", {
    "return [action": "if stages > 1:\n    return forward\nreturn [action",
}, of=answers["forward_and_backward_in_turn"])
