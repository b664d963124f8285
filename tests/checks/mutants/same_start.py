"""Exercise 4.2: rank 0's weights on every rank."""

import torch
import torch.distributed as dist

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_reduce

answers = Answers("same_start")


@answers.is_right
def plain(fabric, weights):
    for weight in weights:
        if fabric.rank == 0:
            for other in range(1, fabric.world_size):
                fabric.send(weight, to=other)
        else:
            fabric.recv(weight, frm=0)


@answers.is_right
def one_message_for_each_dtype(fabric, weights):
    for dtype in sorted({weight.dtype for weight in weights}, key=str):
        alike = [weight for weight in weights if weight.dtype == dtype]
        flat = torch.cat([weight.reshape(-1) for weight in alike])
        plain(fabric, [flat])
        for weight, part in zip(alike, flat.split([w.numel() for w in alike]), strict=True):
            weight.copy_(part.reshape(weight.shape))


@answers.is_right
def along_a_tree(fabric, weights):
    n, rank = fabric.world_size, fabric.rank
    for weight in weights:
        step = 1
        while step < n:
            if step <= rank < 2 * step:
                fabric.recv(weight, frm=rank - step)
            elif rank < step and rank + step < n:
                fabric.send(weight, to=rank + step)
            step *= 2


@answers.is_right
def through_a_buffer_all_at_once(fabric, weights):
    if fabric.rank == 0:
        handles = [fabric.isend(w, to=r, tag=k) for k, w in enumerate(weights) for r in range(1, fabric.world_size)]
        for handle in handles:
            handle.wait()
        return
    for k, weight in reversed(list(enumerate(weights))):
        landing = torch.empty_like(weight)
        fabric.recv(landing, frm=0, tag=k)
        weight[...] = landing


@answers.is_right
def down_the_line(fabric, weights):
    for weight in weights:
        if fabric.rank > 0:
            fabric.recv(weight, frm=fabric.rank - 1)
        if fabric.rank < fabric.world_size - 1:
            fabric.send(weight, to=fabric.rank + 1)


answers.mistake("returns_copies", {
    "for weight in weights:": "weights = [w.clone() for w in weights]\nfor weight in weights:",
    "        fabric.recv(weight, frm=0)": """
                fabric.recv(weight, frm=0)
        return weights
    """,
}, "The function returned rank 0's weights, but the tensor itself is unchanged: receive into it, or copy_ into it")
answers.mistake("sends_the_first_tensor_alone", {"in weights:": "in weights[:1]:"},
    "(tensor 1 of the list)", "Tensor 0 did arrive: send all tensors of the list")
answers.mistake("tells_the_next_rank_alone", {
    "range(1, fabric.world_size)": "range(1, fabric.world_size)[:1]",
    "else:": "elif fabric.rank == 1:",
}, "These are still rank 2's own", harmless_at=(2,))


@answers.is_wrong("This is the mean of all ranks' weights: copy rank 0's weights")
def averages_the_weights(fabric, weights):
    for weight in weights:
        total = all_reduce(fabric, weight.double())
        weight.copy_((total / fabric.world_size).to(weight.dtype))


@answers.is_wrong("This is the sum of all ranks' weights: copy rank 0's weights")
def adds_up_the_weights(fabric, weights):
    for weight in weights:
        all_reduce(fabric, weight)


@answers.is_wrong("the values are right, but rank 1 received", "once is enough", "Nothing needs adding up")
def adds_up_with_zeros(fabric, weights):
    for weight in weights:
        if fabric.rank:
            weight.zero_()
        all_reduce(fabric, weight)


answers.mistake("the_last_rank_tells_all", {
    "fabric.rank == 0": "fabric.rank == fabric.world_size - 1",
    "range(1, fabric.world_size)": "range(fabric.world_size - 1)",
    "frm=0": "frm=fabric.world_size - 1",
}, "Rank 0's own weights have changed: rank 0 keeps them, and the others copy them")


@answers.is_wrong("These are rank 1's weights: all ranks must hold rank 0's", harmless_at=(2,))
def passes_on_what_it_had(fabric, weights):
    n, rank = fabric.world_size, fabric.rank
    for weight in weights:
        mine = weight.clone()
        handle = fabric.isend(mine, to=rank + 1) if rank < n - 1 else None
        if rank > 0:
            fabric.recv(weight, frm=rank - 1)
        if handle:
            handle.wait()


@answers.is_wrong("These are still rank 1's own")
def sows_the_same_seed(fabric, weights):
    torch.manual_seed(0)


