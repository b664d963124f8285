"""Exercise 16.2: an all-reduce inside nodes, between them, and inside again."""

import torch
import torch.distributed as dist

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce, reduce_scatter

answers = Answers("two_level_all_reduce")


class Group:
    """Some ranks of a fabric, numbered anew."""

    def __init__(self, fabric, ranks):
        self.fabric, self.ranks = fabric, list(ranks)
        self.rank, self.world_size = self.ranks.index(fabric.rank), len(self.ranks)

    def isend(self, x, to, tag=0):
        return self.fabric.isend(x, self.ranks[to], tag)

    def send(self, x, to, tag=0):
        self.fabric.send(x, self.ranks[to], tag)

    def recv(self, out, frm, tag=0):
        return self.ranks.index(self.fabric.recv(out, self.ranks[frm], tag))


def groups(fabric, per_node):
    """The ranks of this node, and those of this place."""
    first = fabric.rank // per_node * per_node
    inside = Group(fabric, range(first, first + per_node))
    return inside, Group(fabric, range(fabric.rank % per_node, fabric.world_size, per_node))


def ring(group, x):
    """The ring all-reduce, in place."""
    n, rank = group.world_size, group.rank
    pieces = x.tensor_split(n)
    for step in range(2 * (n - 1)):
        handle = group.isend(pieces[(rank - step) % n], (rank + 1) % n)
        into = pieces[(rank - step - 1) % n]
        landing = torch.empty_like(into)
        group.recv(landing, (rank - 1) % n)
        into.copy_(into + landing if step < n - 1 else landing)
        handle.wait()


@answers.is_right
def on_two_levels(fabric, x, per_node):
    inside, across = groups(fabric, per_node)
    shard = reduce_scatter(inside, x)
    all_reduce(across, shard)
    x.tensor_split(per_node)[inside.rank].copy_(shard)
    all_gather(inside, x)
    return x


@answers.is_right
def rings_on_both_levels(fabric, x, per_node):
    """All by hand; after the first ring's half rank r of a node has shard r + 1."""
    inside, across = groups(fabric, per_node)
    g, rank = inside.world_size, inside.rank
    shards = x.tensor_split(g)

    def turn(step, adds):
        handle = inside.isend(shards[(rank - step) % g], (rank + 1) % g)
        into = shards[(rank - step - 1) % g]
        landing = torch.empty_like(into)
        inside.recv(landing, (rank - 1) % g)
        into.copy_(into + landing if adds else landing)
        handle.wait()

    for step in range(g - 1):
        turn(step, adds=True)
    ring(across, shards[(rank + 1) % g])
    for step in range(g - 1, 2 * (g - 1)):
        turn(step, adds=False)
    return x


@answers.is_right
def straight_to_the_owner_with_views(fabric, x, per_node):
    """Direct exchanges instead of rings, between nodes too; x is returned as well."""
    n, me = fabric.world_size, fabric.rank
    node, place = divmod(me, per_node)
    nodes = n // per_node

    def exchange(parts, peers, own):
        """Peer k gets part k; afterwards part `own` is the sum, and all parts are gathered again."""
        handles = [fabric.isend(parts[k], peer) for k, peer in enumerate(peers) if k != own]
        landings = [torch.empty_like(parts[own]) for _ in peers]
        for k, peer in enumerate(peers):
            if k != own:
                fabric.recv(landings[k], peer)
        for handle in handles:
            handle.wait()
        for k in range(len(peers)):
            if k != own:
                parts[own] += landings[k]

    def gather(parts, peers, own):
        handles = [fabric.isend(parts[own], peer) for k, peer in enumerate(peers) if k != own]
        for k, peer in enumerate(peers):
            if k != own:
                fabric.recv(parts[k], peer)
        for handle in handles:
            handle.wait()

    shards = list(x.tensor_split(per_node))
    inside = [node * per_node + k for k in range(per_node)]
    across = [k * per_node + place for k in range(nodes)]
    exchange(shards, inside, place)
    pieces = list(shards[place].tensor_split(nodes))
    exchange(pieces, across, node)
    gather(pieces, across, node)
    gather(shards, inside, place)
    return x


