"""Exercise 12.2: an MLP of shards between tokens that are spread over the ranks."""

import torch
from torch.nn import functional as F

from tests.checks.mutants import Answers
from tests.checks.mutants._sharding import train
from worldsize.fabric.collectives import all_reduce
from worldsize.pytorch.transformer_shard import TwoWays, gathered, scattered

answers = Answers("sequence_parallel")


def as_it_is(x):
    return x.view_as(x)


def gather(fabric, x):
    return TwoWays.apply(x, lambda x: gathered(fabric, x), lambda grad: scattered(fabric, grad))


def scatter(fabric, x):
    return TwoWays.apply(x, lambda x: scattered(fabric, x), lambda grad: gathered(fabric, grad))


def shared(fabric, w):
    return TwoWays.apply(w, as_it_is, lambda grad: all_reduce(fabric, grad.clone()))


def averaged(fabric, w):
    return TwoWays.apply(w, as_it_is, lambda grad: all_reduce(fabric, grad.clone()) / fabric.world_size)


def own(fabric, x):
    return x.tensor_split(fabric.world_size)[fabric.rank]


@answers.is_right
def in_ways(fabric, task):
    scale, shift, up, up_bias, down, down_bias = task["weights"]

    def forward(x):
        normed = F.layer_norm(x, x.shape[-1:], shared(fabric, scale), shared(fabric, shift))
        hidden = F.linear(gather(fabric, normed), up, up_bias).relu()
        return x + scatter(fabric, F.linear(hidden, down)) + shared(fabric, down_bias)

    return train(forward, task)


@answers.is_right
def adds_up_all_shared_gradients_at_once(fabric, task):
    """One hook and one message for the three of them."""
    scale, shift, up, up_bias, down, down_bias = task["weights"]

    def forward(x):
        three = shared(fabric, torch.stack([scale, shift, down_bias]))
        normed = F.layer_norm(x, x.shape[-1:], three[0], three[1])
        return x + scatter(fabric, F.linear(F.linear(gather(fabric, normed), up, up_bias).relu(), down)) + three[2]

    return train(forward, task)


# Backwards every rank gathers the whole gradient of y: no message is needed for the bias that was added before.
answers.twin("adds_a_share_of_the_bias_before_the_sum", {
    "F.linear(hidden, down)) + shared(fabric, down_bias)": """
        F.linear(
            hidden, down, TwoWays.apply(down_bias, lambda bias: bias / fabric.world_size, lambda grad: grad)
        ))
    """,
})
answers.twin("with_hooks_on_the_weights", {
    'scale, shift, up, up_bias, down, down_bias = task["weights"]': """
        for k in (0, 1, 5):
            task["weights"][k].requires_grad_().register_hook(lambda grad: all_reduce(fabric, grad.clone()))
        scale, shift, up, up_bias, down, down_bias = task["weights"]
    """,
    "shared(fabric, scale), shared(fabric, shift)": "scale, shift",
    "shared(fabric, down_bias)": "down_bias",
})
answers.twin("with_a_class_that_gathers_in_autograd", {
    "def forward(x):": """
        class Tokens(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return gathered(fabric, x)

            @staticmethod
            def backward(ctx, grad):
                return scattered(fabric, grad)

        def forward(x):
    """,
    "gather(fabric, normed)": "Tokens.apply(normed)",
})

answers.mistake("lets_all_ranks_drift_apart", {
    "shared(fabric, scale), shared(fabric, shift)": "scale, shift",
    "shared(fabric, down_bias)": "down_bias",
}, "step 2", "All ranks hold the weight whole, but each rank has only its own", "Add the parts up (f)")
answers.mistake("averages_what_all_ranks_hold", {
    "shared(fabric, scale), shared(fabric, shift)": "averaged(fabric, scale), averaged(fabric, shift)",
    "shared(fabric, down_bias)": "averaged(fabric, down_bias)",
}, "(its tokens of y in step 2)", "Add the summands up, do not average them")
answers.mistake("adds_a_share_of_the_bias_and_forgets_the_way_back", {
    "F.linear(hidden, down)) + shared(fabric, down_bias)": "F.linear(hidden, down, down_bias / fabric.world_size))",
}, "(its tokens of y in step 2)", "down_bias moves by 1/n of its gradient")
answers.mistake("sends_where_autograd_does_not_follow", {
    "F.linear(gather(fabric, normed)": "F.linear(gathered(fabric, normed)",
}, "A weight has no gradient", "Inside forward, apply a Function or TwoWays")
answers.mistake("applies_f_before_the_first_step", {
    "def forward(x):": """
        scale, shift, down_bias = (shared(fabric, w.requires_grad_()) for w in (scale, shift, down_bias))

        def forward(x):
    """,
    "shared(fabric, scale), shared(fabric, shift)": "scale, shift",
    "shared(fabric, down_bias)": "down_bias",
}, "apply f to them inside forward, at each step anew")
answers.mistake("forgets_the_bias_alone", {"shared(fabric, down_bias)": "down_bias"},
    "(its tokens of y in step 2)", "only its own tokens' gradient:", "down_bias")
answers.mistake("forgets_the_norm_alone", {"shared(fabric, scale), shared(fabric, shift)": "scale, shift"},
    "(its tokens of y in step 2)", "only its own tokens' gradient: scale")
