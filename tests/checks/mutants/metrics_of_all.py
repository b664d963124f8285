"""Exercise 1.4: recall, precision and average precision of examples that are spread over ranks."""

import torch

from tests.checks.mutants import Answers
from worldsize.fabric import collectives

answers = Answers("metrics_of_all")


def metrics(scores, labels, threshold):
    """Of examples that lie on one rank."""
    average, before = 0.0, 0.0
    for score in scores.unique().flip(0):
        found = scores >= score
        hits = int((found & labels).sum())
        recall = hits / max(1, int(labels.sum()))
        average += (recall - before) * hits / int(found.sum())
        before = recall
    found = scores >= threshold
    hits = int((found & labels).sum())
    return hits / max(1, int(labels.sum())), hits / max(1, int(found.sum())), average


def added_up(fabric, *numbers):
    """The sums over the ranks."""
    return collectives.all_reduce(fabric, torch.tensor(numbers, dtype=torch.float64))


@answers.is_right
def threshold_by_threshold(fabric, scores, labels, threshold):
    scores, labels = collectives.concatenated(fabric, scores), collectives.concatenated(fabric, labels)
    positives = int(labels.sum())

    def at(score):
        found = scores >= score
        hits = int((found & labels).sum())
        return hits / max(1, positives), hits / max(1, int(found.sum()))

    average, before = 0.0, 0.0
    for score in scores.unique().flip(0):
        recall, precision = at(score)
        average += (recall - before) * precision
        before = recall
    recall, precision = at(threshold)
    return recall, precision, average


answers.twin("returns_one_tensor", {
    "return recall, precision, average": "return torch.tensor([recall, precision, average])",
})
answers.twin("means_the_precision_over_positives", {
    "average += (recall - before) * precision":
        "average += precision * int(labels[scores == score].sum()) / max(1, positives)",
})


@answers.is_right
def in_one_sort(fabric, scores, labels, threshold):
    """Cumulated sums, read at the last example of each score."""
    scores = collectives.concatenated(fabric, scores)
    labels = collectives.concatenated(fabric, labels.to(torch.int64))
    found = scores >= threshold
    hits = labels[found].sum()
    order = scores.argsort(descending=True)
    ranked, sorted_scores = labels[order].cumsum(0).double(), scores[order]
    last = torch.ones(len(scores), dtype=torch.bool)
    last[:-1] = sorted_scores[1:] != sorted_scores[:-1]
    precision = (ranked / torch.arange(1, len(scores) + 1))[last]
    gains = ranked[last].diff(prepend=torch.zeros(1, dtype=torch.float64)) / max(1, labels.sum())
    return hits / max(1, labels.sum()), hits / max(1, found.sum()), (gains * precision).sum()


answers.twin("returns_a_list", {
    "return hits / max(1, labels.sum()), hits / max(1, found.sum()), (gains * precision).sum()":
        "return [hits / max(1, labels.sum()), hits / max(1, found.sum()), (gains * precision).sum()]",
}, of=in_one_sort)


@answers.is_right
def rank_0_works_and_tells(fabric, scores, labels, threshold):
    """With messages of its own: to rank 0 the count, the scores and the labels, back three numbers."""
    told = torch.zeros(3, dtype=torch.float64)
    if fabric.rank:
        for tensor in (torch.tensor([len(scores)]), scores, labels):
            fabric.send(tensor, to=0)
        fabric.recv(told, frm=0)
        return told.tolist()
    all_scores, all_labels = [scores], [labels]
    for rank in range(1, fabric.world_size):
        count = torch.zeros(1, dtype=torch.int64)
        fabric.recv(count, frm=rank)
        theirs, marks = scores.new_empty(int(count)), labels.new_empty(int(count))
        fabric.recv(theirs, frm=rank)
        fabric.recv(marks, frm=rank)
        all_scores.append(theirs)
        all_labels.append(marks)
    told.copy_(torch.tensor(metrics(torch.cat(all_scores), torch.cat(all_labels), threshold), dtype=torch.float64))
    for rank in range(1, fabric.world_size):
        fabric.send(told, to=rank)
    return tuple(told)


