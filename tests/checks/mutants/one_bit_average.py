"""Exercise 14.1: of every number its sign travels as a bit, with a scale a block and error feedback."""

import numpy as np
import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce

answers = Answers("one_bit_average")


def gathered(fabric, own):
    """[n, …] of the ranks' own [numbers]."""
    n = fabric.world_size
    parts = own.new_zeros(n * len(own))
    parts.tensor_split(n)[fabric.rank].copy_(own)
    return all_gather(fabric, parts).view(n, -1)


@answers.is_right
def as_its_text_says(fabric, gradient, residual, block):
    total = gradient + residual
    scales = torch.stack([part.abs().mean() for part in total.split(block)])
    bits = torch.from_numpy(np.packbits(total.numpy() >= 0))

    def decoded(bits, scales):
        ones = torch.from_numpy(np.unpackbits(bits.numpy(), count=len(total)))
        return (2 * ones.to(total.dtype) - 1) * scales.repeat_interleave(block)[: len(total)]

    said = [decoded(*code) for code in zip(gathered(fabric, bits), gathered(fabric, scales), strict=True)]
    average = sum(said) / fabric.world_size
    return average, total - said[fabric.rank]


SAID = "said = [decoded(*code) for code in zip(gathered(fabric, bits), gathered(fabric, scales), strict=True)]"
answers.twin("with_the_first_sign_in_the_lowest_bit", {
    "np.packbits(total.numpy() >= 0)": 'np.packbits(total.numpy() >= 0, bitorder="little")',
    "count=len(total)": 'count=len(total), bitorder="little"',
})
answers.twin("with_a_bit_for_what_is_less_than_0", {
    "total.numpy() >= 0": "total.numpy() < 0",
    "2 * ones.to(total.dtype) - 1": "1 - 2 * ones.to(total.dtype)",
})
answers.twin("adds_up_the_last_rank_first", {"sum(said)": "sum(said[::-1])"})
# NaN is not 0 or more, and a sign of −1 times a scale of 0 is 0 as well.
answers.twin("divides_by_the_scale_for_the_sign_alone", {
    "total.numpy() >= 0": "(total / scales.repeat_interleave(block)[: len(total)]).numpy() >= 0",
})
answers.twin("adds_up_in_float64", {
    "sum(said) / fabric.world_size": "torch.stack(said).double().mean(0).to(total.dtype)",
})


