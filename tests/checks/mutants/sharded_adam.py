"""Exercise 12.4: Adam whose state is cut into one part a rank."""

import torch

from tests.checks.mutants import Answers, edited
from worldsize.fabric.collectives import all_gather, all_reduce, reduce_scatter

answers = Answers("sharded_adam")
NAMES = ("mean", "square")


def new_state(weights):
    return {"step": 0, "mean": torch.zeros_like(weights), "square": torch.zeros_like(weights)}


def adam(weights, gradient, state, learning_rate, epsilon=1e-8):
    state["step"] += 1
    state["mean"].lerp_(gradient, 0.1)
    state["square"].lerp_(gradient**2, 0.001)
    mean = state["mean"] / (1 - 0.9 ** state["step"])
    square = state["square"] / (1 - 0.999 ** state["step"])
    weights -= learning_rate * mean / (square.sqrt() + epsilon)


def own(fabric, x):
    return x.tensor_split(fabric.world_size)[fabric.rank]


@answers.is_right
def with_the_collectives(fabric, replica, learning_rate):
    weights, gradients = replica
    mine = own(fabric, weights)
    state = new_state(mine)
    for gradient in gradients:
        adam(mine, reduce_scatter(fabric, gradient) / fabric.world_size, state, learning_rate)
        all_gather(fabric, weights)
    return state


@answers.is_right
def every_part_straight_to_its_owner(fabric, replica, learning_rate):
    """Both halves by hand: a message from each rank to each other one."""
    weights, gradients = replica
    n, rank = fabric.world_size, fabric.rank
    others = [(rank + k) % n for k in range(1, n)]
    sources = [(rank - k) % n for k in range(1, n)]
    mine = own(fabric, weights)
    state = new_state(mine)
    for gradient in gradients:
        parts = gradient.tensor_split(n)
        handles = [fabric.isend(parts[other], to=other) for other in others]
        total, arrived = parts[rank].clone(), torch.empty_like(parts[rank])
        for source in sources:
            fabric.recv(arrived, frm=source)
            total += arrived
        for handle in handles:
            handle.wait()
        adam(mine, total / n, state, learning_rate)

        handles = [fabric.isend(mine, to=other) for other in others]
        for source in sources:
            fabric.recv(weights.tensor_split(n)[source], frm=source)
        for handle in handles:
            handle.wait()
    return state


@answers.is_right
def steps_on_a_copy_of_its_part(fabric, replica, learning_rate):
    weights, gradients = replica
    mine = own(fabric, weights).clone()
    state = new_state(mine)
    for gradient in gradients:
        adam(mine, reduce_scatter(fabric, gradient).div_(fabric.world_size), state, learning_rate)
        own(fabric, weights).copy_(mine)
        all_gather(fabric, weights)
    return {"mean": state["mean"], "square": state["square"], "steps": state["step"]}


@answers.is_right
def with_the_frameworks_adam(fabric, replica, learning_rate):
    weights, gradients = replica
    mine = torch.nn.Parameter(own(fabric, weights).clone())
    optimizer = torch.optim.Adam([mine], lr=learning_rate)
    for gradient in gradients:
        mine.grad = reduce_scatter(fabric, gradient) / fabric.world_size
        optimizer.step()
        own(fabric, weights).copy_(mine.detach())
        all_gather(fabric, weights)
    kept = optimizer.state[mine]
    return {"mean": kept["exp_avg"], "square": kept["exp_avg_sq"]}


@answers.is_right
def divides_first(fabric, replica, learning_rate):
    weights, gradients = replica
    sizes = [len(part) for part in weights.tensor_split(fabric.world_size)]
    start = sum(sizes[: fabric.rank])
    mean, square = torch.zeros(2, sizes[fabric.rank], dtype=weights.dtype)
    for step, gradient in enumerate(gradients, 1):
        part = reduce_scatter(fabric, gradient / fabric.world_size)
        mean = 0.9 * mean + 0.1 * part
        square = 0.999 * square + 0.001 * part * part
        upright = (square / (1 - 0.999**step)).sqrt() + 1e-8
        weights[start : start + len(part)] -= learning_rate * mean / (1 - 0.9**step) / upright
        all_gather(fabric, weights)
    return {"mean": mean, "square": square}


answers.twin("asks_with_next", {
    "for gradient in gradients:": "while (gradient := next(gradients, None)) is not None:",
})

answers.mistake("updates_with_the_local_gradient",
    {"reduce_scatter(fabric, gradient) / fabric.world_size": "own(fabric, gradient)"},
    "Each part was updated with the gradient of one rank alone")
answers.mistake("forgets_to_gather", {"all_gather(fabric, weights)": ""},
    "Only this rank's part has moved", "after every step gather the weights of all parts")
