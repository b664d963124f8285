"""Exercise 17.4: tokens that go to experts on other ranks, and come back to their places."""

import torch

from tests.checks.mutants import Answers

answers = Answers("to_experts")


def first_of_each(fabric, task):
    """Places of the tokens that each expert takes."""
    places = [[] for _ in range(fabric.world_size)]
    for place, expert in enumerate(task["chosen"]):
        places[expert].append(place)
    return [own[: task["capacity"]] for own in places]


def exchange(fabric, parts, came):
    """parts[r] goes to rank r; came[r] comes from rank r."""
    n, me = fabric.world_size, fabric.rank
    came[me].copy_(parts[me])
    for offset in range(1, n):
        to, source = (me + offset) % n, (me - offset) % n
        handle = fabric.isend(parts[to], to=to)
        fabric.recv(came[source], frm=source)
        handle.wait()
    return came


def whole_numbers(n):
    return [torch.empty(1, dtype=torch.int64) for _ in range(n)]


@answers.is_right
def by_counts(fabric, task, work):
    n, x = fabric.world_size, task["x"]
    places = first_of_each(fabric, task)
    counts = exchange(fabric, [torch.tensor([len(own)]) for own in places], whole_numbers(n))
    came = exchange(fabric, [x[own] for own in places], [x.new_empty(int(many), x.shape[1]) for many in counts])
    made = list(work(torch.cat(came)).split([len(rows) for rows in came]))
    home = exchange(fabric, made, [x.new_empty(len(own), x.shape[1]) for own in places])
    y = torch.zeros_like(x)
    for own, rows in zip(places, home, strict=True):
        y[own] = rows
    return y, sorted(set(range(len(x))) - set(sum(places, [])))


DROPPED = "return y, sorted(set(range(len(x))) - set(sum(places, [])))"
answers.twin("the_dropped_as_a_tensor", {DROPPED: """
        dropped = torch.ones(len(x), dtype=torch.bool)
        dropped[sum(places, [])] = False
        return y, dropped.nonzero().flatten()
    """})
answers.twin("puts_rows_back_by_addition", {"y[own] = rows": "y.index_add_(0, torch.tensor(own, dtype=torch.long), rows)"})


@answers.is_right
def rank_by_rank(fabric, task, work):
    """Nothing is sent where there is no row; all sends are begun before anything is received."""
    n, me, x = fabric.world_size, fabric.rank, task["x"]
    places, others = first_of_each(fabric, task), [rank for rank in range(n) if rank != me]
    y, batch, handles = torch.zeros_like(x), {me: x[places[me]]}, []
    for rank in others:
        handles.append(fabric.isend(torch.tensor(len(places[rank])), to=rank, tag=1))
        if places[rank]:
            handles.append(fabric.isend(x[places[rank]], to=rank, tag=2))
    for rank in others:
        many = torch.tensor(0)
        fabric.recv(many, frm=rank, tag=1)
        batch[rank] = x.new_empty(int(many), x.shape[1])
        if many:
            fabric.recv(batch[rank], frm=rank, tag=2)
    in_order = [batch[rank] for rank in range(n)]
    for rank, rows in enumerate(work(torch.cat(in_order)).split([len(rows) for rows in in_order])):
        if rank == me:
            y[places[me]] = rows
        elif len(rows):
            handles.append(fabric.isend(rows.contiguous(), to=rank, tag=3))
    for rank in others:
        if places[rank]:
            rows = x.new_empty(len(places[rank]), x.shape[1])
            fabric.recv(rows, frm=rank, tag=3)
            y[places[rank]] = rows
    for handle in handles:
        handle.wait()
    return y, [place for place in range(len(x)) if place not in set(sum(places, []))]


