"""The checks of lab 13 without ranks: what a big batch's step comes to, whatever is drawn, and how its parts are counted."""

import random

import numpy as np
import pytest

from tests.checks.mutants.noise_scale import plain as estimated
from worldsize.arrays import tensors
from worldsize.checks.arena import ArenaResult
from worldsize.checks.large_batches import accumulation, batch_norm_reference
from worldsize.checks.large_batches.batch_norm_reference import NormTask, reference
from worldsize.checks.large_batches.big_batch import BACKWARD_S, FORWARD_S, BigBatch
from worldsize.checks.large_batches.noise import NoisySteps
from worldsize.trace import Span, Trace, Transfer

ROUNDING = 1e-15
PLANS = [(accumulation.ALIKE,), *accumulation.DIFFERENT]


def ended(batch: BigBatch, held: list, trace: Trace | None = None) -> ArenaResult:
    """`held[step]` are all ranks' weights."""
    return ArenaResult("done", returned=(tuple(held),) * batch.ranks, trace=trace or Trace(batch.ranks))


def judged(seed: int) -> None:
    """The right weights, rounded another way, are right; those of a slip are told as this slip, or as one that equals it."""
    draws = random.Random(seed)
    for counts in PLANS:
        batch = BigBatch.drawn(draws, *counts)
        noise = np.random.default_rng(seed).uniform(-ROUNDING, ROUNDING, batch.start.size)
        right = batch.weights
        assert accumulation._wrong_weights(ended(batch, [w + noise for w in right]), batch) is None

        for words, given in batch.slips.items():
            held = [tuple([batch.start - batch.rate * gradient] * len(counts)) for gradient in given]
            if max(np.abs(one[0] - right[0]).max() for one in held) < 1e-7:
                continue  # where parts are alike, or one rank has all, a slip may be none
            told = accumulation._wrong_weights(ArenaResult("done", returned=tuple(held)), batch)
            assert told is not None, words
            as_good = [other for other, same in batch.slips.items() if any(map(np.allclose, same, given))]
            assert any(other in told for other in as_good), (told, words)


def test_the_steps_of_one_device_pass_and_no_slip_does():
    judged(1)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_the_steps_of_one_device_pass_and_no_slip_does_with_two_hundred_seeds():
    for seed in range(200):  # each takes over a second
        judged(seed)


def plan(counts=((2, 3), (4, 1))) -> BigBatch:
    return BigBatch.drawn(random.Random(5), counts)


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ((0.0, 0.0), "The weights have not moved: call optimizer.step() after the last part."),
        ((0.37, 0.41), "The ranks hold different weights: not all of the step was averaged over them."),
        ((0.37, 0.37), "The step is 0.37 times the right one: the losses must add up to the mean over all examples."),
    ],
)
def test_a_step_that_no_slip_gives_is_told_by_how_far_the_ranks_went(shares, words):
    batch = plan()
    held = [(batch.start + share * (batch.weights[0] - batch.start),) for share in shares]
    assert words in accumulation._wrong_weights(ArenaResult("done", returned=tuple(held)), batch)


def trace_of(batch: BigBatch, order: str, often: float = 1.0, besides: int = 0) -> Trace:
    """Spans of layers, F or B, on all ranks; `often` the gradients' bytes, and DDP's broadcast at the start."""
    n, whole = batch.ranks, batch.start.nbytes
    labels = {"F": f"{FORWARD_S:g} s declared", "B": f"{BACKWARD_S:g} s declared"}
    spans = [Span(rank, "compute", k, k + 0.5, label=labels[way], declared=True)
             for rank in range(n) for k, way in enumerate(order)]  # fmt: skip
    sizes = [(n - 1) * whole, round(2 * (n - 1) * whole * often), besides]
    return Trace(n, tuple(Transfer(0, 1, size, 0.0, 1.0) for size in sizes), tuple(spans))


ONE_BY_ONE = "FFFBBB" * 2


def test_a_step_with_one_all_reduce_and_one_graph_at_a_time_costs_nothing():
    batch = plan()
    assert accumulation._wasteful(trace_of(batch, ONE_BY_ONE, besides=200), batch) is None


@pytest.mark.parametrize(
    ("order", "often", "words"),
    [
        (ONE_BY_ONE, 2.0, "the gradients travel 2 times a step, after every part"),
        (ONE_BY_ONE, 3.0, "3 times the gradients' bytes travel in a step; expected once"),
        (ONE_BY_ONE, 0.5, "0.5 times the gradients' bytes travel in a step; expected once"),
        ("FFFBBB", 1.0, "the 2 parts went through the model as one batch"),
        ("FFFFFFBBBBBB", 1.0, "on rank 0 the graphs of 2 micro-batches were in memory at once"),
    ],
)
def test_what_a_step_costs_too_much_is_named(order, often, words):
    batch = plan()
    assert words in accumulation._wasteful(trace_of(batch, order, often), batch)


def test_the_norm_of_all_rows_is_that_of_torch():
    import torch

    task = NormTask.drawn(np.random.default_rng(3), (4, 1, 6), 3)
    x, weight, bias = (torch.from_numpy(v).requires_grad_() for v in (np.concatenate(task.x), task.weight, task.bias))
    y = torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True, eps=task.eps)
    y.backward(torch.from_numpy(np.concatenate(task.grads)))
    ours = reference(task)
    for name, theirs in {"y": y, "grad_x": x.grad}.items():
        assert np.allclose(np.concatenate(ours[name]), theirs.detach().numpy(), atol=1e-12)
    for name, theirs in {"grad_weight": weight.grad, "grad_bias": bias.grad}.items():
        assert np.allclose(sum(ours[name]), theirs.numpy(), atol=1e-12)


def test_no_slip_of_a_norm_gives_what_is_right():
    task = NormTask.drawn(np.random.default_rng(4), (10, 14, 7), 3)
    right = reference(task)
    for name in batch_norm_reference.NAMES:
        for words, given in batch_norm_reference.slips(task, name).items():
            assert not np.allclose(np.concatenate(given), np.concatenate(right[name]), atol=1e-6), words


def test_the_noise_scale_of_drawn_gradients_is_that_of_their_covariance():
    """2,000 steps of gradients whose |G|² and tr(Σ) are known: unbiased estimates come within 5 %."""
    generator = np.random.default_rng(6)
    signal, spread, batch = np.full(20, 0.5), 3.0, 4
    gradients = [[signal + spread / batch**0.5 * generator.normal(size=20) for _ in range(4)] for _ in range(2000)]
    steps = NoisySteps((batch,) * 2000, gradients)
    known = 20 * spread**2 / float(signal @ signal)
    assert estimated(tensors(steps.asked)[0]) == pytest.approx(known, rel=0.05)
