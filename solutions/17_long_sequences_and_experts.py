# %% [markdown]
# # Lab 17. Long sequences and experts
#
# **After this lab you are able to** compute exact attention over a sequence that no rank holds, with keys and values
# that travel round a ring; to deal out tokens so that no rank idles under a causal mask; to send tokens to experts on
# other ranks and back; and to say which way is faster on how many ranks.
#
# **Minutes:** 140 (two sittings: 60 up to “Heads dealt out”, then 80) · **Points:** 6 · **Prerequisites:** Lab 06 (rings), Lab 02
# (all-to-all). Lab 12 helps.

# %% [markdown]
# ![Timeline of 4 ranks over 128 ms: rank 0 holds the others up 80 % of the time.](../labs/covers/17.png)

# %%
# Set-up: the tools of this lab
from worldsize.notebook import *

import math
from statistics import median

import torch
import torch.distributed as dist
from torch.nn import functional as F

from worldsize import data
from worldsize.fabric.collectives import all_reduce, meet
from worldsize.formulas import attention, experts

# %% tags=["parameters"]
ranks = 4  # 2, 4 or 8: eight heads are dealt out evenly
length = 1024
width = 64
lengths = [4_096, 16_384, 65_536, 262_144, 1_048_576]
far_ranks = [2, 4, 16, 32, 64, 256, 1024]
images_count = 1024
steps = 60
routers = 3  # starts of the router, each trained with and without a balancing loss
work_ms = 20

# %%
lab, check = open_lab("17")
if ranks < 2 or 8 % ranks:
    raise ValueError(
        f"ranks = {ranks}: expected 2, 4 or 8, because eight heads are dealt out evenly"
    )

# %% [markdown]
# ## A sequence that does not fit
#
# In **attention** every token asks every other one. A token has a query, a key and a value, rows of `width` numbers.
# A **score** is the product of a query with a key, divided by √width; a softmax over a query's scores says how much
# of each value it takes. A layer has several **heads**, each with its own queries, keys and values, and L² scores for
# L tokens. Films and long programs have hundreds of thousands of tokens. (Fused kernels such as FlashAttention
# compute all scores, but never store them all at once.)

# %%
lab.predict("scores", f"{lengths[3]:,} tokens, 32 heads, scores of 2 bytes. How many GB do all scores of one layer take?", "GB")

# %%
lab.measure("scores", attention.score_bytes(lengths[3], 32) / 1e9)
scores = [(n, attention.score_bytes(n, 32)) for n in lengths]
rows = [(n, 2 * attention.block_bytes(n, 4096, 1)) for n in lengths]
by, longer = scores[-1][1] / scores[0][1], lengths[-1] / lengths[0]
figures.curves(
    [
        figures.Curve("all scores, 32 heads", predicted=scores),
        figures.Curve("keys and values, width 4,096", predicted=rows),
    ],
    figures.answered(
        "What grows faster than the sequence?",
        f"the scores: {by:,.0f} times for {longer:,.0f} times the tokens",
    ),
    x="tokens", y="in one layer (bytes)", log=True, growth=True,
)

# %% [markdown]
# Twice as many tokens have four times as many scores. A fused kernel saves the memory of the upper curve, not its work. And the
# lower curve stays in memory in every layer, until the backward pass. Splitting the batch (Lab 04) does not help: one sequence is
# too long. Tensor parallelism (Lab 12) divides the heads, and their keys, values and scores; but it takes two all-reduces of all
# rows in a layer, and divides keys over no more ranks than there are key heads. Lab 12's sequence parallelism cuts only what lies
# outside attention and MLP.

# %% [markdown]
# So cut the sequence: **context parallelism**. Each rank owns some tokens: their queries, keys and values. But a query needs
# *all* keys. One way: gather all keys and values before a layer works. Each rank then holds the lower curve for a while. Llama
# 3's training does so: masks of every kind are easy there, and its layers have few key heads, so keys and values are small. Here
# you write a way whose memory falls with the number of ranks.

# %% [markdown]
# ## Softmax, block by block
#
# Take a query and two blocks of keys. Could each block have its own softmax, and the results be averaged? Try it.

# %%
torch.manual_seed(17)
q, k, v = torch.randn(3, 6, 4, dtype=torch.float64)  # width 4: scores are divided by 2
right = F.softmax(q @ k.T / 2, dim=1) @ v
halves = [F.softmax(q @ k[part].T / 2, dim=1) @ v[part] for part in (slice(0, 3), slice(3, 6))]
print("the right rows, first column:      ", [round(x, 3) for x in right[:, 0].tolist()])
mean = sum(halves) / 2
print("averaged softmaxes, first column:  ", [round(x, 3) for x in mean[:, 0].tolist()])

# %% [markdown]
# A block with greater scores must weigh more. So keep three things for each block: for every query its greatest score
# $m$, the sum $s=\sum e^{x-m}$ of its scores $x$, and the sum $o=\sum e^{x-m}v$ of the values. ($e^{x}$ alone would be
# infinite for large scores, and 0 for scores far below 0; that is why $m$ is subtracted.) `attend` gives you these three.
# A query that sees no key of a block has $s=0$ and $o=0$ there.

# %%
# Set-up
def block_scores(fabric, task, source, k):
    """This rank's queries with the keys of rank `source`; −inf where the mask hides a key."""
    scores = task["q"] @ k.T / math.sqrt(k.shape[1])
    if task["causal"]:  # a query sees its own token and the earlier ones
        own, theirs = (torch.tensor(task["tokens"][rank]) for rank in (fabric.rank, source))
        scores = scores.masked_fill(theirs > own[:, None], -math.inf)
    return scores

