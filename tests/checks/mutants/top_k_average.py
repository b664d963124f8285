"""Exercise 14.1: of every gradient only the k largest numbers travel, with error feedback."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce, broadcast

answers = Answers("top_k_average")


def gathered(fabric, own):
    """[n, k] of the ranks' own [k]."""
    n = fabric.world_size
    parts = own.new_zeros(n * len(own))
    parts.tensor_split(n)[fabric.rank].copy_(own)
    return all_gather(fabric, parts)


def largest(total, k):
    return total.abs().topk(k).indices


def averaged(fabric, values, index, like):
    index = gathered(fabric, index.to(torch.int32))
    return torch.zeros_like(like).index_add_(0, index, gathered(fabric, values)) / fabric.world_size


def without(total, index):
    return total.index_fill(0, index, 0)


# ---- wrong -----------------------------------------------------------------------------------


@answers.is_wrong("the average of step 1", "chosen from the gradients alone: the residual was not added", "lost for ever")
def without_error_feedback(fabric, gradient, residual, k):
    index = largest(gradient, k)
    return averaged(fabric, gradient[index], index, gradient), residual


@answers.is_wrong("the average of step 1", "chosen from the gradients alone: the residual was not added")
def keeps_a_residual_that_nobody_reads(fabric, gradient, residual, k):
    index = largest(gradient, k)
    return averaged(fabric, gradient[index], index, gradient), without(gradient + residual, index)


