"""Exercise 16.3: measured steps of real clusters, predicted from 64 GPUs and one node."""

import numpy as np

from tests.checks.mutants import Answers
from worldsize.formulas import robust_fit
from worldsize.formulas.training_step import Plan, Transformer, seconds

answers = Answers("predict_steps")

MEMORY = 1


def work(
    row, bubble=True, recomputed=True, off_node=True, scores=True, head=True, gradient=True, hop=True, tensor=True, in_node=True
):
    """Seconds by the hardware's sheet: matrix products, memory traffic, NVLink, network; and layers times micro-batches."""
    t, p, hidden, tokens = row["tensor"], row["pipeline"], row["hidden"], row["micro_batch"] * row["tokens"]
    act, micro_batches = tokens * hidden, row["global_batch"] / (row["data"] * row["micro_batch"])
    passes = 3 + (row["gpus"] > 8 and recomputed)
    rounds = micro_batches + bubble * (p - 1)
    layers = row["layers"] / p * rounds

    flops = layers * passes * (24 * act * hidden + 4 * act * row["tokens"]) / t + head * micro_batches * 6 * act * 51_200 / t
    table = row["heads"] * tokens * row["tokens"] * scores
    traffic = layers * passes * (18.5 * act + 14 * act / t + 10.75 * table / t)
    messages = tensor * layers * (2 * passes - 2) * 2 * (t - 1) / t * 2 * act
    gradients = gradient * 2 * (row["data"] - 1) / row["data"] * 2 * 12 * row["layers"] * hidden**2 / (t * p)
    hops = hop * (p > 1) * rounds * 4 * act / t

    inside = outside = 0.0
    if (t > 8 and off_node) or not in_node:
        outside += messages
    else:
        inside += messages
    if row["gpus"] <= 8:
        inside += gradients + hops
    else:
        outside += min(t, 8) * gradients + 8 * hops
    return np.array([flops / 312e12, traffic / 2e12, inside / 300e9, outside / 100e9, layers])


def busy(row):
    """The part of the micro-batches' turns that is no bubble: m / (m + p − 1)."""
    micro_batches = row["global_batch"] / (row["data"] * row["micro_batch"])
    return micro_batches / (micro_batches + row["pipeline"] - 1)


def table(rows, parts=work):
    return np.array([parts(row) for row in rows]), np.array([row.get("iteration_s", np.nan) for row in rows])


def of_memory(single_node, parts=work):
    """Times over the sheet's, from the rows of one node on which a model is not cut: their widths differ."""
    rows = [row for row in single_node if row["tensor"] == row["pipeline"] == 1 and row["micro_batch"] >= 4]
    return robust_fit.fit(*table(rows, parts))[MEMORY]


def fitted(few, single_node, rows, parts=work):
    """Predictions, and what those for `few` are off: logarithms."""
    constants = robust_fit.fit(*table(few, parts), known={MEMORY: of_memory(single_node, parts)})
    at_few, took = table(few, parts)
    return table(rows, parts)[0] @ constants, np.abs(np.log(took / (at_few @ constants)))


def intervals(middles, share):
    return [(m / (1 + share), m, m * (1 + share)) for m in middles]


@answers.is_right
def memory_from_one_node_and_four_constants(few, single_node, rows):
    middles, off = fitted(few, single_node, rows)
    return intervals(middles, np.quantile(off, 0.9, method="higher"))


@answers.is_right
def memory_from_every_run_of_the_node(few, single_node, rows):
    memory = robust_fit.fit(*table(single_node))[MEMORY]
    at_few, took = table(few)
    constants = robust_fit.fit(at_few, took, known={MEMORY: memory})
    off = np.abs(np.log(took / (at_few @ constants)))
    return intervals(table(rows)[0] @ constants, np.quantile(off, 0.9, method="higher"))


@answers.is_right
def plain_least_squares_of_relative_errors(few, single_node, rows):
    """No weights against outliers, and an interval from their standard deviation."""
    whole = [row for row in single_node if row["tensor"] == row["pipeline"] == 1 and row["micro_batch"] >= 4]
    parts, took = table(whole)
    used = [0, 1, 4]
    memory = np.linalg.lstsq(parts[:, used] / took[:, None], np.ones(len(took)), rcond=None)[0][1]

    parts, took = table(few)
    others = [0, 2, 3, 4]
    rest = 1 - parts[:, MEMORY] * memory / took
    constants = np.linalg.lstsq(parts[:, others] / took[:, None], rest, rcond=None)[0]

    def say(parts):
        return parts[:, MEMORY] * memory + parts[:, others] @ constants

    spread = np.std(np.log(took / say(parts)))
    return np.array(intervals(say(table(rows)[0]), 1.8 * spread))


