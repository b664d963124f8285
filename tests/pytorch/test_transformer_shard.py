"""A transformer layer of shards computes what one device does, and keeps for backward what its paper's formula says."""

import pytest
import torch

from worldsize.formulas import activations
from worldsize.launch import launch
from worldsize.pytorch.live_bytes import SavedBytes
from worldsize.pytorch.transformer_shard import TransformerShard

WORLDS = [1, pytest.param(2, marks=pytest.mark.soak), 3, pytest.param(4, marks=pytest.mark.soak)]
TOKENS, BATCH, WIDTH, HEADS = 12, 2, 24, 12


def step(fabric, sequence):
    layer = TransformerShard(fabric, WIDTH, HEADS, sequence, dropout=0, dtype=torch.float64)
    x = torch.randn(TOKENS, BATCH, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own = x.tensor_split(fabric.world_size)[fabric.rank] if sequence else x
    own = own.clone().requires_grad_()
    y = layer(own)
    (y**3).sum().backward()
    return {"y": y, "x": own.grad, **{name: p.grad for name, p in layer.named_parameters()}}


def gathered(results, name, sequence):
    """The whole of what the ranks hold of it."""
    parts = [got[name].detach() for got in results]
    if name in ("y", "x"):
        return torch.cat(parts) if sequence else parts[-1]
    if name == "qkv":
        return torch.cat([torch.cat([part.chunk(3)[k] for part in parts]) for k in range(3)])
    if name in ("up",):
        return torch.cat(parts)
    if name in ("out", "down"):
        return torch.cat(parts, 1)
    return parts[-1]


@pytest.fixture(scope="module")
def alone():
    return launch(step, 1, args=(False,), device="cpu")[0]


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("n", WORLDS)
def test_output_and_all_gradients_are_those_of_one_device(alone, n, sequence):
    results = launch(step, n, args=(sequence,), device="cpu").results
    for name, expected in alone.items():
        assert torch.allclose(gathered(results, name, sequence), expected, rtol=0, atol=1e-9), name


def kept(fabric, sequence):
    layer = TransformerShard(fabric, 128, 4, sequence)
    rows = 64 // fabric.world_size if sequence else 64
    x = torch.randn(rows, 2, 128, dtype=torch.bfloat16, requires_grad=True)
    with SavedBytes(layer.parameters()) as saved:
        layer(x)
    return saved.total


TWO_CUTS = ("tensor", "tensor and sequence")
CUTS = [(1, "whole"), *((2, cut) for cut in TWO_CUTS), *(pytest.param(4, cut, marks=pytest.mark.soak) for cut in TWO_CUTS)]


@pytest.mark.parametrize(("n", "cut"), CUTS)
def test_a_rank_keeps_for_backward_what_the_formula_says(n, cut):
    expected = activations.transformer_layer(64, 2, 128, 4, n, cut)
    for total in launch(kept, n, args=(cut == "tensor and sequence",), device="cpu").results:
        assert total == pytest.approx(expected, rel=0.01)


def test_heads_that_the_ranks_do_not_divide_are_said():
    class Three:
        rank, world_size = 0, 3

    with pytest.raises(ValueError, match="expected heads that split over 3 ranks and divide the width, got 4"):
        TransformerShard(Three(), 24, 4)
