"""The rings of a two-level all-reduce over nodes with several ranks: one inside each node, one for each place across nodes.

The panels show its three phases in order, with what each rank sends in each. H. Mikami et al., arXiv:1811.05233, 2018, draw
it as a torus.
"""

from fractions import Fraction
from itertools import product
from numbers import Integral

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture

MOST_NODES, MOST_PER_NODE = 6, 8
BOW = 0.35  # of the arrow that closes a ring


@base.plain_style
def two_level_rings(nodes: int, per_node: int) -> Picture:
    """Draw the rings of a two-level all-reduce over `nodes` nodes with `per_node` ranks each, a panel for each phase.

    Raises ValueError where `nodes` is not from 2 to 6 or `per_node` not from 2 to 8: no ring, or too many ranks to draw.
    """
    for what, count, most in (("nodes", nodes, MOST_NODES), ("per_node", per_node, MOST_PER_NODE)):
        if not isinstance(count, Integral) or not 2 <= count <= most:
            raise ValueError(f"two_level_rings: {what} is {count!r}; expected a whole number from 2 to {most}")

    inside, across = Fraction(per_node - 1, per_node), 2 * Fraction(nodes - 1, nodes * per_node)
    phases = [
        ("1. reduce-scatter inside each node", inside, True),
        ("2. ring all-reduce across the nodes", across, False),
        ("3. all-gather inside each node", inside, True),
    ]
    picture = Picture(base.WIDTH_IN, 1.1 + 0.5 * per_node)
    panels = picture.subplots(1, len(phases))
    for ax, (name, sends, in_nodes) in zip(panels, phases, strict=True):
        _panel(ax, nodes, per_node, in_nodes)
        ax.set_title(f"{name}:\na rank sends {sends} of the tensor", fontsize=tokens.SMALL_PT, loc="left")

    flat = 2 * Fraction(nodes * per_node - 1, nodes * per_node)
    who = f"{units.count(nodes, 'node')} of {units.count(per_node, 'rank')}"
    finding = f"{who}: a rank sends {across} of the tensor to other nodes; in one ring over all, {flat}"
    picture.suptitle(finding, x=0.013, ha="left", fontsize=tokens.TITLE_PT)
    told = [f"{name}: a rank sends {sends} of the tensor" for name, sends, _ in phases]
    picture.alt = base.sentences(finding, *told)
    return picture


def _panel(ax: Axes, nodes: int, per_node: int, in_nodes: bool) -> None:
    """Draw a column for each node and a row for each place in it, with arrows along the columns or along the rows."""
    for node in range(nodes):
        look = {"facecolor": tokens.SHADE.light, "edgecolor": base.RULE, "linewidth": tokens.HAIR_PT}
        frame = (node - 0.33, -0.42), 0.66, per_node - 0.16
        ax.add_patch(FancyBboxPatch(*frame, boxstyle="round,pad=0,rounding_size=0.1", **look))
        for place in range(per_node):
            rank = node * per_node + place
            ax.text(node, place, str(rank), ha="center", va="center", fontsize=tokens.SMALL_PT, color=base.INK, zorder=3)
        ax.text(node, -0.6, f"node {node}", ha="center", va="bottom", fontsize=tokens.TINY_PT, color=base.QUIET_INK)

    for begin in product(range(nodes), range(per_node)):
        node, place = begin
        end = (node, (place + 1) % per_node) if in_nodes else ((node + 1) % nodes, place)
        bow = BOW if begin > end else 0.0  # the arrow that closes the ring goes back in a bow
        ax.add_patch(
            FancyArrowPatch(
                begin, end, arrowstyle="-|>", mutation_scale=9, shrinkA=9, shrinkB=9, zorder=2, color=base.INK,
                linewidth=tokens.THIN_PT, connectionstyle=f"arc3,rad={bow}",
            )
        )  # fmt: skip

    ax.set_xlim(-0.6, nodes - 0.4)
    ax.set_ylim(per_node - 0.3, -0.95)
    ax.set_axis_off()