@answers.is_right
def both_files_in_one_fit(few, single_node, rows):
    """The rows of one node that cut nothing count as much together as the few; they have an overhead of their own."""
    whole = [row for row in single_node if row["tensor"] == row["pipeline"] == 1 and row["micro_batch"] >= 4]
    weight = (len(few) / len(whole)) ** 0.5

    def stack(rows, ours):
        parts, took = table(rows)
        products, rest = parts[:, :1], parts[:, 1:4]
        own = np.hstack([products * ours, parts[:, 4:] * ours, products * (1 - ours), parts[:, 4:] * (1 - ours)])
        return np.hstack([rest, own]), took

    left, right = [], []
    for part, ours, factor in ((few, 1, 1.0), (whole, 0, weight)):
        parts, took = stack(part, ours)
        left.append(factor * parts / took[:, None])
        right.append(np.full(len(took), factor))
    constants = np.linalg.lstsq(np.vstack(left), np.concatenate(right), rcond=None)[0]
    middles = stack(rows, 1)[0] @ constants
    parts, took = stack(few, 1)
    off = np.sort(np.abs(np.log(took / (parts @ constants))))
    return intervals(middles, off[-2])


@answers.is_right
def memory_from_bootstraps_and_a_width_of_a_finite_sample(few, single_node, rows):
    """The middle constant of resampled rows; of n residuals the one of rank 0.9 (n + 1)."""
    whole = [row for row in single_node if row["tensor"] == row["pipeline"] == 1]
    draws = np.random.default_rng(5)
    found = [of_memory([whole[k] for k in draws.integers(0, len(whole), len(whole))]) for _ in range(15)]
    at_few, took = table(few)
    constants = robust_fit.fit(at_few, took, known={MEMORY: np.median(found)})
    off = np.sort(np.abs(np.log(took / (at_few @ constants))))
    return intervals(table(rows)[0] @ constants, off[int(np.ceil(0.9 * (len(off) + 1))) - 1])


@answers.is_right
def a_width_of_the_t_distribution(few, single_node, rows):
    """Four constants were fitted, so there are four degrees of freedom fewer; 1.72 is the 95 % quantile of 22."""
    whole = [row for row in single_node if row["tensor"] == row["pipeline"] == 1]
    memory = robust_fit.fit(*table(whole))[MEMORY]
    at_few, took = table(few)
    constants = robust_fit.fit(at_few, took, known={MEMORY: memory})
    sigma = (np.log(took / (at_few @ constants)) ** 2).sum() / (len(took) - 4)
    return intervals(table(rows)[0] @ constants, 1.72 * sigma**0.5)


@answers.is_wrong("on another cluster", "In your predictions the network has NVLink's constant")
def fitted_to_one_node_alone(few, single_node, rows):
    """Then nothing has been seen to cross the network, and it is taken for as fast as NVLink."""

    def parts(row):
        products, memory, inside, outside, layers = work(row)
        return np.array([products, memory, inside + outside, layers])

    constants = robust_fit.fit(*table(single_node, parts))
    return intervals(table(rows, parts)[0] @ constants, 0.2)


answers.mistake("takes_tensor_16_for_nvlink",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row, off_node=False))"},
    "too short", "send the bytes of a tensor group of 16 over NVLink; such a group spans two nodes")
answers.mistake("no_gradients",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row, gradient=False))"},
    "on another cluster", "of few micro-batches", "leave out the all-reduce of the gradients")
answers.mistake("no_hop",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row, hop=False))"},
    "on another cluster", "of one layer a stage", "leave out the hops to the next stage")
answers.mistake("no_head",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row, head=False))"},
    "on another cluster", "of a single layer", "leave out the output layer")
answers.mistake("no_hop_in_the_bubble",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row, hop=busy(row)))"},
    "on another cluster", "of one layer a stage are", "too short",
    "Your predictions have m hops: each of the m + p − 1 micro-batches has one")
