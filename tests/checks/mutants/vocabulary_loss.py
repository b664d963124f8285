"""Exercise 12.3: a cross-entropy whose logits lie on the ranks by words, and its gradient."""

import math

import torch
from torch.nn import functional as F

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce, broadcast

answers = Answers("vocabulary_loss")


@answers.is_right
def in_one_gather(fabric, logits, targets, first):
    local = targets - first
    mine = (local >= 0) & (local < logits.shape[1])
    facts = logits.new_zeros(fabric.world_size, 3, len(targets))
    highest, sums, right = facts[fabric.rank]
    highest[:] = F.pad(logits, (0, 1), value=-math.inf).max(dim=1).values
    sums[:] = (logits - highest[:, None]).exp().sum(dim=1)
    right[mine] = logits[mine, local[mine]]
    all_gather(fabric, facts.view(-1))

    highest, sums, right = facts.unbind(1)
    top = highest.max(dim=0).values
    log_sum = top + (sums * (highest - top).exp()).sum(dim=0).log()
    loss = (log_sum - right.sum(dim=0)).mean()
    gradient = (logits - log_sum[:, None]).exp()
    gradient[mine, local[mine]] -= 1
    return loss, gradient / len(targets)


@answers.is_right
def by_three_all_reduces(fabric, logits, targets, first):
    """The maximum by a sum of rows that are 0 elsewhere."""
    tokens, own = logits.shape
    shared = torch.zeros(fabric.world_size, tokens, dtype=logits.dtype)
    shared[fabric.rank] = logits.max(dim=1).values if own else -math.inf
    highest = all_reduce(fabric, shared).max(dim=0).values
    powers = (logits - highest[:, None]).exp()
    sums = all_reduce(fabric, powers.sum(dim=1))
    local = targets - first
    hot = torch.zeros_like(logits)
    for token, word in enumerate(local.tolist()):
        if 0 <= word < own:
            hot[token, word] = 1
    right = all_reduce(fabric, (logits * hot).sum(dim=1))
    loss = (highest + sums.log() - right).mean()
    return loss.item(), (powers / sums[:, None] - hot) / tokens


@answers.is_right
def with_a_root(fabric, logits, targets, first):
    """Rank 0 adds up what all have found, and tells it."""
    n, tokens = fabric.world_size, len(targets)
    local = targets - first
    mine = (local >= 0) & (local < logits.shape[1])
    found = torch.stack([torch.logsumexp(logits, dim=1), torch.zeros_like(targets, dtype=logits.dtype)])
    found[1, mine] = logits[mine].gather(1, local[mine, None])[:, 0]
    if fabric.rank == 0:
        for rank in range(1, n):
            other = torch.empty_like(found)
            fabric.recv(other, frm=rank)
            found = torch.stack([torch.logaddexp(found[0], other[0]), found[1] + other[1]])
    else:
        fabric.send(found, to=0)
    broadcast(fabric, [found])
    gradient = torch.exp(logits - found[0][:, None])
    gradient[mine, local[mine]] -= 1
    return (found[0] - found[1]).mean(), gradient / tokens


@answers.is_right
def in_double_precision(fabric, logits, targets, first):
    loss, gradient = with_a_root(fabric, logits.double(), targets, first)
    return loss, gradient.to(logits.dtype)


@answers.is_right
def by_autograd(fabric, logits, targets, first):
    """The softmax by hand, and the right word's part of the gradient by autograd."""
    tokens, n = len(targets), fabric.world_size
    own = torch.logsumexp(logits, dim=1)
    shared = own.new_zeros(n, tokens)
    shared[fabric.rank] = own
    log_sum = torch.logsumexp(all_gather(fabric, shared.view(-1)).view(n, tokens), dim=0)
    local = targets - first
    mine = (local >= 0) & (local < logits.shape[1])
    watched = logits.clone().requires_grad_()
    told = torch.where(mine, watched.sum(dim=1) * 0, 0.0).index_put((mine.nonzero()[:, 0],), watched[mine, local[mine]])
    (-told.sum() / tokens).backward()
    right = all_reduce(fabric, told.detach().clone())
    return (log_sum - right).mean(), watched.grad + torch.exp(logits - log_sum[:, None]) / tokens


