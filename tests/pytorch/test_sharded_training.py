"""Lab 12's answers train as one device does, in float64, and hold and send what the formulas say: 1 to 4 ranks, several steps.

Live bytes are those of all tensors of torch in the rank's process, each storage once; with them counts the fabric's own place
where a message lands, 128 KiB.
"""

import pytest
import torch
import torch.distributed as dist
from torch.nn import functional as F

from tests.support.lab_functions import lab_functions
from worldsize.formulas import sharding
from worldsize.launch import launch
from worldsize.pytorch.live_bytes import LiveBytes
from worldsize.simulate import simulate

WORLDS = (1, 2, 3, 4)
IN_PROCESSES = [pytest.param(n, marks=pytest.mark.soak) if n != 3 else n for n in WORLDS]
EXACT = 1e-9
STEPS, RATE = 4, 0.01
WIDTH, HIDDEN, TOKENS = 12, 30, 24
LAYERS = (10, 24, 17, 24, 6)  # widths; neither divides by all worlds


def lab():
    return lab_functions("12_sharding.ipynb")


def drawn(*shapes, seed=0):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=random, dtype=torch.float64) / shape[-1] ** 0.5 for shape in shapes]


def pairs(rows, width, out, seed):
    return [tuple(drawn((rows, width), (rows, out), seed=seed + k)) for k in range(STEPS)]


def part(fabric, x, dim=0):
    return x.tensor_split(fabric.world_size, dim)[fabric.rank].clone()


def furthest(got, expected):
    return max(float((a - b).detach().abs().max()) for a, b in zip(got, expected, strict=True))


MLP = ((HIDDEN, WIDTH), (HIDDEN,), (WIDTH, HIDDEN), (WIDTH,))


def shard(fabric, weights):
    up, up_bias, down, down_bias = weights
    return [part(fabric, up), part(fabric, up_bias), part(fabric, down, 1), down_bias]


def train_mlp(fabric, parallel_mlp):
    task = {"weights": shard(fabric, drawn(*MLP)), "batches": pairs(TOKENS, WIDTH, WIDTH, 7), "rate": RATE}
    return parallel_mlp(fabric, task)


def train_block(fabric, sequence_parallel):
    norm = [1 + drawn((WIDTH,), seed=3)[0], drawn((WIDTH,), seed=4)[0]]
    batches = [tuple(part(fabric, t) for t in pair) for pair in pairs(TOKENS, WIDTH, WIDTH, 7)]
    return sequence_parallel(fabric, {"weights": norm + shard(fabric, drawn(*MLP)), "batches": batches, "rate": RATE})


def one_device(block):
    norm = [1 + drawn((WIDTH,), seed=3)[0], drawn((WIDTH,), seed=4)[0]] if block else []

    def forward(x):
        *scale_shift, up, up_bias, down, down_bias = weights
        inner = F.layer_norm(x, (WIDTH,), *scale_shift) if block else x
        y = F.linear(F.linear(inner, up, up_bias).relu(), down, down_bias)
        return x + y if block else y

    weights = norm + drawn(*MLP)
    return lab().train(forward, {"weights": weights, "batches": pairs(TOKENS, WIDTH, WIDTH, 7), "rate": RATE})


# they wait for messages inside of backward, and hold what a process holds: a rank needs a process of its own
@pytest.fixture(scope="module", params=IN_PROCESSES)
def mlp_run(request):
    return launch(train_mlp, request.param, args=(lab().parallel_mlp,), device="cpu")


@pytest.fixture(scope="module", params=IN_PROCESSES)
def block_run(request):
    return launch(train_block, request.param, args=(lab().sequence_parallel,), device="cpu")