@answers.is_right
def sorted_by_expert(fabric, task, work):
    """With a stable sort, a cut by counts, and the inverse permutation."""
    n, x = fabric.world_size, task["x"]
    chosen = torch.tensor(task["chosen"], dtype=torch.long)
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=n)
    if task["capacity"] is not None:
        parts = [part[: task["capacity"]] for part in order.split(counts.tolist())]
        order, counts = torch.cat(parts), counts.clamp(max=task["capacity"])
    theirs = torch.cat(exchange(fabric, list(counts.split(1)), whole_numbers(n))).tolist()
    rows = exchange(fabric, list(x[order].split(counts.tolist())), list(x.new_empty(sum(theirs), x.shape[1]).split(theirs)))
    made = work(torch.cat(rows))
    home = exchange(fabric, list(made.split(theirs)), list(x[order].split(counts.tolist())))
    y = torch.zeros_like(x)
    y[order] = torch.cat(home)
    dropped = torch.ones(len(x), dtype=torch.bool)
    dropped[order] = False
    return y, dropped.nonzero()[:, 0].tolist()


answers.twin("works_on_the_last_ranks_rows_first", {
    "list(work(torch.cat(came)).split([len(rows) for rows in came]))":
        "list(work(torch.cat(came[::-1])).split([len(rows) for rows in came[::-1]]))[::-1]",
})
answers.twin("tells_all_counts_to_all", {
    "counts = exchange(fabric, [torch.tensor([len(own)]) for own in places], whole_numbers(n))": """
        mine = torch.tensor([len(own) for own in places])
        counts = [row[fabric.rank] for row in exchange(fabric, [mine] * n, [mine.clone() for _ in range(n)])]
    """,
})
answers.twin("leaves_the_expert_in_peace_where_nothing_came", {
    "made = list(work(torch.cat(came)).split([len(rows) for rows in came]))": """
        rows = torch.cat(came)
        made = list((work(rows) if len(rows) else rows).split([len(part) for part in came]))
    """,
})

answers.mistake("leaves_them_in_the_experts_order", {"y[order] = torch.cat(home)": "y[: len(order)] = torch.cat(home)"},
    "The rows are in the order of the experts", of=sorted_by_expert)
answers.mistake("goes_back_by_the_wrong_permutation", {"y[order] = torch.cat(home)": """
        rows = torch.zeros_like(x)
        rows[: len(order)] = torch.cat(home)
        y = rows[torch.cat([order, torch.tensor([p for p in range(len(x)) if p not in order.tolist()], dtype=torch.long)])]
    """}, "by the wrong permutation: y[order] = rows, not rows[order]", of=sorted_by_expert)
answers.mistake("adds_the_tokens_to_their_rows", {DROPPED: "return x + y" + DROPPED.removeprefix("return y")},
    "the residual connection comes later")
answers.mistake("splits_rows_as_the_tokens_went", {"[len(rows) for rows in came]": "[len(own) for own in places]"},
    "split them by the numbers that came from each rank", harmless_at=(1,))
answers.mistake("keeps_the_last_tokens_of_each_expert", {
    "chosen.argsort(stable=True)": "(chosen * 1000 - torch.arange(len(chosen))).argsort()",
}, "An expert takes the first tokens of a rank", of=sorted_by_expert)
answers.mistake("puts_each_experts_rows_back_in_reverse", {"y[own] = rows": "y[own] = rows.flip(0)"},
    "Rows from an expert are in reverse order")
answers.mistake("zeroes_its_own_experts_rows", {"y[own] = rows": "y[own] = rows * (own is not places[fabric.rank])"},
    "Only the rows of the rank's own expert are wrong")
answers.mistake("names_dropped_tokens_and_sends_them", {
    "places = first_of_each(fabric, task)": 'places = first_of_each(fabric, task | {"capacity": None})',
    DROPPED: "return y, sorted(set(range(len(x))) - set(sum(first_of_each(fabric, task), [])))",
}, "as dropped, and yet has their experts' rows")
answers.mistake("passes_dropped_tokens_on", {"y = torch.zeros_like(x)": "y = x.clone()"}, "A dropped token's row is zero")
answers.mistake("returns_the_tokens_themselves", {DROPPED: "return x" + DROPPED.removeprefix("return y")},
    "No row came back: these are the tokens themselves")
answers.mistake("mixes_up_who_sent_what", {"home = exchange(fabric, made,": "home = exchange(fabric, made[::-1],"},
    "Do as many rows come home from a rank as went there, and to the rank that sent them?", harmless_at=(1,))
