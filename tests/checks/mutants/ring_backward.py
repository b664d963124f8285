"""Exercise 17.5: gradients that travel round a ring with their keys and values."""

import torch

from tests.checks.mutants import Answers
from tests.checks.mutants._attention import pass_on, weights_again

answers = Answers("ring_backward")


@answers.is_right
def passes_on_and_home(fabric, task):
    n, rank = fabric.world_size, fabric.rank
    q, k, v, grad = (task[name] for name in ("q", "k", "v", "grad"))
    inner = (grad * task["rows"]).sum(dim=1, keepdim=True)
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for step in range(n):
        source = (rank - step) % n
        p = weights_again(fabric, task, source, k)
        ds = p * (grad @ v.T - inner) / q.shape[1] ** 0.5
        dq, dk, dv = dq + ds @ k, dk + ds.T @ q, dv + p.T @ grad
        coming = len(task["tokens"][(source - 1) % n])
        if step < n - 1:
            k, v = pass_on(fabric, [k, v], coming)
        dk, dv = pass_on(fabric, [dk, dv], coming)
    return dq, dk, dv


@answers.is_right
def keeps_its_own_part_at_home(fabric, task):
    """A gradient begins one rank later, and makes n − 1 hops. Keys and values are on their way while the rank works."""
    n, rank = fabric.world_size, fabric.rank
    q, k, v, grad = task["q"], task["k"], task["v"], task["grad"]
    inner, dq, moving = torch.einsum("td,td->t", grad, task["rows"])[:, None], 0, None
    for step in range(n):
        source = (rank - step) % n
        handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)] if step < n - 1 else []
        p = weights_again(fabric, task, source, k)
        ds = p * (grad @ v.T - inner) / k.shape[1] ** 0.5
        dq = dq + ds @ k
        part = torch.stack([ds.T @ q, p.T @ grad])
        coming = len(task["tokens"][(source - 1) % n])
        if step == 0:
            own = part
        else:
            moving = part if moving is None else moving + part
        if handles:
            k, v = (x.new_empty(coming, x.shape[1]) for x in (k, v))
            for x in (k, v):
                fabric.recv(x, frm=(rank - 1) % n)
            for handle in handles:
                handle.wait()
        if step:
            handle = fabric.isend(moving, to=(rank + 1) % n)
            moving = part.new_empty(2, coming, k.shape[1])
            fabric.recv(moving, frm=(rank - 1) % n)
            handle.wait()
            moving = moving if step < n - 1 else moving + own
    dk, dv = own if moving is None else moving
    return [dq, dk, dv]


HOME = "dk, dv = pass_on(fabric, [dk, dv], coming)"
answers.twin("in_one_message", {
    """
        if step < n - 1:
            k, v = pass_on(fabric, [k, v], coming)
        dk, dv = pass_on(fabric, [dk, dv], coming)
    """: """
        moving = pass_on(fabric, [torch.cat([k, v, dk, dv][2 * (step == n - 1):], dim=1)], coming)[0]
        *block, dk, dv = moving.split(q.shape[1], dim=1)
        k, v = block or (k, v)
    """,
})

answers.mistake("forgets_d", {" - inner": ""}, "D was not subtracted")
answers.mistake("adds_d", {" - inner": " + inner"}, "D was added, not subtracted")
answers.mistake("one_d_for_all_queries", {".sum(dim=1, keepdim=True)": ".sum()"}, "D is one number for each query")
answers.mistake("a_d_for_each_block", {
    "ds = p * (grad @ v.T - inner)": "ds = p * (grad @ v.T - (p * (grad @ v.T)).sum(dim=1, keepdim=True))",
}, "D came from each block's own weights")
answers.mistake("divides_dk_twice", {"dk + ds.T @ q": "dk + ds.T @ q / q.shape[1] ** 0.5"}, "dk was divided by √width twice")
answers.mistake("divides_dq_twice", {"dq + ds @ k": "dq + ds @ k / q.shape[1] ** 0.5"}, "dq was divided by √width twice")
answers.mistake("forgets_the_root", {" / q.shape[1] ** 0.5": ""}, "Scores are divided by √width, and so are their gradients")
answers.mistake("root_of_the_number_of_rows", {" / q.shape[1] ** 0.5": " / q.shape[0] ** 0.5"},
    "this is divided by the root of the number of rows")
answers.mistake("d_outside_the_bracket", {"p * (grad @ v.T - inner)": "(p * (grad @ v.T) - inner)"},
    "D belongs into the bracket")