REDUCED = by_three_all_reduces
answers.mistake("subtracts_nothing", {
    "highest = all_reduce(fabric, shared).max(dim=0).values": "highest = torch.zeros(tokens, dtype=logits.dtype)",
}, "3 ranks with 31, 30, 30 words", "got inf", "subtract each token's highest logit before exp", of=REDUCED)
answers.mistake("subtracts_its_own_maximum_alone", {
    "highest = all_reduce(fabric, shared).max(dim=0).values": "highest = shared[fabric.rank]",
}, "the sums were added as they are: first bring them to one scale", of=REDUCED, harmless_at=(1,))
answers.mistake("adds_sums_of_different_scales", {"(sums * (highest - top).exp())": "sums"},
    "the sums were added unscaled: multiply a rank's sum by e to the power of its highest logit minus that of all ranks",
    harmless_at=(1,))
answers.mistake("subtracts_the_highest_of_all_tokens", {
    "highest = all_reduce(fabric, shared).max(dim=0).values":
        "highest = all_reduce(fabric, shared).max().expand(tokens)",
}, "each token's about 400 above the one before", "got -inf", "subtract each token's highest logit", of=REDUCED)
answers.mistake("sums_its_own_words_alone", {"all_reduce(fabric, powers.sum(dim=1))": "powers.sum(dim=1)"},
    "The sum has this rank's own words alone", of=REDUCED)
answers.mistake("exchanges_nothing", {"all_gather(fabric, facts.view(-1))": "", "facts.unbind(1)": "facts[fabric.rank, :, None]"},
    "expected a loss of", "Nothing was exchanged: this is the loss of a vocabulary of this rank's words")
answers.mistake("takes_the_maximum_of_zeros_too", {
    "max(dim=0).values": "max(dim=0).values.clamp(min=0)",
}, "1 rank with 37 words, 4 tokens, logits about -900", "subtract each token's highest logit before exp", of=REDUCED)

answers.mistake("leaves_the_right_word_to_its_rank", {"right.sum(dim=0)": "right[fabric.rank]"},
    "The right word's logit is missing where another rank has that word")
answers.mistake("counts_a_border_on_two_ranks", {
    "if 0 <= word < own:\n    hot[token, word] = 1": "if 0 <= word <= own and own:\n    hot[token, min(word, own - 1)] = 1",
}, "A right word on the border of two parts was counted on both", of=REDUCED)
answers.mistake("misses_the_first_word", {"0 <= word < own": "0 < word < own"},
    "The right word's logit is missing where it is the first of a rank's words", of=REDUCED)
answers.mistake("takes_targets_for_columns", {"local = targets - first": "local = targets"},
    "column 0 of `logits` is the word `first`")
answers.mistake("misses_the_last_word", {"0 <= word < own": "0 <= word < own - 1"},
    "The right word's logit is missing where it is the last of a rank's words", of=REDUCED)
answers.mistake("thinks_that_parts_are_equal", {"local = targets - first": "local = targets - fabric.rank * logits.shape[1]"},
    "Ranks have different numbers of words: take `first`", harmless_at=(1,))
answers.mistake("never_adds_the_highest_again", {"log_sum = top + (sums": "log_sum = (sums"},
    "A token's highest logit was subtracted before exp, and not added again")
answers.mistake("gives_the_loss_of_its_own_targets", {
    "loss = (log_sum - right.sum(dim=0)).mean()": "loss = (log_sum - right.sum(dim=0))[mine].sum() / len(targets)",
}, "Only the tokens whose right word this rank has are in it")
answers.mistake("gives_the_mean_of_its_own_targets", {
    "loss = (log_sum - right.sum(dim=0)).mean()": "loss = (log_sum - right.sum(dim=0))[mine].sum() / max(1, mine.sum())",
}, "This is the mean over the tokens whose right word this rank has")
answers.mistake("makes_zeros_of_float32", {"facts = logits.new_zeros(": "facts = torch.zeros("},
    "source and destination dtypes match", "make it with logits.new_zeros")