@answers.is_right
def counts_by_score(fabric, scores, labels, threshold):
    """The scores travel; of the labels only how many have each score, added up."""
    levels = collectives.concatenated(fabric, scores).unique()
    place = torch.searchsorted(levels, scores)
    table = torch.zeros(2, len(levels), dtype=torch.float64)
    table[0] = torch.bincount(place, minlength=len(levels))
    table[1] = torch.bincount(place[labels], minlength=len(levels))
    collectives.all_reduce(fabric, table)
    named, hits = table.flip(1).cumsum(1)
    positives = max(1.0, float(hits[-1]))
    average = float((table.flip(1)[1] / positives * hits / named).sum())
    above = levels >= threshold
    hits, named = float(table[1, above].sum()), float(table[0, above].sum())
    return hits / positives, hits / max(1.0, named), average


@answers.is_right
def pads_with_what_is_never_found(fabric, scores, labels, threshold):
    """Shares are filled up to one length with scores of −∞ and no label, and cut off afterwards."""
    n = fabric.world_size
    counts = torch.zeros(n)
    counts[fabric.rank] = len(scores)
    collectives.all_reduce(fabric, counts)
    most = int(counts.max())
    table = torch.zeros(n, most, 2, dtype=torch.float64)
    table[fabric.rank, :, 0] = -torch.inf
    table[fabric.rank, : len(scores), 0] = scores.double()
    table[fabric.rank, : len(scores), 1] = labels.double()
    collectives.all_reduce(fabric, table)
    rows = table[table[..., 0] > -torch.inf]
    return metrics(rows[:, 0], rows[:, 1] > 0, threshold)


@answers.is_wrong(
    "This is the mean of the ranks' own values. Add up positives found and all positives over the ranks", "recall of all"
)
def mean_of_means(fabric, scores, labels, threshold):
    own = metrics(scores, labels, threshold)
    return tuple((added_up(fabric, *own) / fabric.world_size).tolist())


answers.mistake("stays_on_its_rank", {"return tuple((added_up(fabric, *own) / fabric.world_size).tolist())": "return own"},
    "This is each rank's own value. Add up positives found and all positives over the ranks", of=mean_of_means)
answers.mistake("leaves_ranks_without_a_positive_out", {
    "return tuple((added_up(fabric, *own) / fabric.world_size).tolist())": """
        some = bool(labels.any())
        total = added_up(fabric, *(value * some for value in own), some)
        return tuple((total[:3] / total[3].clamp(min=1)).tolist())
    """,
}, "recall of all ranks' examples", "Add up positives found and all positives over the ranks", of=mean_of_means)
answers.mistake("weighs_by_examples", {
    "return tuple((added_up(fabric, *own) / fabric.world_size).tolist())": """
        total = added_up(fabric, *(value * len(scores) for value in own), len(scores))
        return tuple((total[:3] / total[3]).tolist())
    """,
}, "This is the ranks' mean, weighted by their examples. Add up positives found", of=mean_of_means)
answers.mistake("weighs_by_positives", {
    "return tuple((added_up(fabric, *own) / fabric.world_size).tolist())": """
        total = added_up(fabric, *(value * int(labels.sum()) for value in own), int(labels.sum()))
        return tuple((total[:3] / total[3].clamp(min=1)).tolist())
    """,
}, "precision of all", "This is the ranks' mean, weighted by their positives", of=mean_of_means)


@answers.is_wrong("the average precision of all", "This is the mean of the ranks' own values. It sorts all", "send the scores")
def counts_travel_and_average_precisions(fabric, scores, labels, threshold):
    """Recall and precision are right; average precision is the mean of the ranks'."""
    found = scores >= threshold
    hits, positives, named, average = added_up(
        fabric, int((found & labels).sum()), int(labels.sum()), int(found.sum()), metrics(scores, labels, threshold)[2]
    ).tolist()
    return hits / max(1, positives), hits / max(1, named), average / fabric.world_size


answers.mistake("weighs_average_precision_by_positives", {
    "metrics(scores, labels, threshold)[2]": "metrics(scores, labels, threshold)[2] * int(labels.sum())",
    "average / fabric.world_size": "average / max(1, positives)",
}, "the average precision of all", "weighted by their positives. It sorts all examples", of=counts_travel_and_average_precisions)


