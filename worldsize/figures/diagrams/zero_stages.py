"""Each rank's part of a model's training state in ZeRO's stages 0 to 3: a panel for each stage, a column for each rank.

A block's height is its bytes; the part that a rank keeps is filled, the rest is an empty frame. S. Rajbhandari et al.,
"ZeRO", SC 2020, figure 1, draws it so.
"""

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.formulas import sharding

MOST_COLUMNS = 8
PARTS = ("parameters", "gradients", "optimizer")  # as they are stacked, from below
LOOKS = {
    "parameters": {"facecolor": base.part(0)},
    "gradients": {"facecolor": base.part(1)},
    "optimizer": {"facecolor": base.part(2)},
}
GAP = 0.012  # between a column's blocks, in parts of the whole


@base.plain_style
def zero_stages(
    parameters: float, n: int, parameter_bytes: int = 2, gradient_bytes: int = 2, optimizer_bytes: int = 12
) -> Picture:
    """Draw what each of `n` ranks keeps, in bytes, of a model of `parameters` in ZeRO's stages 0 to 3.

    The bytes of one parameter, its gradient and its optimizer state are as in `formulas.sharding.memory`. Raises ValueError
    where n is no whole number of at least 1.
    """
    sizes = (parameter_bytes, gradient_bytes, optimizer_bytes)
    stages = {stage: sharding.memory(parameters, n, stage, *sizes) for stage in sharding.STAGES}
    whole = stages[0]

    picture = Picture(base.WIDTH_IN, 3.1)
    panels = picture.subplots(1, len(stages))
    for ax, (stage, kept) in zip(panels, stages.items(), strict=True):
        _panel(ax, n, kept, whole)
        ax.set_title(f"stage {stage}", fontsize=tokens.LABEL_PT, loc="left")
        ax.set_xlabel(f"{units.size(sum(kept.values()))} a rank", fontsize=tokens.LABEL_PT, color=base.INK)

    first, last = sum(stages[0].values()), sum(stages[3].values())
    kept = f"{units.size(first)} a rank with whole copies"
    finding = f"On one rank there is nothing to cut: {kept}"
    if n > 1:
        finding = f"{units.count(n, 'rank')}: {kept}, {units.size(last)} with everything cut"
    picture.suptitle(finding, x=0.013, ha="left", fontsize=tokens.TITLE_PT)
    entries = [Patch(edgecolor=base.INK, linewidth=tokens.HAIR_PT, label=part, **LOOKS[part]) for part in PARTS]
    picture.legend(
        handles=entries, loc="outside lower left", ncols=len(entries), fontsize=tokens.SMALL_PT, frameon=False
    )

    said = []
    for stage, kept in stages.items():
        said.append(f"stage {stage}: {base.listed(kept, units.size)} on each rank")
    picture.alt = base.sentences(finding, *said)
    return picture


def _panel(ax: Axes, n: int, kept: dict[str, float], whole: dict[str, float]) -> None:
    total = sum(whole.values()) or 1
    columns = min(n, MOST_COLUMNS)
    for column in range(columns):
        rank = column
        if column == columns - 1 < n - 1:
            rank = n - 1  # the column before this one, "…", stands for the ranks between

        bottom = 0.0
        for part in PARTS:
            height, begin = whole[part] / total, bottom
            if kept[part] < whole[part]:
                begin += rank / n * height  # where the rank's part lies in the block
            frame = {"facecolor": "none", "edgecolor": base.RULE, "linewidth": tokens.HAIR_PT}
            ax.add_patch(Rectangle((column, bottom), 0.8, height, **frame))
            look = {"edgecolor": base.INK, "linewidth": tokens.HAIR_PT, **LOOKS[part]}
            ax.add_patch(Rectangle((column, begin), 0.8, kept[part] / total, **look))
            bottom += height + GAP

    names = list(map(str, range(columns)))
    if columns < n:
        names[-2:] = ["…", str(n - 1)]
    ax.set_xticks([column + 0.4 for column in range(columns)], names, fontsize=tokens.TINY_PT)
    ax.set_xlim(-0.15, columns)
    ax.set_ylim(0, 1 + len(PARTS) * GAP)
    ax.set_yticks([])
    ax.tick_params(length=0)
    base.unframe(ax, "top", "left", "right", "bottom")