answers.mistake("lets_its_own_expert_do_all", {
    "made = list(work(torch.cat(came)).split([len(rows) for rows in came]))": "made = [work(x[own]) for own in places]",
    "home = exchange(fabric, made, [x.new_empty(len(own), x.shape[1]) for own in places])": "home = made",
}, "its tokens' rows", "All rows are the work of the rank's own expert", harmless_at=(1,))

answers.mistake("drops_nothing", {
    "places = first_of_each(fabric, task)": "places = first_of_each(fabric, task | {'capacity': None})",
}, "dropped the tokens at []", "An expert takes 2 of a rank's tokens at most")
answers.mistake("says_how_many_were_dropped", {DROPPED: "return y, len(x) - sum(map(len, places))"},
    "expected the places of the dropped tokens in a list, got a int, 0")
answers.mistake("names_the_dropped_in_a_set", {DROPPED: "return y, set(range(len(x))) - set(sum(places, []))"},
    "expected the places of the dropped tokens in a list, got a set")
answers.mistake("masks_the_dropped", {
    DROPPED: "return y, torch.tensor([place not in sum(places, []) for place in range(len(x))])",
}, "as whole numbers, got a mask: mask.nonzero().flatten() has them")
answers.mistake("names_the_experts_of_the_dropped", {
    DROPPED: 'return y, [e for place, e in enumerate(task["chosen"]) if place not in sum(places, [])]',
}, "Are these the experts that the dropped tokens chose?")
answers.mistake("returns_rows_alone", {DROPPED: "return y"},
    "expected two things, the rows and the places of the dropped tokens, got a tensor of shape")
answers.mistake("names_the_kept", {DROPPED: "return y, sorted(sum(places, []))"}, "Are these the tokens that were kept?")
answers.mistake("names_no_dropped_token", {DROPPED: "return y, []"}, "are zero: name these places, too")
answers.mistake("takes_one_token_too_few", {
    "places = first_of_each(fabric, task)": """
        most = task["capacity"]
        places = first_of_each(fabric, task | {"capacity": most and most - 1})
    """,
}, "An expert takes 2 of a rank's tokens, where as many chose it")
answers.mistake("leaves_what_was_in_memory", {"y = torch.zeros_like(x)": "y = torch.full_like(x, 7.0)"},
    "Only rows of dropped tokens are wrong: they are zero")
answers.mistake("receives_rows_into_float32", {
    "[x.new_empty(int(many), x.shape[1]) for many in counts]": "[torch.empty(int(many), x.shape[1]) for many in counts]",
}, "What is received needs the dtype of what was sent", harmless_at=(1,))
answers.mistake("receives_counts_into_float32", {
    "[torch.tensor([len(own)]) for own in places], whole_numbers(n))":
        "[torch.tensor([len(own)]) for own in places], [torch.empty(1) for _ in range(n)])",
}, "What is received needs the dtype of what was sent", harmless_at=(1,))
answers.mistake("sends_places_along", {
    "made = list(":
        "exchange(fabric, [x.new_tensor(own) for own in places], [x.new_empty(int(m)) for m in counts])\nmade = list(",
}, "the rows are right, but rank", "and with nothing but the number of rows")
answers.mistake("a_capacity_for_all_of_a_ranks_tokens", {
    "places = first_of_each(fabric, task)": """
        most = task["capacity"]
        places = [[p for p in own if most is None or p < most] for own in first_of_each(fabric, task | {"capacity": None})]
    """,
}, "The capacity is for each expert, not for all of a rank's tokens")