answers.mistake("the_head_in_the_bubble_too",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row, head=1 / busy(row)))"},
    "on another cluster", "of one layer a stage are", "too long",
    "Your predictions have the head m + p − 1 times: the last stage has it m times")
answers.mistake("a_hop_in_each_layer_turn",
    {"fitted(few, single_node, rows)":
        'fitted(few, single_node, rows, lambda row: work(row, hop=row["layers"] / row["pipeline"]))'},
    "on another cluster", "Your predictions have a hop in each layer turn")
answers.mistake("gradients_in_each_micro_batch",
    {"fitted(few, single_node, rows)":
        'fitted(few, single_node, rows, lambda row: work(row, gradient=row["global_batch"] / row["data"] / row["micro_batch"]))'},
    "rows of 256 and 512 GPUs", "Your predictions add up gradients in each micro-batch: that comes once a step")
answers.mistake("gradients_in_each_layer_turn",
    {"fitted(few, single_node, rows)":
        "fitted(few, single_node, rows, lambda row: work(row, gradient=work(row)[4]))"},
    "is a part counted too often, so that the fit makes it 0?")
answers.mistake("a_micro_batch_too_many",
    {"fitted(few, single_node, rows)": """fitted(few, single_node, rows, lambda row: work(row) + (
        work(row, head=False, gradient=False) * row["layers"] / row["pipeline"] / work(row)[4]))"""},
    "a step lasts as long as m + p micro-batches: it is m + p − 1")
answers.mistake("an_overhead_in_each_micro_batch",
    {"fitted(few, single_node, rows)": """fitted(few, single_node, rows, lambda row: work(row) * [
        1, 1, 1, 1, row["pipeline"] / row["layers"]])"""},
    "Your predictions have an overhead in each micro-batch: it comes in each layer turn")
answers.mistake("every_stage_has_all_layers",
    {"fitted(few, single_node, rows)": """fitted(few, single_node, rows, lambda row: work(row) + (row["pipeline"] - 1) * (
        work(row, head=False, hop=False, gradient=False)))"""},
    "of the model 12288 wide", "In your predictions a stage has all the layers: it has layers / p")
answers.mistake("gradients_over_nvlink",
    {"fitted(few, single_node, rows)": """fitted(few, single_node, rows, lambda row: work(row, gradient=row["gpus"] <= 8) + (
        (work(row)[3] - work(row, gradient=False)[3]) / 3 * np.eye(5)[2]))"""},
    "on another cluster", "Your predictions add up gradients over NVLink: copies are on other nodes")
answers.mistake("hops_over_nvlink",
    {"fitted(few, single_node, rows)": """fitted(few, single_node, rows, lambda row: work(row, hop=row["gpus"] <= 8) + (
        (work(row)[3] - work(row, hop=False)[3]) / 3 * np.eye(5)[2]))"""},
    "on another cluster", "Your predictions send hops over NVLink: the next stage is on another node")
answers.mistake("hops_and_gradients_over_nvlink",
    {"fitted(few, single_node, rows)": """fitted(few, single_node, rows, lambda row: work(
        row, hop=row["gpus"] <= 8, gradient=row["gpus"] <= 8) + (
        (work(row)[3] - work(row, hop=False, gradient=False)[3]) / 3 * np.eye(5)[2]))"""},
    "on another cluster", "Your predictions send hops and gradients over NVLink: both go to other nodes")
answers.mistake("a_micro_batch_is_one_sequence",
    {"fitted(few, single_node, rows)": """fitted(few, single_node, rows, lambda row: work(row) + (row["micro_batch"] - 1) * (
        busy(row) * work(row, head=False, gradient=False) + work(row, hop=False, gradient=False)
        - work(row, head=False, hop=False, gradient=False)))"""},
    "fix that first", "In your predictions m is a copy's sequences: divide them by the micro-batch's")
answers.mistake("a_fifth_whatever_the_rows_say", {'np.quantile(off, 0.9, method="higher")': "0.2"},
    "scatter by 1 %", "your intervals are ± 18.3 % wide", "Take the width from the rows")
answers.mistake("nine_in_ten_of_what_was_fitted_to", {"off[-2]": "np.quantile(off, 0.9)"},
    "of the 83 rows lie in your intervals", "nine in ten should", of=both_files_in_one_fit)