def attend(fabric, task, source, k, v):
    """Own queries on rank `source`'s block: m, s [own tokens, 1], o [own tokens, width]."""
    scores = block_scores(fabric, task, source, k)
    m = scores.amax(dim=1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    weights = torch.exp(scores - m)
    return m, weights.sum(dim=1, keepdim=True), fabric.compute(task["work_s"], weights @ v)

# %% [markdown]
# Two blocks have $(m_1,s_1,o_1)$ and $(m_2,s_2,o_2)$. Bring both to the greater $m$, for each query by itself. What was
# divided by $e^{m_1}$ must now be divided by $e^{m}$: multiply it by $e^{m_1-m}$. In the end the rows are $o/s$. This
# **online softmax** (Milakov and Gimelshein, 2018) is exact: no number is lost, only the order of the sums changes.
#
# **Ring attention** (Liu and others, 2023) lets the *blocks* travel. A rank keeps its queries. It hands keys and values
# on to the next rank while it works on them.

# %%
slow = Link("20 MB/s", "1 ms")
way_ms = 1e3 * slow.seconds(2 * length // ranks * width * 8)
asks = f"{ranks} ranks, {length} tokens, width {width}, float64."
lab.predict("ring", f"{asks} How many kB of keys and values does a rank send?", "kB")
asks = f"{ranks} blocks of {work_ms} ms of work each; a block is {way_ms:.0f} ms on its way."
asks += " How many ms does the ring take?"
lab.predict("ring_ms", f"{asks} (in simulated time, where nothing else delays it)", "ms")

# %% [markdown]
# A task holds this rank's rows `q`, `k`, `v`, and `tokens`, a list with the numbers of *every* rank's tokens: if the
# sequence does not divide evenly, blocks differ in length. Tell `attend` whose block it is: its mask depends on that.
#
# <details><summary>Hint 1</summary>In round s a rank has the block of rank (rank − s) mod n, its own first. n blocks, n
# − 1 rounds in which something travels.</details>
# <details><summary>Hint 2</summary>Order in a round: isend the block at hand, attend, recv the next one into new
# tensors, wait.</details>

# %% tags=["exercise:ring_attention"]
# Exercise 17.1: exact attention, with keys and values that travel
def ring_attention(fabric, task):
    """Return own rows of attention over all tokens, [own tokens, width]; scores of any size.

    Each block of keys and values goes round the ring, n − 1 hops to a neighbour, while the rank
    works on it. Besides its own, a rank holds the block at hand, the next, and one running
    m, s, o. Call attend once per block, even if the mask hides it. The task stays as it is.
    """
    n, rank = fabric.world_size, fabric.rank
    k, v = task["k"], task["v"]
    ### BEGIN SOLUTION
    for step in range(n):
        source, handles = (rank - step) % n, []
        if step < n - 1:
            handles = [fabric.isend(x, to=(rank + 1) % n) for x in (k, v)]
        m, s, o = attend(fabric, task, source, k, v)
        if step == 0:
            greatest, total, rows = m, s, o
        else:
            new = torch.maximum(greatest, m)
            old_scale, scale = torch.exp(greatest - new), torch.exp(m - new)
            greatest, total = new, total * old_scale + s * scale
            rows = rows * old_scale + o * scale
        if handles:
            coming = len(task["tokens"][(source - 1) % n])
            k, v = (x.new_empty(coming, x.shape[1]) for x in (k, v))
            for x in (k, v):
                fabric.recv(x, frm=(rank - 1) % n)
            for handle in handles:
                handle.wait()
    return rows / total
    ### END SOLUTION

# %% tags=["check:ring_attention"] points=2.5
check.ring_attention(ring_attention)

# %%
# Helper: a sequence, and your ring on a rank's part of it
def sequence_task(rank, tokens, causal=False, work_s=0.0):
    """A rank's part of a sequence that everybody could draw, and nobody else keeps."""
    whole = torch.randn(3, length, width, dtype=torch.float64, generator=torch.Generator().manual_seed(17))
    q, k, v = whole[:, tokens[rank]]
    return {"q": q, "k": k, "v": v, "tokens": tokens, "causal": causal, "work_s": work_s}

def on_ring(fabric, tokens, causal=False, work_s=0.0):
    return ring_attention(fabric, sequence_task(fabric.rank, tokens, causal, work_s))

def in_a_row(n):
    return [part.tolist() for part in torch.arange(length).tensor_split(n)]

def under_work(trace, rank=0):
    """The part of the time that a rank's blocks are on their way in which this rank works, looked at 1,000 times."""
    works = [(span.start_s, span.end_s) for span in trace.spans if span.rank == rank and span.declared]
    ways = [(t.start_s, t.end_s) for t in trace.transfers if t.src == rank]
    began_s, ended_s = min(ways)[0], max(end_s for _, end_s in ways)
    moments = [began_s + (ended_s - began_s) * (k + 0.5) / 1000 for k in range(1000)]
    on_way = [s for s in moments if any(start <= s < end for start, end in ways)]
    return sum(any(start <= s < end for start, end in works) for s in on_way) / len(on_way)

# %%
at_work = in_a_row(ranks), False, work_ms / 1e3
run = launch(on_ring, ranks, args=at_work, link=slow)
random = torch.Generator().manual_seed(17)
whole = torch.randn(3, length, width, dtype=torch.float64, generator=random)
if run.state == "done":
    off = (torch.cat(run.results) - F.scaled_dot_product_attention(*whole)).abs().max()
    print(f"largest difference from PyTorch's attention on one device: {off:.0e}")
    works_ms, ways_ms = ranks * work_ms, (ranks - 1) * way_ms
    both = f"{works_ms + ways_ms:.0f} ms one after the other"
    print(f"{works_ms} ms of work and {ways_ms:.0f} ms of transfers: {both}")
    played = simulate(on_ring, ranks, args=at_work, link=slow)
    for where, of in (("on this machine", run), ("in simulated time", played)):
        part = f"{100 * under_work(of.trace):.0f} % of the time"
        print(f"  {where} rank 0 works in {part} that its blocks are on their way")
lab.measure("ring", run.trace.sent_bytes(0) / 1e3 if run.state == "done" else None)
lab.measure("ring_ms", 1e3 * played.simulated_s if run.state == "done" else None)
figures.timeline(played if run.state == "done" else run)

# %% [markdown]
# The picture is of simulated time, in which nothing else delays a rank. Each arrow is a tensor on its way: does a
# rank wait for one, or does it work meanwhile? The bytes that a rank sends hardly depend on the number of ranks:
# $n-1$ blocks of $2\frac Ln$ rows are nearly all keys and values. What it *holds* falls with more ranks: three blocks
# of $\frac Ln$ tokens, its own, the one at hand and the next.
#
# **In one sentence:** why is a transfer hidden more easily when the sequence is longer?
#
# <details><summary>Compare</summary>With blocks twice as long, twice as many bytes travel under work on four times as
# many pairs.</details>

# %% [markdown]
# ## Who idles
#
# A language model's queries see no later key: the mask is **causal**. Half of all pairs are gone. Is half of the time
# gone too? Let each rank own one stretch of the sequence, rank 0 the first, and count the pairs that are left. A rank's work
# in a round is in proportion to its pairs, and a round lasts as long as its busiest rank. **Even work** would give each rank
# the same part of all pairs that are left.

# %%
asks = f"{ranks} ranks with one stretch of tokens each, causal mask."
lab.predict("idle", f"{asks} How many times as long as with even work does it take?", "times")

# %%
# Helper: the rounds of a causal ring, with their work declared
def declared_ring(fabric, tokens, pair_s):
    """The rounds of a causal ring: its work declared, a small message for each block; all ranks end together."""
    n, rank = fabric.world_size, fabric.rank
    pairs = attention.pairs_by_round(tokens)
    for step in range(n):
        handle = fabric.isend(torch.zeros(16), to=(rank + 1) % n)
        fabric.compute(float(pairs[step, rank]) * pair_s)
        fabric.recv(torch.empty(16), frm=(rank - 1) % n)
        handle.wait()
    meet(fabric)

def seconds_of_rounds(tokens):
    """Seconds of the causal ring, and those of even work, in simulated time."""
    pair_s = 1e-6
    run = simulate(declared_ring, len(tokens), args=(tokens, pair_s))
    return run.simulated_s, attention.causal_pairs(length) / len(tokens) * pair_s

# %%
row, even = seconds_of_rounds(in_a_row(ranks))
lab.measure("idle", row / even)
without = length**2 / ranks * 1e-6
print(f"without a mask {without / even:.2f} times the time of even causal work,", end=" ")
print(f"with it {row / even:.2f} times")
figures.timeline(simulate(declared_ring, ranks, args=(in_a_row(ranks), 1e-6)))

# %% [markdown]
# Rank 0 sees nothing but its own block, and waits; the last rank sees every block. Half of the pairs are gone, but compared
# with no mask only $\frac1{2n}$ of the time is saved: the time falls from 2 to $2-\frac1n$ times that of even work. A
# rank's tokens need not be neighbours, for `attend` masks by their numbers.
#
# <details><summary>Hint</summary>A late token sees many keys, an early one few. Every rank should have early and late
# ones, in every block that comes by.</details>

# %% tags=["exercise:my_tokens"]
# Exercise 17.2: which tokens a rank owns
def my_tokens(rank, world_size, length):
    """Return the numbers of this rank's tokens, from 0 to length − 1: a list, a range or a
    tensor.

    Every token has one owner, and a rank owns at most two tokens more than another. Under a
    causal mask each round of the ring is equal work for every rank: if each has hundreds of
    tokens, all rounds together take at most 2 % longer than even work.
    """
    ### BEGIN SOLUTION
    return list(range(rank, length, world_size))
    ### END SOLUTION

# %% tags=["check:my_tokens"] points=1
check.my_tokens(my_tokens)

# %%
def dealt_out(n):
    """All ranks' tokens; None if the exercise is not written yet."""
    run = launch(lambda fabric: my_tokens(fabric.rank, fabric.world_size, length), n)
    return [list(map(int, own)) for own in run.results] if run.state == "done" else None

mine = dealt_out(ranks)
if mine:
    print(f"your tokens: {seconds_of_rounds(mine)[0] / even:.3f} times even causal work's time")
run = simulate(declared_ring, ranks, args=(mine, 1e-6)) if mine else None
figures.timeline(run) if run else figures.not_yet("Exercise 17.2")

# %% [markdown]
# Dealing tokens out one by one gives a **striped** layout (Brandon and others, 2023). Giving each rank one part from the front
# and the matching one from the back gives a **zigzag**, as in Llama 3's training and in PyTorch's own
# `torch.distributed.tensor.experimental.context_parallel`. (By default it gathers keys and values, as Llama 3 does. After
# `set_rotate_method("alltoall")`, from its module `_attention`, it passes them on, block by block.) And are the rows still right?
# The mask knows the tokens' numbers, so your ring should give the same rows as one device, in any layout.

# %%
run = launch(on_ring, ranks, args=(mine or in_a_row(ranks), True))
if run.state == "done" and mine:
    rows = torch.empty(length, width, dtype=torch.float64)
    for own, part in zip(mine, run.results):
        rows[own] = part
    off = (rows - F.scaled_dot_product_attention(*whole, is_causal=True)).abs().max()
    print(f"causal, your tokens: largest difference from one device {off:.0e}")

# %% [markdown]
# ## Heads dealt out
#
# There is another way (**Ulysses**, Jacobs and others, 2023). A head needs nothing from the other heads. A rank holds all
# heads of some tokens, and wants all tokens of some heads. So it sends every other rank those columns of its rows that
# belong to the other's heads. That is an all-to-all. Then each rank computes the attention of its heads alone. Another
# all-to-all brings the rows back.

# %%
asks = f"{ranks} ranks: divide a rank's bytes in the ring by its bytes with heads dealt out."
lab.predict("heads", f"{asks} What do you get?", "times")

# %%
# Set-up
def exchange(fabric, parts, came):
    """parts[r] goes to rank r; came[r], of the right shape, comes from it. Returns `came`."""
    n, me = fabric.world_size, fabric.rank
    came[me].copy_(parts[me])
    handles = [fabric.isend(parts[(me + k) % n], to=(me + k) % n) for k in range(1, n)]
    for k in range(1, n):
        fabric.recv(came[(me - k) % n], frm=(me - k) % n)
    for handle in handles:
        handle.wait()
    return came

# %%
# Helper: attention with its heads dealt out
def swap(fabric, parts):
    """An exchange of parts of equal shapes."""
    return exchange(fabric, parts, [torch.empty_like(part) for part in parts])

def heads_dealt_out(fabric, heads, work_s=0.0):
    """Non-causal attention of `heads` heads; this rank owns a stretch of the tokens, before and after."""
    n = fabric.world_size
    task = sequence_task(fabric.rank, in_a_row(n))
    three = torch.stack([task[name].view(-1, heads, width // heads) for name in "qkv"])
    came = swap(fabric, [part.contiguous() for part in three.tensor_split(n, dim=2)])
    q, k, v = torch.cat(came, dim=1).transpose(1, 2)  # [own heads, all tokens, head's width]
    rows = fabric.compute(work_s, F.scaled_dot_product_attention(q, k, v)).transpose(0, 1)
    home = swap(fabric, [part.contiguous() for part in rows.tensor_split(n)])
    return torch.cat(home, dim=1).reshape(len(home[0]), width)

# %%
ring = launch(on_ring, ranks, args=(in_a_row(ranks),))
turned = launch(heads_dealt_out, ranks, args=(8,))
split = [x.view(length, 8, -1).transpose(0, 1) for x in whole]
right = F.scaled_dot_product_attention(*split).transpose(0, 1).reshape(length, width)
off = (torch.cat(turned.results) - right).abs().max()
print(f"heads dealt out: largest difference from one device {off:.0e}")
sent, by_formula = turned.trace.sent_bytes(0), attention.bytes_heads(ranks, length, width, 8)
print(f"each rank sends {sent / 1e3:.0f} kB, by formula {by_formula / 1e3:.0f} kB")
lab.measure("heads", ring.trace.sent_bytes(0) / sent if ring.state == "done" else None)
figures.links(turned)

# %% [markdown]
# In the ring a rank sends $2(n-1)$ tensors of $\frac Ln$ rows. With heads dealt out it sends $4\frac{n-1}{n}$ such tensors,
# $\frac 2n$ times as many. But the ring hides its messages under work. Dealing out heads hides none, and there must be a
# head for each rank. In return, a causal mask leaves no rank idle: each rank has all tokens of its heads.

# %% [markdown]
# Most models of today have fewer heads of keys and values than of queries: with **grouped-query attention** (Ainslie and
# others, 2023) several query heads share a key head and a value head. Queries are dealt out as before. What if there are fewer
# key heads than ranks? Then a key head goes to every rank that has one of its query heads.

# %%
asks = f"8 query heads, 2 key and value heads, {ranks} ranks:"
asks += " divide the bytes that a rank sends by those with 8 key heads."
lab.predict("grouped", asks, "")

# %%
# Helper: heads dealt out, with shared key and value heads
def grouped(fabric, kv_heads, heads=8):
    """Non-causal attention with its heads dealt out; `heads // kv_heads` query heads share a key and a value head."""
    n, size = fabric.world_size, width // heads
    task = sequence_task(fabric.rank, in_a_row(n))
    q, k, v = (task[name].view(-1, heads, size) for name in "qkv")
    queries = [range(r * heads // n, (r + 1) * heads // n) for r in range(n)]
    keys = [sorted({h * kv_heads // heads for h in own}) for own in queries]

    parts = [torch.cat([q[:, list(mine)], k[:, shared], v[:, shared]], dim=1) for mine, shared in zip(queries, keys)]
    sizes = [len(queries[fabric.rank]), len(keys[fabric.rank]), len(keys[fabric.rank])]
    q, k, v = torch.cat(swap(fabric, parts)).transpose(0, 1).split(sizes)
    rows = F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(0, 1)
    home = swap(fabric, [part.contiguous() for part in rows.tensor_split(n)])
    return torch.cat(home, dim=1).reshape(len(home[0]), width)

# %%
bytes_of = {}
for kv_heads in (8, 2):
    run = launch(grouped, ranks, args=(kv_heads,))
    q, k, v = split[0], split[1][:kv_heads], split[2][:kv_heads]
    right = F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(0, 1)
    off = (torch.cat(run.results) - right.reshape(length, width)).abs().max()
    bytes_of[kv_heads] = run.trace.sent_bytes(0)
    print(f"{kv_heads} key heads: {off:.0e} from one device;",
          f"a rank sends {bytes_of[kv_heads] / 1e3:.0f} kB")
    if ring.state == "done":
        round_kb = ring.trace.sent_bytes(0) * kv_heads / 8 / 1e3
        print(f"  round the ring, where keys and values alone travel, {round_kb:.0f} kB")
lab.measure("grouped", bytes_of[2] / bytes_of[8])

# %% [markdown]
# **In one sentence:** which of the two ways gains more from shared key heads, and why?
#
# <details><summary>Compare</summary>The ring: nothing but keys and values goes round it. Dealt-out heads send queries and rows as
# before, and with fewer key heads than ranks some keys travel to several ranks.</details>

# %% [markdown]
# A layer is a dict: `ranks`, `tokens`, `heads`, `head_width`, `item_bytes` (of a number), `latency_s` and `bytes_per_s`
# of a rank's card, and `work_s`, the seconds of all pairs on one device. A message of m bytes takes $\alpha+\frac mB$. Of
# messages that leave a rank together only one $\alpha$ counts, but their bytes add up, since they share the rank's card.
# One rank alone sends nothing. The ranks divide the tokens evenly; there is no mask.

# %% tags=["exercise:attention_seconds"]
# Exercise 17.3: seconds of both ways
def attention_seconds(layer):
    """Return (seconds round the ring, seconds with heads dealt out) of one layer's attention,
    forwards.

    Ring: in each round but the last a block is on its way under the work on it; keys and values
    leave together. Heads: queries, keys and values leave together, then comes the work, then
    the rows go back. Where the ranks do not divide the heads: math.inf.
    """
    n = layer["ranks"]
    ### BEGIN SOLUTION
    row_bytes = layer["heads"] * layer["head_width"] * layer["item_bytes"]
    rows_bytes = layer["tokens"] / n * row_bytes
    alpha, rows_s = layer["latency_s"], rows_bytes / layer["bytes_per_s"]
    block_s = layer["work_s"] / n**2
    ring = (n - 1) * max(block_s, alpha + 2 * rows_s) + block_s
    if layer["heads"] % n:
        return ring, math.inf
    exchanges_s = 2 * alpha * (n > 1) + 4 * (n - 1) / n * rows_s
    return ring, exchanges_s + layer["work_s"] / n
    ### END SOLUTION

# %% tags=["check:attention_seconds"] points=1
check.attention_seconds(attention_seconds)

# %% [markdown]
# Now at scale: a sequence of 131,072 tokens, 32 heads of width 128, on cards of 50 GB/s, and a device that does 400
# Tflop/s. Attention over all pairs takes $4L^2$ operations for each of the heads' columns: two for the score, two for
# the value. Real ranks would need a cluster. Simulated ones do the same rounds, with the work declared. On how many
# ranks is dealing out heads faster? And how long does the ring hide all that it sends?

# %%
far_layer = {"tokens": 131_072, "heads": 32, "head_width": 128, "item_bytes": 2}
far_layer |= {"latency_s": 5e-6, "bytes_per_s": 50e9}
far_layer["work_s"] = 4 * 131_072**2 * 32 * 128 / 400e12
counts = ", ".join(map(str, far_ranks))
asks = f"From which of {counts} ranks on does the ring take longer than its work alone"
lab.predict("turn", f"{asks} (by more than 1 %)?", "ranks")

# %%
# Helper: both ways with their work declared, and tensors that have only shapes
def far_ring(fabric, numbers, work_s):
    n, rank = fabric.world_size, fabric.rank
    for step in range(n):
        if step == n - 1:
            fabric.compute(work_s)
            break
        handle = fabric.isend(torch.zeros(numbers, dtype=torch.uint8, device="meta"), to=(rank + 1) % n)
        fabric.compute(work_s)
        fabric.recv(torch.empty(numbers, dtype=torch.uint8, device="meta"), frm=(rank - 1) % n)
        handle.wait()

def far_heads(fabric, numbers, work_s):
    n = fabric.world_size
    for many in (3, 1):
        parts = [torch.zeros(many * numbers, dtype=torch.uint8, device="meta") for _ in range(n)]
        swap(fabric, parts)
        if many == 3:
            fabric.compute(work_s)

def faster_with_heads(played):
    """Name the numbers of ranks on which dealing out heads takes less time than the ring."""
    ring_s = dict(played["round the ring"])
    faster = [f"{n:,}" for n, seconds in played["heads dealt out"] if seconds < ring_s[n]]
    return f"on {', '.join(faster)} ranks" if faster else "on none of these numbers of ranks"

# %%
far = Link(far_layer["bytes_per_s"], far_layer["latency_s"])
rows_bytes = 131_072 * 32 * 128 * 2
played = {"round the ring": [], "heads dealt out": []}
for n in far_ranks:
    for name, fn, args in (
        ("round the ring", far_ring, (2 * rows_bytes // n, far_layer["work_s"] / n**2)),
        ("heads dealt out", far_heads, (rows_bytes // n**2, far_layer["work_s"] / n)),
    ):
        if name == "round the ring" or n <= far_layer["heads"]:
            run = simulate(fn, n, args=args, link=far, most_messages=40_000)
            played[name].append((n, run.simulated_s))
    last = {name: points[-1] for name, points in played.items()}
    times_ms = [f"{name} {s * 1e3:.2f} ms" for name, (k, s) in last.items() if k == n]
    print(f"{n:5,} ranks: {', '.join(times_ms)}", flush=True)

# %%
predicted = {name: [] for name in played}
layers = [far_layer | {"ranks": n} for n in far_ranks]
run = launch(lambda fabric, layers: list(map(attention_seconds, layers)), 1, args=(layers,))
for n, both in zip(far_ranks, run[0] if run.state == "done" else ()):
    for name, seconds in zip(predicted, both):
        if seconds < math.inf:
            predicted[name].append((n, seconds))
work_alone = [(n, far_layer["work_s"] / n) for n in far_ranks]
pairs = zip(played["round the ring"], work_alone)
slower = [n for (n, seconds), (_, work) in pairs if seconds > 1.01 * work]
lab.measure("turn", slower[0] if slower else None)
best, best_s = min(played["round the ring"], key=lambda point: point[1])
last, last_s = played["round the ring"][-1]
print(f"the ring takes least on {best:,} ranks, {1e3 * best_s:.2f} ms;", end=" ")
print(f"on {last:,} it takes {1e3 * last_s:.2f} ms")
figures.curves(
    [figures.Curve(name, predicted=predicted[name], simulated=played[name]) for name in played]
    + [figures.Curve("the work alone", predicted=work_alone)],
    figures.answered(
        "On how many ranks is dealing out heads faster than the ring?",
        faster_with_heads(played),
    ),
    x="ranks", y="time of a layer's attention (s)", log=True,
)

# %% [markdown]
# A block's work falls as $\frac{1}{n^2}$, its transfer as $\frac1n$. While the work on a block takes longer than its
# transfer, the ring costs nothing extra. On more ranks the transfer decides. All $n-1$ blocks together have about the same bytes
# on any number of ranks, but each block has its latency too. So from some number of ranks on the ring gets slower again. Heads
# can be dealt out to as many ranks as there are heads, and no more.

# %% [markdown]
# More ranks can do both: heads are dealt out inside a machine, and keys and values go round a ring of machines (Fang and Zhao,
# 2024).

# %% [markdown]
# ## Experts
#
# Another way to a larger model: use only a part of it for each token. In a **mixture of experts** a layer has E MLPs, and a small
# **router** sends each token to one of them. A token costs no more, and the model has E times the MLP weights. Each rank
# keeps some experts (**expert parallelism**), so tokens travel: an all-to-all with *unequal* counts, as the router decides.

# %%
lab.predict(
    "rows", f"{ranks} ranks with an expert each, 256 tokens a rank, experts chosen evenly, width {width}, float64. How many kB "
    f"does a rank send: its tokens to experts, and others' rows home?", "kB",
)

# %% [markdown]
# If all tokens want one expert, all ranks wait for its rank, and its memory may overflow. So an expert may have a
# **capacity**: it takes the first tokens of each rank up to that number, and drops the rest (Lepikhin and others,
# 2020). A dropped token's row is zero; the token passes the layer through the residual connection, which is added later.
# Many newer models are trained without a capacity, DeepSeek-V3 among them: no token is dropped, and the router is kept even.

# %% [markdown]
# **The backward pass.** A row's gradient travels the same way as the row. So the same function serves: pass gradients
# as `x`, and the expert's backward step as `work`.

# %% [markdown]
# Sending is given: `exchange(fabric, parts, came)` from above. It sends `parts[r]` to rank r, and fills `came[r]` from there.
# PyTorch's own is `dist.all_to_all_single`, which takes the counts as `input_split_sizes` and `output_split_sizes`. Does it bring
# the same rows?

# %%
def by_torch(fabric, parts, came):
    """`exchange` in one call of PyTorch: the numbers of rows are its split sizes."""
    comes, goes = [len(x) for x in came], [len(x) for x in parts]
    arrived = torch.cat(came)
    dist.all_to_all_single(arrived, torch.cat(parts), comes, goes)
    return arrived.split(comes)

# %%
def are_alike(fabric):
    """Whether both bring this rank the same rows. Rank a sends a + b rows to rank b."""
    dist.init_process_group("gloo")
    n, me = fabric.world_size, fabric.rank
    parts = [torch.full((me + r, 2), 10.0 * me + r) for r in range(n)]
    ours = exchange(fabric, parts, [torch.zeros(me + r, 2) for r in range(n)])
    theirs = by_torch(fabric, parts, [torch.zeros(me + r, 2) for r in range(n)])
    return all(map(torch.equal, ours, theirs))

# %%
alike = all(launch(are_alike, ranks).results)
print(f"dist.all_to_all_single and exchange bring {'the same' if alike else 'different'} rows")

# %% [markdown]
# Your function uses `exchange`, whose messages the check can count.
#
# <details><summary>Hint 1</summary>Nobody can receive rows without knowing how many: <code>recv</code> wants a tensor
# of the right shape. So counts travel first.</details>
# <details><summary>Hint 2</summary>For each rank, keep the places of the tokens that went there. What comes home from
# it is in that order: <code>y[places] = rows</code>.</details>

# %% tags=["exercise:to_experts"]
# Exercise 17.4: tokens to experts, and home again
def to_experts(fabric, task, work):
    """Return (y, dropped): each own token's row, in its place, and the dropped tokens' places.

    task["x"] [own tokens, width]; task["chosen"], a list, the expert of each, which lives on
    the rank of that number. `work(rows)` is this rank's expert, called once, on the rows of all
    ranks; it returns rows of the same shape. (Where no row came, it need not be called.) An
    expert takes the first task["capacity"] tokens of a rank (None: all); a dropped one does not
    travel, and its row is zero. `dropped` is a list or a tensor, in any order. The task stays
    as it is.
    """
    x, n = task["x"], fabric.world_size
    ### BEGIN SOLUTION
    places = [[] for _ in range(n)]
    for place, expert in enumerate(task["chosen"]):
        places[expert].append(place)
    places = [own[: task["capacity"]] for own in places]
    mine = [torch.tensor([len(own)]) for own in places]
    counts = exchange(fabric, mine, [torch.tensor([0]) for _ in range(n)])
    room = [x.new_empty(int(many), x.shape[1]) for many in counts]
    came = exchange(fabric, [x[own] for own in places], room)
    made = work(torch.cat(came)).split([len(rows) for rows in came])
    home = exchange(fabric, made, [x.new_empty(len(own), x.shape[1]) for own in places])
    y = torch.zeros_like(x)
    for own, rows in zip(places, home):
        y[own] = rows
    return y, sorted(set(range(len(x))) - set(sum(places, [])))
    ### END SOLUTION

# %% tags=["check:to_experts"] points=1.5
check.to_experts(to_experts)

# %%
# Helper: tokens of a rank, and its expert
def mixture_task(rank, n, hot=0.0):
    """256 tokens and their experts: a share `hot` wants expert 0, and the others want all experts equally often."""
    random = torch.Generator().manual_seed(100 + rank)
    chosen = torch.arange(256) % n
    chosen[: round(256 * hot)] = 0
    chosen = chosen[torch.randperm(256, generator=random)]
    x = torch.randn(256, width, dtype=torch.float64, generator=random)
    return {"x": x, "chosen": chosen.tolist(), "capacity": None}

def expert_weight(expert):
    return torch.randn(width, width, dtype=torch.float64, generator=torch.Generator().manual_seed(expert)) / width**0.5

def mixed(fabric, hot):
    own = expert_weight(fabric.rank)
    task = mixture_task(fabric.rank, fabric.world_size, hot)
    return to_experts(fabric, task, lambda rows: (rows @ own.T).tanh())[0]

# %%
run = launch(mixed, ranks, args=(0.0,))
if run.state == "done":
    for rank, got in enumerate(run.results):
        task = mixture_task(rank, ranks)
        pairs = zip(task["x"], task["chosen"])
        right = torch.stack([(x @ expert_weight(e).T).tanh() for x, e in pairs])
        off = (got - right).abs().max()
        print(f"rank {rank}: largest difference from one device {off:.0e}")
lab.measure("rows", run.trace.sent_bytes(0) / 1e3 if run.state == "done" else None)
figures.links(run)

# %% [markdown]
# Many routers send a token to its *two* best experts and add up their rows, weighted by the two probabilities, which are
# divided by their sum (**top-2**, Shazeer and others, 2017). Your function can do it as it stands. How? And how many times the
# bytes of one expert a token does it send?
#
# <details><summary>Compare</summary>Hand over each token twice, once with its best expert and once with its second
# best: twice the rows, so twice the bytes. A few more or fewer tokens stay at home, because experts are drawn at
# random below.</details>

# %%
# Helper: two experts for each token
def two_experts(fabric):
    """Each token goes to its two best experts. Returns the weighted rows, the experts and their weights."""
    n, x = fabric.world_size, mixture_task(fabric.rank, fabric.world_size)["x"]
    scores = torch.randn(len(x), n, dtype=torch.float64, generator=torch.Generator().manual_seed(200 + fabric.rank))
    p, chosen = scores.softmax(dim=1).topk(2, dim=1)
    p = p / p.sum(dim=1, keepdim=True)
    own = expert_weight(fabric.rank)
    twice = {"x": x.repeat(2, 1), "chosen": [*chosen[:, 0].tolist(), *chosen[:, 1].tolist()], "capacity": None}
    first, second = to_experts(fabric, twice, lambda rows: (rows @ own.T).tanh())[0].chunk(2)
    return p[:, :1] * first + p[:, 1:] * second, chosen, p

# %%
once, run = run, launch(two_experts, max(2, ranks))
if run.state == "done":
    for rank, (got, chosen, p) in enumerate(run.results):
        x = mixture_task(rank, ranks)["x"]
        made = torch.stack([(x @ expert_weight(e).T).tanh() for e in range(max(2, ranks))])
        right = sum(p[:, k, None] * made[chosen[:, k], torch.arange(len(x))] for k in (0, 1))
        off = (got - right).abs().max()
        print(f"rank {rank}: largest difference from one device {off:.0e}")
    more = run.trace.total_bytes() / once.trace.total_bytes()
    print(f"two experts a token: {more:.2f} times the bytes of one")

# %% [markdown]
# And if half of all tokens want expert 0? Its rank receives most tokens, and sends as many rows home.

# %%
run = launch(mixed, ranks, args=(0.5,))
figures.links(run)

# %% [markdown]
# With a capacity the hot expert takes fewer rows, and tokens are lost. A capacity is usually given as a factor of the **even
# share**: the tokens that an expert gets if all get as many. Here an expert's work takes time in proportion to its rows. Who
# waits without a capacity, and how much of this waiting is left with one?

# %%
most = experts.capacity(256, ranks, 1.25)
lab.predict(
    "dropped",
    f"Capacity 1.25 even shares: an expert takes at most {most} of a rank's 256 tokens. Half of"
    f" all tokens want expert 0; the others want all {ranks} experts equally often, expert 0"
    " too. How many % of all tokens are dropped?",
    "%",
)

# %%
# Helper: a run with an expert whose work is declared
def timed(fabric, hot, capacity):
    """The places of the tokens that were dropped, with an expert whose work is declared."""
    own = expert_weight(fabric.rank)
    task = mixture_task(fabric.rank, fabric.world_size, hot) | {"capacity": capacity}
    return to_experts(fabric, task, lambda rows: fabric.compute(len(rows) / 5e3, (rows @ own.T).tanh()))[1]

# %% tags=["cover"]
run = launch(timed, ranks, args=(0.5, most))
lost = sum(map(len, run.results)) if run.state == "done" else None
lab.measure("dropped", None if lost is None else 100 * lost / (256 * ranks))
free, held = (simulate(timed, ranks, args=(0.5, capacity)) for capacity in (None, most))
figures.timeline(free)

# %%
for name, run in (("without", free), ("with", held)):
    if run.state == "done":
        works = [span for span in run.trace.spans if span.declared]
        works_ms = [0.0] * ranks
        for one in works:
            works_ms[one.rank] += 1e3 * (one.end_s - one.start_s)
        longest, all_ms = max(works_ms[1:]), 1e3 * run.simulated_s
        print(f"{name} a capacity expert 0 works {works_ms[0]:.0f} ms,",
              f"the others up to {longest:.0f} ms; all is done")
        waits = f"each of the others waits {all_ms - longest:.0f} ms or more"
        print(f"  after {all_ms:.0f} ms: {waits}")
figures.timeline(held)

# %% [markdown]
# ## A mixture that is trained
#
# Do routers become this uneven by themselves? Train a few. Here a token is an image. Each rank has its share of the images
# and one expert, a linear layer with ReLU. A token's row is the expert's, times the router's probability $p$: that is how
# the router learns. Your function runs twice in a step: there with rows, back with their gradients. An expert that is chosen
# more often learns more: is it chosen more often still?

# %% [markdown]
# Router and head are on every rank, so their gradients need an all-reduce, as in Lab 04. An expert is on one rank alone, which
# gets the rows and gradients of *all* ranks' tokens: its gradient is complete, and needs none.

# %% [markdown]
# The Switch Transformer's **balancing loss** is $E\sum_e f_eP_e$. Here $f_e$ is the share of tokens that expert e got, and
# $P_e$ the router's mean probability for it. This loss is 1 when all is even. (DeepSeek-V3 balances mostly without a loss: for
# the choice alone it adds a bias to each expert's score. After a step it raises the bias of an expert that got too few tokens,
# and lowers that of one that got too many.)

# %%
# Helper: the loss of a step, and its gradients
def mixture_loss(fabric, balance, router, expert, head, x, labels):
    """The loss on this rank's images, the expert's gradient, and how many tokens of all ranks went to each expert."""
    n, gradient, saved = fabric.world_size, torch.zeros_like(expert), []
    p = (x @ router.T).softmax(dim=1)
    best, chosen = p.max(dim=1)
    task = {"chosen": chosen.tolist(), "capacity": None}

    def there(rows):
        saved[:] = rows, (rows @ expert.T).relu()
        return saved[1]

    def back(grad):
        inward = grad * (saved[1] > 0)
        gradient.add_(inward.T @ saved[0])
        return inward @ expert

    rows = to_experts(fabric, task | {"x": x}, there)[0].requires_grad_()
    shares = all_reduce(fabric, torch.bincount(chosen, minlength=n).float())
    loss = F.cross_entropy((x + best[:, None] * rows) @ head.T, labels)
    uneven = n * (shares / shares.sum() * p.mean(dim=0)).sum()
    (loss + balance * uneven).backward()
    to_experts(fabric, task | {"x": rows.grad}, back)
    return loss, gradient, shares

# %%
# Helper: a router, experts and a head, trained
def train_mixture(fabric, balance, start, x, labels):
    """Gradient descent on a router, experts and a head. Returns the loss and the hottest expert's share, step by step."""
    n, random = fabric.world_size, torch.Generator().manual_seed(start)
    router, head = ((torch.randn(rows, x.shape[1], generator=random) / 8).requires_grad_() for rows in (n, 10))
    expert = (torch.randn(n, x.shape[1], x.shape[1], generator=random)[fabric.rank] / 8).contiguous()
    x, labels = x.tensor_split(n)[fabric.rank], labels.tensor_split(n)[fabric.rank]
    seen = []
    for _ in range(steps):
        loss, gradient, shares = mixture_loss(fabric, balance, router, expert, head, x, labels)
        with torch.no_grad():
            for w in (router, head):
                w -= 0.5 * all_reduce(fabric, w.grad) / n
                w.grad = None
            expert -= 0.5 * gradient / n
        mean = float(all_reduce(fabric, loss.detach().reshape(1))) / n
        seen.append((mean, experts.hottest(shares.tolist())))
    return seen

# %%
# Helper: what several trained routers say, in words
def of_routers(name, column, step=-1):
    """The loss (column 0) or the hottest expert's share (1) of each router's run of this name, at a step, in order."""
    return sorted(seen[step][column] for seen in trained[name])

def spread(values):
    """The middle of several numbers, with the least and the greatest."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"

def evenness():
    """Say whether the hottest expert ends near its even share by itself; None if the exercise is not written yet."""
    if not all(trained.values()):
        return None
    itself, balanced = (of_routers(name, 1) for name in trained)
    even = "yes" if max(itself) < 1.25 else "no" if min(itself) > 1.25 else "some do"
    ends, held_at = median(itself), median(balanced)
    return f"{even}: the hottest expert ends at {ends:.1f} even shares, balanced at {held_at:.1f}"

# %%
lab.predict(
    "router", f"{ranks} experts, no balancing loss, {routers} routers. After {steps} steps the hottest expert has how many times "
    f"its even share? (the middle router)", "times",
)

# %%
images = data.load("fashion-mnist")
x = torch.from_numpy(images.train_images[:images_count]).float().view(images_count, 28, 28)
x = F.avg_pool2d(x[:, None] / 255, 4).flatten(1)
x = (x - x.mean()) / x.std()
labels = torch.from_numpy(images.train_labels[:images_count]).long()
free_name, held_name = "no balancing loss", "0.1 × the balancing loss"
trained = {free_name: [], held_name: []}
for start in range(routers):
    for name, balance in ((free_name, 0.0), (held_name, 0.1)):
        run = launch(train_mixture, ranks, args=(balance, start, x, labels))
        if run.state == "done":
            trained[name].append(run[0])
lab.measure("router", median(of_routers(free_name, 1)) if trained[free_name] else None)

# %%
curves = []
for name, seen in trained.items():
    if seen:
        shown = sorted({*range(0, steps, math.ceil(steps / 15)), steps - 1})
        points = [(step, median(of_routers(name, 1, step))) for step in shown]
        curves.append(figures.Curve(name, points))
figures.curves(
    curves or [figures.Curve("Exercise 17.4")],
    figures.answered("Do routers become even by themselves?", evenness()),
    x="steps", y="hottest expert, in even shares",
)

# %%
for name, seen in trained.items():
    if seen:
        more = sum(run[-1][1] > 1.05 * run[0][1] for run in seen)
        uneven = [run for run in seen if run[0][1] > 1.25]
        first, last = spread(of_routers(name, 1, 0)), spread(of_routers(name, 1))
        print(f"{name}: the hottest expert has {first} even shares at first,")
        print(f"  {last} in the end: chosen more often still by {more} of {len(seen)} routers.")
        print(f"  Over 1.25 even shares at first: {len(uneven)} of {len(seen)};", end=" ")
        print(f"of these still so in the end: {sum(run[-1][1] > 1.25 for run in uneven)}.")
        print(f"  Loss in the end: {spread(of_routers(name, 0))}")
if all(trained.values()):
    itself, balanced = (of_routers(name, 0) for name in trained)
    apart = "more" if itself[-1] < balanced[0] or balanced[-1] < itself[0] else "less"
    change = median(balanced) - median(itself)
    print(f"Balancing changes the middle loss by {change:+.2f}, {apart} than routers differ.")

# %% [markdown]
# **In one sentence:** is a hot expert chosen more often still, and what does an even router cost?
#
# <details><summary>Compare</summary>The classes' loss asks for no even shares. With this lab's sizes all three routers without
# balancing end with a hotter expert than they began with. The balancing loss makes shares nearly even, and its price does not
# show here: the two losses differ by less than the routers do. Does your run say the same?</details>

# %% [markdown]
# ## The ring, backwards (optional)
#
# Training needs gradients, and they must come from blocks, too. A rank has the gradient $dO$ of its rows $O$. Of the forward
# pass it keeps $O$ and, for each query, the logarithm of its sum, $\ell=m+\log s$. So a block's weights are
# $P=e^{S-\ell}$, from its scores $S$, without another softmax.

# %% [markdown]
# With $D$ the sum of each row of $dO\circ O$ ($\circ$: number by number), and width $w$, a block's parts are
#
# $$dS=P\circ(dO\,V^\top-D),$$
#
# $$dQ\mathrel{+}=\tfrac1{\sqrt w}dS\,K,\quad dK\mathrel{+}=\tfrac1{\sqrt w}dS^\top Q,\quad dV\mathrel{+}=P^\top dO.$$
#
# This is FlashAttention's backward pass (Dao and others, 2022), with the one number $\ell$ kept for each query, as in
# FlashAttention-2 (Dao, 2023). A softmax's backward pass subtracts the sum of each row of $P\circ(dO\,V^\top)$ over *all* keys.
# That sum is $D$. Computed from $dO$ and $O$, it needs no other block.

# %% [markdown]
# $dQ$ belongs to the rank's own queries, and stays. $dK$ and $dV$ belong to the block at hand, of which every rank has a part.
# So they travel with $K$ and $V$, each rank adds its part, and a last hop takes them home. $K$ and $V$ need not go home.

# %%
asks = "divide the bytes that a rank sends backwards by those that it sends forwards"
lab.predict("backward", f"{ranks} ranks: {asks}. What do you get?", "times")

# %%
# Set-up
def weights_again(fabric, task, source, k):
    """P, the softmax's weights of own queries on rank `source`'s keys, from what was kept."""
    return torch.exp(block_scores(fabric, task, source, k) - task["log_sum"])

def pass_on(fabric, block, rows):
    """Send the tensors of `block` on; return those of the rank before, with `rows` rows."""
    n = fabric.world_size
    if n == 1:
        return block
    handles = [fabric.isend(x, to=(fabric.rank + 1) % n) for x in block]
    came = [x.new_empty(rows, x.shape[1]) for x in block]
    for x in came:
        fabric.recv(x, frm=(fabric.rank - 1) % n)
    for handle in handles:
        handle.wait()
    return came

# %% [markdown]
# A task holds `q`, `k`, `v`, `tokens` and `causal` as before; `rows` is $O$, `log_sum` is $\ell$, [own tokens, 1], and `grad` is
# $dO$.
#
# <details><summary>Hint 1</summary>Begin with zeros as dk and dv. In each round add the parts of the block at hand, then pass dk
# and dv on. Keys and values go on in all rounds but the last.</details>
# <details><summary>Hint 2</summary>The block that comes is that of rank (source − 1) mod n: it has as many rows as that rank has
# tokens.</details>

# %% tags=["exercise:ring_backward"]
# Exercise 17.5: the ring, backwards (optional)
def ring_backward(fabric, task):
    """Return (dq, dk, dv): the gradients of this rank's own queries, keys and values, in their
    shapes and dtype.

    Each block of keys and values goes round the ring as before, in n − 1 hops to a neighbour.
    The block's gradients travel too: each rank adds its part, and they are home after n hops at
    most. The task stays as it is.
    """
    n, rank = fabric.world_size, fabric.rank
    q, k, v, grad = (task[name] for name in ("q", "k", "v", "grad"))
    ### BEGIN SOLUTION
    inner = (grad * task["rows"]).sum(dim=1, keepdim=True)
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for step in range(n):
        source = (rank - step) % n
        weights = weights_again(fabric, task, source, k)
        inward = weights * (grad @ v.T - inner) / math.sqrt(q.shape[1])
        dq, dk, dv = dq + inward @ k, dk + inward.T @ q, dv + weights.T @ grad
        coming = len(task["tokens"][(source - 1) % n])
        if step < n - 1:
            k, v = pass_on(fabric, [k, v], coming)
        dk, dv = pass_on(fabric, [dk, dv], coming)
    return dq, dk, dv
    ### END SOLUTION

# %% tags=["check:ring_backward"] points=0
check.ring_backward(ring_backward)

# %%
# Helper: one device's gradients, and your ring with what the forward pass keeps
def one_device():
    """One device's gradients of queries, keys and values; and by name what a forward pass keeps, with a gradient of its rows."""
    leaves = [x.clone().requires_grad_() for x in whole]
    rows = F.scaled_dot_product_attention(*leaves, is_causal=True)
    grad = torch.randn(length, width, dtype=torch.float64, generator=torch.Generator().manual_seed(18))
    rows.backward(grad)
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    log_sum = (whole[0] @ whole[1].T / math.sqrt(width)).masked_fill(later, -math.inf).logsumexp(dim=1, keepdim=True)
    return [leaf.grad for leaf in leaves], {"rows": rows.detach(), "log_sum": log_sum, "grad": grad}

def on_ring_back(fabric, tokens, kept):
    own = tokens[fabric.rank]
    return ring_backward(fabric, sequence_task(fabric.rank, tokens, True) | {name: x[own] for name, x in kept.items()})

# %%
dealt, (right, kept) = mine or in_a_row(ranks), one_device()
backward, more = launch(on_ring_back, ranks, args=(dealt, kept)), None
if backward.state == "done":
    names = "queries", "keys", "values"
    for name, whole_gradient, parts in zip(names, right, zip(*backward.results)):
        off = (torch.cat(parts) - whole_gradient[sum(dealt, [])]).abs().max()
        print(f"gradient of the {name}: largest difference from one device {off:.0e}")
if backward.state == ring.state == "done":
    more = backward.trace.sent_bytes(0) / ring.trace.sent_bytes(0)
    print(f"a rank sends {more:.2f} times its bytes of the forward pass;")
    by_formula = (2 * ranks - 1) / (ranks - 1)
    print(f"  n − 1 hops of K and V, n of dK and dV: (2n − 1)/(n − 1) = {by_formula:.2f} times")
lab.measure("backward", more)
figures.links(backward)

# %% [markdown]
# A rank may keep its own part of its block's gradient until the rest comes home. Then the gradients make $n-1$ hops, too:
# exactly twice the bytes of the forward pass.
#
# **In one sentence:** which of the four tensors can be on its way while a rank works on its block, and which cannot?
#
# <details><summary>Compare</summary>K and V can leave before the work. The gradients can leave only after the rank has added its
# part; but they may travel while it works on the next block.</details>

# %% [markdown]
# ## Where both stand in a plan
#
# Lab 16 plans with three ways to cut. Here are five that cut a model or a sequence, for a layer of width 8,192 with 64 heads, a
# sequence of 131,072 tokens and eight ranks: the bytes, by formula, that a rank sends for this layer in a forward pass. They are
# given for 64 key heads and for 8, as many models have. A pipeline sends the rows once for all layers of a stage, here twelve.
# Which way would you put across the slowest links?

# %%
tokens, wide, n, stage_layers = 131_072, 8_192, 8, 12
all_rows, key_heads = tokens * wide * 2, (64, 8)
ring_bytes = attention.bytes_ring(n, tokens, wide)
heads_bytes = attention.bytes_heads(n, tokens, wide)
sent = {
    "tensor: two all-reduces of the tokens' rows": [4 * (n - 1) / n * all_rows] * 2,
    "ring of keys and values": [ring_bytes * kv / 64 for kv in key_heads],
    "heads dealt out": [heads_bytes * (1 + kv / 64) / 2 for kv in key_heads],
    "experts: there and back, one expert a token": [2 * (n - 1) / n * all_rows / n] * 2,
    f"pipeline: rows to the next stage, 1/{stage_layers} each": [all_rows / stage_layers] * 2,
}
print("  64 key heads   8 key heads")
for name, (many, few) in sorted(sent.items(), key=lambda row: -row[1][0]):
    print(f"{many / 1e6:11,.0f} MB {few / 1e6:10,.0f} MB  {name}")

# %% [markdown]
# A pipeline sends least for each layer, and only to the next stage: its stages lie across the slowest links. A ring hides
# what it sends, and with few key heads it sends little, so it may cross to the next machine, too. During an exchange of heads or
# tokens, or an all-reduce, everybody waits, unless there is work on another batch: heads and tensor parallelism stay inside a
# machine. Tokens must go where their expert is. DeepSeek-V3 limits and hides this traffic: a token reaches four machines at
# most, and while it travels a rank works on another micro-batch.

# %% [markdown]
# ## What you predicted, and what came out

# %% tags=["summary"]
lab.summary()

# %% [markdown]
# **Further reading.** Milakov and Gimelshein, *Online normalizer calculation for softmax*
# ([arXiv:1805.02867](https://arxiv.org/abs/1805.02867), 2018). Liu, Zaharia and Abbeel, *Ring Attention with Blockwise
# Transformers* ([arXiv:2310.01889](https://arxiv.org/abs/2310.01889), 2023). Dao and others, *FlashAttention*
# ([arXiv:2205.14135](https://arxiv.org/abs/2205.14135), 2022); Dao, *FlashAttention-2*
# ([arXiv:2307.08691](https://arxiv.org/abs/2307.08691), 2023). Brandon and others, *Striped Attention*
# ([arXiv:2311.09431](https://arxiv.org/abs/2311.09431), 2023). Jacobs and others, *DeepSpeed Ulysses*
# ([arXiv:2309.14509](https://arxiv.org/abs/2309.14509), 2023). Fang and Zhao, *USP*
# ([arXiv:2405.07719](https://arxiv.org/abs/2405.07719), 2024). Lepikhin and others, *GShard*
# ([arXiv:2006.16668](https://arxiv.org/abs/2006.16668), 2020). Shazeer and others, *The Sparsely-Gated Mixture-of-Experts Layer*
# ([arXiv:1701.06538](https://arxiv.org/abs/1701.06538), 2017). Ainslie and others, *GQA*
# ([arXiv:2305.13245](https://arxiv.org/abs/2305.13245), 2023). Llama Team, *The Llama 3 Herd of Models*
# ([arXiv:2407.21783](https://arxiv.org/abs/2407.21783), 2024), section 3.3.2. Fedus, Zoph and Shazeer, *Switch Transformers*
# ([arXiv:2101.03961](https://arxiv.org/abs/2101.03961), JMLR 2022). DeepSeek-AI, *DeepSeek-V3*
# ([arXiv:2412.19437](https://arxiv.org/abs/2412.19437), 2024).
