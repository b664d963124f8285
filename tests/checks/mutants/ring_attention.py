"""Exercise 17.1: attention whose keys and values travel round a ring."""

import threading

import torch

from tests.checks.mutants import Answers, edited
from tests.checks.mutants._attention import attend

answers = Answers("ring_attention")


@answers.is_right
def one_block_ahead(fabric, task):
    n, rank = fabric.world_size, fabric.rank
    k, v = task["k"], task["v"]
    top, total, weighted = None, 0.0, 0.0
    for step in range(n):
        source, handles, coming = (rank - step) % n, [], []
        if step < n - 1:
            handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]
        greatest, sums, values = attend(fabric, task, source, k, v)
        new = greatest if top is None else torch.maximum(top, greatest)
        old_scale = 1.0 if top is None else torch.exp(top - new)
        part_scale = torch.exp(greatest - new)
        total = total * old_scale + sums * part_scale
        weighted = weighted * old_scale + values * part_scale
        top = new
        if step < n - 1:
            rows = len(task["tokens"][(source - 1) % n])
            coming = [x.new_empty(rows, x.shape[1]) for x in (k, v)]
            for x in coming:
                fabric.recv(x, frm=(rank - 1) % n)
            for handle in handles:
                handle.wait()
            k, v = coming
    return weighted / total


answers.twin("round_the_other_way", {
    "source, handles, coming = (rank - step) % n, [], []": "source, handles, coming = (rank + step) % n, [], []",
    "to=(rank + 1) % n": "to=(rank - 1) % n",
    "(source - 1) % n": "(source + 1) % n",
    "frm=(rank - 1) % n": "frm=(rank + 1) % n",
})
answers.twin("keys_and_values_in_one_message", {
    "handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]":
        "handles = [fabric.isend(torch.stack([k, v]), to=(rank + 1) % n)]",
    """
            coming = [x.new_empty(rows, x.shape[1]) for x in (k, v)]
            for x in coming:
                fabric.recv(x, frm=(rank - 1) % n)
    """: """
            coming = k.new_empty(2, rows, k.shape[1])
            fabric.recv(coming, frm=(rank - 1) % n)
    """,
})
answers.twin("makes_room_before_the_work", {
    "handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]": """
        coming = [x.new_empty(len(task["tokens"][source - 1]), len(x[0])) for x in (k, v)]
        handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]
    """,
    "coming = [x.new_empty(rows, x.shape[1]) for x in (k, v)]": "",
})

answers.twin("begins_at_minus_infinity", {
    "top, total, weighted = None, 0.0, 0.0": 'top, total, weighted = task["q"].new_full((len(k), 1), -torch.inf), 0.0, 0.0',
})


@answers.is_right
def by_log_sum_exp(fabric, task):
    """Finished rows and the logarithm of their sum, as FlashAttention hands on."""
    n, me = fabric.world_size, fabric.rank
    before, after = (me - 1) % n, (me + 1) % n
    block, rows, log = (task["k"], task["v"]), None, None
    for step in range(n):
        last = step == n - 1
        sending = [] if last else [fabric.isend(x, to=after) for x in block]
        top, total, weighted = attend(fabric, task, (me - step) % n, *block)
        part, part_log = weighted / total.clamp(min=torch.finfo(total.dtype).tiny), top + torch.log(total)
        if rows is None:
            rows, log = part, part_log
        else:
            both = torch.logaddexp(log, part_log)
            rows, log = rows * torch.exp(log - both) + part * torch.exp(part_log - both), both
        if not last:
            many = len(task["tokens"][(me - step - 1) % n])
            block = tuple(torch.empty(many, x.shape[1], dtype=x.dtype) for x in block)
            for x in block:
                fabric.recv(x, frm=before)
            for handle in sending:
                handle.wait()
    return rows


@answers.is_right
def two_buffers_and_in_place(fabric, task):
    """Two pairs of buffers as large as the longest block, sent and received in turn; sums in place."""
    n, rank = fabric.world_size, fabric.rank
    most = max(map(len, task["tokens"]))
    width, dtype = task["k"].shape[1], task["k"].dtype
    spare = [torch.empty(2, most, width, dtype=dtype) for _ in range(2)]
    here = torch.stack([task["k"], task["v"]])
    top = total = weighted = None
    for step in range(n):
        source = (rank - step) % n
        if step < n - 1:
            handle = fabric.isend(here, to=(rank + 1) % n)
        m, s, o = attend(fabric, task, source, here[0], here[1])
        if step == 0:
            top, total, weighted = m, s, o.clone()
        else:
            grown = torch.maximum(top, m)
            for x, part in ((total, s), (weighted, o)):
                x.mul_(torch.exp(top - grown)).add_(part * torch.exp(m - grown))
            top = grown
        if step < n - 1:
            landing = spare[step % 2].view(-1)[: 2 * len(task["tokens"][(source - 1) % n]) * width].view(2, -1, width)
            fabric.recv(landing, frm=(rank - 1) % n)
            handle.wait()
            here = landing
    return weighted.div_(total)