answers.mistake("looks_up_every_target", {
    "right[mine] = logits[mine, local[mine]]": "right[:] = logits[range(len(local)), local]",
}, "out of bounds", "maybe not this one")
answers.mistake("gives_the_clamped_word_to_all", {
    "right[mine] = logits[mine, local[mine]]": "right[:] = logits[range(len(local)), local.clamp(0, logits.shape[1] - 1)]",
}, "told the logit of their nearest word", harmless_at=(1,))
answers.mistake("adds_the_highest_up", {
    "highest = all_reduce(fabric, shared).max(dim=0).values": "highest = all_reduce(fabric, shared).sum(dim=0)",
}, "`all_reduce` would add the ranks' highest up", of=REDUCED, harmless_at=(1,))

answers.mistake("takes_the_largest_for_the_right_word", {"right.sum(dim=0)": "right.max(dim=0).values"},
    "Of what the ranks told of the right word's logit, the largest was taken")
answers.mistake("divides_the_loss_by_the_ranks_too",
    {"(log_sum - right.sum(dim=0)).mean()": "(log_sum - right.sum(dim=0)).mean() / fabric.world_size"},
    "every token is in it once, so divide by the tokens alone")
# A softmax below e^-745 is 0.
answers.mistake("takes_the_log_of_the_softmax", {
    "right = all_reduce(fabric, (logits * hot)": "chance = all_reduce(fabric, (powers / sums[:, None] * hot)",
    "loss = (highest + sums.log() - right).mean()": "loss = -chance.log().mean()",
}, "far apart between ranks", "take log Σ − z of the right word, not the log of a softmax", of=REDUCED)
answers.mistake("subtracts_rank_0s_maximum", {
    "highest = all_reduce(fabric, shared).max(dim=0).values": "highest = all_reduce(fabric, shared)[0].clamp(min=-3000)",
}, "far apart between ranks", "subtract each token's highest logit", of=REDUCED)
answers.mistake("counts_its_words_in_int8", {"local = targets - first": "local = (targets - first).to(torch.int8).long()"},
    "2 ranks with 20000, 20300 words", "expected a loss of")
answers.mistake("counts_the_whole_vocabulary_in_int16", {
    "local = targets - first": "local = targets.to(torch.int16).long() - first",
}, "2 ranks with 20000, 20300 words", "expected a loss of")
answers.mistake("sums_over_the_tokens", {"(log_sum - right.sum(dim=0)).mean()": "(log_sum - right.sum(dim=0)).sum()"},
    "This is the sum over the tokens: divide by the number of tokens")
answers.mistake("takes_a_mean_of_means", {
    "loss = (highest + sums.log() - right).mean()": """
        own_loss = (highest + sums.log() - right)[hot.sum(dim=1) > 0]
        loss = all_reduce(fabric, own_loss.sum()[None] / max(len(own_loss), 1))[0] / fabric.world_size
    """,
}, "a mean of the ranks' means", of=REDUCED)
answers.mistake("returns_losses_of_tokens", {"loss = (log_sum - right.sum(dim=0)).mean()": "loss = log_sum - right.sum(dim=0)"},
    "expected the loss as one number, got")
answers.mistake("returns_the_loss_alone", {"return loss, gradient / len(targets)": "return loss"},
    "expected two things, the loss and the gradient of its logits")
answers.mistake("goes_through_float32", {
    "(logits - highest[:, None]).exp().sum": "(logits - highest[:, None]).float().exp().sum",
}, "expected a loss of", "Numbers that went through float32 are off by this much")
answers.mistake("sends_float32", {
    "all_gather(fabric, facts.view(-1))":
        "facts = all_gather(fabric, facts.float().view(-1)).view(facts.shape).to(logits.dtype)",
}, "expected a loss of", "Numbers that went through float32 are off by this much")
answers.mistake("stumbles_over_a_rank_without_words", {
    "logits.max(dim=1).values if own else -math.inf": "logits.max(dim=1).values",
}, "5 ranks with 1, 1, 1, 0, 0 words", "A rank may have no word", of=REDUCED)
answers.mistake("works_in_the_logits", {"gradient = (logits - log_sum[:, None]).exp()": """
    gradient = logits.sub_(log_sum[:, None]).exp_()
"""}, "`logits` was changed in place")

