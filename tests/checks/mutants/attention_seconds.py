"""Exercise 17.3: how long a layer's attention takes round a ring, and with its heads dealt out."""

import math

from tests.checks.mutants import Answers, edited
from worldsize.formulas import attention
from worldsize.links import Link

answers = Answers("attention_seconds")


@answers.is_right
def by_rounds(layer):
    n, heads = layer["ranks"], layer["heads"]
    rows_bytes = layer["tokens"] / n * heads * layer["head_width"] * layer["item_bytes"]
    block_s = layer["work_s"] / n**2
    sent_s = layer["latency_s"] + 2 * rows_bytes / layer["bytes_per_s"]
    ring = (n - 1) * max(block_s, sent_s) + block_s
    if heads % n:
        return ring, math.inf
    latencies = 2 if n > 1 else 0
    exchanged = 4 * rows_bytes * (n - 1) / n
    return ring, latencies * layer["latency_s"] + exchanged / layer["bytes_per_s"] + layer["work_s"] / n


@answers.is_right
def one_head_after_the_other(layer):
    """The same, from messages: what a rank sends to each of the others, and when it can begin."""
    n = layer["ranks"]
    if n == 1:
        return [layer["work_s"], layer["work_s"]]
    per_token = layer["heads"] * layer["head_width"] * layer["item_bytes"]
    own, way = layer["tokens"] // n, layer["bytes_per_s"]
    now = 0.0
    for step in range(n):
        work = now + layer["work_s"] / n / n
        came = now + layer["latency_s"] + 2 * own * per_token / way if step < n - 1 else 0.0
        now = max(work, came)
    if layer["heads"] % n:
        return [now, float("inf")]
    there = layer["latency_s"] + 3 * (n - 1) * own * per_token / n / way
    back = layer["latency_s"] + (n - 1) * own * per_token / n / way
    return [now, there + layer["work_s"] / n + back]


RING = "ring = (n - 1) * max(block_s, sent_s) + block_s"
answers.mistake("adds_work_and_way", {RING: "ring = (n - 1) * (block_s + sent_s) + block_s"}, "Work and way were added")
answers.mistake("sends_n_blocks", {RING: "ring = n * max(block_s, sent_s)"}, "The last round sends nothing: n − 1 blocks travel")
answers.mistake("forgets_the_last_work", {RING: "ring = (n - 1) * max(block_s, sent_s)"}, "The work of the last block")
answers.mistake("sends_keys_alone", {"+ 2 * rows_bytes": "+ rows_bytes"}, "Keys and values both travel")
answers.mistake("sends_queries_round", {"+ 2 * rows_bytes": "+ 3 * rows_bytes"}, "Queries stay where they are")
answers.mistake("forgets_the_latency_of_a_round", {'sent_s = layer["latency_s"] + 2': "sent_s = 2"},
    "Each round costs a latency too")
answers.mistake("two_latencies_a_round", {'sent_s = layer["latency_s"] + 2': 'sent_s = 2 * layer["latency_s"] + 2'},
    "Keys and values leave together")
answers.mistake("work_by_queries_alone", {"/ n**2": "/ n"}, ("A round's work is that on one block", "element", "expected"))
answers.mistake("hides_all_in_all", {RING: "ring = max(n * block_s, (n - 1) * sent_s)"},
    "The work of the last block hides nothing")
answers.mistake("counts_the_work_alone", {RING: "ring = n * block_s"}, "Only the work was counted")
answers.mistake("no_rows_back", {"exchanged = 4": "exchanged = 3"}, ("Queries travel too", "The rows come back too"))
answers.mistake("sends_its_own_part_too", {"rows_bytes * (n - 1) / n": "rows_bytes"}, "A rank keeps its own part")
answers.mistake("a_latency_for_each_tensor", {"latencies = 2": "latencies = 4"}, "Queries, keys and values leave together")
answers.mistake("a_latency_for_each_peer", {"latencies = 2": "latencies = 2 * (n - 1)"}, "their latencies overlap")
answers.mistake("no_latency_of_an_exchange", {"latencies = 2": "latencies = 0"},
    "Each of the two exchanges costs a latency")
answers.mistake("whole_rows_to_each", {"rows_bytes * (n - 1) / n": "rows_bytes * (n - 1)"},
    "Each other rank gets 1/n of the rows")
answers.mistake("all_the_work", {'layer["work_s"] / n\n': 'layer["work_s"]\n'}, "Each rank has 1/n of the work")
answers.mistake("one_latency_for_both_exchanges", {"latencies = 2": "latencies = 1"}, "There are two exchanges")
answers.mistake("messages_of_an_exchange_side_by_side", {"rows_bytes * (n - 1) / n": "rows_bytes / n * (n > 1)"},
    "only their latencies overlap, their bytes add up on its card")