@answers.is_right
def receives_in_a_thread(fabric, task):
    n, rank = fabric.world_size, fabric.rank
    k, v = task["k"], task["v"]
    parts = []
    for step in range(n):
        source, thread = (rank - step) % n, None
        if step < n - 1:
            handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]
            coming = [k.new_empty(len(task["tokens"][(source - 1) % n]), k.shape[1]) for _ in range(2)]

            def take(coming=coming):
                for x in coming:
                    fabric.recv(x, frm=(rank - 1) % n)

            thread = threading.Thread(target=take)
            thread.start()
        parts = merge(parts, attend(fabric, task, source, k, v))
        if thread:
            thread.join()
            for handle in handles:
                handle.wait()
            k, v = coming
    _, total, weighted = parts
    return weighted / total


def merge(one, other):
    if not one:
        return other
    top = torch.maximum(one[0], other[0])
    scales = torch.exp(one[0] - top), torch.exp(other[0] - top)
    return top, one[1] * scales[0] + other[1] * scales[1], one[2] * scales[0] + other[2] * scales[1]


TOTAL = "total = total * old_scale + sums * part_scale"
WEIGHTED = "weighted = weighted * old_scale + values * part_scale"

answers.mistake("averages_the_softmaxes", {TOTAL: "total = n", WEIGHTED: "weighted = weighted + values / sums"},
    "Each block had its own softmax")
answers.mistake("adds_the_parts_as_they_are", {TOTAL: "total = total + sums", WEIGHTED: "weighted = weighted + values"},
    "bring both to the greater one first")
answers.mistake("leaves_the_old_scale",
    {TOTAL: "total = total + sums * part_scale", WEIGHTED: "weighted = weighted + values * part_scale"},
    "The earlier parts kept their old scale")
answers.mistake("leaves_the_parts_scale",
    {TOTAL: "total = total * old_scale + sums", WEIGHTED: "weighted = weighted * old_scale + values"},
    "A block's part was added in its own scale")
answers.mistake("scales_the_sums_alone", {
    WEIGHTED: "weighted = weighted + values",
}, "the weighted sums of values were not")
answers.mistake("scales_the_values_alone", {TOTAL: "total = total + sums"}, "but the sums of exp were not")
answers.mistake("turns_the_factors_upside_down", {
    "torch.exp(top - new)": "torch.exp(new - top)", "torch.exp(greatest - new)": "torch.exp(new - greatest)",
}, "The factors are upside down")
answers.mistake("keeps_the_first_greatest_score", {"top = new": "top = new if top is None else top"},
    "The greatest score so far stays the first block's")
answers.mistake("takes_exp_without_a_greatest_score", {
    "greatest, sums, values = attend(fabric, task, source, k, v)": """
        greatest, sums, values = attend(fabric, task, source, k, v)
        sums, values, greatest = sums * torch.exp(greatest), values * torch.exp(greatest), torch.zeros_like(greatest)
    """,
}, "3 ranks, 8 tokens in a row, width 3, not causal", "scores without their greatest subtracted")
answers.mistake("begins_at_zero", {
    "top, total, weighted = None, 0.0, 0.0": 'top, total, weighted = task["q"].new_zeros(len(k), 1), 0.0, 0.0',
}, "all scores near −12,000", "If m begins above it", "begin with the first block's greatest score, or with −∞")
answers.mistake("begins_at_a_low_number", {
    "top, total, weighted = None, 0.0, 0.0": 'top, total, weighted = task["q"].new_full((len(k), 1), -1e4), 0.0, 0.0',
}, "all scores near −12,000", "If m begins above it", "begin with the first block's greatest score, or with −∞")
answers.mistake("one_greatest_score_for_all_queries", {
    "new = greatest if top is None else torch.maximum(top, greatest)":
        "new = (greatest if top is None else torch.maximum(top, greatest)).amax()",
}, "every query has a greatest score of its own")
answers.mistake("takes_the_new_greatest_scores_if_any_grew", {
    "new = greatest if top is None else torch.maximum(top, greatest)":
        "new = greatest if top is None or (greatest > top).any() else top",
}, "NaN comes from 0/0 or 0 · ∞ here: a query that sees no key of a block")
answers.mistake("divides_by_a_little_more", {"return weighted / total": "return weighted / (total + 1e-6)"},
    "divide by the sum s itself, with nothing added to it")
