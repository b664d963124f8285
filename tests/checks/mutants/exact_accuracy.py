"""Exercise 10.3: an accuracy over ranks whose shares are padded."""

import torch
import torch.distributed as dist

from tests.checks.mutants import Answers

answers = Answers("exact_accuracy")


def hits(share):
    return (share["predicted"] == share["labels"]).double()


def own(share, count):
    """Which of the share's examples are no padding."""
    return torch.arange(len(share["labels"])) * dist.get_world_size() + dist.get_rank() < count


def summed(*numbers):
    totals = torch.tensor([float(n) for n in numbers], dtype=torch.float64)
    dist.all_reduce(totals)
    return totals


@answers.is_right
def with_a_mask(share, count):
    mine = own(share, count)
    right, total = summed((hits(share) * mine).sum(), mine.sum())
    return right / total


@answers.is_right
def by_the_length_of_the_share(share, count):
    n, rank = dist.get_world_size(), dist.get_rank()
    mine = count // n + (rank < count % n)
    right = hits(share)[:mine].sum().reshape(1)
    dist.all_reduce(right)
    return right.item() / count


@answers.is_right
def gathers_all_predictions(share, count):
    """Puts the shares together again as they were dealt, and cuts the padding off."""
    n = dist.get_world_size()
    everyone = [torch.empty_like(share["labels"]) for _ in range(n)]
    dist.all_gather(everyone, (share["predicted"] == share["labels"]).long())
    return float(torch.stack(everyone, dim=1).flatten()[:count].double().mean())


@answers.is_right
def in_float32_with_two_calls(share, count):
    mine = own(share, count)
    right, total = (hits(share)[mine].sum().float(), mine.sum().float())
    dist.all_reduce(right)
    dist.all_reduce(total)
    return right / total


@answers.is_right
def gathers_objects(share, count):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, hits(share)[own(share, count)].tolist())
    judged = [hit for of_rank in everyone for hit in of_rank]
    return sum(judged) / len(judged)


answers.mistake("counts_padded_samples", {"mine = own(share, count)": 'mine = torch.ones(len(share["labels"]))'},
    "4 ranks, 9 examples", "The padding was counted: 12 predictions of 9 examples", harmless_at=(1,))


@answers.is_wrong("The padding was counted: 12 predictions of 9 examples")
def averages_padded_accuracies(share, count):
    return float(summed(hits(share).mean())[0]) / dist.get_world_size()


answers.mistake("divides_padded_hits_by_the_count", {
    "mine = own(share, count)": "",
    "(hits(share) * mine).sum(), mine.sum()": "hits(share).sum(), 0",
    "right / total": "right / count",
}, "Padding was counted among the right ones, though they were divided by")
answers.mistake("averages_the_ranks_own", {
    "right, total = summed((hits(share) * mine).sum(), mine.sum())":
        "mean = hits(share)[mine].mean() if mine.any() else 0.0",
    "right / total": "float(summed(mean)[0]) / dist.get_world_size()",
}, "mean of the ranks' accuracies")
answers.mistake("never_talks",
    {"summed((hits(share) * mine).sum(), mine.sum())": "(hits(share) * mine).sum(), mine.sum()"},
    "2 ranks, 6 examples", "This is each rank's own accuracy")
answers.mistake("drops_the_last_of_every_rank", {
    "mine = own(share, count)": "kept = hits(share)[:-1] if count % dist.get_world_size() else hits(share)",
    "hits(share) * mine": "kept",
    "mine.sum()": "len(kept)",
}, "Every rank left its last example out: padding is on some ranks only")
answers.mistake("returns_the_right_ones", {"return right / total": "return right"},
    "This is the number of right ones: divide by the number of examples")
answers.mistake("rank_0_alone_knows", {
    "return right / total": """
        if dist.get_rank() == 0:
            return right / total
    """,
}, "rank 1: expected the accuracy, one number, got None (does every rank return it?)")
answers.mistake("returns_percent", {"return right / total": "return 100 * right / total"},
    "2 ranks, 6 examples", "This is in percent: expected a fraction, from 0 to 1")