answers.mistake("five_free_constants", {
    "memory = robust_fit.fit(*table(single_node))[MEMORY]": "",
    "robust_fit.fit(at_few, took, known={MEMORY: memory})": "robust_fit.fit(at_few, took)",
}, "49 % off on average, and 6.23 % on the rows of 64", "A fit cannot tell apart parts of a step that grow alike",
    "In your predictions the matrix products take no time", of=memory_from_every_run_of_the_node)
answers.mistake("no_memory_traffic", {
    "products, memory, inside, outside, layers = work(row)": "",
    "np.array([products, memory, inside + outside, layers])": "work(row) * [1, 0, 1, 1, 1]",
    "table(single_node, parts)": "table(few, parts)",
}, "rows of 256 and 512 GPUs", "expected at most 18 %", "In your predictions memory traffic takes no time",
    of=fitted_to_one_node_alone)
answers.mistake("no_bubble",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row, bubble=False))",
     'np.quantile(off, 0.9, method="higher")': "0.2"},
    "rows of 256 and 512 GPUs", "leave out the bubble: a step lasts as long as m + p − 1 micro-batches")
answers.mistake("no_overhead_of_a_layer",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row) * [1, 1, 1, 1, 0])",
     'np.quantile(off, 0.9, method="higher")': "0.2"},
    "rows of 256 and 512 GPUs", "too short", "In your predictions a layer turn has no overhead")
answers.mistake("no_matrix_products",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row) * [0, 1, 1, 1, 1])"},
    "rows of 256 and 512 GPUs", "too short", "In your predictions the matrix products take no time")
answers.mistake("no_bytes_over_nvlink",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row) * [1, 1, 0, 1, 1])"},
    "In your predictions the bytes over NVLink take no time")
answers.mistake("one_constant_for_both_links", {
    "fitted(few, single_node, rows)":
        "fitted(few, single_node, rows, lambda row: work(row) @ np.diag([1, 1, 0, 1, 1]) + work(row)[2] * np.eye(5)[3])",
}, "In your predictions the network has NVLink's constant")
answers.mistake("no_bytes_over_the_network",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row) * [1, 1, 1, 0, 1])"},
    "In your predictions the bytes over the network take no time")
answers.mistake("no_tensor_messages",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row, tensor=False))"},
    "rows of 256 and 512 GPUs", "too short", "leave out the messages between the ranks that share a layer")
answers.mistake("tensor_messages_always_over_the_network",
    {"fitted(few, single_node, rows)": "fitted(few, single_node, rows, lambda row: work(row, in_node=False))"},
    "on another cluster", "the bytes of a tensor group stay in the node and go with NVLink's constant")
answers.mistake("every_constant_from_the_node", {
    "memory = robust_fit.fit(*table(single_node))[MEMORY]": "",
    "at_few, took = table(few)": "at_few, took = table(single_node)",
    ", known={MEMORY: memory})": ")",
}, "with tensor 16", "In your predictions the bytes over the network take no time", "fit the network's to the rows of 64 GPUs",
    of=memory_from_every_run_of_the_node)
answers.mistake("nvlinks_constant_of_the_node_for_the_network", {
    "memory = robust_fit.fit(*table(single_node))[MEMORY]": "node = robust_fit.fit(*table(single_node))",
    "known={MEMORY: memory}": "known={MEMORY: node[MEMORY], 2: node[2], 3: node[2]}",
}, "on another cluster", "In your predictions the network has NVLink's constant", "fit the network's to the rows of 64 GPUs",
    of=memory_from_every_run_of_the_node)


@answers.is_wrong("on the rows of 64 GPUs, whose seconds were given", "fix that first")
def one_share_of_the_peak(few, single_node, rows):
    """FLOPs over peak, with the mean share that the few reached."""

    def ideal(row):
        layer = 96 * row["hidden"] ** 2 * (1 + row["tokens"] / (6 * row["hidden"]))
        return row["global_batch"] * row["tokens"] * row["layers"] * layer / (312e12 * row["gpus"])

    share = np.mean([ideal(row) / row["iteration_s"] for row in few])
    return intervals([ideal(row) / share for row in rows], 0.2)