answers.mistake("keys_travel_as_values_too", {
    "handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]":
        "handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, k)]",
}, "Keys came as values, too", harmless_at=(1,))
answers.mistake("values_travel_as_keys_too", {
    "handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]":
        "handles = [fabric.isend(x, to=(rank + 1) % n) for x in (v, v)]",
}, "Values came as keys, too", harmless_at=(1,))
answers.mistake("leaves_out_blocks_that_the_mask_hides", {
    "greatest, sums, values = attend(fabric, task, source, k, v)": """
        if task["causal"] and min(task["tokens"][source]) > max(task["tokens"][rank]):
            greatest = torch.full_like(top, -torch.inf)
            sums, values = torch.zeros_like(total), torch.zeros_like(weighted)
        else:
            greatest, sums, values = attend(fabric, task, source, k, v)
    """,
}, "rank 0 called attend 1 time, expected 2", "also where the mask hides it all", harmless_at=(1,))
answers.mistake("forgets_to_divide", {"return weighted / total": "return weighted"}, "was not divided by the sum of exp")
answers.mistake("starts_at_minus_infinity_in_float32", {
    "top, total, weighted = None, 0.0, 0.0": """
        top, total = None, torch.zeros(len(task["q"]), 1)
        weighted = torch.zeros(len(task["q"]), task["v"].shape[1])
    """,
    "return weighted / total": "return (weighted / total).float()",
}, "as float64, got float32. What you make needs the dtype of the task's rows")
answers.mistake("goes_through_float32", {
    "greatest, sums, values = attend(fabric, task, source, k, v)":
        "greatest, sums, values = (x.float().to(k.dtype) for x in attend(fabric, task, source, k, v))",
}, "Numbers that went through float32 are off by this much")

answers.mistake("works_on_its_own_block_alone", {"for step in range(n):": "for step in range(1):"},
    "called attend 1 time, expected 3: once for each rank's block", harmless_at=(1,))
answers.mistake("stops_a_round_early", {
    "for step in range(n):": "rounds = max(1, n - 1)\nfor step in range(rounds):",
    "    if step < n - 1:\n        handles": "    if step < rounds - 1:\n        handles",
    "    if step < n - 1:\n        rows": "    if step < rounds - 1:\n        rows",
}, "called attend 2 times, expected 3: once for each rank's block")
answers.mistake("forgets_what_came_before", {TOTAL: "total = sums * part_scale", WEIGHTED: "weighted = values * part_scale"},
    "These are the rows of the last block alone")
answers.mistake("masks_all_as_its_own", {"attend(fabric, task, source, k, v)": "attend(fabric, task, rank, k, v)"},
    ("Every block was masked as if it were the rank's own", "name the rank that owns the block at hand"))
answers.mistake("masks_as_if_it_came_from_the_other_side",
    {"attend(fabric, task, source, k, v)": "attend(fabric, task, (rank + step) % n, k, v)"},
    ("A block was masked as if blocks came from the next rank", "name the rank that owns the block at hand"))
answers.mistake("masks_as_the_block_that_comes",
    {"attend(fabric, task, source, k, v)": "attend(fabric, task, (source - 1) % n, k, v)"},
    ("A block was masked as the one that comes after it", "name the rank that owns the block at hand"))
answers.mistake("lays_no_mask",
    {"attend(fabric, task, source, k, v)": "attend(fabric, task | {'causal': False}, source, k, v)"}, "There is no mask")
answers.mistake("takes_all_blocks_for_equally_long", {
    'rows = len(task["tokens"][(source - 1) % n])': "rows = len(k)",
}, "4 ranks, 11 tokens", "Blocks differ in length where the ranks do not divide the tokens")
answers.mistake("takes_the_length_of_the_block_at_hand", {
    'rows = len(task["tokens"][(source - 1) % n])': 'rows = len(task["tokens"][source])',
}, "4 ranks, 11 tokens", "Blocks differ in length where the ranks do not divide the tokens")
answers.mistake("receives_keys_alone_and_keeps_its_values", {"k, v = coming": "k = coming[0]"},
    ("element 0", "must match", "mat1 and mat2"), harmless_at=(1,))
answers.mistake("receives_values_as_keys", {"for x in coming:": "for x in coming[::-1]:"},
    "Keys and values change places on the way", harmless_at=(1,))