def test_an_mlp_of_shards_steps_as_one_device(mlp_run):
    expected = one_device(block=False)
    for got in mlp_run.results:
        assert furthest(got["y"] + got["grad_x"], expected["y"] + expected["grad_x"]) < EXACT

    up, up_bias, down, down_bias = zip(*(got["weights"] for got in mlp_run.results), strict=True)
    whole = [torch.cat(up), torch.cat(up_bias), torch.cat(down, 1), down_bias[-1]]
    assert furthest(whole, expected["weights"]) < EXACT


def test_an_mlp_of_shards_sends_two_all_reduces_a_step(mlp_run):
    n = mlp_run.trace.world_size
    each = sharding.bytes_sent_tensor_parallel(n, TOKENS * WIDTH * 8)
    assert mlp_run.trace.total_bytes() == pytest.approx(n * STEPS * each)


def test_a_block_between_tokens_in_parts_steps_as_one_device(block_run):
    expected, results = one_device(block=True), block_run.results
    for key in ("y", "grad_x"):
        whole = [torch.cat(tokens) for tokens in zip(*(got[key] for got in results), strict=True)]
        assert furthest(whole, expected[key]) < EXACT

    scale, shift, up, up_bias, down, down_bias = zip(*(got["weights"] for got in results), strict=True)
    cut = [torch.cat(up), torch.cat(up_bias), torch.cat(down, 1)]
    for rank in range(len(results)):
        held = [scale[rank], shift[rank], *cut, down_bias[rank]]
        assert furthest(held, expected["weights"]) < EXACT


def test_a_block_between_tokens_in_parts_sends_halves_and_what_all_ranks_hold(block_run):
    n = block_run.trace.world_size
    each = sharding.bytes_sent_sequence_parallel(n, TOKENS * WIDTH * 8, 3 * WIDTH * 8)
    assert block_run.trace.total_bytes() == pytest.approx(n * STEPS * each)


def held_of_an_mlp(fabric, parallel_mlp):
    """Bytes that live when the output is there: weights of the shard, x, target, hidden units twice, y."""
    width, hidden, tokens = 128, 2048, 4
    weights = shard(fabric, drawn((hidden, width), (hidden,), (width, hidden), (width,)))
    seen = []

    def train(forward, task):
        x, target = task["batches"][0]
        with LiveBytes([*task["weights"], x, target]) as meter:
            forward(x)
            seen.append(meter.now())

    parallel_mlp.__globals__["train"] = train
    parallel_mlp(fabric, {"weights": weights, "batches": pairs(tokens, width, width, 1), "rate": RATE})
    return seen[0]


@pytest.fixture(scope="module", params=IN_PROCESSES)
def held(request):
    """The world size, and of each rank (live bytes of the MLP's shard, of stage 3 at each layer's work)."""
    answers = (lab().parallel_mlp, lab().stage_3)
    return request.param, launch(held_in_both, request.param, args=answers, device="cpu").results


def held_in_both(fabric, parallel_mlp, stage_3):
    return held_of_an_mlp(fabric, parallel_mlp), held_at_work(fabric, stage_3)


def test_a_rank_with_a_shard_of_an_mlp_holds_its_part_of_the_weights(held):
    n, by_rank = held
    width, hidden, tokens = 128, 2048, 4
    weights = 8 * (2 * width * hidden + hidden) / n + 8 * width
    activations = 8 * (2 * tokens * hidden / n + 4 * tokens * width)
    for held_bytes, _ in by_rank:
        assert held_bytes == pytest.approx(weights + activations, rel=0.1)


SHAPES = list(zip(LAYERS[1:], LAYERS, strict=False))


def own_batches(rank):
    return pairs(5, LAYERS[0], LAYERS[-1], 50 + 10 * rank)


def train_stack(fabric, stage_3):
    parts = [part(fabric, w.flatten()) for w in drawn(*SHAPES, seed=9)]
    task = {"parts": parts, "shapes": SHAPES, "batches": own_batches(fabric.rank), "rate": RATE, "work_s": 0.0}
    return stage_3(fabric, task)


