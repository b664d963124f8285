"""Exercise 12.1: an MLP of which each rank holds a shard, with f and g."""

import torch
from torch.nn import functional as F

from tests.checks.mutants import Answers, edited
from tests.checks.mutants._sharding import dense, train
from worldsize.fabric.collectives import all_reduce
from worldsize.pytorch.transformer_shard import TwoWays

answers = Answers("parallel_mlp")


def as_it_is(x):
    return x.view_as(x)


def f(fabric, x):
    return TwoWays.apply(x, as_it_is, lambda grad: all_reduce(fabric, grad.clone()))


def g(fabric, x):
    return TwoWays.apply(x, lambda x: all_reduce(fabric, x.clone()), lambda grad: grad)


def with_ways(fabric, task, enter, leave):
    up, up_bias, down, down_bias = task["weights"]
    return train(lambda x: leave(F.linear(F.linear(enter(x), up, up_bias).relu(), down)) + down_bias, task)


@answers.is_right
def plain(fabric, task):
    up, up_bias, down, down_bias = task["weights"]

    def forward(x):
        hidden = F.linear(f(fabric, x), up, up_bias).relu()
        return g(fabric, F.linear(hidden, down)) + down_bias

    return train(forward, task)


@answers.is_right
def with_classes(fabric, task):
    up, up_bias, down, down_bias = task["weights"]

    class Enter(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return all_reduce(fabric, grad.clone())

    class Leave(torch.autograd.Function):
        @staticmethod
        def forward(ctx, summand):
            return all_reduce(fabric, summand.clone())

        @staticmethod
        def backward(ctx, grad):
            return grad

    return train(lambda x: Leave.apply(F.linear(F.linear(Enter.apply(x), up, up_bias).relu(), down)) + down_bias, task)


@answers.is_right
def by_hand_with_dense(fabric, task):
    """Backward by hand, with the lab's own helper and no autograd."""
    up, up_bias, down, down_bias = (w.clone() for w in task["weights"])
    seen = {"y": [], "grad_x": []}
    none = torch.zeros(1, dtype=up.dtype)
    for x, target in task["batches"]:
        hidden = x @ up.T + up_bias
        y = all_reduce(fabric, hidden.relu() @ down.T) + down_bias
        _, of_active, of_down, of_bias = dense(hidden.relu(), down, none, y - target)
        _, of_x, of_up, of_up_bias = dense(x, up, none, of_active * (hidden > 0))
        seen["y"].append(y)
        seen["grad_x"].append(all_reduce(fabric, of_x))
        for w, of_w in ((up, of_up), (up_bias, of_up_bias), (down, of_down), (down_bias, of_bias)):
            w -= task["rate"] * of_w
    return {**seen, "weights": [up, up_bias, down, down_bias]}


@answers.is_right
def with_modules(fabric, task):
    """Column and row linear as modules that hold a shard."""
    up, up_bias, down, down_bias = task["weights"]

    class Column(torch.nn.Module):
        def forward(self, x):
            return F.linear(f(fabric, x), up, up_bias)

    class Row(torch.nn.Module):
        def forward(self, x):
            return g(fabric, F.linear(x, down)) + down_bias

    return train(torch.nn.Sequential(Column(), torch.nn.ReLU(), Row()), task)


answers.twin("f_by_a_hook_and_g_in_place", {
    "hidden = F.linear(f(fabric, x)": """
        entered = x.view_as(x)
        entered.register_hook(lambda grad: all_reduce(fabric, grad.clone()))
        hidden = F.linear(entered
    """,
    "g(fabric, F.linear(hidden, down))": "all_reduce(fabric, F.linear(hidden, down))",
})


@answers.is_right
def sums_on_rank_0(fabric, task):
    """A reduce to rank 0 and a star back: as many bytes."""

    def total(x):
        x, arrived = x.contiguous().clone(), torch.empty(x.shape, dtype=x.dtype)
        if fabric.rank:
            fabric.send(x, to=0)
            fabric.recv(x, frm=0)
            return x
        for other in range(1, fabric.world_size):
            fabric.recv(arrived, frm=other)
            x += arrived
        for other in range(1, fabric.world_size):
            fabric.send(x, to=other)
        return x

    def enter(x):
        return TwoWays.apply(x, as_it_is, total)

    return with_ways(fabric, task, enter, lambda x: TwoWays.apply(x, total, lambda grad: grad))


answers.mistake("forgets_f", {"f(fabric, x)": "x"},
    "the gradient of x in step 1", "add up all ranks' gradients of x (f, backwards)")
answers.mistake("forgets_g", {"g(fabric, F.linear(hidden, down))": "F.linear(hidden, down)"},
    "y of step 1", "down, cut by its columns, leaves summands")
answers.mistake("exchanges_the_ways_back", {
    "f(fabric, x)": "x",
    "return g(fabric, F.linear(hidden, down)) + down_bias": """
        summed = TwoWays.apply(
            F.linear(hidden, down), lambda x: all_reduce(fabric, x.clone()), lambda grad: all_reduce(fabric, grad.clone())
        )
        return summed + down_bias
    """,
}, "the gradient of x in step 1", "Ways back are exchanged", "g must pass y's gradient on as it is")
# x times the number of ranks, and a summand for y: two mistakes; the first rank that is alone sees one.
answers.mistake("swaps_f_and_g", {"f(fabric, x)": "x", "g(fabric, F.linear": "f(fabric, F.linear"},
    "y of step 1", "down, cut by its columns, leaves summands")
# As torch.distributed.nn's all_reduce does.
answers.mistake("adds_up_both_ways_in_g", {
    "return g(fabric, F.linear(hidden, down)) + down_bias": """
        summed = TwoWays.apply(
            F.linear(hidden, down), lambda x: all_reduce(fabric, x.clone()), lambda grad: all_reduce(fabric, grad.clone())
        )
        return summed + down_bias
    """,
}, "Gradients are n times too large", "Backwards, let g pass it on as it is")
answers.mistake("adds_the_bias_on_every_rank",
    {"F.linear(hidden, down)) + down_bias": "F.linear(hidden, down, down_bias))"},
    "y of step 1", "The bias is in it once for every rank", "Add it once, after the sum")
answers.mistake("takes_the_mean",
    {"g(fabric, F.linear(hidden, down))": "g(fabric, F.linear(hidden, down)) / fabric.world_size"},
    "y of step 1", "It was divided by the number of ranks")
answers.mistake("forgets_the_relu", {".relu()": ""}, "y of step 1", "There is no ReLU between the layers")
answers.mistake("puts_the_relu_after_the_sum", {
    ".relu()": "",
    "F.linear(hidden, down))": "F.linear(hidden, down)).relu()",
}, "element", "(y of step 1)")


@answers.is_wrong("the values are right, but all ranks together sent", "Send no weights")
def gathers_the_weights(fabric, task):
    """The whole MLP on every rank, and a part of its gradients: no sharding but in what it was handed."""
    up, up_bias, down, down_bias = task["weights"]
    n, rank = fabric.world_size, fabric.rank
    counts = torch.zeros(n, dtype=torch.int64)
    counts[rank] = len(up)
    counts = all_reduce(fabric, counts).tolist()

    def whole(part, dim):
        """By an all-reduce, since parts may differ in size."""
        shape = list(part.shape)
        shape[dim] = sum(counts)
        out = torch.zeros(shape, dtype=part.dtype)
        out.split(counts, dim)[rank].copy_(part.detach())
        return all_reduce(fabric, out)

    weights = [whole(up, 0), whole(up_bias, 0), whole(down, 1), down_bias]
    seen = train(lambda x: F.linear(F.linear(x, *weights[:2]).relu(), *weights[2:]), {**task, "weights": weights})
    own = [w.split(counts, dim)[rank] for w, dim in zip(seen["weights"][:3], (0, 0, 1), strict=True)]
    return {**seen, "weights": [*own, seen["weights"][3]]}


answers.mistake("also_gathers_the_hidden_layer",
    {"return g": "all_reduce(fabric, torch.zeros(len(x), 4, dtype=x.dtype))\nreturn g"},
    "the values are right, but all ranks together sent", "bytes of two all-reduces a step")
answers.mistake("averages_x_on_the_way_in", {
    "f(fabric, x)":
        "TwoWays.apply(x, lambda x: all_reduce(fabric, x.clone()) / fabric.world_size, lambda g: all_reduce(fabric, g.clone()))",
}, "the values are right, but all ranks together sent", "Which is the third all-reduce? x is the same on all ranks")
answers.mistake("never_uses_the_first_bias", {"up, up_bias).relu()": "up).relu()"},
    "A weight has no gradient", "Either forward does not use it")
# Of down_bias all ranks have the whole gradient; the mean of equal values does no harm and costs messages.
answers.mistake("adds_up_the_gradient_of_the_bias", {
    "+ down_bias":
        "+ TwoWays.apply(down_bias, as_it_is, lambda grad: all_reduce(fabric, grad.clone()) / fabric.world_size)",
}, "the values are right, but all ranks together sent", "nothing that a rank can compute from its own shard")
answers.mistake("lets_the_bias_through_f", {"+ down_bias": "+ f(fabric, down_bias)"},
    "(y of step 2)", "down_bias moves by n times its gradient", "Apply f to x alone here")
answers.mistake("cuts_its_shard_once_more", {
    "def forward": """
        up, up_bias = (w.tensor_split(fabric.world_size)[fabric.rank] for w in (up, up_bias))

        def forward
    """,
}, "shapes cannot be multiplied", "A rank has its own shard", "Do not cut it again")
answers.mistake("returns_the_output_alone", {"train(forward, task)": 'train(forward, task)["y"][-1]'},
    'expected what train returns, a dict with y, grad_x, weights, got a tensor')
answers.mistake("forgets_the_weights",
    {"return train(forward, task)": 'seen = train(forward, task)\nreturn {"y": seen["y"], "grad_x": seen["grad_x"]}'},
    "got a dict with y, grad_x")
answers.mistake("averages_in_f", {"f(fabric, x)":
    "TwoWays.apply(x, as_it_is, lambda grad: all_reduce(fabric, grad.clone()) / fabric.world_size)"},
    "the gradient of x in step 1", "Add the gradients up, do not average them (f, backwards)")
answers.mistake("divides_in_g", {"return g(fabric, F.linear(hidden, down)) + down_bias": """
    n = fabric.world_size
    summed = TwoWays.apply(F.linear(hidden, down), lambda x: all_reduce(fabric, x.clone()), lambda grad: grad / n)
    return summed + down_bias
"""}, "the gradient of x in step 1", "pass y's gradient on as it is (g, backwards)")
answers.mistake("leaves_out_the_first_bias", {"up, up_bias).relu()": "up, 0 * up_bias).relu()"},
    "y of step 1", "up_bias was left out: each rank adds its own part")
answers.mistake("adds_a_part_of_the_bias_on_every_rank",
    {"F.linear(hidden, down)) + down_bias": "F.linear(hidden, down, down_bias / fabric.world_size))"},
    "(y of step 2)", "down_bias moves by 1/n of its gradient", "Add it once, after the sum")
answers.mistake("adds_up_in_float32",
    {"g(fabric, F.linear(hidden, down))": "g(fabric, F.linear(hidden, down).float()).double()"},
    "(y of step 1)", "Numbers that went through float32 are off by this much")

SUM = "y = all_reduce(fabric, hidden.relu() @ down.T)"
RIGHT_ON_TWO_RANKS = edited(by_hand_with_dense, "right_on_two_ranks", {SUM: SUM + " * 2 / fabric.world_size"})
answers.spoil("is_right_on_two_ranks_and_sends_more", {SUM: "all_reduce(fabric, x.clone())\n" + SUM}, of=RIGHT_ON_TWO_RANKS)
