"""The memory of a transformer layer's activations is that of its paper's table 2."""

import pytest

from worldsize.formulas import activations

pytestmark = pytest.mark.quick
S, B, H, A = 2048, 1, 12288, 96  # GPT-3: the paper's example, in which 5as/h is 80
SBH = S * B * H


@pytest.mark.parametrize(("n", "cut", "units"), [
    (1, "whole", 34 + 80), (8, "tensor", 10 + 24 / 8 + 80 / 8), (8, "tensor and sequence", (34 + 80) / 8),
])  # fmt: skip
def test_a_layer_keeps_what_the_paper_says(n, cut, units):
    assert activations.transformer_layer(S, B, H, A, n, cut) == pytest.approx(units * SBH)


def test_attention_that_is_computed_anew_leaves_the_term_without_heads():
    assert activations.transformer_layer(S, B, H, A, 8, "tensor and sequence", "attention") == pytest.approx(34 / 8 * SBH)


@pytest.mark.parametrize("given", [(2, "whole"), (0, "tensor"), (2, "rows")])
def test_a_cut_that_is_not_there_is_said(given):
    with pytest.raises(ValueError, match="expected one of whole, tensor, tensor and sequence"):
        activations.transformer_layer(S, B, H, A, *given)


def test_a_recomputation_that_is_not_there_is_said():
    with pytest.raises(ValueError, match='expected recomputed as "" or "attention", got \'all\''):
        activations.transformer_layer(S, B, H, A, recomputed="all")
