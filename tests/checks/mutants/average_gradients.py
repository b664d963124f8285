"""Exercise 4.3: the mean over all examples, of gradients that are means over unequal counts."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce

answers = Answers("average_gradients")


@answers.is_wrong("These are the gradients added up: n times the mean. Nobody divided")
def adds_up(fabric, gradients, counts):
    for gradient in gradients:
        all_reduce(fabric, gradient)


@answers.is_wrong("This is the mean of the ranks' means", "Weigh each rank by its count")
def means_of_means(fabric, gradients, counts):
    for gradient in gradients:
        gradient.copy_(all_reduce(fabric, gradient) / fabric.world_size)


@answers.is_wrong("This is the sum over all examples: divide by how many there are")
def weighs_and_does_not_divide(fabric, gradients, counts):
    for gradient in gradients:
        gradient.mul_(counts[fabric.rank])
        all_reduce(fabric, gradient)


@answers.is_wrong("added up and divided by the number of examples: they are means already")
def divides_means_by_the_examples(fabric, gradients, counts):
    for gradient in gradients:
        all_reduce(fabric, gradient).div_(sum(counts))


@answers.is_wrong("Weighed by the counts, but divided by the number of ranks, not of examples")
def weighs_and_divides_by_the_ranks(fabric, gradients, counts):
    for gradient in gradients:
        gradient.mul_(counts[fabric.rank])
        all_reduce(fabric, gradient).div_(fabric.world_size)


@answers.is_wrong("The mean was returned, but the gradient itself is as it was: work in place")
def averages_copies(fabric, gradients, counts):
    share = counts[fabric.rank] / sum(counts)
    return [all_reduce(fabric, share * gradient) for gradient in gradients]


@answers.is_wrong("Rank 3 has no examples, and so its gradient is NaN; NaN times 0 is NaN: leave it out")
def multiplies_nothing_by_zero(fabric, gradients, counts):
    for gradient in gradients:
        gradient *= counts[fabric.rank] / sum(counts)
        all_reduce(fabric, gradient)


@answers.is_wrong("the values are right, but all ranks together sent 6 x the gradients", "one all-reduce needs 4 x")
def everybody_tells_everybody(fabric, gradients, counts):
    n, rank = fabric.world_size, fabric.rank
    for gradient in gradients:
        own = gradient.nan_to_num() * counts[rank] / sum(counts)
        handles = [fabric.isend(own, to=(rank + k) % n) for k in range(1, n)]
        gradient.copy_(own)
        landing = torch.empty_like(own)
        for k in range(1, n):
            fabric.recv(landing, frm=(rank - k) % n)
            gradient += landing
        for handle in handles:
            handle.wait()


@answers.is_wrong("tensor 1 of the list", "This is still rank 0's own gradient")
def averages_the_first_alone(fabric, gradients, counts):
    gradients[0].nan_to_num_().mul_(counts[fabric.rank] / sum(counts))
    all_reduce(fabric, gradients[0])


@answers.is_wrong("deadlock", harmless_at=(1, 2))
def who_has_nothing_stays_away(fabric, gradients, counts):
    if counts[fabric.rank] == 0:
        return
    for gradient in gradients:
        gradient *= counts[fabric.rank] / sum(counts)
        all_reduce(fabric, gradient)


def mean(fabric, gradient, counts):
    mine = counts[fabric.rank]
    weighed = gradient * (mine / sum(counts)) if mine else torch.zeros_like(gradient)
    return all_reduce(fabric, weighed)


@answers.is_wrong("the numbers are right, but another tensor was put into the list in its place", "Write into it")
def puts_the_means_into_the_list(fabric, gradients, counts):
    for k, gradient in enumerate(gradients):
        gradients[k] = mean(fabric, gradient, counts)


@answers.is_wrong("the numbers are right, but the tensor was given other memory (by .data = …, or set_)")
def gives_them_other_data(fabric, gradients, counts):
    for gradient in gradients:
        gradient.data = mean(fabric, gradient, counts)


@answers.is_wrong("The mean was returned, but the gradient itself is as it was: work in place")
def binds_the_name_anew(fabric, gradients, counts):
    found = []
    for gradient in gradients:
        gradient = mean(fabric, gradient, counts)  # noqa: PLW2901 - what is wrong
        found.append(gradient)
    return found


@answers.is_wrong("These are the right numbers with half of their digits")
def through_float32(fabric, gradients, counts):
    for gradient in gradients:
        gradient.copy_(mean(fabric, gradient.float(), counts))


@answers.is_wrong("2 ranks with 0, 3 examples", "gradient is the mean over 0 of 3 examples")
def weighs_an_empty_share_by_one(fabric, gradients, counts):
    """Right where the last rank has none, and too long where rank 0 has none: `or 1` in the wrong place."""
    total = sum(counts) if counts[0] else sum(counts) + 1
    for gradient in gradients:
        all_reduce(fabric, gradient.nan_to_num_().mul_(counts[fabric.rank] / total))


@answers.is_wrong("ended with an isend that nobody waited for")
def forgets_to_wait(fabric, gradients, counts):
    n, rank = fabric.world_size, fabric.rank
    for gradient in gradients:
        gradient.nan_to_num_().mul_(counts[rank] / sum(counts))
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


@answers.is_right
def weighs_the_sum_of_losses(fabric, gradients, counts):
    """Sums over the examples travel, and each rank divides them by how many there are."""
    for gradient in gradients:
        gradient.copy_(all_reduce(fabric, torch.nan_to_num(gradient) * counts[fabric.rank]) / sum(counts))


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
        gradient.nan_to_num_().mul_(counts[fabric.rank])
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
