"""Exercise 17.3: tokens that go to experts on other ranks, and come back to their places."""

from __future__ import annotations

import torch

from tests.checks.mutants import Answers

answers = Answers("to_experts")


def first_of_each(chosen, experts, capacity):
    """Places of the tokens that each expert takes."""
    places = [[] for _ in range(experts)]
    for place, expert in enumerate(chosen):
        places[expert].append(place)
    return [own[:capacity] for own in places]


def exchange(fabric, parts, rows):
    """parts[r] goes to rank r; rows[r] come from rank r."""
    n, me = fabric.world_size, fabric.rank
    came = [part.new_empty(many, part.shape[1]) for part, many in zip(parts, rows, strict=True)]
    came[me] = parts[me]
    for offset in range(1, n):
        to, source = (me + offset) % n, (me - offset) % n
        handle = fabric.isend(parts[to], to=to)
        fabric.recv(came[source], frm=source)
        handle.wait()
    return came


def exchange_counts(fabric, counts):
    """counts[r, e]: rows for expert e of rank r; back comes what each rank has for own experts."""
    rows = exchange(fabric, list(counts[:, None, :]), [1] * fabric.world_size)
    return torch.cat(rows)


@answers.is_right
def by_counts(fabric, task, work):
    n, me = fabric.world_size, fabric.rank
    x, each = task["x"], task["experts"] // n
    places = first_of_each(task["chosen"], task["experts"], task["capacity"])
    order = [sum(places[r * each : (r + 1) * each], []) for r in range(n)]
    counts = torch.tensor([len(own) for own in places]).view(n, each)
    theirs = exchange_counts(fabric, counts)
    came = exchange(fabric, [x[own] for own in order], theirs.sum(dim=1).tolist())
    split = [rows.split(many.tolist()) for rows, many in zip(came, theirs, strict=True)]
    made = [work(me * each + k, torch.cat([parts[k] for parts in split])) for k in range(each)]
    back = [part.split(theirs[:, k].tolist()) for k, part in enumerate(made)]
    returns = [torch.cat([back[k][r] for k in range(each)]) for r in range(n)]
    home = exchange(fabric, returns, [len(own) for own in order])
    y = torch.zeros_like(x)
    for own, rows in zip(order, home, strict=True):
        y[own] = rows
    return y, sorted(set(range(len(x))) - set(sum(order, [])))


answers.twin("the_dropped_as_a_tensor", {
    "return y, sorted(set(range(len(x))) - set(sum(order, [])))": """
        dropped = torch.ones(len(x), dtype=torch.bool)
        dropped[sum(order, [])] = False
        return y, dropped.nonzero().flatten()
    """,
})
answers.twin("puts_rows_back_by_addition", {"y[own] = rows": "y.index_add_(0, torch.tensor(own, dtype=torch.long), rows)"})