answers.mistake("gives_the_gradient_of_the_sum", {"gradient / len(targets)": "gradient"},
    "the sum of the tokens' losses: divide by the number of tokens")
answers.mistake("gives_the_softmax", {"gradient[mine, local[mine]] -= 1": ""}, "This is the softmax alone: subtract 1")
answers.mistake("takes_1_off_in_every_row", {
    "gradient[mine, local[mine]] -= 1": """
        if logits.shape[1]:
            gradient[range(len(local)), local.clamp(0, logits.shape[1] - 1)] -= 1
    """,
}, "1 was subtracted in every row, even where the right word is another rank's")
answers.mistake("takes_the_softmax_of_its_own_words", {"(logits - log_sum[:, None]).exp()": "logits.softmax(dim=1)"},
    "The softmax is over this rank's own words")
answers.mistake("divides_the_gradient_by_the_ranks_too",
    {"gradient / len(targets)": "gradient / len(targets) / fabric.world_size"},
    "It was divided by the number of ranks, too: divide by the tokens alone")
answers.mistake("divides_the_gradient_by_its_own_targets", {"gradient / len(targets)": "gradient / max(1, int(mine.sum()))"},
    "It was divided by the tokens whose right word this rank has")
answers.mistake("turns_the_sign_round", {"gradient / len(targets)": "-gradient / len(targets)"}, "The sign is reversed")
answers.mistake("returns_the_gradient_transposed", {"gradient / len(targets)": "gradient.T / len(targets)"},
    "of shape [5, 31], got shape")

@answers.is_wrong("the loss and its gradient are right, but all ranks together sent", "Do the logits travel?")
def gathers_the_logits(fabric, logits, targets, first):
    n, rank = fabric.world_size, fabric.rank
    others = [other for other in range(n) if other != rank]
    counts = torch.zeros(n, dtype=torch.int64)
    counts[rank] = logits.shape[1]
    all_reduce(fabric, counts)
    parts = [logits.new_empty(len(targets), int(many)) for many in counts]
    parts[rank] = logits.clone()
    handles = [fabric.isend(logits.contiguous(), to=other) for other in others]
    for other in others:
        fabric.recv(parts[other], frm=other)
    for handle in handles:
        handle.wait()
    whole = torch.cat(parts, dim=1).requires_grad_()
    loss = F.cross_entropy(whole, targets)
    loss.backward()
    return loss, whole.grad[:, first : first + logits.shape[1]]


@answers.is_wrong("the loss and its gradient are right, but all ranks together sent", "Do the logits travel?")
def sums_up_the_whole_table(fabric, logits, targets, first):
    """As the maximum above, with all words."""
    n = fabric.world_size
    last = torch.zeros(n, dtype=torch.int64)
    last[fabric.rank] = first + logits.shape[1]
    whole = logits.new_zeros(len(targets), int(all_reduce(fabric, last).max()))
    whole[:, first : first + logits.shape[1]] = logits
    all_reduce(fabric, whole)
    gradient = whole.softmax(dim=1) - F.one_hot(targets, whole.shape[1])
    return F.cross_entropy(whole, targets), gradient[:, first : first + logits.shape[1]] / len(targets)


answers.mistake("says_0_where_it_has_no_words", {"value=-math.inf": "value=-math.inf if logits.shape[1] else 0.0"},
    "its highest logit is -inf")
answers.mistake("sends_before_it_receives", {"""
    all_gather(fabric, facts.view(-1))
""": """
    others = [rank for rank in range(fabric.world_size) if rank != fabric.rank]
    for other in others:
        fabric.send(facts[fabric.rank], to=other)
    for other in others:
        fabric.recv(facts[other], frm=other)
"""}, "deadlock")

SUBTRACTS_NOTHING = answers.wrong[0][0]
answers.spoil("subtracts_nothing_and_gives_no_gradient", {"(powers / sums[:, None] - hot) / tokens": "hot"}, of=SUBTRACTS_NOTHING)
answers.spoil("subtracts_nothing_and_sends_more", {
    "powers = (logits": "all_reduce(fabric, logits.new_zeros(1000))\npowers = (logits",
}, of=SUBTRACTS_NOTHING)