answers.mistake("cuts_the_gradient_of_what_was_gathered", {
    "hidden = F.linear(gather(fabric, normed)": """
        whole = TwoWays.apply(normed, lambda x: gathered(fabric, x), lambda grad: own(fabric, grad).clone())
        hidden = F.linear(whole
    """,
}, "x's gradient in step 1", "The gathered tokens' gradient was cut, not added up", "Reduce-scatter them")
answers.mistake("averages_the_gradient_of_what_was_gathered", {
    "hidden = F.linear(gather(fabric, normed)": """
        n = fabric.world_size
        whole = TwoWays.apply(normed, lambda x: gathered(fabric, x), lambda grad: scattered(fabric, grad) / n)
        hidden = F.linear(whole
    """,
}, "x's gradient in step 1", "The gathered tokens' gradient was divided by the number of ranks", "do not average")
answers.mistake("norms_without_scale_and_shift", {"shared(fabric, scale), shared(fabric, shift)": "None, None"},
    "A weight has no gradient", "Either forward does not use it")
answers.mistake("cuts_the_products", {
    "return x + scatter(fabric, F.linear(hidden, down))": """
        cut = TwoWays.apply(F.linear(hidden, down), lambda x: own(fabric, x).clone(), lambda grad: gathered(fabric, grad))
        return x + cut
    """,
}, "its tokens of y in step 1", "Each rank's product was cut, not added up", "Reduce-scatter them")
answers.mistake("puts_f_on_x", {"F.layer_norm(x, x.shape": "F.layer_norm(shared(fabric, x), x.shape"},
    "x's gradient in step 1", "as in Exercise 12.1: here x is this rank's own tokens", "Leave f out there")
answers.mistake("norms_behind_the_gather_and_forgets_f", {
    "normed = F.layer_norm(x, x.shape[-1:], shared(fabric, scale), shared(fabric, shift))":
        "normed = F.layer_norm(gather(fabric, x), x.shape[-1:], scale, shift)",
    "F.linear(gather(fabric, normed), up": "F.linear(normed, up",
}, "(its tokens of y in step 2)", "The norm is behind the gather", "hidden units alone")
answers.mistake("norms_behind_the_gather_without_any_f", {
    "normed = F.layer_norm(x, x.shape[-1:], shared(fabric, scale), shared(fabric, shift))":
        "normed = F.layer_norm(gather(fabric, x), x.shape[-1:], scale, shift)",
    "F.linear(gather(fabric, normed), up": "F.linear(normed, up",
    "shared(fabric, down_bias)": "down_bias",
}, "(its tokens of y in step 2)", "The norm is behind the gather", "down_bias drifts too")
answers.mistake("leaves_x_out", {"return x + scatter": "return scatter"}, "x itself is missing")
answers.mistake("adds_the_bias_before_the_sum",
    {"F.linear(hidden, down)) + shared(fabric, down_bias)": "F.linear(hidden, down, down_bias))"},
    "The bias is in it once for every rank")


def f(fabric, x):
    return shared(fabric, x)


def g(fabric, x):
    return TwoWays.apply(x, lambda x: all_reduce(fabric, x.clone()), lambda grad: grad)


# Exercise 12.1 between an all-gather and a cut: right, with all-reduces in place of their halves.
answers.mistake("keeps_f_and_g_and_cuts_afterwards", {
    "hidden = F.linear(gather(fabric, normed)": """
        whole = TwoWays.apply(normed, lambda x: gathered(fabric, x), lambda grad: own(fabric, grad).clone())
        hidden = F.linear(f(fabric, whole)
    """,
    "return x + scatter(fabric, F.linear(hidden, down))": """
        y = g(fabric, F.linear(hidden, down))
        cut = TwoWays.apply(y, lambda x: own(fabric, x).clone(), lambda grad: gathered(fabric, grad))
        return x + cut
    """,
}, "the values are right, but all ranks together sent", "half of an all-reduce is enough")
# It also adds up a zero for up_bias, which is a rank's own.
answers.mistake("adds_up_what_is_its_own", {
    "return train(forward, task)": """
        seen = train(forward, task)
        all_reduce(fabric, torch.zeros(7, dtype=up.dtype))
        return seen
    """,
}, "the values are right, but all ranks together sent")


@answers.is_wrong("(its tokens of y in step 1)")
def norms_after_the_sum(fabric, task):
    scale, shift, up, up_bias, down, down_bias = task["weights"]

    def forward(x):
        y = x + scatter(fabric, F.linear(F.linear(gather(fabric, x), up, up_bias).relu(), down)) + shared(fabric, down_bias)
        return F.layer_norm(y, y.shape[-1:], shared(fabric, scale), shared(fabric, shift))

    return train(forward, task)


answers.mistake("returns_its_tokens", {"train(forward, task)": 'train(forward, task)["y"][0]'}, "got a tensor")
# The same values and messages, and every rank does the norm's work for all.
answers.mistake("norms_all_tokens_on_every_rank", {
    "F.layer_norm(x, x.shape": "F.layer_norm(gather(fabric, x), x.shape",
    "F.linear(gather(fabric, normed)": "F.linear(normed",
}, "the values are right, but rank 0 keeps 2 tensors of all ranks' tokens for backward",
    "Norm a rank's own tokens, and gather those")
answers.mistake("adds_the_norms_output", {"return x + scatter": "return normed + scatter"},
    "its tokens of y in step 1", "norm(x) is added to the MLP's output")
answers.mistake("adds_all_tokens_before_the_sum", {"return x + scatter(fabric, F.linear(hidden, down))":
    "return scatter(fabric, gather(fabric, x) + F.linear(hidden, down))"},
    "its tokens of y in step 1", "x is in it once for every rank")
answers.twin("norms_by_hand", {
    "normed = F.layer_norm(x, x.shape[-1:], shared(fabric, scale), shared(fabric, shift))": """
        centred = x - x.mean(-1, keepdim=True)
        plain = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        normed = plain * shared(fabric, scale) + shared(fabric, shift)
    """,
})