@answers.is_right
def the_remainder_in_the_last_shard(fabric, x, per_node):
    inside, across = groups(fabric, per_node)
    g, rank, size = per_node, inside.rank, len(x) // per_node
    bounds = [slice(k * size, (k + 1) * size if k < g - 1 else None) for k in range(g)]
    landing = [torch.empty_like(x[bounds[rank]]) for _ in range(g - 1)]
    handles = [inside.isend(x[bounds[(rank + k) % g]], (rank + k) % g) for k in range(1, g)]
    for k in range(1, g):
        inside.recv(landing[k - 1], (rank - k) % g)
    for handle in handles:
        handle.wait()
    shard = torch.stack([x[bounds[rank]], *landing]).sum(dim=0).to(x.dtype)
    ring(across, shard)
    x[bounds[rank]] = shard
    handles = [inside.isend(shard, (rank + k) % g) for k in range(1, g)]
    for k in range(1, g):
        inside.recv(x[bounds[(rank - k) % g]], (rank - k) % g)
    for handle in handles:
        handle.wait()
    return x


@answers.is_wrong("bytes went between nodes", "expected 384 bytes, 4 x", "That is one ring through all ranks")
def one_ring_through_all_ranks(fabric, x, per_node):
    all_pieces = Group(fabric, range(fabric.world_size))
    ring(all_pieces, x)


answers.mistake("the_whole_tensor_on_both_levels", {
    """
        shard = reduce_scatter(inside, x)
        all_reduce(across, shard)
        x.tensor_split(per_node)[inside.rank].copy_(shard)
        all_gather(inside, x)
    """: """
        ring(inside, x)
        ring(across, x)
    """,
}, "Every rank carries the whole tensor across: first reduce-scatter inside the node")


@answers.is_wrong("rank 0 sent 128 bytes to other nodes; expected at most 64", "3 ranks sent none there")
def one_leader_a_node(fabric, x, per_node):
    inside, across = groups(fabric, per_node)
    if inside.rank:
        inside.send(x, 0)
        inside.recv(x, 0)
        return
    landing = torch.empty_like(x)
    for other in range(1, per_node):
        inside.recv(landing, other)
        x += landing
    all_reduce(across, x)
    for other in range(1, per_node):
        inside.send(x, other)


@answers.is_wrong("every rank holds the sum of its own node: the sums have not been added up between the nodes")
def never_leaves_the_node(fabric, x, per_node):
    inside, _ = groups(fabric, per_node)
    ring(inside, x)


@answers.is_wrong("every rank holds the sum over ranks 0, 2 and so on", "nothing was added up inside a node")
def only_between_nodes(fabric, x, per_node):
    _, across = groups(fabric, per_node)
    ring(across, x)


answers.mistake("forgets_the_all_gather", {"all_gather(inside, x)": ""},
    "one rank of every node holds the whole sum of each shard", "all-gather inside the node")
answers.mistake("returns_the_sum_beside_x", {
    "inside, across = groups(fabric, per_node)": "x = x.clone()\ninside, across = groups(fabric, per_node)",
    "all_gather(inside, x)": "return all_gather(inside, x)",
}, "the sum was returned, but x itself does not hold it: work in place")
answers.mistake("averages", {"all_reduce(across, shard)": "all_reduce(across, shard).div_(fabric.world_size)"},
    "This is the mean, not the sum: do not divide")


@answers.is_wrong("rounds of messages where 8 are enough", "No node and no shard needs to wait for another")
def one_shard_after_another(fabric, x, per_node):
    """Rank 0 of each node crosses, then rank 1: a token in the node says when."""
    inside, across = groups(fabric, per_node)
    shard, token = reduce_scatter(inside, x), torch.zeros(0)
    for place in range(per_node):
        if inside.rank == place:
            all_reduce(across, shard)
        for other in range(per_node):
            if inside.rank == place and other != place:
                inside.send(token, other)
            elif inside.rank == other != place:
                inside.recv(token, place)
    x.tensor_split(per_node)[inside.rank].copy_(shard)
    all_gather(inside, x)
    return x


@answers.is_wrong("rounds of messages where 8 are enough", "No node and no shard needs to wait for another")
def even_ranks_send_first(fabric, x, per_node):
    """Blocking sends in both groups."""

    def swap(group, out, into):
        n, rank = group.world_size, group.rank
        for turn in (0, 1):
            if rank % 2 == turn:
                group.send(out, (rank + 1) % n)
            else:
                group.recv(into, (rank - 1) % n)

    def in_turns(group, pieces, steps):
        n, rank = group.world_size, group.rank
        for step in steps:
            into = pieces[(rank - step - 1) % n]
            if n % 2 == 0 or n == 1:
                landing = torch.empty_like(into)
                swap(group, pieces[(rank - step) % n], landing)
            else:  # an odd ring needs a third turn: the last rank waits for the first
                landing = torch.empty_like(into)
                for turn in range(n):
                    if rank == turn:
                        group.send(pieces[(rank - step) % n], (rank + 1) % n)
                    elif rank == (turn + 1) % n:
                        group.recv(landing, turn)
            into.copy_(into + landing if step < n - 1 else landing)

    inside, across = groups(fabric, per_node)
    shards = x.tensor_split(per_node)
    in_turns(inside, shards, range(per_node - 1))
    own = shards[(inside.rank + 1) % per_node]
    in_turns(across, own.tensor_split(across.world_size), range(2 * (across.world_size - 1)))
    in_turns(inside, shards, range(per_node - 1, 2 * (per_node - 1)))
    return x