@answers.is_wrong("the residual of step 1", "It is empty: all that was not sent is lost for ever")
def drops_what_it_does_not_send(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    return averaged(fabric, total[index], index, gradient), torch.zeros_like(total)


@answers.is_wrong("the residual of step 1", "What was sent is still in it, and will be sent again")
def keeps_what_it_has_sent(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    return averaged(fabric, total[index], index, gradient), total


@answers.is_wrong("the residual of step 1", "What was left of older steps is lost")
def keeps_of_the_last_gradient_alone(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    average = averaged(fabric, total[index], index, gradient)
    sent = total - without(total, index)
    return average, gradient - sent


@answers.is_wrong("the residual of step 1", "The average was taken off", "what it has sent itself")
def takes_the_average_off(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    average = averaged(fabric, total[index], index, gradient)
    return average, total - average


@answers.is_wrong("the residual of step 1", "It is cleared wherever any rank has sent")
def clears_what_anybody_has_sent(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    average = averaged(fabric, total[index], index, gradient)
    return average, torch.where(average != 0, 0, total)


@answers.is_wrong("the residual of step 1", "It is as it was before the step")
def forgets_to_hand_on_the_residual(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    return averaged(fabric, total[index], index, gradient), residual


@answers.is_wrong("the average of step 1", "It was chosen by value, not by size")
def chooses_by_value(fabric, gradient, residual, k):
    total = gradient + residual
    index = total.topk(k).indices
    return averaged(fabric, total[index], index, gradient), without(total, index)


@answers.is_wrong("the average of step 1", "The values came without their signs: choose by size")
def sends_sizes(fabric, gradient, residual, k):
    total = gradient + residual
    values, index = total.abs().topk(k)
    return averaged(fabric, values, index, gradient), without(total, index)


@answers.is_wrong("the residual of step 1", "What was left of older steps is lost: it is the gradient with the sent places")
def empties_the_gradient_alone(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    return averaged(fabric, total[index], index, gradient), without(gradient, index)


@answers.is_wrong("2 ranks, 90,000 numbers", "index out of range", "int16 ends at 32,767")
def sends_indices_of_2_bytes(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    places, values = gathered(fabric, index.to(torch.int16)), gathered(fabric, total[index])
    return torch.zeros_like(total).index_add_(0, places.long(), values) / fabric.world_size, without(total, index)


@answers.is_wrong("2 ranks, 90,000 numbers", "the average of step 1", "int16 ends at 32,767, and goes on at −32,768")
def adds_rank_by_rank_at_indices_of_2_bytes(fabric, gradient, residual, k):
    """x[-5] is the fifth number from the end: no error says that the indices are others."""
    n, total = fabric.world_size, gradient + residual
    index = largest(total, k)
    indices, values = gathered(fabric, index.to(torch.int16)), gathered(fabric, total[index])
    average = torch.zeros_like(total)
    for places, own in zip(indices.view(n, k), values.view(n, k), strict=True):
        average[places.long()] += own
    return average / n, without(total, index)


@answers.is_wrong("the average of step 1", "chosen by the gradient's size alone")
def chooses_by_the_gradient(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(gradient, k)
    return averaged(fabric, total[index], index, gradient), without(total, index)


@answers.is_wrong("the average of step 1", "wrong where several ranks chose one index, and only there", "index_add_")
def the_last_rank_writes_over_the_others(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    indices, values = gathered(fabric, index.to(torch.int32)), gathered(fabric, total[index])
    average = torch.zeros_like(total)
    average[indices] = values / fabric.world_size
    return average, without(total, index)


@answers.is_wrong("the average of step 1", "wrong where several ranks chose one index, and only there", "index_add_")
def adds_with_repeated_indices(fabric, gradient, residual, k):
    """x[index] += values takes one of the values of an index."""
    total = gradient + residual
    index = largest(total, k)
    indices, values = gathered(fabric, index.to(torch.int32)), gathered(fabric, total[index])
    average = torch.zeros_like(total)
    average[indices] += values
    return average / fabric.world_size, without(total, index)


@answers.is_wrong("the average of step 1", "These are sums: divide by the number of ranks")
def forgets_to_divide(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    return averaged(fabric, total[index], index, gradient) * fabric.world_size, without(total, index)


@answers.is_wrong("the average of step 1", "Divided by how many ranks sent the index")
def divides_by_the_senders(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    indices, values = gathered(fabric, index.to(torch.int32)), gathered(fabric, total[index])
    total_sent = torch.zeros_like(total).index_add_(0, indices, values)
    senders = torch.zeros_like(total).index_add_(0, indices, torch.ones_like(values))
    return total_sent / senders.clamp(min=1), without(total, index)


@answers.is_wrong("average and residual are right, but", "an all-reduce of the whole tensor, with zeros in it: nothing is saved")
def all_reduces_zeros(fabric, gradient, residual, k):
    """The right numbers, in a tensor that is as large as ever."""
    total = gradient + residual
    index = largest(total, k)
    kept = without(total, index)
    return all_reduce(fabric, total - kept) / fabric.world_size, kept


@answers.is_wrong("average and residual are right, but", "Every rank has sent its whole tensor to every other, zeros and all")
def gathers_zeros(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    kept = without(total, index)
    return gathered(fabric, total - kept).view(fabric.world_size, -1).mean(0), kept


@answers.is_wrong("average and residual are right, but", "2 x", "buffers with zeros for the other ranks' pairs added up")
def adds_up_buffers_of_pairs(fabric, gradient, residual, k):
    n, total = fabric.world_size, gradient + residual
    index = largest(total, k)
    values, places = total.new_zeros(n, k), torch.zeros(n, k, dtype=torch.int32)
    values[fabric.rank], places[fabric.rank] = total[index], index.int()
    all_reduce(fabric, values)
    all_reduce(fabric, places)
    average = torch.zeros_like(total).index_add_(0, places.flatten(), values.flatten())
    return average / n, without(total, index)


@answers.is_wrong("average and residual are right, but", "2 x", "Does everything have 8 bytes?")
def sends_all_in_8_bytes(fabric, gradient, residual, k):
    n, total = fabric.world_size, gradient + residual
    index = largest(total, k)
    pairs = gathered(fabric, torch.stack([total[index].double(), index.double()], 1).flatten()).view(-1, 2)
    average = torch.zeros_like(total).index_add_(0, pairs[:, 1].long(), pairs[:, 0].to(total.dtype))
    return average / n, without(total, index)


@answers.is_wrong("are right, but", "1.5 x", "Have the indices 8 bytes? torch gives them as int64; int32 is enough")
def sends_indices_of_8_bytes(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    indices, values = gathered(fabric, index), gathered(fabric, total[index])
    return torch.zeros_like(total).index_add_(0, indices, values) / fabric.world_size, without(total, index)


@answers.is_wrong("the average of step 1", "All ranks have sent what rank 0 chose")
def all_send_what_rank_0_chose(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    broadcast(fabric, [index])
    values = all_reduce(fabric, total[index])
    average = torch.zeros_like(total).index_copy_(0, index, values / fabric.world_size)
    return average, without(total, index)


@answers.is_wrong("the average of step 1", "The k largest of the mean were chosen, which nobody can know")
def chooses_after_the_average(fabric, gradient, residual, k):
    total = gradient + residual
    mean = all_reduce(fabric, total.clone()) / fabric.world_size
    index = largest(mean, k)
    return mean - without(mean, index), without(total, index)


@answers.is_wrong("the average of step 1", "This is the mean of everything")
def averages_everything(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    return all_reduce(fabric, total.clone()) / fabric.world_size, without(total, index)


@answers.is_wrong("3 ranks, 14 numbers", "the average of step 1", "that are not zero, expected", "each rank sends k = 3")
def chooses_a_hundredth(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, max(1, len(total) // 100))
    return averaged(fabric, total[index], index, gradient), without(total, index)


@answers.is_wrong("3 ranks, 20 numbers", "numbers that went through float32: a buffer needs the dtype of what comes in")
def gathers_into_float32(fabric, gradient, residual, k):
    n, total = fabric.world_size, gradient + residual
    index = largest(total, k)
    indices, values = gathered(fabric, index.to(torch.int32)), torch.zeros(n * k)
    values.tensor_split(n)[fabric.rank].copy_(total[index])
    all_gather(fabric, values)
    average = torch.zeros_like(total).index_add_(0, indices, values.to(total.dtype))
    return average / n, without(total, index)


@answers.is_wrong("the average of step 1", "what the rank has sent itself, divided: nothing of the others is in it")
def gathers_nothing(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    kept = without(total, index)
    return (total - kept) / fabric.world_size, kept


@answers.is_wrong("expected (average, residual), got a tensor of shape [14]")
def returns_the_average_alone(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    residual.copy_(without(total, index))
    return averaged(fabric, total[index], index, gradient)


@answers.is_wrong("the average of step 1 of shape [14], got shape [3]")
def returns_the_values_alone(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    indices, values = gathered(fabric, index.to(torch.int32)), gathered(fabric, total[index])
    return values.view(fabric.world_size, k).mean(0), without(total, index)


@answers.is_wrong("isend", "wait")
def waits_for_nothing(fabric, gradient, residual, k):
    n, rank, total = fabric.world_size, fabric.rank, gradient + residual
    index = largest(total, k)
    own = torch.stack([total[index], index.to(total.dtype)])
    average = torch.zeros_like(total).index_add_(0, index, total[index])
    for step in range(1, n):
        fabric.isend(own, to=(rank + step) % n)
    for step in range(1, n):
        other = torch.empty_like(own)
        fabric.recv(other, frm=(rank - step) % n)
        average.index_add_(0, other[1].long(), other[0])
    return average / n, without(total, index)


@answers.is_wrong("2 ranks, 90,000 numbers", "Receive before you wait: isend, then recv, then wait for the handle")
def sends_before_it_receives(fabric, gradient, residual, k):
    """Small messages are copied on the way; large ones wait for their receiver."""
    n, rank, total = fabric.world_size, fabric.rank, gradient + residual
    index = largest(total, k)
    values, places = total[index], index.to(torch.int32)
    average = torch.zeros_like(total).index_add_(0, places, values)
    for step in range(1, n):
        large = values.nbytes > 2**17
        handles = [] if large else [fabric.isend(values, to=(rank + step) % n)]
        if large:
            fabric.send(values, to=(rank + step) % n)
        handles.append(fabric.isend(places, to=(rank + step) % n, tag=1))
        others, at = torch.empty_like(values), torch.empty_like(places)
        fabric.recv(others, frm=(rank - step) % n)
        fabric.recv(at, frm=(rank - step) % n, tag=1)
        for handle in handles:
            handle.wait()
        average.index_add_(0, at, others)
    return average / n, without(total, index)


@answers.is_wrong("average and residual are right, but all ranks together sent", "Of each rank k values and k int32 indices")
def a_server_hands_out_what_it_got(fabric, gradient, residual, k):
    """Rank 0 gathers the ranks' pairs and sends all of them to each: to the ranks that sent them, too."""
    n, total = fabric.world_size, gradient + residual
    index = largest(total, k)
    pairs = torch.zeros(2, n * k, dtype=torch.float64)
    own = torch.stack([total[index].double(), index.double()])
    if fabric.rank:
        fabric.send(own, to=0)
        fabric.recv(pairs, frm=0)
    else:
        parts = [own, *(torch.empty_like(own) for _ in range(n - 1))]
        for other in range(1, n):
            fabric.recv(parts[other], frm=other)
        pairs = torch.cat(parts, 1)
        for other in range(1, n):
            fabric.send(pairs, to=other)
    average = torch.zeros_like(total).index_add_(0, pairs[1].long(), pairs[0].to(total.dtype))
    return average / n, without(total, index)


# ---- right -----------------------------------------------------------------------------------


@answers.is_right
def as_its_text_says(fabric, gradient, residual, k):
    total = gradient + residual
    index = total.abs().topk(k).indices
    average = averaged(fabric, total[index], index, gradient)
    total[index] = 0
    return average, total


@answers.is_right
def in_one_message_of_bytes(fabric, gradient, residual, k):
    """Values and indices of a rank as one tensor of bytes, passed round a ring."""
    n, rank = fabric.world_size, fabric.rank
    residual += gradient
    index = residual.abs().argsort(descending=True)[:k].to(torch.int32)
    passing = torch.cat([residual[index].view(torch.uint8), index.view(torch.uint8)])
    average = torch.zeros_like(residual)
    for step in range(n):
        values, places = passing[: -4 * k], passing[-4 * k :]
        average.index_add_(0, places.clone().view(torch.int32), values.clone().view(residual.dtype))
        if step < n - 1:
            handle = fabric.isend(passing, to=(rank + 1) % n)
            arrived = torch.empty_like(passing)
            fabric.recv(arrived, frm=(rank - 1) % n)
            handle.wait()
            passing = arrived
    residual[index] = 0
    return [average / n, residual]


@answers.is_right
def by_a_threshold(fabric, gradient, residual, k):
    """All that is as large as the k-th largest; a boolean mask in place of indices, until they are sent."""
    total = residual.add_(gradient)
    sizes = total.abs()
    chosen = sizes >= sizes.kthvalue(len(total) - k + 1).values
    index = chosen.nonzero().flatten()
    average = averaged(fabric, total[chosen] / fabric.world_size, index, total) * fabric.world_size
    return average, total.masked_fill(chosen, 0)


@answers.is_right
def straight_to_every_rank(fabric, gradient, residual, k):
    n, rank, total = fabric.world_size, fabric.rank, gradient + residual
    index = largest(total, k)
    values, places = total[index], index.to(torch.int32)
    others = [(rank + step) % n for step in range(1, n)]
    handles = [fabric.isend(x, to=other) for other in others for x in (values, places)]
    average = torch.zeros_like(total)
    average[index] = values
    for other in others:
        theirs, at = torch.empty_like(values), torch.empty_like(places)
        fabric.recv(theirs, frm=other)
        fabric.recv(at, frm=other)
        average[at.long()] += theirs
    for handle in handles:
        handle.wait()
    return average.div_(n), total.index_put_((index,), torch.zeros_like(values))


@answers.is_right
def with_indices_of_the_fewest_bytes(fabric, gradient, residual, k):
    """One byte each where 256 places are enough."""
    n, total = fabric.world_size, gradient + residual
    index = largest(total, k)
    kind = torch.uint8 if len(total) <= 256 else torch.int32
    indices, values = gathered(fabric, index.to(kind)), gathered(fabric, total[index])
    average = torch.zeros_like(total)
    for places, own in zip(indices.view(n, k), values.view(n, k), strict=True):
        average[places.long()] += own
    return average / n, total.index_fill(0, index, 0)