@answers.is_right
def expert_by_expert(fabric, task, work):
    """A message for each expert, and a count before it; nothing is sent where there is no row."""
    n, me = fabric.world_size, fabric.rank
    x, each = task["x"], task["experts"] // n
    places = first_of_each(task["chosen"], task["experts"], task["capacity"])
    y = torch.zeros_like(x)
    handles = []
    for expert, own in enumerate(places):
        if expert // each == me:
            continue
        handles.append(fabric.isend(torch.tensor([len(own)]), to=expert // each, tag=2 * expert))
        if own:
            handles.append(fabric.isend(x[own], to=expert // each, tag=2 * expert + 1))
    for expert in range(me * each, (me + 1) * each):
        batch = []
        for source in range(n):
            if source == me:
                batch.append(x[places[expert]])
                continue
            many = torch.empty(1, dtype=torch.long)
            fabric.recv(many, frm=source, tag=2 * expert)
            rows = x.new_empty(int(many), x.shape[1])
            if len(rows):
                fabric.recv(rows, frm=source, tag=2 * expert + 1)
            batch.append(rows)
        made = work(expert, torch.cat(batch)).split([len(rows) for rows in batch])
        for source, rows in enumerate(made):
            if source == me:
                y[places[expert]] = rows
            elif len(rows):
                handles.append(fabric.isend(rows.contiguous(), to=source, tag=1000 + expert))
    for expert, own in enumerate(places):
        if expert // each != me and own:
            rows = x.new_empty(len(own), x.shape[1])
            fabric.recv(rows, frm=expert // each, tag=1000 + expert)
            y[own] = rows
    for handle in handles:
        handle.wait()
    taken = {place for own in places for place in own}
    return y, [place for place in range(len(x)) if place not in taken]


@answers.is_right
def sorted_by_expert(fabric, task, work):
    """With a stable sort, a cut by counts, and the inverse permutation."""
    n, me = fabric.world_size, fabric.rank
    x, experts = task["x"], task["experts"]
    chosen = torch.tensor(task["chosen"], dtype=torch.long)
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=experts)
    if task["capacity"] is not None:
        parts = [part[: task["capacity"]] for part in order.split(counts.tolist())]
        order, counts = torch.cat(parts), counts.clamp(max=task["capacity"])
    table = counts.view(n, -1)
    theirs = exchange_counts(fabric, table)
    came = exchange(fabric, list(x[order].split(table.sum(1).tolist())), theirs.sum(1).tolist())
    pieces = [list(rows.split(many.tolist())) for rows, many in zip(came, theirs, strict=True)]
    for k in range(table.shape[1]):
        made = work(me * table.shape[1] + k, torch.cat([piece[k] for piece in pieces]))
        for source, rows in enumerate(made.split(theirs[:, k].tolist())):
            pieces[source][k] = rows
    home = exchange(fabric, [torch.cat(piece) for piece in pieces], table.sum(1).tolist())
    y = torch.zeros_like(x)
    y[order] = torch.cat(home)
    dropped = torch.ones(len(x), dtype=torch.bool)
    dropped[order] = False
    return y, dropped.nonzero()[:, 0].tolist()


# ---- order and places ------------------------------------------------------------------------
answers.mistake("leaves_them_in_the_experts_order", {"y[order] = torch.cat(home)": "y[: len(order)] = torch.cat(home)"},
    "The rows are in the order of the experts", of=sorted_by_expert)
answers.mistake("goes_back_by_the_wrong_permutation", {"y[order] = torch.cat(home)": """
        rows = torch.zeros_like(x)
        rows[: len(order)] = torch.cat(home)
        full = torch.cat([order, torch.tensor([p for p in range(len(x)) if p not in order.tolist()], dtype=torch.long)])
        y = rows[full]
    """}, "element", of=sorted_by_expert)
answers.mistake("sorts_without_being_stable_and_drops_others", {
    "chosen.argsort(stable=True)": "(chosen * 1000 - torch.arange(len(chosen))).argsort()",
}, "An expert takes the first tokens of a rank", of=sorted_by_expert)
answers.mistake("passes_dropped_tokens_on", {"y = torch.zeros_like(x)": "y = x.clone()"},
    "A dropped token's row is zero")
answers.mistake("deals_experts_out_by_turns", {"me * each + k": "me + k * n"}, "is not here. Experts are dealt out in order",
    of=by_counts)
answers.mistake("takes_the_experts_number_for_the_rank", {"work(me * each + k,": "work(k,"}, "expert 0 is not here")
answers.mistake("mixes_up_who_sent_what", {"returns = [torch.cat([back[k][r] for k in range(each)]) for r in range(n)]": """
        returns = [torch.cat([back[k][-1 - r] for k in range(each)]) for r in range(n)]
    """}, ("expected float", "which is what `out` is", "its tokens' rows"))

# ---- capacity --------------------------------------------------------------------------------
answers.mistake("drops_nothing", {'task["experts"], task["capacity"])': 'task["experts"], None)'},
    "dropped the tokens at []", "An expert takes 2 of a rank's tokens at most")
answers.mistake("says_how_many_were_dropped", {"return y, sorted(set(range(len(x))) - set(sum(order, [])))":
    "return y, len(x) - sum(map(len, order))"}, "expected the places of the dropped tokens as whole numbers")
answers.mistake("returns_rows_alone", {"return y, sorted(set(range(len(x))) - set(sum(order, [])))": "return y"},
    "expected two things, the rows and the places of the dropped tokens, got a tensor of shape")
answers.mistake("names_the_kept", {"return y, sorted(set(range(len(x))) - set(sum(order, [])))": "return y, sorted(sum(order, []))"},
    "Without a capacity none is dropped")


@answers.is_wrong("The capacity is for each rank's tokens", harmless_at=(1,))
def capacity_over_all_ranks(fabric, task, work):
    """A rank's tokens count after those of the ranks before it."""
    n, me, experts = fabric.world_size, fabric.rank, task["experts"]
    counts = torch.zeros(n, experts, dtype=torch.long)
    counts[me] = torch.bincount(torch.tensor(task["chosen"], dtype=torch.long), minlength=experts)
    if task["capacity"] is None:
        return by_counts(fabric, task, work)
    before = torch.stack(exchange(fabric, [counts[me : me + 1]] * n, [1] * n)).squeeze(1)[:me].sum(0)
    taken, chosen, dropped = before.tolist(), [], []
    for place, expert in enumerate(task["chosen"]):
        taken[expert] += 1
        (chosen if taken[expert] <= task["capacity"] else dropped).append(place)
    inner = task | {"x": task["x"][chosen], "chosen": [task["chosen"][p] for p in chosen], "capacity": None}
    rows, _ = by_counts(fabric, inner, work)
    y = torch.zeros_like(task["x"])
    y[chosen] = rows
    return y, dropped


# ---- messages and work -----------------------------------------------------------------------
@answers.is_wrong("the rows are right, but rank 0 sent rank 1", "not to all ranks, and not padded", harmless_at=(1,))
def pads_to_the_longest(fabric, task, work):
    """Equal counts, as an all-to-all of one shape wants them."""
    n, me = fabric.world_size, fabric.rank
    x, each = task["x"], task["experts"] // n
    places = first_of_each(task["chosen"], task["experts"], task["capacity"])
    counts = torch.tensor([len(own) for own in places]).view(n, each)
    theirs = exchange_counts(fabric, counts)
    most = 12
    parts = []
    for r in range(n):
        padded = x.new_zeros(each, most, x.shape[1])
        for k in range(each):
            own = places[r * each + k]
            padded[k, : len(own)] = x[own]
        parts.append(padded.view(each * most, -1))
    came = [rows.view(each, most, -1) for rows in exchange(fabric, parts, [each * most] * n)]
    for k in range(each):
        batch = [came[r][k, : int(theirs[r, k])] for r in range(n)]
        for r, rows in enumerate(work(me * each + k, torch.cat(batch)).split([len(b) for b in batch])):
            came[r] = came[r].clone()
            came[r][k, : len(rows)] = rows
    home = exchange(fabric, [rows.reshape(each * most, -1) for rows in came], [each * most] * n)
    y = torch.zeros_like(x)
    for r, rows in enumerate(home):
        for k in range(each):
            own = places[r * each + k]
            y[own] = rows.view(each, most, -1)[k, : len(own)]
    return y, sorted(set(range(len(x))) - set(sum(places, [])))


answers.mistake("lets_an_expert_work_rank_by_rank", {
    "work(me * each + k, torch.cat([parts[k] for parts in split]))":
        "torch.cat([work(me * each + k, parts[k]) for parts in split])",
}, "the rows are right, but rank 0's expert 0 worked 3 times")
answers.mistake("sends_what_is_dropped_too", {
    "came = exchange(fabric, [x[own] for own in order], theirs.sum(dim=1).tolist())": """
        came = exchange(fabric, [x[own] for own in order], theirs.sum(dim=1).tolist())
        exchange(fabric, [x[: len(own)] for own in order], theirs.sum(dim=1).tolist())
    """,
}, "the rows are right, but rank 0 sent rank", "A row goes to its expert's rank alone")
answers.mistake("sends_floats_of_four_bytes", {
    "[x[own] for own in order]": "[x[own].float() for own in order]",
    "made = [work(me * each + k, torch.cat([parts[k] for parts in split])) for k in range(each)]":
        "made = [work(me * each + k, torch.cat([parts[k] for parts in split]).to(x.dtype)) for k in range(each)]",
}, ("its tokens' rows", "element"))
answers.mistake("guesses_that_all_send_alike", {
    "theirs = exchange_counts(fabric, counts)": "theirs = counts[me].expand(n, each)",
}, "which is what `out` is")
answers.mistake("sends_blocking", {
    "came = exchange(fabric, [x[own] for own in order], theirs.sum(dim=1).tolist())": """
        came = [x.new_empty(int(many), x.shape[1]) for many in theirs.sum(dim=1)]
        came[me] = x[order[me]]
        for offset in range(1, n):
            fabric.send(x[order[(me + offset) % n]], to=(me + offset) % n)
            fabric.recv(came[(me - offset) % n], frm=(me - offset) % n)
    """,
}, "deadlock")
answers.mistake("works_in_place_on_the_tokens", {"y = torch.zeros_like(x)": "y = x.zero_()"}, 'task["x"] was changed in place')