def stack_of_one_device(n):
    weights = [w.requires_grad_() for w in drawn(*SHAPES, seed=9)]
    for step in range(STEPS):
        losses = []
        for rank in range(n):
            x, target = own_batches(rank)[step]
            for w in weights:
                x = torch.tanh(x @ w.T)
            losses.append(((x - target) ** 2).sum() / 2)
        gradients = torch.autograd.grad(sum(losses) / n, weights)
        weights = [(w - RATE * g).detach().requires_grad_() for w, g in zip(weights, gradients, strict=True)]
    return weights


@pytest.mark.parametrize("n", WORLDS)
def test_stage_3_ends_with_the_weights_of_one_device_and_sends_three_times_their_bytes(n):
    run = simulate(train_stack, n, args=(lab().stage_3,))
    whole = [torch.cat(parts) for parts in zip(*run.results, strict=True)]
    assert furthest(whole, [w.flatten() for w in stack_of_one_device(n)]) < EXACT

    weights_bytes = 8 * sum(rows * columns for rows, columns in SHAPES)
    assert run.trace.total_bytes() == pytest.approx(n * STEPS * sharding.bytes_sent(n, weights_bytes, stage=3))


def held_at_work(fabric, stage_3):
    """Live bytes at each layer's work."""
    side, layers, seen = 400, 6, []
    shapes = [(side, side)] * layers
    parts = [part(fabric, w.flatten()) for w in drawn(*shapes)]
    meter = LiveBytes(parts)

    class Metered:
        rank, world_size = fabric.rank, fabric.world_size
        isend, send, recv = fabric.isend, fabric.send, fabric.recv

        def compute(self, seconds, x):
            seen.append(meter.now())
            return x

    with meter:
        batches = pairs(2, side, side, 3)[:1]
        stage_3(Metered(), {"parts": parts, "shapes": shapes, "batches": batches, "rate": RATE, "work_s": 0.0})
    return seen


def test_in_stage_3_a_working_rank_holds_its_parts_and_two_whole_layers(held):
    n, by_rank = held
    side, layers = 400, 6
    layer = 8.0 * side**2
    activations = 8 * 2 * side * (layers + 3)
    expected = layers * layer / n + sharding.whole_in_stage_3([layer] * layers) + activations
    for _, seen in by_rank:
        assert max(seen) == pytest.approx(expected, rel=0.1)


def train_under_fsdp(fabric, ahead):
    # here, because its import takes each rank of this file a second
    from worldsize.pytorch.fsdp_over_fabric import sharded_stack

    dist.init_process_group("gloo")
    weights = [w.float() for w in drawn(*[(8, 8)] * 4, seed=9)]
    model = sharded_stack(fabric, weights, 0.0, ahead)
    for x, target in pairs(5, 8, 8, 50 + 10 * fabric.rank):
        (((model(x.float()) - target.float()) ** 2).sum() / 2).backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-RATE)
            p.grad = None
    return [p.to_local().detach().flatten() for p in model.parameters()]


def train_by_hand(fabric, stage_3):
    parts = [part(fabric, w.float().flatten()) for w in drawn(*[(8, 8)] * 4, seed=9)]
    batches = [tuple(t.float() for t in pair) for pair in pairs(5, 8, 8, 50 + 10 * fabric.rank)]
    return stage_3(fabric, {"parts": parts, "shapes": [(8, 8)] * 4, "batches": batches, "rate": RATE, "work_s": 0.0})


@pytest.mark.parametrize("ahead", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_fsdp2_over_the_fabric_trains_and_sends_as_stage_3_by_hand(ahead):
    pytorchs = launch(train_under_fsdp, 2, args=(ahead,), device="cpu")
    by_hand = simulate(train_by_hand, 2, args=(lab().stage_3,))
    for rank in (0, 1):
        assert furthest(pytorchs[rank], by_hand[rank]) < 1e-5
    assert pytorchs.trace.total_bytes() == by_hand.trace.total_bytes()