@answers.is_wrong("4 ranks, 9 examples", "One padded example was left out: every rank from count % n on has some")
def leaves_out_the_last_rank_s_padding_alone(share, count):
    """It takes all padding to lie on the last rank; rank 2 has some too."""
    last = dist.get_rank() == dist.get_world_size() - 1 and count % dist.get_world_size() > 0
    kept = hits(share)[:-1] if last else hits(share)
    right, total = summed(kept.sum(), len(kept))
    return right / total


answers.mistake("divides_its_own_right_ones_by_all", {
    "right, total = summed((hits(share) * mine).sum(), mine.sum())": "right = (hits(share) * mine).sum()",
    "right / total": "right / count",
}, "2 ranks, 6 examples", "Each rank divided its own right ones by 6: add them up over the ranks first")
answers.mistake("divides_by_the_ranks_too", {"right / total": "right / count / dist.get_world_size()"},
    "2 ranks, 6 examples", "This is 1/2 of the accuracy: the sum over the ranks was divided by the number of ranks, too")
answers.mistake("divides_by_all_that_was_dealt", {"mine.sum())": 'len(share["labels"]))'},
    "4 ranks, 9 examples", "Padding was left out of the right ones, but they were divided by 12, with padding")
answers.mistake("counts_the_first_padded_one", {"own(share, count)": "own(share, count + 1)"},
    "4 ranks, 9 examples", "A padded example was counted: numbers begin at 0, so number 9 is padding")
answers.mistake("counts_the_first_padded_one_among_the_right_ones",
    {"own(share, count)": "own(share, count + 1)", "right / total": "right / count"},
    "4 ranks, 9 examples", "A padded example was counted: numbers begin at 0, so number 9 is padding")
answers.mistake("leaves_the_last_one_out", {"own(share, count)": "own(share, count - 1)"},
    "2 ranks, 6 examples", "The example with the number count - 1 was left out")
answers.mistake("leaves_the_last_one_out_of_the_right_ones",
    {"own(share, count)": "own(share, count - 1)", "right / total": "right / count"},
    "2 ranks, 6 examples", "The example with the number count - 1 was left out")
answers.mistake("counts_the_wrong_ones", {"hits(share) * mine": "(1 - hits(share)) * mine"}, "This is the share of wrong ones")
# With two ranks and all examples dealt evenly, rank 0 and rank 1 leave one out each.
answers.mistake("drops_the_last_of_the_ranks_from_the_rest_on", {
    "mine = own(share, count)": """
        mine = torch.ones(len(share["labels"]), dtype=torch.bool)
        if dist.get_rank() >= count % dist.get_world_size():
            mine[-1] = False
    """,
    "right / total": "right / count",
}, "2 ranks, 6 examples", "Every rank left its last example out: padding is on some ranks only, and on none where all divide")


@answers.is_wrong("2 ranks, 6 examples: rank", "expected")
def adds_up_whether_there_are_right_ones(share, count):
    """What it gives may look like another mistake in a single case, but not in all."""
    right, _ = summed((hits(share) * own(share, count)).sum().bool(), 0)
    return right / count


answers.mistake("drops_every_incomplete_round",
    {"own(share, count)": 'torch.arange(len(share["labels"])) < count // dist.get_world_size()'},
    "Every rank left its last example out")
answers.mistake("a_rank_with_padding_alone_goes_home", {
    "mine = own(share, count)": """
        mine = own(share, count)
        if not mine.any():
            return 0.0
    """,
}, "even a rank with only padding? The others wait for it")


@answers.is_wrong("4 ranks, 9 examples", "Padding was taken to lie at the end, all on the last rank, as if ranks held blocks")
def cuts_what_was_gathered_in_rank_order(share, count):
    everyone = [torch.empty_like(share["labels"]) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, (share["predicted"] == share["labels"]).long())
    return float(torch.cat(everyone)[:count].double().mean())


