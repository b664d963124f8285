"""Colours as people see them: with normal sight, and with each kind of dichromacy in more than one model."""

from coloraide import Color

# a kind of dichromacy as a model sees it; Machado's is poor for the third kind, Viénot's has only the first two
SIGHTS = [
    None,
    *((kind, model) for model in ("machado", "brettel") for kind in ("protan", "deutan", "tritan")),
    ("protan", "vienot"),
    ("deutan", "vienot"),
]
APART = 10  # ΔE2000: told apart at a glance


def as_seen(colour: Color, sight: tuple[str, str] | None) -> Color:
    return colour if sight is None else colour.filter(sight[0], method=sight[1], space="srgb-linear")