answers.mistake("shards_by_reshape", {"x.tensor_split(per_node)": "x.reshape(per_node, -1)"},
    "3 nodes of 2 ranks, 25 elements (shards or chunks differ in length)", "failed")
answers.mistake("every_other_rank_is_a_node", {
    "inside, across = groups(fabric, per_node)": """
        nodes = fabric.world_size // per_node
        inside = Group(fabric, range(fabric.rank % nodes, fabric.world_size, nodes))
        across = Group(fabric, range(fabric.rank // nodes * nodes, fabric.rank // nodes * nodes + nodes))
    """,
}, "bytes went between nodes", "expected 384 bytes", "Your groups take ranks 0, 3 and so on for a node: it is 2 neighbors")
answers.mistake("the_levels_the_other_way_round", {
    "inside, across = groups(fabric, per_node)": "across, inside = groups(fabric, per_node)",
    "tensor_split(per_node)": "tensor_split(inside.world_size)",
}, "Every rank carries the whole tensor across: first reduce-scatter inside the node")


@answers.is_wrong("2 nodes of 3 ranks, 24 elements")
def always_two_in_a_node(fabric, x, per_node):
    if fabric.world_size == 1:
        return x
    return on_two_levels(fabric, x, 2)


answers.mistake("leaves_the_remainder", {
    "inside, across = groups(fabric, per_node)": """
        x = x[: len(x) // fabric.world_size * fabric.world_size]
        inside, across = groups(fabric, per_node)
    """,
}, "(shards or chunks differ in length)", "elements were left out")
answers.mistake("waits_for_a_neighbour_first", {
    "inside, across = groups(fabric, per_node)": """
        if fabric.world_size > 1:
            handle = fabric.isend(x[:1], (fabric.rank + 1) % fabric.world_size)
            fabric.recv(x[:1].clone(), (fabric.rank - 1) % fabric.world_size)
            handle.wait()
        inside, across = groups(fabric, per_node)
    """,
}, "That is a little more: do other messages cross, too?")
answers.mistake("pads_to_equal_parts", {
    "inside, across = groups(fabric, per_node)": """
        given, x = x, torch.cat([x, x.new_zeros(-len(x) % fabric.world_size)])
        inside, across = groups(fabric, per_node)
    """,
    "all_gather(inside, x)": "all_gather(inside, x)\ngiven.copy_(x[: len(given)])",
    "return x": "return given",
}, "(shards or chunks differ in length)", "as much as 30 elements take: do not pad x")
answers.mistake("sends_what_it_should_and_adds_nothing", {
    "inside, across = groups(fabric, per_node)": """
        x = torch.zeros_like(x)
        inside, across = groups(fabric, per_node)
    """,
}, "Every rank still has its own values: nothing was added")


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, x, per_node):
    dist.init_process_group("gloo")
    dist.all_reduce(x)