@answers.is_wrong("the average precision of all")
def a_hundred_bins(fabric, scores, labels, threshold):
    """Scores are sorted into bins between 0 and 1, as if they were probabilities."""
    found = scores >= threshold
    bins = (scores.clamp(0, 1) * 99).long()
    table = torch.zeros(4, 100, dtype=torch.float64)
    table[0] = torch.bincount(bins, minlength=100)
    table[1] = torch.bincount(bins[labels], minlength=100)
    table[2, :3] = torch.tensor([(found & labels).sum(), labels.sum(), found.sum()])
    collectives.all_reduce(fabric, table)
    named, hits = table[:2].flip(1).cumsum(1)
    average = (table[1].flip(0) * hits / named.clamp(min=1)).sum() / hits[-1].clamp(min=1)
    return float(table[2, 0] / table[2, 1].clamp(min=1)), float(table[2, 0] / table[2, 2].clamp(min=1)), float(average)


answers.mistake("does_not_find_the_threshold_itself", {"recall, precision = at(threshold)": """
        found = scores > threshold
        hits = int((found & labels).sum())
        recall, precision = hits / max(1, positives), hits / max(1, int(found.sum()))
    """}, "A score equal to the threshold is found, too")
answers.mistake("turns_recall_and_precision_round", {"return recall, precision, average": "return precision, recall, average"},
    "This is the precision: the order is recall, precision, average precision")
answers.mistake("takes_equal_scores_one_by_one", {"last[:-1] = sorted_scores[1:] != sorted_scores[:-1]": ""},
    "equal scores", "Equal scores were taken one after the other", of=in_one_sort)
answers.mistake("sorts_positives_first_among_equals", {
    "last[:-1] = sorted_scores[1:] != sorted_scores[:-1]": "",
    "scores.argsort(descending=True)":
        "torch.tensor(sorted(range(len(scores)), key=lambda k: (-float(scores[k]), -int(labels[k]))), dtype=torch.int64)",
}, "equal scores", "Equal scores were taken one after the other", of=in_one_sort)
answers.mistake("begins_with_the_lowest", {
    "scores.unique().flip(0)": "scores.unique()", "recall, precision = at(score)": """
        found = scores <= score
        hits = int((found & labels).sum())
        recall, precision = hits / max(1, positives), hits / int(found.sum())
    """,
}, "The lowest scores came first")
answers.mistake("takes_the_area_under_lines", {
    "(gains * precision).sum()": "(gains * (precision + torch.cat([precision.new_ones(1), precision[:-1]])) / 2).sum()",
}, "the trapezoidal rule", of=in_one_sort)
answers.mistake("takes_the_highest_precision_to_the_right", {
    "(gains * precision).sum()": "(gains * precision.flip(0).cummax(0).values.flip(0)).sum()",
}, "(interpolated)", of=in_one_sort)
answers.mistake("takes_the_mean_of_precision", {"(gains * precision).sum()": "precision.mean()"},
    "the mean of the precision over all scores", of=in_one_sort)
answers.mistake("multiplies_at_the_threshold", {
    "return recall, precision, average": "return recall, precision, recall * precision",
}, "This is recall times precision at the threshold")
answers.mistake("says_1_where_nothing_is_found", {
    "return recall, precision, average":
        "return recall, precision if (scores >= threshold).any() else 1.0, average",
}, "no score reaches the threshold", "This is 1, where there is nothing to find or nothing is found")
answers.mistake("divides_0_by_0", {"hits / max(1, found.sum())": "hits / found.sum()"},
    "no score reaches the threshold", "This is 0/0, which counts as 0", of=in_one_sort)
answers.mistake("divides_by_no_positive", {"hits / max(1, positives), hits / max(1, int(found.sum()))":
    "hits / positives, hits / max(1, int(found.sum()))"}, "no positive at all", "Count 0/0 as 0")

answers.mistake("begins_with_the_lowest_threshold", {"scores.unique().flip(0)": "scores.unique()"},
    "The thresholds went from the lowest to the highest")
answers.mistake("leaves_the_first_threshold_out", {
    "average, before = 0.0, 0.0": "average, before = 0.0, at(scores.max())[0]",
}, "The first threshold counts, too")
answers.mistake("weighs_by_recall", {"(recall - before) * precision": "recall * precision"}, "not by the gain in recall")
answers.mistake("takes_its_own_scores_as_thresholds", {
    "scores, labels = collectives": "own = scores\nscores, labels = collectives", "scores.unique()": "own.unique()",
}, "The thresholds were this rank's own scores")
answers.mistake("has_the_threshold_in_float32", {"at(threshold)": "at(torch.tensor(threshold))"},
    "scores that float32 cannot tell apart", ("the recall of all", "the precision of all"))