answers.mistake("keeps_the_full_state", {
    "own(fabric, weights)": "weights",
    "reduce_scatter(fabric, gradient)": "all_reduce(fabric, gradient)",
    "all_gather(fabric, weights)": "",
}, "its state holds 16 numbers, enough for all weights: nothing is saved; its own part needs 8")
answers.mistake("all_reduces_the_gradient",
    {"reduce_scatter(fabric, gradient)": "own(fabric, all_reduce(fabric, gradient))"},
    "the weights are right, but all ranks together sent 3 x", "An all-reduce is a reduce-scatter and an all-gather")
answers.mistake("gathers_into_another_tensor", {
    "    all_gather(fabric, weights)": "    weights = all_gather(fabric, weights.clone())\n    mine = own(fabric, weights)",
}, "Only the first step is in `weights`", "give it no copy")
answers.mistake("divides_the_rate", {"state, learning_rate)": "state, learning_rate / fabric.world_size)"},
    "The learning rate was divided by the number of ranks")
answers.mistake("divides_the_rate_and_not_the_sum", {
    "reduce_scatter(fabric, gradient) / fabric.world_size, state, learning_rate)":
        "reduce_scatter(fabric, gradient), state, learning_rate / fabric.world_size)",
}, "The gradients were added up, and the learning rate was divided", "Divide the sum")
# Adam hardly notices: its step does not depend on the gradient's scale.
answers.mistake("forgets_to_divide",
    {"reduce_scatter(fabric, gradient) / fabric.world_size": "reduce_scatter(fabric, gradient)"},
    "It was made from the sum of the gradients: divide by the number of ranks")
answers.mistake("divides_twice",
    {"reduce_scatter(fabric, gradient)": "reduce_scatter(fabric, gradient / fabric.world_size)"},
    "was divided by the number of ranks twice")
answers.mistake("has_tensorflows_epsilon",
    {"world_size, state, learning_rate)": "world_size, state, learning_rate, epsilon=1e-7)"},
    "So small a difference comes of", "or of another epsilon in Adam")
answers.mistake("takes_three_steps", {
    "for gradient in gradients:": "for _, gradient in zip(range(3), gradients, strict=False):",
}, "4 ranks, 12 weights, 9 steps", "(the weights)")
answers.mistake("corrects_the_first_steps_alone", {
    "all_gather(fabric, weights)": 'state["step"] = min(state["step"], 3)\nall_gather(fabric, weights)',
}, "4 ranks, 12 weights, 9 steps", "(the weights)")
answers.mistake("keeps_its_state_in_float64", {
    "new_state(mine)": "new_state(mine.double())",
    "adam(mine, reduce_scatter(fabric, gradient)": "adam(mine, reduce_scatter(fabric, gradient).double()",
}, "3 ranks, 10 weights, 3 steps, float32", "as float32, got float64")
answers.mistake("gathers_once_at_the_end", {"    all_gather(fabric, weights)": "all_gather(fabric, weights)"},
    "(the weights)", "The weights were gathered once, at the end", "gather in the loop")
answers.mistake("asks_for_all_gradients_first", {"weights, gradients = replica": """
    weights, gradients = replica
    gradients = list(gradients)
"""}, "(the weights)", "All gradients were asked for before the first step", "then ask for the next")
answers.mistake("counts_the_gradients",
    {"for gradient in gradients:": "for gradient, _ in zip(gradients, range(len(gradients))):"},
    "has no len()", "`gradients` yields one gradient at a time, when you ask for it")
answers.mistake("takes_them_by_number", {
    "for gradient in gradients:": "for number in range(2):\n    gradient = gradients[number]",
}, "not subscriptable", "for gradient in gradients")
WHOLE = {
    "state = new_state(mine)": """
        whole = new_state(weights)
        state = {name: own(fabric, whole[name]) for name in NAMES} | {"step": 0}
    """,
}
answers.mistake("returns_slices_of_a_whole_state", WHOLE,
    "rank 0: its state consists of slices of tensors of 16 numbers, which stay in memory whole; its own part needs 8")