answers.mistake("receives_into_float32", {"x.new_empty(rows, x.shape[1])": "torch.empty(rows, x.shape[1])"},
    "expected float32[3, 4], which is what `out` is", "Give the tensors that you receive into the dtype of the block")
answers.mistake("turns_the_list_of_tokens", {"return weighted / total": 'task["tokens"].reverse()\nreturn weighted / total'},
    'task["tokens"] was changed in place', harmless_at=(1,))

answers.mistake("sends_the_last_block_home", {
    """
        if step < n - 1:
            handles
    """: """
        if n > 1:
            handles
    """,
    """
        if step < n - 1:
            rows
    """: """
        if n > 1:
            rows
    """,
}, "send nothing in the last round: no block goes home")
answers.mistake("sends_each_block_twice", {
    "handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]":
        "handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v, v)]",
    "for x in coming:": "for x in (*coming, coming[1]):",
}, "Send each block over a link once")
answers.mistake("works_and_then_sends", {
    """
        if step < n - 1:
            handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]
        greatest, sums, values = attend(fabric, task, source, k, v)
    """: """
        greatest, sums, values = attend(fabric, task, source, k, v)
        if step < n - 1:
            handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]
    """,
}, "the rows are right, but rank 0 sends its block 1 of 3 only after it has begun to work on it")
answers.mistake("sends_blocking", {
    "handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]": """
        for x in (k, v):
            fabric.send(x, to=(rank + 1) % n)
    """,
}, "deadlock")
answers.mistake("waits_for_the_next_block_first", {
    "greatest, sums, values = attend(fabric, task, source, k, v)": """
        if step < n - 1:
            coming = [x.new_empty(len(task["tokens"][(source - 1) % n]), x.shape[1]) for x in (k, v)]
            for x in coming:
                fabric.recv(x, frm=(rank - 1) % n)
        greatest, sums, values = attend(fabric, task, source, k, v)
    """,
    """
            rows = len(task["tokens"][(source - 1) % n])
            coming = [x.new_empty(rows, x.shape[1]) for x in (k, v)]
            for x in coming:
                fabric.recv(x, frm=(rank - 1) % n)
    """: "",
}, "the rows are right, but rank 0 waits for block 2 of 3 before it works on the current one")
answers.mistake("waits_for_the_next_keys_first", {
    "greatest, sums, values = attend(fabric, task, source, k, v)": """
        if step < n - 1:
            coming = [x.new_empty(len(task["tokens"][(source - 1) % n]), x.shape[1]) for x in (k, v)]
            fabric.recv(coming[0], frm=(rank - 1) % n)
        greatest, sums, values = attend(fabric, task, source, k, v)
    """,
    """
            rows = len(task["tokens"][(source - 1) % n])
            coming = [x.new_empty(rows, x.shape[1]) for x in (k, v)]
            for x in coming:
                fabric.recv(x, frm=(rank - 1) % n)
    """: """
            fabric.recv(coming[1], frm=(rank - 1) % n)
    """,
}, "the rows are right, but rank 0 waits for part of block 2 of 3 before it works on the current one")
answers.mistake("forgets_to_wait", {
    """
            for handle in handles:
                handle.wait()
    """: "",
}, "ended without waiting for an isend")
answers.mistake("one_buffer_for_what_comes", {
    "coming = [x.new_empty(rows, x.shape[1]) for x in (k, v)]": "coming = [x.new_empty(0) for x in (k, v)]",
    "for x in coming:": """
        if len(k) == rows:
            coming = [k.clone(), v.clone()] if step == 0 else [k, v]
        else:
            coming = [x.new_empty(rows, x.shape[1]) for x in (k, v)]
        for x in coming:
    """,
}, "changed the tensor of its isend")

@answers.is_wrong("the rows are right, but rank 0 has received 2 blocks when it works on its block 1 of 3")
def gathers_all_blocks_first(fabric, task):
    n, rank = fabric.world_size, fabric.rank
    blocks = {rank: torch.stack([task["k"], task["v"]])}
    for step in range(n - 1):
        source = (rank - step) % n
        handle = fabric.isend(blocks[source], to=(rank + 1) % n)
        source = (source - 1) % n
        blocks[source] = task["k"].new_empty(2, len(task["tokens"][source]), task["k"].shape[1])
        fabric.recv(blocks[source], frm=(rank - 1) % n)
        handle.wait()
    parts = []
    for source, (k, v) in blocks.items():
        parts = merge(parts, attend(fabric, task, source, k, v))
    return parts[2] / parts[1]


