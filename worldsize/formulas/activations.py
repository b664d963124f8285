"""The activations that a transformer layer keeps from forward to backward, in bytes per rank, by how it is sharded.

The layer is GPT's: layer norm, attention, dropout, layer norm, an MLP of four times the width with GELU, dropout. Numbers have 16
bits, and a dropout's mask one byte per element. Left out: what the norms keep besides their input (two numbers per token), and
the layers before and after the stack.

V. Korthikanti et al., "Reducing activation recomputation in large transformer models", arXiv:2205.05198, 2022, section 4 and
table 2.
"""

CUTS = ("whole", "tensor", "tensor and sequence")


def transformer_layer(
    tokens: int, batch: int, width: int, heads: int, n: int = 1, cut: str = "whole", recomputed: str = ""
) -> float:
    """Return the activation memory of a transformer layer, bytes per rank: sbh(34 + 5as/h) for the whole layer.

    s `tokens` per sequence, b sequences in the micro-`batch`, h `width`, a `heads`. Tensor parallelism over n ranks leaves 10 sbh
    on every rank, for norms and dropouts: sbh(10 + 24/n + 5as/(hn)); sequence parallelism shards these too: sbh(34 + 5as/h)/n.
    `recomputed` "attention" drops the term with s² (selective recomputation). Raises ValueError for another cut or recomputation.
    Korthikanti et al., 2022, table 2.
    """
    if cut not in CUTS or n < 1 or (cut == "whole" and n != 1):
        raise ValueError(f"transformer_layer: expected one of {', '.join(CUTS)}, and n = 1 for a whole one, got {cut!r}, n = {n}")
    if recomputed not in ("", "attention"):
        raise ValueError(f'transformer_layer: expected recomputed as "" or "attention", got {recomputed!r}')

    unit = tokens * batch * width
    scores = 0.0 if recomputed else 5 * heads * tokens / width
    inside, around = 24 + scores, 10.0
    if cut == "tensor and sequence":
        around /= n
    return unit * (around + inside / n)