@answers.is_wrong("The capacity is for each rank's tokens", harmless_at=(1,))
def capacity_over_all_ranks(fabric, task, work):
    """A rank's tokens count after those of the ranks before it."""
    n, me = fabric.world_size, fabric.rank
    if task["capacity"] is None:
        return by_counts(fabric, task, work)
    counts = torch.bincount(torch.tensor(task["chosen"], dtype=torch.long), minlength=n)
    all_counts = exchange(fabric, [counts] * n, [torch.empty_like(counts) for _ in range(n)])
    taken, chosen, dropped = torch.stack(all_counts)[:me].sum(0).tolist(), [], []
    for place, expert in enumerate(task["chosen"]):
        taken[expert] += 1
        (chosen if taken[expert] <= task["capacity"] else dropped).append(place)
    inner = {"x": task["x"][chosen], "chosen": [task["chosen"][place] for place in chosen], "capacity": None}
    y = torch.zeros_like(task["x"])
    y[chosen] = by_counts(fabric, inner, work)[0]
    return y, dropped


answers.mistake("takes_a_capacity_of_0_for_none", {
    "places = first_of_each(fabric, task)":
        'places = first_of_each(fabric, task if task["capacity"] else task | {"capacity": None})',
}, "2 ranks, 3, 4 tokens, capacity 0", "dropped the tokens at []", "only None is no capacity")
answers.mistake("writes_a_capacity_into_the_task", {
    "places = first_of_each(fabric, task)": """
        task["capacity"] = len(x) if task["capacity"] is None else task["capacity"]
        places = first_of_each(fabric, task)
    """,
}, 'task["capacity"] was changed in place')

@answers.is_wrong("the rows are right, but rank 0 sent rank 1", "not to all ranks, not padded", harmless_at=(1,))
def pads_to_the_longest(fabric, task, work):
    """Equal counts, as an all-to-all of one shape wants them."""
    n, x, most = fabric.world_size, task["x"], 12
    places = first_of_each(fabric, task)
    counts = exchange(fabric, [torch.tensor([len(own)]) for own in places], whole_numbers(n))

    def padded(parts):
        table = x.new_zeros(n, most, x.shape[1])
        for rank, rows in enumerate(parts):
            table[rank, : len(rows)] = rows
        return list(table)

    came = exchange(fabric, padded([x[own] for own in places]), padded([]))
    came = [rows[: int(many)] for rows, many in zip(came, counts, strict=True)]
    made = work(torch.cat(came)).split([len(rows) for rows in came])
    y = torch.zeros_like(x)
    for own, rows in zip(places, exchange(fabric, padded(made), padded([])), strict=True):
        y[own] = rows[: len(own)]
    return y, sorted(set(range(len(x))) - set(sum(places, [])))


answers.mistake("lets_the_expert_work_rank_by_rank", {
    "list(work(torch.cat(came)).split([len(rows) for rows in came]))": "[work(rows) for rows in came]",
}, "the rows are right, but rank 0's expert worked 3 times")
answers.mistake("sends_all_tokens_to_all", {
    "made = list(": "exchange(fabric, [x[[p for own in places for p in own]]] * n, everything(fabric, x, task))\nmade = list(",
}, "the rows are right, but rank 0 sent rank", "Send a row to its expert's rank alone")


def everything(fabric, x, task):
    """Room for the tokens of all ranks."""
    n = fabric.world_size
    mine = torch.tensor([sum(map(len, first_of_each(fabric, task)))])
    return [x.new_empty(int(many), x.shape[1]) for many in exchange(fabric, [mine] * n, whole_numbers(n))]


answers.mistake("sends_floats_of_four_bytes", {
    "[x[own] for own in places], [x.new_empty(int(many), x.shape[1]) for many in counts]":
        "[x[own].float() for own in places], [torch.empty(int(many), x.shape[1]) for many in counts]",
    "work(torch.cat(came))": "work(torch.cat(came).to(x.dtype))",
}, "its tokens' rows", "Numbers that went through float32")
answers.mistake("guesses_that_all_send_alike", {
    "counts = exchange(fabric, [torch.tensor([len(own)]) for own in places], whole_numbers(n))":
        "counts = [len(places[fabric.rank])] * n",
}, "Does it learn first how many come")
answers.mistake("guesses_that_as_many_come_as_go", {
    "counts = exchange(fabric, [torch.tensor([len(own)]) for own in places], whole_numbers(n))":
        "counts = [len(own) for own in places]",
}, "Does it learn first how many come")
answers.mistake("counts_the_dropped_too", {
    "[torch.tensor([len(own)]) for own in places]": '[torch.tensor(task["chosen"]).eq(r).sum()[None] for r in range(n)]',
}, "capacity 2", "counted after tokens were dropped")
answers.mistake("expects_home_as_many_as_came", {
    "home = exchange(fabric, made, [x.new_empty(len(own), x.shape[1]) for own in places])":
        "home = exchange(fabric, made, [torch.empty_like(rows) for rows in came])",
}, "Do as many rows come home from a rank as went there")