answers.mistake("numbers_its_examples_in_blocks", {
    "mine = own(share, count)":
        'mine = dist.get_rank() * len(share["labels"]) + torch.arange(len(share["labels"])) < count',
}, "4 ranks, 9 examples", "Padding was taken to lie at the end, all on the last rank, as if ranks held blocks")
answers.mistake("sorts_the_hits_and_cuts_them", {"torch.cat(everyone)[:count]": "torch.cat(everyone).sort().values[:count]"},
    "4 ranks, 9 examples", "The hits were sorted before they were cut", of=cuts_what_was_gathered_in_rank_order)
answers.mistake("sorts_the_hits_downwards_and_cuts_them", {
    "torch.cat(everyone)[:count]": "torch.cat(everyone).sort(descending=True).values[:count]",
}, "4 ranks, 9 examples", "Sorting the hits loses the place", of=cuts_what_was_gathered_in_rank_order)
answers.mistake("takes_the_padding_to_lie_on_rank_0", {
    "own(share, count)": """
        torch.ones(len(share["labels"]), dtype=torch.bool)
        if dist.get_rank() == 0 and count % dist.get_world_size():
            mine[-(-count % dist.get_world_size()):] = False
    """,
}, "4 ranks, 9 examples: rank 0: expected", "All padding was taken to lie on rank 0")
answers.mistake("takes_the_padding_to_lie_on_the_last_rank", {
    "own(share, count)": """
        torch.ones(len(share["labels"]), dtype=torch.bool)
        if dist.get_rank() == dist.get_world_size() - 1 and count % dist.get_world_size():
            mine[-(-count % dist.get_world_size()):] = False
    """,
}, "4 ranks, 9 examples", "Padding was taken to lie at the end, all on the last rank")
answers.mistake("takes_the_padding_to_lie_on_the_first_ranks", {
    "own(share, count)": """
        torch.ones(len(share["labels"]), dtype=torch.bool)
        if dist.get_rank() < -count % dist.get_world_size():
            mine[-1] = False
    """,
}, "4 ranks, 9 examples", "The ranks below 3 left their last example out: padding is dealt last")
answers.mistake("rounds", {"return right / total": "return round(float(right / total), 2)"},
    "2 ranks, 6 examples", "It was rounded to 2 digits: return the accuracy as it is")


@answers.is_wrong("3 ranks, 7 examples", "of 70,001 right", "can the totals' dtype count this far?")
def counts_in_bytes(share, count):
    mine = own(share, count)
    totals = torch.stack([(hits(share) * mine).sum(), mine.sum()]).to(torch.uint8)
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


answers.mistake("counts_in_int8", {"torch.uint8": "torch.int8"}, "of 70,001 right", "can the totals' dtype count this far?",
    of=counts_in_bytes)
answers.mistake("counts_in_half_precision", {"torch.uint8": "torch.half", "(totals[0] / totals[1]).item()":
    "totals[0].item() / totals[1].item()"}, "of 70,001 right", "can the totals' dtype count this far?", of=counts_in_bytes)


@answers.is_wrong("rank 1: expected", "Only rank 0 has it: dist.reduce gives a sum to one rank, dist.all_reduce to all")
def reduces_to_rank_0(share, count):
    mine = own(share, count)
    totals = torch.stack([(hits(share) * mine).sum(), mine.sum().double()])
    dist.reduce(totals, 0)
    return (totals[0] / totals[1]).item()


answers.mistake("marks_padding_in_its_share", {
    "right, total = summed((hits(share) * mine).sum(), mine.sum())": """
        share["predicted"][~mine] = -1
        right, total = summed(hits(share).sum(), mine.sum())
    """,
}, "the accuracies are right, but rank", "share was changed in place")


@answers.is_wrong("gloo ends a process in which a collective gets a tensor of another length than on other ranks")
def gathers_shares_of_unequal_lengths(share, count):
    mine = hits(share)[own(share, count)]
    everyone = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return torch.cat(everyone).mean().item()