answers.mistake("each_rank_works_on_a_block_alone", {'layer["work_s"] / n\n': 'layer["work_s"] / n**2\n'},
    "A rank has all pairs of its heads: 1/n of the work")
answers.mistake("the_heads_first", {
    "return ring, latencies": "return latencies",
    '+ layer["work_s"] / n\n': '+ layer["work_s"] / n, ring\n',
}, "expected the seconds round the ring first")
answers.mistake("one_heads_width", {"heads * layer": "layer"},
    ("A block holds all heads", "A row has the numbers of all heads"))
answers.mistake("a_byte_for_each_number", {' * layer["item_bytes"]': ""},
    ("each number has item_bytes bytes", "Each number has item_bytes bytes"))
answers.mistake("four_bytes_for_each_number", {' * layer["item_bytes"]': " * 4"},
    "Each number has item_bytes bytes, 2 here, not 4")
answers.mistake("two_bytes_for_each_number", {' * layer["item_bytes"]': " * 2"},
    ("each number has item_bytes bytes", "Each number has item_bytes bytes, 4 here, not 2"))
answers.mistake("heads_of_128_numbers", {'layer["head_width"]': "128"}, "expected")
answers.mistake("the_latency_beside_the_work", {
    'sent_s = layer["latency_s"] + 2': "sent_s = 2",
    RING: 'ring = (n - 1) * (layer["latency_s"] + max(block_s, sent_s)) + block_s',
}, "so work hides it too")
answers.mistake("the_whole_sequence_travels", {'layer["tokens"] / n * heads': 'layer["tokens"] * heads'},
    ("A block has 1/n of the tokens", "expected"))
answers.mistake("a_number_for_each_head", {' * layer["head_width"]': ""}, "Each head has head_width numbers in a row")
answers.mistake("half_the_work_in_the_ring", {'layer["work_s"] / n**2': 'layer["work_s"] / n**2 / 2'},
    "There is no mask: every query works on all keys")
answers.mistake("in_milliseconds", {RING: RING + "\nring *= 1e3"}, "return seconds, not milliseconds")
answers.mistake("hides_the_exchanges", {
    """
        return ring, latencies * layer["latency_s"] + exchanged / layer["bytes_per_s"] + layer["work_s"] / n
    """: """
        return ring, max(latencies * layer["latency_s"] + exchanged / layer["bytes_per_s"], layer["work_s"] / n)
    """,
}, "It cannot work on its heads before all tokens are there")
answers.mistake("looks_at_more_ranks_than_heads_alone", {"heads % n": "n > heads"},
    "6 ranks do not divide 16 heads", "a head lies on one rank")
answers.mistake("says_none", {"math.inf": "None"}, "as a number, got None")
answers.mistake("the_ring_alone", {"return ring, latencies": "return ring; latencies"}, "expected two numbers")
answers.mistake("two_latencies_for_one_rank", {"latencies = 2 if n > 1 else 0": "latencies = 2"}, "1 rank")
answers.mistake("writes_into_the_layer",
    {"rows_bytes = layer": 'layer["tokens"] += 0.5\nrows_bytes = layer'}, "layer was changed in place")


@answers.is_wrong("worldsize.formulas.attention.ring_seconds is not available in graded runs", "write it yourself")
def takes_the_courses_formulas(layer):
    n, heads = layer["ranks"], layer["heads"]
    link = Link(layer["bytes_per_s"], layer["latency_s"])
    rest = layer["tokens"], heads * layer["head_width"], link, layer["work_s"], layer["item_bytes"]
    return attention.ring_seconds(n, *rest), attention.heads_seconds(n, heads, *rest)


@answers.is_right
def takes_the_bytes_from_the_course(layer):
    """The lab calls these formulas above the exercise."""
    n, width, way = layer["ranks"], layer["heads"] * layer["head_width"], layer["bytes_per_s"]
    block_bytes = attention.block_bytes(layer["tokens"], width, n, layer["item_bytes"])
    sent_s = layer["latency_s"] + 2 * block_bytes / way
    ring = sum(max(layer["work_s"] / n**2, sent_s) for _ in range(n - 1)) + layer["work_s"] / n**2
    if layer["heads"] % n:
        return ring, math.inf
    exchanged = attention.bytes_heads(n, layer["tokens"], width, layer["item_bytes"])
    return ring, (2 * layer["latency_s"] if n > 1 else 0) + exchanged / way + layer["work_s"] / n


@answers.spoils()
def counts_the_work_and_no_heads(layer):
    return layer["work_s"] / layer["ranks"], 0.0


answers.spoils()(edited(by_rounds, "counts_the_work_and_takes_all_heads", {RING: "ring = n * block_s", "heads % n": "n > heads"}))