@answers.is_wrong("capacity 2", "Do not pad up to the capacity")
def pads_to_the_capacity(fabric, task, work):
    """As many rows from rank to rank as an expert takes, so that no count need travel."""
    if task["capacity"] is None:
        return by_counts(fabric, task, work)
    n, x, most = fabric.world_size, task["x"], task["capacity"]
    places = first_of_each(fabric, task)

    def room():
        return [x.new_zeros(most, x.shape[1]) for _ in range(n)]

    table = room()
    for own, rows in zip(places, table, strict=True):
        rows[: len(own)] = x[own]
    made = list(work(torch.cat(exchange(fabric, table, room()))).split([most] * n))
    y = torch.zeros_like(x)
    for own, rows in zip(places, exchange(fabric, made, room()), strict=True):
        y[own] = rows[: len(own)]
    return y, sorted(set(range(len(x))) - set(sum(places, [])))


@answers.is_wrong("capacity 2", "Do not send dropped tokens")
def sends_the_dropped_and_zeroes_their_rows(fabric, task, work):
    places = first_of_each(fabric, task)
    y, _ = by_counts(fabric, task | {"capacity": None}, work)
    dropped = sorted(set(range(len(y))) - set(sum(places, [])))
    y[dropped] = 0
    return y, dropped


answers.mistake("sends_blocking", {
    "came = exchange(fabric, [x[own] for own in places], [x.new_empty(int(many), x.shape[1]) for many in counts])": """
        came = [x.new_empty(int(many), x.shape[1]) for many in counts]
        came[fabric.rank] = x[places[fabric.rank]]
        for offset in range(1, n):
            fabric.send(x[places[(fabric.rank + offset) % n]], to=(fabric.rank + offset) % n)
            fabric.recv(came[(fabric.rank - offset) % n], frm=(fabric.rank - offset) % n)
    """,
}, "deadlock")
answers.mistake("works_in_place_on_the_tokens", {"y = torch.zeros_like(x)": "y = x.zero_()"}, 'task["x"] was changed in place')
answers.mistake("does_not_wait_for_the_counts", {
    "counts = exchange(fabric, [torch.tensor([len(own)]) for own in places], whole_numbers(n))": """
        me, counts = fabric.rank, whole_numbers(n)
        for rank in range(n):
            if rank != me:
                fabric.isend(torch.tensor([len(places[rank])]), to=rank)
        for rank in range(n):
            if rank != me:
                fabric.recv(counts[rank], frm=rank)
        counts[me][0] = len(places[me])
    """,
}, "ended without waiting for an isend")
answers.mistake("counts_in_bytes", {
    "[torch.tensor([len(own)]) for own in places], whole_numbers(n))":
        "[torch.tensor([len(own)]).to(torch.int8) for own in places], [x.to(torch.int8) for x in whole_numbers(n)])",
}, "611, 587, 603 tokens", ("does it travel in a dtype that holds it?", "in a dtype that holds the number?"))


DROPS_NOTHING = answers["drops_nothing"]
answers.spoil("drops_nothing_and_sends_more", {
    "counts = exchange": "exchange(fabric, [x.new_zeros(256)] * n, [x.new_zeros(256) for _ in range(n)])\ncounts = exchange",
}, of=DROPS_NOTHING)


@answers.spoils()
def names_the_dropped_alone(fabric, task, work):
    """A rank finds them without a message."""
    places = first_of_each(fabric, task)
    return torch.zeros_like(task["x"]), sorted(set(range(len(task["x"]))) - set(sum(places, [])))