@answers.is_wrong("rows of 256 and 512 GPUs", "off on average")
def least_squares_of_the_logarithms(few, single_node, rows):
    """A power law in every column."""
    names = ["micro_batch", "tensor", "data", "pipeline"]

    def logs(row):
        whole = row["global_batch"] * row["layers"] * row["hidden"] ** 2 / row["gpus"]
        return [1, *(np.log(row[name]) for name in names)], np.log(whole)

    left, right = zip(*map(logs, few), strict=True)
    took = np.log([row["iteration_s"] for row in few])
    weights = np.linalg.lstsq(np.array(left), took - np.array(right), rcond=None)[0]
    left, right = zip(*map(logs, rows), strict=True)
    return intervals(np.exp(np.array(left) @ weights + np.array(right)), 0.2)


@answers.is_wrong("another cluster", "do all your constants come from the given rows?")
def constants_that_were_known_before(few, single_node, rows):
    constants = [1 / 0.813, 1 / 0.567, 1 / 1.047, 1 / 1.044, 1.91e-3]
    return intervals(table(rows)[0] @ constants, 0.2)


@answers.is_wrong("another cluster", "do all your constants come from the given rows?")
def the_courses_formula_and_one_factor(few, single_node, rows):
    def formula(row):
        model = Transformer(row["layers"], row["hidden"], row["heads"], row["tokens"])
        plan = Plan(
            row["tensor"], row["pipeline"], row["data"], row["micro_batch"], row["global_batch"], recomputed="whole"
        )
        return sum(seconds(model, plan).values())

    factor = np.median([row["iteration_s"] / formula(row) for row in few])
    return intervals([factor * formula(row) for row in rows], 0.2)


@answers.is_wrong("another cluster", "do all your constants come from the given rows?")
def memory_at_the_sheets_speed_and_a_half(few, single_node, rows):
    at_few, took = table(few)
    constants = robust_fit.fit(at_few, took, known={MEMORY: 1.5})
    return intervals(table(rows)[0] @ constants, 0.2)


answers.mistake("nothing_recomputed_and_nothing_off_the_node", {
    "fitted(few, single_node, rows)":
        "fitted(few, single_node, rows, lambda row: work(row, recomputed=False, off_node=False))",
}, "14.2 % off on average", "expected at most 12 %", "A fit cannot tell apart parts of a step that grow alike")
answers.mistake("no_interval", {'np.quantile(off, 0.9, method="higher")': "0.0"},
    "0 % of the 83 rows lie in your intervals", "at least 85 % must")
answers.mistake("twice_as_long_or_half", {'np.quantile(off, 0.9, method="higher")': "1.0"},
    "half-width is on average 75 % of the prediction", "an interval that holds everything says nothing")
answers.mistake("an_interval_of_the_mean",
    {'np.quantile(off, 0.9, method="higher")': "1.645 * off.std() / len(off) ** 0.5"},
    "rows lie in your intervals", "at least 85 % must")
answers.mistake("sorts_the_few", {
    "middles, off = fitted": 'few.sort(key=lambda row: row["iteration_s"])\nmiddles, off = fitted',
}, "few was changed in place")
answers.mistake("notes_its_middles_in_the_rows", {
    "return intervals": """
        for row, middle in zip(rows, middles, strict=True):
            row["iteration_s"] = float(middle)
        return intervals
    """,
}, "rows was changed in place")
answers.mistake("middles_alone", {'intervals(middles, np.quantile(off, 0.9, method="higher"))': "middles"},
    "row 0: expected (low, middle, high) in seconds")
answers.mistake("in_milliseconds", {"intervals(middles": "intervals(1e3 * middles"},
    "Return seconds, not milliseconds")
answers.mistake("sorted_by_time", {"intervals(middles": "intervals(np.sort(middles)"},
    "The predictions are right in another order")
answers.mistake("leaves_out_what_it_was_fitted_to",
    {"fitted(few, single_node, rows)": 'fitted(few, single_node, [row for row in rows if row["gpus"] > 64])'},
    "expected 109 intervals, one for each row, got 83")


def says_little(few, single_node, rows):
    middles, _ = fitted(few, single_node, rows)
    return intervals(middles, 1.0)


answers.spoil("says_little_in_milliseconds", {"intervals(middles": "intervals(1e3 * middles"}, of=says_little)