answers.mistake("keeps_a_whole_state_inside", WHOLE | {
    "return state": "return {name: state[name].clone() for name in NAMES}",
}, "rank 0: between two steps it holds 2 tensors as large as all weights, besides the weights and the gradient")
answers.mistake("steps_everything_by_its_own_part", {
    "mine = own(fabric, weights)\nstate = new_state(mine)": "mine, state = own(fabric, weights), new_state(weights)",
    "adam(mine, reduce_scatter(fabric, gradient) / fabric.world_size, state, learning_rate)": """
        part, whole = torch.zeros_like(weights), weights.nan_to_num()
        own(fabric, part).copy_(reduce_scatter(fabric, gradient) / fabric.world_size)
        adam(whole, part, state, learning_rate)
        mine.copy_(own(fabric, whole))
    """,
    "return state": "return {name: own(fabric, state[name]).clone() for name in NAMES}",
}, "rank 0: between two steps it holds 4 tensors as large as all weights")
answers.mistake("averages_the_weights", {
    "mine = own(fabric, weights)\nstate = new_state(mine)": "state = new_state(weights)",
    """
        adam(mine, reduce_scatter(fabric, gradient) / fabric.world_size, state, learning_rate)
        all_gather(fabric, weights)
    """: """
        adam(weights, gradient, state, learning_rate)
        all_reduce(fabric, weights).div_(fabric.world_size)
    """,
    "return state": 'return {name: own(fabric, state[name]) for name in ("mean", "square")}',
}, "got nan", "The check puts NaN in other ranks' parts, and rank 0 has computed with it")
# The whole of Adam on every rank: as many bytes as ZeRO's, the same weights, and all of the state.
answers.mistake("steps_everywhere_and_returns_a_part", {
    "own(fabric, weights)": "weights",
    "reduce_scatter(fabric, gradient)": "all_reduce(fabric, gradient)",
    "all_gather(fabric, weights)": "",
    "return state": 'return {name: own(fabric, state[name]).clone() for name in ("mean", "square")}',
}, "(the weights)", "Only this rank's part has moved", "gather the weights of all parts")


@answers.is_wrong("(the weights)", "gather the weights of all parts, not their changes")
def gathers_the_changes(fabric, replica, learning_rate):
    weights, gradients = replica
    mine = own(fabric, weights).clone()
    state = new_state(mine)
    for gradient in gradients:
        changes, before = torch.zeros_like(weights), mine.clone()
        adam(mine, reduce_scatter(fabric, gradient) / fabric.world_size, state, learning_rate)
        own(fabric, changes).copy_(mine - before)
        weights += all_gather(fabric, changes)
    return state


answers.mistake("works_on_a_copy",
    {"mine = own(fabric, weights)": "weights = weights.clone()\nmine = own(fabric, weights)"},
    "the weights have not changed on any rank: change them in place")
answers.mistake("begins_anew_at_every_step", {"state = new_state(mine)": "", "adam(": "state = new_state(mine)\nadam("},
    "Every step began with a new state")
answers.mistake("returns_the_weights", {"return state": "return weights"},
    'expected its state, a dict with "mean" and "square", got a tensor')
answers.mistake("gathers_before_the_first_step", {
    "state = new_state(mine)": "state = new_state(mine)\nall_gather(fabric, weights)",
}, "(the weights)", "The weights were gathered before the first step", "Gather after each step")
answers.mistake("gathers_before_the_step", {
    """
        adam(mine, reduce_scatter(fabric, gradient) / fabric.world_size, state, learning_rate)
        all_gather(fabric, weights)
    """: """
        part = reduce_scatter(fabric, gradient) / fabric.world_size
        all_gather(fabric, weights)
        adam(mine, part, state, learning_rate)
    """,
}, "(the weights)", "The gather came before the step")
answers.mistake("gathers_by_an_all_reduce_of_zeros", {
    "own(fabric, weights)": "own(fabric, weights).clone()",
    "all_gather(fabric, weights)": """
        whole = torch.zeros_like(weights)
        own(fabric, whole).copy_(mine)
        weights.copy_(all_reduce(fabric, whole))
    """,
}, "the weights are right, but all ranks together sent 3 x", "An all-reduce is a reduce-scatter and an all-gather")
answers.mistake("steps_in_a_copy", {"own(fabric, weights)": "own(fabric, weights).clone()"},
    "(the weights)", "the steps changed a copy of the rank's part")
# torch.chunk's parts are others than tensor_split's where the ranks do not divide.
answers.mistake("cuts_by_chunk", {"own(fabric, weights)": "weights.chunk(fabric.world_size)[fabric.rank]"},
    "3 ranks, 7 weights", "must match the size of tensor")
RATE = "state, learning_rate)"
RIGHT_ON_TWO_RANKS = edited(with_the_collectives, "right_on_two_ranks", {RATE: "state, learning_rate * 2 / fabric.world_size)"})
answers.spoil("is_right_on_two_ranks_and_all_reduces", {
    "reduce_scatter(fabric, gradient)": "own(fabric, all_reduce(fabric, gradient))",
}, of=RIGHT_ON_TWO_RANKS)
answers.spoil("is_right_on_two_ranks_and_returns_slices", WHOLE, of=RIGHT_ON_TWO_RANKS)
