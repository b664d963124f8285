"""Answers that the package itself gave: cells that call its functions in place of an answer.

Each earned points in a sandbox where nothing was withheld. Lab 04's `quicker_way` is not among them: its lab calls the formulas
of both ways above the exercise, and an answer that rounds shares and weighs memory may call them too.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shipped:
    """A cell that answers `exercise` by the package, below the lab's set-up; it earned `held` points."""

    name: str
    exercise: str
    held: float
    source: str


SHIPPED = [
    Shipped(
        "both formulas", "attention_seconds", 1.0, """
from worldsize.links import Link

def attention_seconds(layer):
    n, heads, width = layer["ranks"], layer["heads"], layer["heads"] * layer["head_width"]
    link = Link(layer["bytes_per_s"], layer["latency_s"])
    rest = layer["tokens"], width, link, layer["work_s"], layer["item_bytes"]
    return attention.ring_seconds(n, *rest), attention.heads_seconds(n, heads, *rest)
""",
    ),
    Shipped(
        "the fastest plan", "best_plan", 1.0, """
def best_plan(model, gpus, global_batch, memory_bytes):
    plan = plan_search.fastest(Transformer(**model), gpus, global_batch, memory_bytes)
    names = ("tensor", "pipeline", "data", "micro_batch", "recomputed")
    return None if plan is None else {name: getattr(plan, name) for name in names}
""",
    ),
    Shipped(
        "all plans", "best_plan", 1.0, """
def best_plan(model, gpus, global_batch, memory_bytes):
    net = Transformer(**model)
    fits = [p for p in plan_search.plans(net, gpus, global_batch) if sum(training_step.memory(net, p).values()) <= memory_bytes]
    plan = min(fits, key=lambda p: sum(training_step.seconds(net, p).values()), default=None)
    names = ("tensor", "pipeline", "data", "micro_batch", "recomputed")
    return None if plan is None else {name: getattr(plan, name) for name in names}
""",
    ),
    Shipped(
        "split backwards", "one_forward_one_backward", 1.5, """
def one_forward_one_backward(stage, stages, micro_batches):
    return [one for one in schedules.split_backward(stage, stages, micro_batches) if one[0] != "weights"]
""",
    ),
    Shipped(
        "one chunk", "one_forward_one_backward", 0, """
def one_forward_one_backward(stage, stages, micro_batches):
    return [one[:2] for one in schedules.interleaved(stage, stages, micro_batches, 1)]
""",
    ),
    Shipped(
        "whole files", "save_atomically", 1.0, """
def save_atomically(path, data):
    from worldsize.files import write_whole
    write_whole(path, data, durable=True)
""",
    ),
    Shipped(
        "a cluster's tasks", "cluster_config", 1.0, """
def cluster_config(hosts, ps, rank):
    from worldsize.engines.cluster_spec import tf_config
    cluster = Cluster(1, len(hosts) - 1 - ps, ps)
    return tf_config(cluster.spec(hosts), cluster.tasks()[rank])
""",
    ),
    Shipped(
        "one of many rings", "ring_all_reduce", 1.5, """
def ring_all_reduce(fabric, x):
    from worldsize.fabric.multi_ring import rings_all_reduce
    return rings_all_reduce(fabric, x, [list(range(fabric.world_size))])
""",
    ),
    Shipped(
        "the given sum", "ring_all_reduce", 0.5, """
def ring_all_reduce(fabric, x):
    from worldsize.fabric import collectives
    return collectives.all_reduce(fabric, x)
""",
    ),
    Shipped(
        "two trees", "ring_all_reduce", 0.25, """
def ring_all_reduce(fabric, x):
    from worldsize.fabric.multi_ring import double_tree_all_reduce
    return double_tree_all_reduce(fabric, x)
""",
    ),
    Shipped(
        "a group over the fabric", "ring_all_reduce", 0.5, """
def ring_all_reduce(fabric, x):
    from worldsize.pytorch.group_over_fabric import FabricGroup
    FabricGroup(fabric).allreduce([x])
    return x
""",
    ),
    Shipped(
        "the first half", "reduce_scatter", 1.5, """
def reduce_scatter(fabric, x):
    from worldsize.fabric import collectives
    chunks = list(x.tensor_split(fabric.world_size))
    collectives._add_round_the_ring(fabric, chunks)
    start = sum(map(len, chunks[:fabric.rank]))
    return start, start + len(chunks[fabric.rank])
""",
    ),
    Shipped(
        "the second half", "all_gather", 0.25, """
def all_gather(fabric, x, bounds):
    from worldsize.fabric import collectives
    collectives._gather_sums(fabric, [x[start:stop] for start, stop in bounds])
""",
    ),
    Shipped(
        "a group's gather", "all_gather", 0.25, """
def all_gather(fabric, x, bounds):
    from worldsize.pytorch.group_over_fabric import FabricGroup
    start, stop = bounds[fabric.rank]
    FabricGroup(fabric)._gather([x[a:b] for a, b in bounds], x[start:stop].clone())
""",
    ),
    Shipped(
        "up a tree", "tree_reduce", 0.5, """
def tree_reduce(fabric, x, root):
    from worldsize.fabric import multi_ring
    n = fabric.world_size
    parent, children = multi_ring._in_order_tree((fabric.rank - root) % n, n)
    place = multi_ring.Place(None if parent is None else (parent + root) % n, tuple((child + root) % n for child in children))
    for handle in multi_ring._sum_up(fabric, x, place, 0):
        handle.wait()
    return x
""",
    ),
    Shipped(
        "down a tree", "tree_broadcast", 0.5, """
def tree_broadcast(fabric, x, root):
    from worldsize.fabric import multi_ring
    n = fabric.world_size
    parent, children = multi_ring._in_order_tree((fabric.rank - root) % n, n)
    place = multi_ring.Place(None if parent is None else (parent + root) % n, tuple((child + root) % n for child in children))
    for handle in multi_ring._pass_down(fabric, x, place, 0):
        handle.wait()
    return x
""",
    ),
    Shipped(
        "the given broadcast", "same_start", 1.0, """
def same_start(fabric, weights):
    from worldsize.fabric.collectives import broadcast
    broadcast(fabric, weights)
""",
    ),
    Shipped(
        "a group's broadcast", "same_start", 1.0, """
def same_start(fabric, weights):
    from worldsize.pytorch.group_over_fabric import FabricGroup
    FabricGroup(fabric).broadcast(weights)
""",
    ),
    Shipped(
        "Megatron's pair", "parallel_mlp", 1.5, """
from types import SimpleNamespace

def parallel_mlp(fabric, task):
    up, up_bias, down, down_bias = task["weights"]
    shard = SimpleNamespace(_fabric=fabric, _sequence=False)

    def forward(x):
        hidden = F.linear(TransformerShard._shared(shard, x), up, up_bias).relu()
        return TransformerShard._leave(shard, F.linear(hidden, down)) + down_bias
    return train(forward, task)
""",
    ),
    Shipped(
        "a robust fit", "fit_alpha_beta", 1.5, """
def fit_alpha_beta(sizes, seconds):
    from worldsize.formulas import robust_fit
    alpha, by_byte = robust_fit.fit(np.stack([np.ones(len(sizes)), sizes], axis=1), seconds)
    return alpha, 1 / by_byte
""",
    ),
]  # fmt: skip