answers.mistake("goes_through_float32", {
    "inside, across = groups(fabric, per_node)": """
        given, x = x, x.float()
        inside, across = groups(fabric, per_node)
    """,
    "all_gather(inside, x)": "all_gather(inside, x)\ngiven.copy_(x)",
}, "of float64", "The digits beyond float32 precision are lost")
answers.mistake("gathers_in_float32", {
    """
        x.tensor_split(per_node)[inside.rank].copy_(shard)
        all_gather(inside, x)
    """: """
        whole = torch.zeros(len(x))
        whole.tensor_split(per_node)[inside.rank].copy_(shard)
        x.copy_(all_gather(inside, whole))
    """,
}, "of float64", "bytes went inside node 0, 3 x the tensor; expected 416 bytes", "both in the dtype of x")
answers.mistake("nodes_swap_with_partners", {
    "all_reduce(across, shard)": """
        nodes, far = across.world_size, 1
        if nodes & (nodes - 1):
            all_reduce(across, shard)
        while not nodes & (nodes - 1) and far < nodes:
            landing, partner = torch.empty_like(shard), across.rank ^ far
            handle = across.isend(shard.clone(), partner)
            across.recv(landing, partner)
            handle.wait()
            shard, far = shard + landing, 2 * far
    """,
}, "4 nodes of 2 ranks", "bytes went between nodes", "expected 1152 bytes, 6 x")
answers.mistake("asks_the_nodes_on_both_sides", {
    "all_reduce(across, shard)": """
        if across.world_size < 4:
            all_reduce(across, shard)
        else:
            given = shard.clone()
            for way in (1, -1):
                landing = torch.empty_like(given)
                handle = across.isend(given, (across.rank + way) % across.world_size)
                across.recv(landing, (across.rank - way) % across.world_size)
                handle.wait()
                shard += landing
    """,
}, "4 nodes of 2 ranks", "something was not added")
answers.mistake("sends_whole_numbers_as_float32", {
    "inside, across = groups(fabric, per_node)": """
        given, x = x, x if x.dtype.is_floating_point else x.float()
        inside, across = groups(fabric, per_node)
    """,
    "all_gather(inside, x)": "all_gather(inside, x)\ngiven.copy_(x)",
    "return x": "return given",
}, "of int32", ("The digits beyond float32 precision are lost", "expected"))
# Between nodes a gather and a broadcast of each shard.
answers.mistake("adds_up_a_shard_on_the_first_node", {
    "all_reduce(across, shard)": """
        if across.rank:
            across.send(shard, 0)
            across.recv(shard, 0)
        landing = torch.empty_like(shard)
        for node in range(1, across.world_size) if across.rank == 0 else ():
            across.recv(landing, node)
            shard += landing
        for node in range(1, across.world_size) if across.rank == 0 else ():
            across.send(shard, node)
    """,
}, "rank 0 sent 96 bytes to other nodes; expected at most 64", "Let all ranks that share a shard send equal parts")


@answers.is_wrong("of float64", "expected float32[", "Receive into a tensor like the one")
def buffers_are_float32(fabric, x, per_node):
    inside, across = groups(fabric, per_node)
    shard = reduce_scatter(inside, x)
    n, rank = across.world_size, across.rank
    pieces = shard.tensor_split(n)
    for step in range(2 * (n - 1)):
        handle = across.isend(pieces[(rank - step) % n], (rank + 1) % n)
        into = pieces[(rank - step - 1) % n]
        landing = torch.empty(len(into))
        across.recv(landing, (rank - 1) % n)
        into.copy_(into + landing if step < n - 1 else landing)
        handle.wait()
    x.tensor_split(per_node)[inside.rank].copy_(shard)
    all_gather(inside, x)
    return x


answers.mistake("forgets_to_wait", {
    "all_gather(inside, x)": """
        own = x.tensor_split(per_node)
        for step in range(1, per_node):
            inside.isend(own[inside.rank], (inside.rank + step) % per_node)
            source = (inside.rank - step) % per_node
            inside.recv(own[source], source)
    """,
}, "ended without waiting for an isend: call its wait()")


answers.mistake("returns_nothing", {"return x": ""}, "x holds the sum, but rank 0 returned nothing", "return x")
answers.mistake("returns_its_shard", {"return x": "return shard"}, "x holds the sum, but the function returned something else")
answers.mistake("does_not_put_the_sum_back", {"x.tensor_split(per_node)[inside.rank].copy_(shard)": ""},
    "the sum was not put back into x before the all-gather")
answers.mistake("adds_the_sum_to_what_is_there", {".copy_(shard)": ".add_(shard)"}, "each shard was added to what x held there")
answers.mistake("averages_between_the_nodes", {"all_reduce(across, shard)": "all_reduce(across, shard).div_(across.world_size)"},
    "every rank holds an average between nodes", "Divide nothing")
answers.mistake("averages_inside_the_node", {"reduce_scatter(inside, x)": "reduce_scatter(inside, x) / per_node"},
    "every rank holds an average inside a node", "Divide nothing")
answers.mistake("crosses_twice", {"all_reduce(across, shard)": "all_reduce(across, shard)\nall_reduce(across, shard)"},
    "it was added up between the nodes twice")


@answers.is_right
def a_copy_of_the_sum_comes_back(fabric, x, per_node):
    on_two_levels(fabric, x, per_node)
    return x.clone()


# Rounds are counted on nine ranks.
@answers.spoils()
def on_two_levels_on_nine_ranks_alone(fabric, x, per_node):
    return on_two_levels(fabric, x, per_node) if fabric.world_size == 9 else x


answers.spoil("one_shard_after_another_and_nothing_comes_back", {"return x": ""}, of=one_shard_after_another)
