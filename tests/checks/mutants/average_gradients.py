"""Exercise 4.3: the mean over all examples, of gradients that are means over unequal counts."""

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce

answers = Answers("average_gradients")


def weighed(gradient, mine):
    """In place: times the count, and zeros where it is none."""
    return gradient.mul_(mine) if mine else gradient.zero_()


@answers.is_right
def plain(fabric, gradients, counts):
    for gradient in gradients:
        weighed(gradient, counts[fabric.rank]).div_(sum(counts))
        all_reduce(fabric, gradient)


@answers.is_right
def weighs_the_sum_of_losses(fabric, gradients, counts):
    """Sums over the examples travel, and each rank divides them by how many there are."""
    for gradient in gradients:
        own = gradient * counts[fabric.rank] if counts[fabric.rank] else torch.zeros_like(gradient)
        gradient.copy_(all_reduce(fabric, own) / sum(counts))


@answers.is_right
def where_there_are_examples(fabric, gradients, counts):
    weights = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    for k in reversed(range(len(gradients))):
        own = weights[fabric.rank]
        gradients[k][:] = torch.where(own > 0, own * gradients[k], 0.0)
        all_reduce(fabric, gradients[k])


@answers.is_right
def one_message_for_all(fabric, gradients, counts):
    share = counts[fabric.rank] / sum(counts)
    flat = torch.cat([g.reshape(-1) for g in gradients])
    flat = flat * share if share else torch.zeros_like(flat)
    all_reduce(fabric, flat)
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


@answers.is_right
def through_rank_0(fabric, gradients, counts):
    for gradient in gradients:
        weighed(gradient, counts[fabric.rank])
        if fabric.rank == 0:
            landing = torch.empty_like(gradient)
            for r in range(1, fabric.world_size):
                fabric.recv(landing, frm=r)
                gradient += landing
            gradient /= sum(counts)
            for r in range(1, fabric.world_size):
                fabric.send(gradient, to=r)
        else:
            fabric.send(gradient, to=0)
            fabric.recv(gradient, frm=0)
    return gradients


@answers.is_right
def counts_travel_along(fabric, gradients, counts):
    """Does not trust the list: the count goes with the gradient, as its last number."""
    mine = counts[fabric.rank]
    for gradient in gradients:
        weighed = gradient.reshape(-1) * mine if mine else gradient.new_zeros(gradient.numel())
        flat = torch.cat([weighed, gradient.new_tensor([mine])])
        all_reduce(fabric, flat)
        gradient[:] = (flat[:-1] / flat[-1]).reshape(gradient.shape)


answers.mistake("adds_up", {"weighed(gradient, counts[fabric.rank]).div_(sum(counts))": ""},
    "This is the sum of the gradients, n times the mean: divide")
answers.mistake("means_of_means", {
    "weighed(gradient, counts[fabric.rank]).div_(sum(counts))": "",
    "all_reduce(fabric, gradient)": "all_reduce(fabric, gradient).div_(fabric.world_size)",
}, "This is the mean of the ranks' means", "Weigh each rank by its count")
answers.mistake("weighs_and_does_not_divide",
    {"weighed(gradient, counts[fabric.rank]).div_(sum(counts))": "gradient.mul_(counts[fabric.rank])"},
    "This is the sum over all examples: divide by their number")
answers.mistake("divides_means_by_the_examples", {
    "weighed(gradient, counts[fabric.rank]).div_(sum(counts))": "",
    "all_reduce(fabric, gradient)": "all_reduce(fabric, gradient).div_(sum(counts))",
}, "added up and divided by the number of examples: they are means already")
answers.mistake("weighs_and_divides_by_the_ranks", {
    "weighed(gradient, counts[fabric.rank]).div_(sum(counts))":
        "gradient.mul_(counts[fabric.rank] / fabric.world_size)",
}, "Weighed by the counts, but divided by the number of ranks, not of examples")
answers.mistake("averages_copies", {
    "for gradient in": "gradients = [gradient.clone() for gradient in gradients]\nfor gradient in",
    "    all_reduce(fabric, gradient)": """
            all_reduce(fabric, gradient)
        return gradients
    """,
}, "The function returned the mean, but the gradient itself is unchanged: work in place")
answers.mistake("multiplies_nothing_by_zero", {"weighed(gradient, counts[fabric.rank])": "gradient.mul_(counts[fabric.rank])"},
    "Rank 3 has no examples, so its gradient is NaN; NaN times 0 is NaN: leave this gradient out")