answers.mistake("everybody_sends", {
    """
        if fabric.rank == 0:
            for other in range(1, fabric.world_size):
                fabric.send(weight, to=other)
        else:
            fabric.recv(weight, frm=0)
    """: """
        for other in range(fabric.world_size):
            if other != fabric.rank:
                fabric.send(weight, to=other)
    """,
}, "deadlock: rank 0 waits for 1 (send)")


@answers.is_wrong("no process group is here")
def leaves_it_to_the_framework(fabric, weights):
    dist.init_process_group("gloo")
    for weight in weights:
        dist.broadcast(weight, 0)


def arrived(fabric, weights):
    copies = [weight.clone() for weight in weights]
    plain(fabric, copies)
    return copies


@answers.is_wrong("the numbers are right, but another tensor took its place in the list", "Write into that tensor")
def puts_new_tensors_into_the_list(fabric, weights):
    weights[:] = arrived(fabric, weights)


@answers.is_wrong(
    "the numbers are right, but another tensor took its place in the list",
    "the model, which holds the old tensor, still sees the old numbers",
)
def puts_one_new_tensor_into_the_list(fabric, weights):
    plain(fabric, weights[1:])
    weights[0] = arrived(fabric, weights[:1])[0]


@answers.is_wrong("the numbers are right, but the tensor got other memory (by .data = …, or set_)")
def gives_them_other_data(fabric, weights):
    for weight, copy in zip(weights, arrived(fabric, weights), strict=True):
        weight.data = copy


@answers.is_wrong("the numbers are right, but the tensor got other memory")
def sets_them(fabric, weights):
    for weight, copy in zip(weights, arrived(fabric, weights), strict=True):
        weight.set_(copy)


@answers.is_wrong("Rank 0's numbers lost digits on the way: send and receive each tensor in its own dtype")
def in_one_buffer_of_float32(fabric, weights):
    sizes = [w.numel() for w in weights]
    flat = torch.cat([w.reshape(-1).float() for w in weights])
    plain(fabric, [flat])
    for weight, part in zip(weights, flat.split(sizes), strict=True):
        weight.copy_(part.reshape(weight.shape))


answers.mistake("forgets_to_wait", {"fabric.send": "fabric.isend"},
    "rank 0 ended without waiting for an isend: call its wait()")
# As a list of parameters would, without the counters of a state_dict.
answers.mistake("leaves_out_what_is_no_float",
    {"in weights:": "in [weight for weight in weights if weight.is_floating_point()]:"},
    "Tensor 1 did arrive: send all tensors of the list")


@answers.is_wrong("rank 1 received 1.4 x the weights; once is enough, each tensor in its own dtype")
def one_flat_message(fabric, weights):
    flat = torch.cat([w.reshape(-1) for w in weights])
    if fabric.rank == 0:
        handles = [fabric.isend(flat, to=r) for r in range(1, fabric.world_size)]
        for handle in handles:
            handle.wait()
    else:
        fabric.recv(flat)
    for weight, part in zip(weights, flat.split([w.numel() for w in weights]), strict=True):
        weight.copy_(part.reshape(weight.shape))
    return weights


answers.mistake("takes_them_out_of_the_list", {
    "for weight in weights:": """
        while weights:
            weight = weights.pop()
    """,
}, "rank 0, tensor 0 of the list is gone: leave the list as it is, and write into its tensors")
answers.mistake("knows_three_tensors_alone", {
    "for weight in weights:": "first, second, third = weights\nfor weight in (first, second, third):",
}, "2 ranks, 1 tensor", "not enough values to unpack")
answers.mistake("along_a_tree_of_four", {
    "range(1, fabric.world_size)": "range(1, min(4, fabric.world_size))",
    "else:": "elif fabric.rank < 4:",
}, "These are still rank 4's own", harmless_at=(2, 3, 4))


@answers.is_right
def along_a_chain_from_a_buffer_that_is_kept(fabric, weights):
    """Every rank but the last passes on what has arrived, and nobody waits until all is on its way."""
    handles, here, n = [], fabric.rank, fabric.world_size
    for weight in weights:
        if here:
            fabric.recv(weight, frm=here - 1)
        if here + 1 < n:
            handles.append(fabric.isend(weight, to=here + 1))
    for handle in handles:
        handle.wait()


answers.spoil("sends_twice_so_that_nobody_asks_for_more_ranks", {
    "fabric.send(weight, to=other)": """
        fabric.send(weight, to=other)
        fabric.send(weight, to=other)
    """,
    "fabric.recv(weight, frm=0)": """
        fabric.recv(weight, frm=0)
        fabric.recv(weight, frm=0)
    """,
}, of=answers["along_a_tree_of_four"])
