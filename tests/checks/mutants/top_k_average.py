"""Exercise 14.2: of every gradient only the k largest numbers travel, with error feedback."""

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


@answers.is_right
def as_its_text_says(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    return averaged(fabric, total[index], index, gradient), without(total, index)


@answers.is_right
def with_both_gathered(fabric, gradient, residual, k):
    n, total = fabric.world_size, gradient + residual
    index = largest(total, k)
    indices, values = gathered(fabric, index.to(torch.int32)), gathered(fabric, total[index])
    average = torch.zeros_like(total).index_add_(0, indices, values) / n
    return average, without(total, index)


@answers.is_right
def in_one_message_of_bytes(fabric, gradient, residual, k):
    """Values and indices of a rank as one tensor of bytes, passed round a ring."""
    n, rank = fabric.world_size, fabric.rank
    residual = residual + gradient
    index = residual.abs().argsort(descending=True)[:k].to(torch.int32)
    passing = torch.cat([residual[index].view(torch.uint8), index.view(torch.uint8)])
    average, pairs = torch.zeros_like(residual), {}
    for step in range(n):
        pairs[(rank - step) % n] = passing
        if step < n - 1:
            handle = fabric.isend(passing, to=(rank + 1) % n)
            arrived = torch.empty_like(passing)
            fabric.recv(arrived, frm=(rank - 1) % n)
            handle.wait()
            passing = arrived
    for _, pair in sorted(pairs.items()):
        values, places = pair[: -4 * k], pair[-4 * k :]
        average.index_add_(0, places.clone().view(torch.int32), values.clone().view(residual.dtype))
    residual[index] = 0
    return [average / n, residual]


@answers.is_right
def by_a_threshold(fabric, gradient, residual, k):
    """All above the k-th largest, and as many of its size as make k; a boolean mask in place of indices, until they are sent."""
    total = residual.add(gradient)
    sizes = total.abs()
    last = sizes.kthvalue(len(total) - k + 1).values
    chosen = sizes > last
    chosen |= (sizes == last) & ((sizes == last).cumsum(0) <= k - chosen.sum())
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
    for sender in range(n):
        theirs, at = (values, places) if sender == rank else (torch.empty_like(values), torch.empty_like(places))
        if sender != rank:
            fabric.recv(theirs, frm=sender)
            fabric.recv(at, frm=sender)
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


answers.mistake("without_error_feedback", {"gradient + residual": "gradient", "without(total, index)": "residual"},
    "the average of step 1", "chosen from the gradients alone: add the residual", "lost for ever")
answers.mistake("keeps_a_residual_that_nobody_reads", {
    "total = gradient + residual": "total = gradient",
    "without(total": "without(gradient + residual",
}, "the average of step 1", "chosen from the gradients alone: add the residual")
answers.mistake("drops_what_it_does_not_send", {"without(total, index)": "torch.zeros_like(total)"},
    "the residual of step 1", "It is empty: all that was not sent is lost for ever")
answers.mistake("keeps_what_it_has_sent", {"without(total, index)": "total"},
    "the residual of step 1", "What was sent is still in it, and will be sent again")
answers.mistake("keeps_of_the_last_gradient_alone", {"without(total, index)": "without(total, index) - residual"},
    "the residual of step 1", "What was left of older steps is lost")
answers.mistake("takes_the_average_off", {
    "return averaged(fabric, total[index], index, gradient), without(total, index)": """
        average = averaged(fabric, total[index], index, gradient)
        return average, total - average
    """,
}, "the residual of step 1", "The average was taken off", "what it has sent itself")
answers.mistake("clears_what_anybody_has_sent", {
    "return averaged(fabric, total[index], index, gradient), without(total, index)": """
        average = averaged(fabric, total[index], index, gradient)
        return average, torch.where(average != 0, 0, total)
    """,
}, "the residual of step 1", "It is cleared wherever any rank has sent")
answers.mistake("keeps_the_old_residual_twice", {"without(total, index)": "without(total, index) + residual"},
    "the residual of step 1", "The old residual is in it twice")
answers.mistake("forgets_to_hand_on_the_residual", {"without(total, index)": "residual"},
    "the residual of step 1", "It is as it was before the step")
answers.mistake("chooses_by_value", {"largest(total, k)": "total.topk(k).indices"},
    "the average of step 1", "It was chosen by value, not by size")
answers.mistake("sends_sizes", {"total[index]": "total[index].abs()"},
    "the average of step 1", "The values came without their signs: choose by size")
answers.mistake("empties_the_gradient_alone", {"without(total, index)": "without(gradient, index)"},
    "the residual of step 1", "What was left of older steps is lost: it is the gradient with the sent places")
answers.mistake("sends_indices_of_2_bytes", {
    "index.to(torch.int32)": "index.to(torch.int16)",
    "indices, values) / n": "indices.long(), values) / n",
}, "2 ranks, 90,000 numbers", "index out of range", "int16 ends at 32,767", of=with_both_gathered)
# x[-5] is the fifth number from the end: no error says that the indices are others.
answers.mistake("adds_rank_by_rank_at_indices_of_2_bytes", {
    "index.to(torch.int32)": "index.to(torch.int16)",
    "average = torch.zeros_like(total).index_add_(0, indices, values) / n": """
        average = torch.zeros_like(total)
        for places, own in zip(indices.view(n, k), values.view(n, k), strict=True):
            average[places.long()] += own / n
    """,
}, "2 ranks, 90,000 numbers", "the average of step 1", "int16 ends at 32,767, and goes on at −32,768", of=with_both_gathered)
answers.mistake("chooses_by_the_gradient", {"largest(total, k)": "largest(gradient, k)"},
    "the average of step 1", "chosen by the gradient's size alone")
answers.mistake("sends_the_gradients_own_numbers", {"averaged(fabric, total[index]": "averaged(fabric, gradient[index]"},
    "the average of step 1", "the values were the gradient's alone: send gradient + residual")
answers.mistake("the_last_rank_writes_over_the_others", {
    "average = torch.zeros_like(total).index_add_(0, indices, values) / n": """
        average = torch.zeros_like(total)
        average[indices] = values / n
    """,
}, "the average of step 1", "wrong only where several ranks chose one index", "index_add_", of=with_both_gathered)
# x[index] += values takes one of the values of an index.
answers.mistake("adds_with_repeated_indices", {
    "average = torch.zeros_like(total).index_add_(0, indices, values) / n": """
        average = torch.zeros_like(total)
        average[indices] += values / n
    """,
}, "the average of step 1", "wrong only where several ranks chose one index", "index_add_", of=with_both_gathered)
answers.mistake("forgets_to_divide", {"index, gradient)": "index, gradient) * fabric.world_size"},
    "the average of step 1", "These are sums: divide by the number of ranks")
answers.mistake("divides_by_k", {"index, gradient)": "index, gradient) * fabric.world_size / k"},
    "3 ranks, 20 numbers", "the average of step 1", "The sum was divided by k: divide it by the number of ranks")
answers.mistake("divides_by_the_senders", {
    "return average": """
        senders = torch.zeros_like(total).index_add_(0, indices, torch.ones_like(values))
        average = n * average / senders.clamp(min=1)
        return average
    """,
}, "the average of step 1", "divided by the number of ranks that sent the index", of=with_both_gathered)
answers.mistake("adds_up_its_own_first", {
    """
        average = torch.zeros_like(total)
        for places, own in zip(indices.view(n, k), values.view(n, k), strict=True):
            average[places.long()] += own
    """: """
        average = torch.zeros_like(total)
        for step in range(n):
            sender = (fabric.rank + step) % n
            average[indices.view(n, k)[sender].long()] += values.view(n, k)[sender]
    """,
}, "5 ranks", "the average of step 1 differs by rank in its last bits", "Add up in one order on all ranks",
    of=with_indices_of_the_fewest_bytes)
answers.mistake("adds_its_own_to_those_of_the_others", {
    """
        average = torch.zeros_like(total)
        for places, own in zip(indices.view(n, k), values.view(n, k), strict=True):
            average[places.long()] += own
    """: """
        average = total - total.index_fill(0, index, 0)
        for sender, (places, own) in enumerate(zip(indices.view(n, k), values.view(n, k), strict=True)):
            if sender != fabric.rank:
                average[places.long()] += own
    """,
}, "5 ranks", "the average of step 1 differs by rank in its last bits", of=with_indices_of_the_fewest_bytes)
# The right numbers, in a tensor that is as large as ever.
answers.mistake("all_reduces_zeros", {
    "averaged(fabric, total[index], index, gradient)":
        "all_reduce(fabric, total - without(total, index)) / fabric.world_size",
}, "average and residual are right, but", "an all-reduce of the whole tensor, with zeros in it: nothing is saved")
answers.mistake("gathers_zeros", {
    "averaged(fabric, total[index], index, gradient)":
        "gathered(fabric, total - without(total, index)).view(fabric.world_size, -1).mean(0)",
}, "average and residual are right, but", "Every rank sent its whole tensor to every other, zeros and all")
answers.mistake("adds_up_buffers_of_pairs", {
    "indices, values = gathered(fabric, index.to(torch.int32)), gathered(fabric, total[index])": """
        values, places = total.new_zeros(n, k), torch.zeros(n, k, dtype=torch.int32)
        values[fabric.rank], places[fabric.rank] = total[index], index.int()
        indices, values = all_reduce(fabric, places).flatten(), all_reduce(fabric, values).flatten()
    """,
}, "average and residual are right, but", "2 x", "Do you add up buffers with zeros for the other ranks' pairs",
    of=with_both_gathered)
answers.mistake("sends_all_in_8_bytes", {
    "indices, values = gathered(fabric, index.to(torch.int32)), gathered(fabric, total[index])": """
        pairs = gathered(fabric, torch.stack([total[index].double(), index.double()], 1).flatten()).view(-1, 2)
        indices, values = pairs[:, 1].long(), pairs[:, 0].to(total.dtype)
    """,
}, "average and residual are right, but", "1.3 x", "Do the indices take 8 bytes?", of=with_both_gathered)
answers.mistake("sends_indices_of_8_bytes", {"index.to(torch.int32)": "index"},
    "are right, but", "1.3 x", "Do the indices take 8 bytes? torch gives them as int64", of=with_both_gathered)


@answers.is_wrong("the average of step 1", "All ranks sent rank 0's choice")
def all_send_what_rank_0_chose(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    broadcast(fabric, [index])
    values = all_reduce(fabric, total[index])
    average = torch.zeros_like(total).index_copy_(0, index, values / fabric.world_size)
    return average, without(total, index)


answers.mistake("chooses_after_the_average", {
    """
        index = largest(total, k)
        return averaged(fabric, total[index], index, gradient), without(total, index)
    """: """
        mean = all_reduce(fabric, total.clone()) / fabric.world_size
        index = largest(mean, k)
        return mean - without(mean, index), without(total, index)
    """,
}, "the average of step 1", "The k largest of the mean were chosen, which no rank can know")
answers.mistake("averages_everything",
    {"averaged(fabric, total[index], index, gradient)": "all_reduce(fabric, total.clone()) / fabric.world_size"},
    "the average of step 1", "This is the mean of everything")
answers.mistake("chooses_a_hundredth", {"largest(total, k)": "largest(total, max(1, len(total) // 100))"},
    "3 ranks, 14 numbers", "the average of step 1", "that are not zero, expected", "each rank sends k = 3")
answers.mistake("gathers_into_float32", {
    "gathered(fabric, total[index])": """
        torch.zeros(n * k)
        values.tensor_split(n)[fabric.rank].copy_(total[index])
        values = all_gather(fabric, values).to(total.dtype)
    """,
}, "3 ranks, 14 numbers",
    "Numbers that went through float32 are off by this much: give buffers the dtype of the input", of=with_both_gathered)
answers.mistake("gathers_nothing",
    {"averaged(fabric, total[index], index, gradient)": "(total - without(total, index)) / fabric.world_size"},
    "the average of step 1", "what the rank has sent itself, divided: nothing of the others is in it")
answers.mistake("takes_all_of_the_size_of_the_last", {
    "chosen |= (sizes == last) & ((sizes == last).cumsum(0) <= k - chosen.sum())": "chosen |= sizes == last",
}, "3 ranks, 12 numbers", "took 6 numbers off its residual, expected k = 4", "a comparison with >= takes all", of=by_a_threshold)
answers.mistake("takes_none_of_the_size_of_the_last", {
    "sizes.kthvalue(len(total) - k + 1).values": "sizes.topk(min(k + 1, len(sizes))).values[-1] * (k < len(sizes))",
    "chosen |= (sizes == last) & ((sizes == last).cumsum(0) <= k - chosen.sum())": "",
}, "3 ranks, 12 numbers", "took 2 numbers off its residual, expected k = 4", of=by_a_threshold)
answers.mistake("adds_to_the_residual_in_place", {"gradient + residual": "residual.add_(gradient)"},
    "are right, but rank 0: in step 1 the residual was changed in place", "Work on a copy")
answers.mistake("adds_to_the_gradient_in_place", {"gradient + residual": "gradient.add_(residual)"},
    "are right, but rank 0: in step 1 the gradient was changed in place", "Work on a copy")
answers.mistake("sends_values_of_8_bytes", {
    "indices, values = gathered(fabric, index.to(torch.int32)), gathered(fabric, total[index])": """
        indices = gathered(fabric, index.to(torch.int32))
        values = gathered(fabric, total[index].double()).to(total.dtype)
    """,
}, "3 ranks, 20 numbers of float32", "are right, but", "Do the values take 8 bytes? Send them in the gradient's dtype",
    of=with_both_gathered)
answers.mistake("sends_values_in_bfloat16",
    {"gathered(fabric, total[index])": "gathered(fabric, total[index].bfloat16()).to(total.dtype)"},
    "the average of step 1", "Numbers that went through bfloat16 or float16 are off by this much", of=with_both_gathered)
answers.mistake("returns_the_average_alone", {
    "return averaged(fabric, total[index], index, gradient), without(total, index)": """
        return averaged(fabric, total[index], index, gradient)
    """,
}, "expected (average, residual), got a tensor of shape [14]")
answers.mistake("returns_the_values_alone",
    {"average = torch.zeros_like(total).index_add_(0, indices, values) / n": "average = values.view(n, k).mean(0)"},
    "the average of step 1 of shape [14], got shape [3]", of=with_both_gathered)


@answers.is_wrong("isend", "wait")
def waits_for_nothing(fabric, gradient, residual, k):
    n, rank, total = fabric.world_size, fabric.rank, gradient + residual
    index = largest(total, k)
    values, places = total[index], index.to(torch.int32)
    average = torch.zeros_like(total)
    for step in range(1, n):
        fabric.isend(values, to=(rank + step) % n)
        fabric.isend(places, to=(rank + step) % n)
    for sender in range(n):
        others, at = values.clone(), places.clone()
        if sender != rank:
            fabric.recv(others, frm=sender)
            fabric.recv(at, frm=sender)
        average.index_add_(0, at, others)
    return average / n, without(total, index)


@answers.is_wrong("2 ranks, 90,000 numbers", "Receive before you wait: isend, then recv, then wait for the handle")
def sends_before_it_receives(fabric, gradient, residual, k):
    """Small messages are copied on the way; large ones wait for their receiver."""
    n, rank, total = fabric.world_size, fabric.rank, gradient + residual
    index = largest(total, k)
    values, places = total[index], index.to(torch.int32)
    pairs = {rank: (places, values)}
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
        pairs[(rank - step) % n] = at, others
    average = torch.zeros_like(total)
    for _, pair in sorted(pairs.items()):
        average.index_add_(0, *pair)
    return average / n, without(total, index)


@answers.is_wrong("average and residual are right, but all ranks together sent", "Send k values and k int32 indices")
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


@answers.spoils()
def knows_the_first_case_alone(fabric, gradient, residual, k):
    """Elsewhere each rank keeps what it should, and averages nothing."""
    average, kept = as_its_text_says(fabric, gradient, residual, k)
    return (average, kept) if len(gradient) == 14 else (torch.zeros_like(average), kept)


def sends_it_all(fabric, gradient, residual, k):
    total = gradient + residual
    index = largest(total, k)
    return all_reduce(fabric, total - without(total, index)) / fabric.world_size, without(total, index)


answers.spoil("sends_it_all_and_keeps_it_all", {", without(total, index)": ", total"}, of=sends_it_all)


@answers.is_wrong("of which several have the size of the last", "keeps a larger number than one that it sends")
def takes_the_first_k_that_are_large_enough(fabric, gradient, residual, k):
    n, total = fabric.world_size, gradient + residual
    chosen = (total.abs() >= total.abs().topk(k).values[-1]).nonzero().flatten()[:k]
    values, places = gathered(fabric, total[chosen]), gathered(fabric, chosen.int())
    rest = total.clone()
    rest[chosen] = 0
    return torch.zeros_like(total).index_add_(0, places.long().flatten(), values.flatten()) / n, rest


answers.mistake("takes_the_last_k_that_are_large_enough", {"[:k]": "[-k:]"},
    "of which several have the size of the last", "keeps a larger number than one that it sends",
    of=takes_the_first_k_that_are_large_enough)
answers.mistake("divides_ties_by_two", {"/ n, rest": "/ 2, rest"},
    "the average of step 1", "The sum was divided by 2, but there are 3 ranks", of=takes_the_first_k_that_are_large_enough)
answers.mistake("counts_its_own_twice", {
    "/ n, rest": ".index_add_(0, chosen, total[chosen]) / n, rest",
}, "the average of step 1", "The rank's own numbers are in it twice", of=takes_the_first_k_that_are_large_enough)
answers.mistake("sends_one_more", {"[:k]": "[: k + 1]", "topk(k)": "topk(min(k + 1, len(total)))"},
    "the average of step 1", "One number more than k was sent", of=takes_the_first_k_that_are_large_enough)
answers.mistake("gathers_both_as_float64", {
    "values, places = gathered(fabric, total[chosen]), gathered(fabric, chosen.int())": """
        both = gathered(fabric, torch.cat([total[chosen].double(), chosen.double()])).view(n, -1)
        values, places = both[:, :k].to(total.dtype), both[:, k:]
    """,
}, "are right, but", "1.3 x", "Do the indices take 8 bytes? torch gives them as int64, and float64 takes 8 as well",
    of=takes_the_first_k_that_are_large_enough)