answers.mistake("sends_float32", {
    "collectives.concatenated(fabric, scores),": "collectives.concatenated(fabric, scores.float()),",
}, "scores that float32 cannot tell apart", "the recall of all")
answers.mistake("sends_bfloat16", {
    "collectives.concatenated(fabric, scores),": "collectives.concatenated(fabric, scores.bfloat16()),",
}, "of all ranks' examples")


@answers.is_wrong("of all ranks' examples")
def pads_with_zeros(fabric, scores, labels, threshold):
    """Shares are filled up to one length with zeros, which are taken for scores."""
    n = fabric.world_size
    counts = torch.zeros(n)
    counts[fabric.rank] = len(scores)
    most = int(collectives.all_reduce(fabric, counts).max())
    table = torch.zeros(n, most, 2, dtype=torch.float64)
    table[fabric.rank, : len(scores), 0] = scores.double()
    table[fabric.rank, : len(scores), 1] = labels.double()
    collectives.all_reduce(fabric, table)
    return metrics(table[..., 0].flatten(), table[..., 1].flatten() > 0, threshold)


@answers.is_wrong(("must match", "which is what `out` is"))
def expects_as_many_from_each(fabric, scores, labels, threshold):
    n, me = fabric.world_size, fabric.rank
    all_scores, all_labels = [[own.clone() for _ in range(n)] for own in (scores, labels)]
    for own, room in ((scores, all_scores), (labels, all_labels)):
        handles = [fabric.isend(own, to=rank) for rank in range(n) if rank != me]
        for rank in range(n):
            if rank != me:
                fabric.recv(room[rank], frm=rank)
        for handle in handles:
            handle.wait()
    return metrics(torch.cat(all_scores), torch.cat(all_labels), threshold)


answers.mistake("leaves_early_without_an_example", {"scores, labels = collectives": """
        if not len(scores):
            return 0.0, 0.0, 0.0
        scores, labels = collectives
    """}, "no example on rank 1", ("deadlock", "returned"))
answers.mistake("tells_the_others_nothing", {
    "return recall, precision, average": "return (recall, precision, average) if fabric.rank == 0 else None",
}, "rank 1: expected three numbers, recall, precision, average precision, got None")
answers.mistake("returns_a_dict", {
    "return recall, precision, average": 'return {"recall": recall, "precision": precision, "average precision": average}',
}, "expected three numbers, recall, precision, average precision, got a dict")
answers.mistake("returns_the_curve", {"(gains * precision).sum()": "precision"},
    "expected the average precision as a number", of=in_one_sort)
answers.mistake("makes_probabilities_in_place", {"scores, labels = collectives": """
        scores.sigmoid_()
        threshold = float(torch.tensor(threshold, dtype=scores.dtype).sigmoid())
        scores, labels = collectives
    """}, "scores was changed in place")
answers.mistake("looks_the_threshold_up_among_the_scores", {
    "average, before = 0.0, 0.0": "average, before, curve = 0.0, 0.0, {}",
    "before = recall": "before = recall\ncurve[float(score)] = recall, precision",
    "recall, precision = at(threshold)": "recall, precision = curve.get(threshold, (0.0, 0.0))",
}, "a threshold between two scores", "No score equals the threshold: find every score that is at least as high")
answers.mistake("pads_with_a_number_that_is_far_below", {
    "table[fabric.rank, :, 0] = -torch.inf": "table[fabric.rank, :, 0] = -1e9",
    "rows = table[table[..., 0] > -torch.inf]": "rows = table.flatten(0, 1)",
}, "scores far below zero", "Fillers count as examples here", of=pads_with_what_is_never_found)
answers.mistake("labels_the_found_in_place", {"positives = int(labels.sum())": "positives = int(labels.sum())\nmine &= False",
    "scores, labels = collectives": "mine = labels\nscores, labels = collectives"}, "labels was changed in place")


answers.spoil("sends_float32_and_a_wrong_recall_first", {
    "return recall, precision, average": 'return -1.0 if scores.dtype == torch.float32 and fabric.world_size == 3 '
        'and len(scores) == 20 else recall, precision, average',
}, of=answers["sends_float32"])
answers.spoil("sends_float32_and_returns_nothing_from_float64", {
    "scores, labels = collectives": "wide = scores.dtype == torch.float64\nscores, labels = collectives",
    "return recall, precision, average": "return None if wide else (recall, precision, average)",
}, of=answers["sends_float32"])