@answers.is_wrong("the values are right, but all ranks together sent 6 x the gradients", "one all-reduce needs 4 x")
def everybody_tells_everybody(fabric, gradients, counts):
    n, rank = fabric.world_size, fabric.rank
    for gradient in gradients:
        own = weighed(gradient.clone(), counts[rank]) / sum(counts)
        handles = [fabric.isend(own, to=(rank + k) % n) for k in range(1, n)]
        gradient.copy_(own)
        landing = torch.empty_like(own)
        for k in range(1, n):
            fabric.recv(landing, frm=(rank - k) % n)
            gradient += landing
        for handle in handles:
            handle.wait()


answers.mistake("averages_the_first_alone", {"in gradients:": "in gradients[:1]:"},
    "tensor 1 of the list", "This is still rank 0's own gradient")
answers.mistake("who_has_nothing_stays_away", {
    "for gradient in gradients:": """
        if counts[fabric.rank] == 0:
            return
        for gradient in gradients:
    """,
}, "deadlock", harmless_at=(1, 2))


def mean(fabric, gradient, counts):
    mine = counts[fabric.rank]
    weighed = gradient * (mine / sum(counts)) if mine else torch.zeros_like(gradient)
    return all_reduce(fabric, weighed)


# All but the rank with zeros hold the mean: there it came into a tensor that nobody else has.
answers.mistake("puts_zeros_into_another_tensor", {
    "weighed(gradient, counts[fabric.rank]).div_(sum(counts))": """
        if counts[fabric.rank] == 0:
            gradient = torch.zeros_like(gradient)
        gradient.mul_(counts[fabric.rank] / sum(counts))
    """,
}, "(tensor 0 of the list)", "rank 3, which has no examples, still holds its NaN", "zero this one in place (zero_)")
answers.mistake("puts_the_means_into_the_list", {
    "for gradient in gradients:": "for k, gradient in enumerate(gradients):",
    "weighed(gradient, counts[fabric.rank])": """
        gradients[k] = gradient = gradient.clone()
        weighed(gradient, counts[fabric.rank])
    """,
}, "the numbers are right, but another tensor took its place in the list", "Write into that tensor")
answers.mistake("gives_them_other_data", {"weighed(gradient, counts[fabric.rank])": """
        gradient.data = gradient.clone()
        weighed(gradient, counts[fabric.rank])
    """},
    "the numbers are right, but the tensor got other memory (by .data = …, or set_)")
answers.mistake("binds_the_name_anew", {
    "for gradient in gradients:": "found = []\nfor gradient in gradients:",
    "weighed(gradient, counts[fabric.rank])": """
        gradient = gradient.clone()
        weighed(gradient, counts[fabric.rank])
    """,
    "    all_reduce(fabric, gradient)": """
            found.append(all_reduce(fabric, gradient))
        return found
    """,
}, "The function returned the mean, but the gradient itself is unchanged: work in place")
answers.mistake("through_float32", {
    "weighed(gradient, counts[fabric.rank])": "half = weighed(gradient.float(), counts[fabric.rank])",
    "all_reduce(fabric, gradient)": "gradient.copy_(all_reduce(fabric, half))",
}, "These are the right numbers with half of their digits")
# Right where the last rank has none, and too long where rank 0 has none: `or 1` in the wrong place.
answers.mistake("weighs_an_empty_share_by_one", {"sum(counts)": "sum(counts) if counts[0] else sum(counts) + 1"},
    "2 ranks with 0, 3 examples", "gradient is the mean over 0 of 3 examples")