@answers.is_wrong("the rows are right, but rank 0 holds", "Does a list keep used blocks or their parts?")
def keeps_every_block(fabric, task):
    n, rank, kept, parts = fabric.world_size, fabric.rank, [], []
    k, v = task["k"], task["v"]
    for step in range(n):
        source = (rank - step) % n
        kept.append((k, v))
        handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)] if step < n - 1 else []
        parts = merge(parts, attend(fabric, task, source, k, v))
        if handles:
            k, v = (k.new_empty(len(task["tokens"][(source - 1) % n]), k.shape[1]) for _ in range(2))
            for x in (k, v):
                fabric.recv(x, frm=(rank - 1) % n)
            for handle in handles:
                handle.wait()
    return parts[2] / parts[1]


@answers.is_wrong("expected every message to go to the next rank, 1, which passes it on", harmless_at=(1, 2))
def from_everybody_straight(fabric, task):
    n, rank, parts = fabric.world_size, fabric.rank, []
    k, v = task["k"], task["v"]
    for step in range(n):
        handles, source, to = [], (rank - step - 1) % n, (rank + step + 1) % n
        if step < n - 1:
            handles = [fabric.isend(x, to=to) for x in (task["k"], task["v"])]
        parts = merge(parts, attend(fabric, task, (rank - step) % n, k, v))
        if step < n - 1:
            k, v = (k.new_empty(len(task["tokens"][source]), k.shape[1]) for _ in range(2))
            for x in (k, v):
                fabric.recv(x, frm=source)
        for handle in handles:
            handle.wait()
    return parts[2] / parts[1]


@answers.is_wrong("called attend 1 time, expected 3: once for each rank's block")
def attends_once_to_all(fabric, task):
    """One great block: the softmax is exact because nothing was cut."""
    n, rank = fabric.world_size, fabric.rank
    k, v = task["k"], task["v"]
    keys, values, numbers = [k], [v], list(task["tokens"][rank])
    for step in range(n - 1):
        handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]
        source = (rank - step - 1) % n
        k, v = (k.new_empty(len(task["tokens"][source]), k.shape[1]) for _ in range(2))
        for x in (k, v):
            fabric.recv(x, frm=(rank - 1) % n)
        for handle in handles:
            handle.wait()
        keys.append(k)
        values.append(v)
        numbers += task["tokens"][source]
    all_tokens = list(task["tokens"])
    all_tokens.append(numbers)
    top, total, weighted = attend(fabric, task | {"tokens": all_tokens}, n, torch.cat(keys), torch.cat(values))
    return weighted / total


@answers.is_wrong("task[\"k\"] was changed in place", harmless_at=(1,))
def receives_into_the_tasks_keys(fabric, task):
    n, rank, parts = fabric.world_size, fabric.rank, []
    k, v = task["k"], task["v"]
    for step in range(n):
        source = (rank - step) % n
        sent = [k.clone(), v.clone()]
        handles = [fabric.isend(x, to=(rank + 1) % n) for x in sent] if step < n - 1 else []
        parts = merge(parts, attend(fabric, task, source, k, v))
        if handles:
            rows = len(task["tokens"][(source - 1) % n])
            if rows != len(k):
                k, v = k.new_empty(rows, k.shape[1]), v.new_empty(rows, v.shape[1])
            for x in (k, v):
                fabric.recv(x, frm=(rank - 1) % n)
            for handle in handles:
                handle.wait()
    return parts[2] / parts[1]


@answers.is_wrong("called attend 1 time, expected 3: once for each rank's block", harmless_at=(1,))
def attends_to_its_own_alone_and_sends_nothing(fabric, task):
    top, total, weighted = attend(fabric, task, fabric.rank, task["k"], task["v"])
    return weighted / total


HOME, LATE = (answers.edits[name] for name in ("sends_the_last_block_home", "works_and_then_sends"))
NO_MASK = edited(one_block_ahead, "no_mask", {'task["v"]': 'task["v"]\ntask = task | {"causal": False}'})
NO_MASK_NOR_SCALE = edited(NO_MASK, "no_mask_nor_scale", {
    "top = new\n": "total, weighted, top = total * new.exp(), weighted * new.exp(), new * 0\n",
})  # fmt: skip
answers.spoil("no_mask_nor_scale_and_sends_blocks_home", HOME, of=NO_MASK_NOR_SCALE)
answers.spoil("no_mask_and_sends_late", LATE, of=NO_MASK)
answers.mistake("never_raises_the_greatest_score", {
    "torch.maximum(top, greatest)": "top",
}, "scores of up to 1,000", "with one subtracted that is not raised to a later block's")