@answers.is_right
def packs_by_hand(fabric, gradient, residual, block):
    """In torch alone: rows of eight and powers of two, blocks in rows that are filled up with zeros."""
    n, numbers, total = fabric.world_size, len(gradient), gradient + residual
    powers = 2 ** torch.arange(8)
    bits = torch.zeros(-(-numbers // 8) * 8, dtype=torch.int64)
    bits[:numbers] = total >= 0
    packed = (bits.view(-1, 8) * powers).sum(1).to(torch.uint8)
    blocks = -(-numbers // block)
    rows = torch.zeros(blocks * block, dtype=total.dtype)
    rows[:numbers] = total.abs()
    lengths = torch.full((blocks,), block)
    lengths[-1] = numbers - (blocks - 1) * block
    scales = rows.view(blocks, block).sum(1) / lengths
    average, own = torch.zeros_like(total), None
    for rank, (theirs, sizes) in enumerate(zip(gathered(fabric, packed), gathered(fabric, scales), strict=True)):
        ones = (theirs.long()[:, None] & powers).bool().flatten()[:numbers]
        said = torch.where(ones, 1, -1) * sizes[torch.arange(numbers) // block]
        average += said / n
        own = said if rank == fabric.rank else own
    return [average, total.sub(own)]


@answers.is_right
def in_one_message_of_bytes(fabric, gradient, residual, block):
    """Bits and scales of a rank as one tensor of bytes, straight to every other rank."""
    n, me = fabric.world_size, fabric.rank
    residual = gradient + residual
    scales = torch.stack([part.abs().sum() / len(part) for part in residual.split(block)])
    scale_bytes = scales.nbytes
    codes = {me: torch.cat([scales.view(torch.uint8), torch.from_numpy(np.packbits(residual.numpy() >= 0))])}
    handles = [fabric.isend(codes[me], to=(me + k) % n) for k in range(1, n)]
    for k in range(1, n):
        codes[(me - k) % n] = torch.empty_like(codes[me])
        fabric.recv(codes[(me - k) % n], frm=(me - k) % n)
    for handle in handles:
        handle.wait()
    average = torch.zeros_like(residual)
    for rank in range(n):
        sizes = codes[rank][:scale_bytes].clone().view(residual.dtype)
        ones = torch.from_numpy(np.unpackbits(codes[rank][scale_bytes:].numpy())[: len(residual)]).bool()
        said = torch.repeat_interleave(sizes, block)[: len(residual)]
        said[~ones] *= -1
        average += said
        if rank == me:
            residual -= said
    return average / n, residual


answers.mistake("without_error_feedback", {"gradient + residual": "gradient", "total - said[fabric.rank]": "residual"},
    "the average of step 1", "coded from the gradients alone: add the residual", "lost for ever")
answers.mistake("keeps_a_residual_that_nobody_reads", {"gradient + residual": "gradient"},
    "the average of step 1", "coded from the gradients alone")
answers.mistake("adds_the_residual_twice", {"gradient + residual": "gradient + 2 * residual"},
    "the average of step 1", "The residual is in the code twice")
answers.mistake("has_the_gradients_signs", {"total.numpy() >= 0": "gradient.numpy() >= 0"},
    "the average of step 1", "but the signs are the gradient's")
answers.mistake("has_the_gradients_scales", {"in total.split(block)": "in gradient.split(block)"},
    "the average of step 1", "but the scales are the gradient's")
answers.mistake("scales_by_the_largest", {"part.abs().mean()": "part.abs().max()"},
    "the average of step 1", "The scale is the largest size of a block")
answers.mistake("scales_by_the_root_of_the_mean_square", {"part.abs().mean()": "part.square().mean().sqrt()"},
    "the average of step 1", "The scale is the root of a block's mean square")
answers.mistake("scales_by_the_sum", {"part.abs().mean()": "part.abs().sum()"},
    "the average of step 1", "The scale is the sum of a block's sizes")
answers.mistake("scales_by_the_size_of_the_mean", {"part.abs().mean()": "part.mean().abs()"},
    "the average of step 1", "The scale is the size of the block's mean")
answers.mistake("scales_by_the_mean_with_its_sign", {"part.abs().mean()": "part.mean()"},
    "the average of step 1", "The scale is the mean of a block's numbers, in which signs cancel")
answers.mistake("scales_by_the_median", {"part.abs().mean()": "part.abs().median()"},
    "the average of step 1", "The scale is the median of a block's sizes")
answers.mistake("lays_scales_out_one_after_another", {"scales.repeat_interleave(block)": "scales.repeat(block)"},
    "the average of step 1", "repeat_interleave gives each number that of its block")
answers.mistake("has_the_first_blocks_scale_for_all", {"repeat_interleave(block)": "repeat_interleave(784)"},
    "the average of step 1", "All numbers got the first block's scale")
answers.mistake("divides_by_two", {"sum(said) / fabric.world_size": "sum(said) / 2"},
    "the average of step 1", "The sum was divided by 2, but there are 3 ranks")
answers.mistake("counts_its_own_twice", {"sum(said) / fabric": "(sum(said) + said[fabric.rank]) / fabric"},
    "the average of step 1", "The rank's own numbers are in it twice")
answers.mistake("has_one_scale_for_all", {"total.split(block)": "total.split(len(total))", "repeat_interleave(block)":
    "repeat_interleave(len(total))"}, "the average of step 1", "There is one scale for all numbers")
answers.mistake("counts_zeros_that_fill_the_last_block", {"part.abs().mean()": "part.abs().sum() / block"},
    "the average of step 1", "its mean was taken over a whole block")
answers.mistake("leaves_the_last_block_out", {
    "total.split(block)]": "total[: len(total) // block * block].split(block)]",
}, "must match the size")
answers.mistake("sends_0_as_less_than_0", {"total.numpy() >= 0": "total.numpy() > 0"},
    "the average of step 1", "A 0 was sent as −1 times its scale. Its bit is 1")
answers.mistake("subtracts_in_bytes", {"2 * ones.to(total.dtype) - 1": "2 * ones - 1"},
    "the average of step 1", "A −1 came as 255: uint8 has no numbers below 0")
answers.mistake("takes_bits_for_numbers", {"(2 * ones.to(total.dtype) - 1)": "ones"},
    "the average of step 1", "A bit of 0 came as the number 0: it stands for −1")
answers.mistake("unpacks_in_another_order", {"count=len(total)": 'count=len(total), bitorder="little"'},
    "the average of step 1", "The signs of each eight numbers came in reverse")
answers.mistake("has_signs_the_wrong_way_round", {"total.numpy() >= 0": "total.numpy() < 0"},
    "the average of step 1", "The signs are the wrong way round")
answers.mistake("weighs_numbers_by_their_scale", {
    "part.abs().mean() for": "part.abs().mean() * (part / part.abs().mean()).abs().mean() for",
}, "are not finite", "Do you divide by a scale? A block of zeros has the scale 0")


@answers.is_wrong("the average of step 1", "A 0 stayed 0, which no bit says")
def sends_three_signs(fabric, gradient, residual, block):
    """Signs as int8, with 0 among them."""
    total = gradient + residual
    scales = torch.stack([part.abs().mean() for part in total.split(block)])
    signs = gathered(fabric, total.sign().to(torch.int8))
    said = [s * size.repeat_interleave(block)[: len(total)] for s, size in zip(signs, gathered(fabric, scales), strict=True)]
    return sum(said) / fabric.world_size, total - said[fabric.rank]


@answers.is_wrong("The size of tensor a (16) must match the size of tensor b (22)")
def forgets_the_last_byte_that_is_not_full(fabric, gradient, residual, block):
    """Whole eights alone are packed."""
    total = gradient + residual
    scales = torch.stack([part.abs().mean() for part in total.split(block)])
    eights = torch.from_numpy(total.numpy() >= 0).long()[: len(total) // 8 * 8].view(-1, 8)
    bits = (eights * 2 ** torch.arange(7, -1, -1)).sum(1).to(torch.uint8)
    said = []
    for theirs, sizes in zip(gathered(fabric, bits), gathered(fabric, scales), strict=True):
        ones = torch.from_numpy(np.unpackbits(theirs.numpy()))
        said.append((2 * ones.to(total.dtype) - 1) * sizes.repeat_interleave(block)[: len(total)])
    return sum(said) / fabric.world_size, total - said[fabric.rank]


answers.mistake("forgets_to_divide", {"sum(said) / fabric.world_size": "sum(said)"},
    "the average of step 1", "These are sums: divide by the number of ranks")
answers.mistake("divides_twice", {
    "sum(said) / fabric.world_size": "(torch.stack(said) / fabric.world_size).mean(0)",
}, "the average of step 1", "divided by the number of ranks twice")
answers.mistake("sends_scales_that_are_divided", {"gathered(fabric, scales)": "gathered(fabric, scales / fabric.world_size)",
    "sum(said) / fabric.world_size": "sum(said)"}, "the residual of step 1", "A part of what was sent was taken off, divided")
answers.mistake("has_its_own_scales_for_all", {"gathered(fabric, scales)": "[scales] * fabric.world_size"},
    "the average of step 1", "Another rank's signs got this rank's scales")
answers.mistake("has_the_mean_of_all_scales", {
    "gathered(fabric, scales)": "[all_reduce(fabric, scales) / fabric.world_size] * fabric.world_size",
}, "the average of step 1", "got the mean of all ranks' scales")
answers.mistake("does_not_decode_its_own", {
    "sum(said) / fabric": "sum(total if rank == fabric.rank else own for rank, own in enumerate(said)) / fabric",
}, "the average of step 1", "A rank's own numbers went in as they are")
answers.mistake("votes", {
    "average = sum(said) / fabric.world_size": """
        votes = sum(torch.where(own >= 0, 1, -1) for own in said)
        average = votes.sign() * torch.stack(said).abs().mean(0)
    """,
}, "the average of step 1", "This is a vote")
answers.mistake("codes_the_average_once_more", {
    "average = sum(said) / fabric.world_size": """
        average = sum(said) / fabric.world_size
        again = torch.stack([part.abs().mean() for part in average.split(block)])
        average = torch.where(average >= 0, 1, -1) * again.repeat_interleave(block)[: len(total)]
    """,
}, "the average of step 1", "The average was coded once more")
answers.mistake("returns_its_own_code", {"return average": "return said[fabric.rank]"},
    "the average of step 1", "This is the rank's own code alone")
answers.mistake("adds_up_its_own_first", {
    "sum(said)": "sum(said[(fabric.rank + k) % len(said)] for k in range(len(said)))",
}, "the average of step", "differs by rank in its last bits", "Add up in one order on all ranks")
answers.mistake("takes_its_own_from_where_it_was_not_rounded", {
    "average = sum(said) / fabric.world_size": """
        rest = sum(own for rank, own in enumerate(said) if rank != fabric.rank)
        average = (rest + said[fabric.rank]) / fabric.world_size
    """,
}, "the average of step", "differs by rank in its last bits")

answers.mistake("drops_what_the_bits_do_not_say", {"total - said[fabric.rank]": "torch.zeros_like(total)"},
    "the residual of step 1", "It is empty: the rest that the bits leave out is lost for ever")
answers.mistake("keeps_what_it_has_sent", {"total - said[fabric.rank]": "total"},
    "the residual of step 1", "It still has the numbers that were sent")
answers.mistake("forgets_to_hand_on_the_residual", {"total - said[fabric.rank]": "residual"},
    "the residual of step 1", "It is as it was before the step")
answers.mistake("keeps_of_the_last_gradient_alone", {"total - said[fabric.rank]": "gradient - said[fabric.rank]"},
    "the residual of step 1", "What was left of older steps is lost")
answers.mistake("keeps_the_old_residual_twice", {"total - said[fabric.rank]": "residual + total - said[fabric.rank]"},
    "the residual of step 1", "The old residual is in it twice")
answers.mistake("takes_the_average_off", {"total - said[fabric.rank]": "total - average"},
    "the residual of step 1", "The average was taken off")
answers.mistake("keeps_the_error_with_the_wrong_sign", {"total - said[fabric.rank]": "said[fabric.rank] - total"},
    "the residual of step 1", "It has the wrong sign")
answers.mistake("divides_the_residual", {"total - said[fabric.rank]": "(total - said[fabric.rank]) / fabric.world_size"},
    "the residual of step 1", "It was divided by the number of ranks")
answers.mistake("does_not_know_that_0_was_sent", {
    "total - said[fabric.rank]": "total - total.sign() * scales.repeat_interleave(block)[: len(total)]",
}, "the residual of step 1", "A 0 was sent as +1 times its scale")

answers.mistake("adds_to_the_residual_in_place", {"gradient + residual": "residual.add_(gradient)"},
    "are right, but rank 0: in step 1 the residual was changed in place")
answers.mistake("adds_to_the_gradient_in_place", {"gradient + residual": "gradient.add_(residual)"},
    "are right, but rank 0: in step 1 the gradient was changed in place")
answers.mistake("writes_the_rest_into_the_residual", {"total - said[fabric.rank]": "residual.copy_(total - said[fabric.rank])"},
    "are right, but rank 0: in step 1 the residual was changed in place")
answers.mistake("returns_the_residual_first", {
    "return average, total - said[fabric.rank]": "return total - said[fabric.rank], average",
}, "the average of step 1", "This is the residual: the average comes first")
answers.mistake("adds_up_in_float64_and_returns_it", {
    "sum(said) / fabric.world_size": "torch.stack(said).double().mean(0)",
}, "the average of step 1 as float32, got float64. Something on the way had a wider dtype")
answers.mistake("returns_the_average_alone", {"return average, total - said[fabric.rank]": "return average"},
    "expected (average, residual), got a tensor of shape [22]")

answers.mistake("has_a_byte_for_each_sign", {
    "np.packbits(total.numpy() >= 0)": "total.numpy() >= 0",
    "np.unpackbits(bits.numpy(), count=len(total))": "bits.numpy()",
}, "are right, but", "Does each sign take a byte?", "np.packbits puts 8 signs into a byte")
answers.mistake("sends_signs_as_numbers", {SAID: """
    bits = torch.where(total >= 0, 1, -1).to(total.dtype)
    pairs = zip(gathered(fabric, bits), gathered(fabric, scales), strict=True)
    said = [signs * sizes.repeat_interleave(block)[: len(total)] for signs, sizes in pairs]
"""}, "are right, but", "travelled as numbers of the gradient's dtype")
answers.mistake("sends_what_the_others_should_work_out", {
    SAID: "said = list(gathered(fabric, decoded(bits, scales)))",
}, "are right, but", "all its numbers in the gradient's dtype to every other: nothing is saved")
answers.mistake("all_reduces_what_the_bits_say", {
    SAID: "said = {fabric.rank: decoded(bits, scales)}",
    "sum(said)": "all_reduce(fabric, said[fabric.rank].clone())",
}, "are right, but", "an all-reduce of the gradient's numbers: nothing is saved")
answers.mistake("packs_each_block_on_its_own", {
    "np.packbits(total.numpy() >= 0)": "np.concatenate([np.packbits(part.numpy() >= 0) for part in total.split(block)])",
    "np.unpackbits(bits.numpy(), count=len(total))": """
        np.concatenate([
            np.unpackbits(part.numpy())[: len(total) - k * block if (k + 1) * block > len(total) else block]
            for k, part in enumerate(bits.split((block + 7) // 8))
        ])
    """,
}, "are right, but", "bytes, slightly more than the 774 bytes of 3 bytes", "Do you pack each block on its own?")
answers.mistake("sends_scales_of_8_bytes", {"gathered(fabric, scales)": "gathered(fabric, scales.double()).to(total.dtype)"},
    "3 ranks, 37 numbers of float32", "are right, but", "Do the scales take 8 bytes?")
answers.mistake("sends_scales_in_bfloat16", {"gathered(fabric, scales)": "gathered(fabric, scales.bfloat16()).to(total.dtype)"},
    "the average of step 1", "Numbers that went through bfloat16 or float16 are off by this much")
answers.mistake("sends_a_scale_for_each_number", {
    SAID: """
        wide = gathered(fabric, scales.repeat_interleave(block)[: len(total)])
        said = [decoded(*code) for code in zip(gathered(fabric, bits), wide, strict=True)]
    """,
    "scales.repeat_interleave(block)[: len(total)]\n": "scales\n",
}, "are right, but", "A scale travelled with each number")


@answers.is_wrong("are right, but", "2 x", "Do you add up buffers with zeros for the other ranks' codes")
def adds_up_buffers_of_codes(fabric, gradient, residual, block):
    n, me, total = fabric.world_size, fabric.rank, gradient + residual
    sizes = torch.stack([part.abs().mean() for part in total.split(block)])
    scales = total.new_zeros(n, len(sizes))
    codes = torch.zeros(n, -(-len(total) // 8), dtype=torch.uint8)
    scales[me], codes[me] = sizes, torch.from_numpy(np.packbits(total.numpy() >= 0))
    all_reduce(fabric, scales)
    all_reduce(fabric, codes)
    said = []
    for bits, size in zip(codes, scales, strict=True):
        ones = torch.from_numpy(np.unpackbits(bits.numpy(), count=len(total))).bool()
        said.append(torch.where(ones, 1, -1) * size.repeat_interleave(block)[: len(total)])
    return torch.stack(said).mean(0), total - said[me]


@answers.is_wrong("the average of step 1", "The packed bytes were added up")
def adds_up_packed_bytes(fabric, gradient, residual, block):
    """A ring that adds up codes: a byte of eight signs and another are no eight sums, and a byte ends at 255."""
    n, total = fabric.world_size, gradient + residual
    scales = torch.stack([part.abs().mean() for part in total.split(block)])
    own = torch.from_numpy(np.packbits(total.numpy() >= 0))

    def decoded(bits, scales):
        ones = torch.from_numpy(np.unpackbits(bits.numpy(), count=len(total)))
        return (2 * ones.to(total.dtype) - 1) * scales.repeat_interleave(block)[: len(total)]

    average = decoded(all_reduce(fabric, own.clone()), all_reduce(fabric, scales.clone()) / n)
    return average, total - decoded(own, scales)


@answers.is_wrong("isend", "wait")
def waits_for_nothing(fabric, gradient, residual, block):
    n, me, total = fabric.world_size, fabric.rank, gradient + residual
    sizes = torch.stack([part.abs().mean() for part in total.split(block)])
    own = torch.from_numpy(np.packbits(total.numpy() >= 0))
    for step in range(1, n):
        fabric.isend(own, to=(me + step) % n)
        fabric.isend(sizes, to=(me + step) % n)
    codes = {me: (own, sizes)}
    for rank in range(n):
        if rank != me:
            codes[rank] = torch.empty_like(own), torch.empty_like(sizes)
            for part in codes[rank]:
                fabric.recv(part, frm=rank)
    said = []
    for rank in range(n):
        ones = torch.from_numpy(np.unpackbits(codes[rank][0].numpy(), count=len(total))).bool()
        said.append(torch.where(ones, 1, -1) * codes[rank][1].repeat_interleave(block)[: len(total)])
    return torch.stack(said).mean(0), total - said[me]


@answers.is_wrong("Receive before you wait: isend, then recv, then wait for the handle")
def sends_before_it_receives(fabric, gradient, residual, block):
    n, me, total = fabric.world_size, fabric.rank, gradient + residual
    sizes = torch.stack([part.abs().mean() for part in total.split(block)])
    own = torch.from_numpy(np.packbits(total.numpy() >= 0))
    codes = {me: (own, sizes)}
    for step in range(1, n):
        to, source = (me + step) % n, (me - step) % n
        codes[source] = torch.empty_like(own), torch.empty_like(sizes)
        for mine, theirs in zip(codes[me], codes[source], strict=True):
            if mine.nbytes > 2**17:
                fabric.send(mine, to=to)
                fabric.recv(theirs, frm=source)
            else:
                handle = fabric.isend(mine, to=to)
                fabric.recv(theirs, frm=source)
                handle.wait()
    said = []
    for rank in range(n):
        ones = torch.from_numpy(np.unpackbits(codes[rank][0].numpy(), count=len(total))).bool()
        said.append(torch.where(ones, 1, -1) * codes[rank][1].repeat_interleave(block)[: len(total)])
    return torch.stack(said).mean(0), total - said[me]


@answers.spoils()
def knows_the_first_case_alone(fabric, gradient, residual, block):
    """Elsewhere each rank codes its own numbers, as it should, and averages nothing."""
    average, kept = as_its_text_says(fabric, gradient, residual, block)
    return (average, kept) if len(gradient) == 22 else (torch.zeros_like(average), kept)


def sends_all_numbers(fabric, gradient, residual, block):
    total = gradient + residual
    scales = torch.stack([part.abs().mean() for part in total.split(block)]).repeat_interleave(block)[: len(total)]
    own = torch.where(total >= 0, scales, -scales)
    return sum(gathered(fabric, own)) / fabric.world_size, total - own


answers.spoil("sends_all_numbers_and_keeps_what_it_has_sent", {"total - own": "total"}, of=sends_all_numbers)