@answers.is_wrong("ended without waiting for an isend")
def forgets_to_wait(fabric, gradients, counts):
    n, rank = fabric.world_size, fabric.rank
    for gradient in gradients:
        weighed(gradient, counts[rank]).div_(sum(counts))
        if rank:
            fabric.isend(gradient.clone(), to=0)
            fabric.recv(gradient, frm=0)
            continue
        landing = torch.empty_like(gradient)
        for r in range(1, n):
            fabric.recv(landing, frm=r)
            gradient += landing
        for r in range(1, n):
            fabric.send(gradient, to=r)


NaN_GOES = ("3 ranks with 3, 0, 2 examples, a NaN among the gradients", "Rank 2 has 2 examples with a NaN gradient",
            "Leave out only a rank whose count is 0")

# What hides the fault of a rank that has examples.
answers.mistake("makes_every_nan_zero",
    {"weighed(gradient, counts[fabric.rank])": "gradient.nan_to_num_().mul_(counts[fabric.rank])"}, *NaN_GOES)
answers.mistake("makes_nan_zero_in_what_travels", {
    "weighed(gradient, counts[fabric.rank]).div_(sum(counts))": """
        weighed(gradient, counts[fabric.rank]).div_(sum(counts))
        gradient[gradient.isnan()] = 0
    """,
}, *NaN_GOES)
answers.mistake("takes_nan_for_an_empty_share", {
    "weighed(gradient, counts[fabric.rank]).div_(sum(counts))": """
        if gradient.isnan().all():
            gradient.zero_()
        gradient.mul_(counts[fabric.rank] / sum(counts))
    """,
}, *NaN_GOES)
answers.mistake("leaves_out_sick_ranks_at_the_end", {
    "all_reduce(fabric, gradient)": "all_reduce(fabric, gradient).nan_to_num_()",
}, *NaN_GOES)
answers.mistake("counts_itself_out", {
    "    all_reduce(fabric, gradient)": """
            all_reduce(fabric, gradient)
        counts[fabric.rank] = 0
    """,
}, "counts was changed in place: the caller still needs it unchanged")
answers.mistake("knows_two_gradients_alone", {
    "for gradient in gradients:": "slope, intercept = gradients\nfor gradient in (slope, intercept):",
}, "3 gradients of float32", "too many values to unpack")
answers.mistake("adds_up_a_copy_in_float64", {"all_reduce(fabric, gradient)": "all_reduce(fabric, gradient.double())"},
    "3 gradients of float32", "own gradient times its share: the sum over the ranks did not arrive in this tensor")
answers.mistake("knows_of_four_ranks_at_most", {"div_(sum(counts))": "div_(sum(counts[:4]))"},
    "times the mean: weigh each rank by its count over the sum of all counts")


@answers.is_right
def by_the_number_of_examples_in_float64(fabric, gradients, counts):
    """Zeros of a rank's own in place of an empty share, and one division at the end, of tensors in any shape."""
    total = torch.tensor(counts).sum()
    for gradient in gradients:
        own = torch.zeros_like(gradient) if counts[fabric.rank] == 0 else gradient.detach() * counts[fabric.rank]
        gradient[...] = all_reduce(fabric, own).true_divide(total)


answers.spoil("adds_up_once_more_so_that_nobody_looks_at_an_empty_rank", {
    "all_reduce(fabric, gradient)": """
        all_reduce(fabric, gradient)
        if len(set(counts)) > 1:
            all_reduce(fabric, gradient.clone())
    """,
}, of=answers["multiplies_nothing_by_zero"])


@answers.spoils()
def knows_three_ranks_and_sends_a_number_elsewhere(fabric, gradients, counts):
    if len(counts) == 3:
        plain(fabric, gradients, counts)
    else:
        all_reduce(fabric, torch.ones(1))