answers.mistake("d_from_queries", {'(grad * task["rows"])': "(grad * q)"}, "the rows, not the queries")
answers.mistake("dv_from_the_scores_gradient", {"p.T @ grad": "ds.T @ grad"}, "it is Pᵀ dO, from the weights themselves")
answers.mistake("returns_floats_of_four_bytes", {"return dq, dk, dv": "return dq.float(), dk.float(), dv.float()"},
    "expected dq as float64, got float32. Give it the dtype of the task's rows")
answers.mistake("leaves_gradients_on_the_last_rank", {HOME: f"if step < n - 1:\n    {HOME}"},
    "Its gradients are those of the next rank's block: in each of n rounds add this rank's part, and then pass the sum on")
answers.mistake("passes_on_before_it_adds", {
    "dq, dk, dv = dq + ds @ k, dk + ds.T @ q, dv + p.T @ grad": "parts, dq = (ds.T @ q, p.T @ grad), dq + ds @ k",
    HOME: f"{HOME}\ndk, dv = dk + parts[0], dv + parts[1]",
}, "Its gradients are those of the next rank's block", "add this rank's part, and then pass the sum on")
answers.mistake("a_softmax_for_each_block", {
    "p = weights_again(fabric, task, source, k)": """
        p = weights_again(fabric, task, source, k)
        p = p / p.sum(dim=1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
        inner = (p * (grad @ v.T)).sum(dim=1, keepdim=True)
    """,
}, "Each block had a softmax of its own", "which `weights_again` returns")
answers.mistake("weights_of_each_block", {
    "p = weights_again(fabric, task, source, k)": """
        p = weights_again(fabric, task, source, k)
        p = p / p.sum(dim=1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
    """,
}, "A block's weights are those of the softmax over all keys")
answers.mistake("begins_anew_on_each_rank", {"dk + ds.T @ q, dv + p.T @ grad": "ds.T @ q, p.T @ grad"},
    "add to what came, and send the sum on")
answers.mistake("sums_over_all_blocks", {HOME: ""}, "A gradient belongs to a block and travels with it")
answers.mistake("works_on_its_own_block_alone", {"for step in range(n):": "for step in range(1):", HOME: ""},
    "These are the parts of its own block alone")
answers.mistake("changes_dk_and_dv", {"return dq, dk, dv": "return dq, dv, dk"}, "dk and dv change places")
answers.mistake("returns_what_travelled_alone", {"return dq, dk, dv": "return dk, dv"},
    "expected three tensors, dq, dk and dv, got 2 values")
answers.mistake("masks_all_as_its_own", {"weights_again(fabric, task, source, k)": "weights_again(fabric, task, rank, k)"},
    "2 ranks", "Every block was masked as if it were the rank's own")
answers.mistake("takes_the_length_of_the_block_at_hand", {"(source - 1) % n": "source"},
    "4 ranks, 11 tokens", "a block's gradient is as long as the block")
answers.mistake("sends_keys_home", {"if step < n - 1:": "if n > 1:"},
    "the gradients are right, but rank 0 sent", "their gradients alone go home")
answers.mistake("sends_gradients_twice", {HOME: f"pass_on(fabric, [dk, dv], coming)\n{HOME}"},
    "the gradients are right, but rank 0 sent", "Send each tensor over a link once")
answers.mistake("adds_to_the_rows_in_place", {"return dq, dk, dv": 'task["rows"] += 1\nreturn dq, dk, dv'},
    'task["rows"] was changed in place')
answers.mistake("receives_into_float32", {HOME: """
        handles = [fabric.isend(x, to=(rank + 1) % n) for x in (dk, dv)]
        dk, dv = (torch.empty(coming, q.shape[1]) for _ in range(2))
        for x in (dk, dv):
            fabric.recv(x, frm=(rank - 1) % n)
        for handle in handles:
            handle.wait()
    """}, "Give the tensors that you receive into the dtype of the block")
answers.mistake("sends_blocking", {HOME: """
        fabric.send(torch.stack([dk, dv]), to=(rank + 1) % n)
        dk, dv = came = q.new_empty(2, coming, q.shape[1])
        fabric.recv(came, frm=(rank - 1) % n)
    """}, "deadlock")
answers.mistake("goes_through_float32", {
    HOME: "dk, dv = (x.to(q.dtype) for x in pass_on(fabric, [dk.float(), dv.float()], coming))",
}, "Numbers that went through float32 are off by this much")
