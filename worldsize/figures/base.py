"""A picture in a notebook: a Matplotlib Figure that carries its finding as alt text.

A notebook shows it as an SVG in the page's theme, and as a PNG where SVG is taken out: in an untrusted notebook, and in
front ends that prefer `image/png`. Colours, markers, hatches and sizes are the design tokens (`tokens`).
"""

from __future__ import annotations

import base64
import functools
import html
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Text
from matplotlib.transforms import blended_transform_factory
from typing_extensions import override

from worldsize.figures import tokens
from worldsize.figures.frame.themed_svg import themed_svg

WIDTH_IN = tokens.WIDTH_IN
EDGE_IN = 0.1  # from the left edge of a picture to its title
MOST_DPI, LEAST_DPI = 144, 80
SHOWN_DPI = 96
MOST_BYTES = 80_000
MOST_SVG_BYTES = 120_000
MOST_ARROWS = 300  # in an SVG: with more it would be over `MOST_SVG_BYTES` anyway
INK, QUIET_INK, RULE = tokens.INK.light, tokens.QUIET_INK.light, tokens.RULE.light
PAPER = tokens.PAPER.light
COLOURS = tuple(tone.light for tone in tokens.RANKS)
STRONGEST = 0.72  # opacity of the largest amount, so that dark or light text reads on it
BLENDS = (0.25, 0.5, 0.75, 1.0)  # shares of each colour in a PNG's palette; the rest is white

_INKED = (
    "text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor", "patch.edgecolor", "hatch.color",
    "xtick.color", "ytick.color", "xtick.labelcolor", "ytick.labelcolor", "legend.labelcolor", "legend.edgecolor",
)  # fmt: skip
_FOLDED = (
    f".worldsize-numbers{{font:12px/1.5 {tokens.FONTS};color:{tokens.variable(tokens.QUIET_INK)};margin:2px 8px}}"
    ".worldsize-numbers summary{cursor:pointer}"
    ".worldsize-numbers :is(th,td){text-align:left;vertical-align:top;padding:1px 12px 1px 0}"
)
# keep a student's own Matplotlib style out of the course's pictures
plain_style = style.context(["default", dict.fromkeys(_INKED, INK)])


class Picture(Figure):
    """A Figure in words too: `alt` says all that it shows, `brief` the finding, and `details` what each part holds.

    A page folds `details` away, (name, numbers) a row; screen readers hear `brief`, or `alt` where a picture has no other.
    """

    def __init__(self, width_in: float, height_in: float) -> None:
        super().__init__(figsize=(width_in, height_in), dpi=MOST_DPI, facecolor=PAPER)
        self.set_layout_engine("constrained", h_pad=0.1, w_pad=0.1)
        FigureCanvasAgg(self)
        self.alt, self.brief = "", ""
        self.details: list[tuple[str, str]] = []

    @plain_style
    def png(self, most_bytes: int = MOST_BYTES, dpi: int = MOST_DPI) -> bytes:
        """Return the picture as a PNG of few colours, coarser (down to `LEAST_DPI`) while it is over `most_bytes`."""
        data = self._png_at(dpi)

        while len(data) > most_bytes and dpi > LEAST_DPI:
            # A crowded drawing's size grows with about the 1.1th power of the resolution.
            dpi = max(LEAST_DPI, int(dpi * min(0.95, (most_bytes / len(data)) ** 0.9)))
            data = self._png_at(dpi)

        return data

    def _png_at(self, dpi: int) -> bytes:
        self.dpi = dpi
        self.canvas.draw()

        image = PIL.Image.fromarray(np.asarray(self.canvas.buffer_rgba())).convert("RGB")
        small = image.quantize(palette=_palette(), dither=PIL.Image.Dither.NONE)

        file = io.BytesIO()
        small.save(file, "PNG", optimize=True)
        return file.getvalue()

    def _repr_html_(self) -> str:
        return self.html(self.png())

    @plain_style
    def html(self, png: bytes, most_svg_bytes: int = MOST_SVG_BYTES) -> str:
        """Return the picture as an SVG in the page's theme, with `png` as fallback where a page strips SVG or its style.

        Return `png` alone where the SVG would be over `most_svg_bytes`.
        """
        image = self.image(png)
        width = round(self.get_figwidth() * SHOWN_DPI)
        if len(self.findobj(FancyArrowPatch)) > MOST_ARROWS:
            return image
        svg, tones = themed_svg(self, self.brief or self.alt, width)
        if len(svg) > most_svg_bytes:
            return image
        style = tokens.css(".worldsize-picture", sorted(tones | {tokens.QUIET_INK}, key=lambda tone: tone.name))
        rules = f".worldsize-picture>img{{display:none}}{_FOLDED if self.details else ''}{style}"
        return f'<div class="worldsize-picture"><style>{rules}</style>{svg}{image}{self._folded()}</div>'

    def _folded(self) -> str:
        """Return `details` as a table that opens on a click; empty without any."""
        if not self.details:
            return ""
        rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in self.details)
        return f'<details class="worldsize-numbers"><summary>the numbers</summary><table>{rows}</table></details>'

    def image(self, png: bytes) -> str:
        """Return `png` as an `<img>` with the alt text."""
        width = round(self.get_figwidth() * SHOWN_DPI)
        return (
            f'<img alt="{html.escape(self.brief or self.alt)}" width="{width}" style="max-width:100%;height:auto" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        )

    def bundle(self) -> dict[str, str]:
        """Return the picture by MIME type, as a notebook stores it."""
        png = self.png()
        return {"text/html": self.html(png), "image/png": base64.b64encode(png).decode(), "text/plain": self.alt}

    def _ipython_display_(self) -> None:
        """Display the picture's own bundle: with `%matplotlib inline`, IPython would store every figure twice."""
        from IPython.display import display

        width = round(self.get_figwidth() * SHOWN_DPI)
        display(self.bundle(), raw=True, metadata={"image/png": {"alt": self.alt, "width": width}})

    def calling(self, row: str) -> Picture:
        """Rename the picture's ranks to `row`, since a trace's ranks need not be processes. Returns the picture."""
        for ax in self.axes:
            labels = [_called(label.get_text(), row) for label in ax.get_yticklabels()]
            ax.set_yticks(ax.get_yticks(), labels)

        for text in self.findobj(Text):
            text.set_text(_called(text.get_text(), row))

        self.alt, self.brief = _called(self.alt, row), _called(self.brief, row)
        self.details = [(_called(name, row), _called(text, row)) for name, text in self.details]
        return self

    def plot_area(self) -> Axes:
        """Add the picture's only axes, plain: no frame but the bottom line, no tick marks."""
        ax = self.add_subplot()
        unframe(ax, "top", "right", "left")
        ax.spines["bottom"].set_color(QUIET_INK)
        ax.tick_params(colors=INK, labelsize=9, length=0)
        return ax


def _called(text: str, row: str) -> str:
    text = re.sub(r"\brank(s?)\b", rf"{row}\1", text)
    return re.sub(r"\bRank(s?)\b", rf"{row.capitalize()}\1", text)


@functools.cache
def _palette() -> PIL.Image.Image:
    """Return all colours in use and their blends with white; a palette fitted to each picture would merge ranks' colours."""
    strong = set(tokens.ALL) - {tokens.PAPER, tokens.SHADE}
    flat = [to_rgb(name) for name in sorted(tone.light for tone in strong)]
    blends = [1 - strength * (1 - np.array(rgb)) for rgb in flat for strength in BLENDS]
    ramp = [1 - share * (1 - np.array(to_rgb(tokens.AMOUNT.light))) for share in np.linspace(STRONGEST / 8, STRONGEST, 16)]

    palette = PIL.Image.new("P", (1, 1))
    shades = np.vstack([blends, ramp, to_rgb(tokens.SHADE.light), (1, 1, 1)])
    palette.putpalette(np.rint(255 * shades).astype("uint8").tobytes())
    return palette


def colour(index: int) -> str:
    """Return the colour that pictures give a rank, by its number."""
    return COLOURS[index % len(COLOURS)]


def amount(share: float) -> tuple[float, float, float, float]:
    """Return the fill of a picture's cell for a share from 0 to 1, stronger for more. Text on it is in `INK`."""
    return (*to_rgb(tokens.AMOUNT.light), STRONGEST * share)


def algorithm(index: int) -> str:
    """Return the colour that pictures give an algorithm, a method or a curve, by its number; ranks have `colour`."""
    return tokens.ALGORITHMS[index % len(tokens.ALGORITHMS)].light


def part(index: int) -> str:
    """Return the colour that pictures give a part of a whole, such as memory by its use, by its number."""
    return tokens.PARTS[index % len(tokens.PARTS)].light


def marker(index: int) -> str:
    return tokens.MARKERS[index % len(tokens.MARKERS)]


def hatch(index: int) -> str:
    """Return the hatch of an area in `colour(index)`: none until the palette begins again."""
    return tokens.HATCHES[index // len(COLOURS) % len(tokens.HATCHES)]


def dashes(index: int) -> Any:
    """Return the dashes of a line in `colour(index)`: they change each time the palette begins again."""
    return tokens.DASHES[index // len(COLOURS) % len(tokens.DASHES)]


def headline(ax: Axes, text: str, small: str = "", at_edge: bool = False) -> None:
    """Write a picture's finding as the title above its axes, with a quiet line under it.

    It begins at the left of the axes, or `at_edge`, the picture's left edge: then nothing may move the axes. Where
    something does, `heading.head` writes it.
    """
    title = ax.set_title(text, loc="left", fontsize=tokens.TITLE_PT, color=INK, pad=22 if small else 8, wrap=True)
    left, across = 0.0, "axes fraction"
    figure = ax.get_figure(root=True)
    if at_edge:
        left, across = EDGE_IN / figure.get_figwidth(), "figure fraction"
        title.set_transform(blended_transform_factory(figure.transFigure, title.get_transform()))
        title.set_x(left)
    if small:
        look = {"fontsize": tokens.LABEL_PT, "color": QUIET_INK, "annotation_clip": False}
        ax.annotate(small, (left, 1), (0, 6), (across, "axes fraction"), "offset points", **look)


def sentences(*clauses: str) -> str:
    """Return a picture's alt text: the title and the clauses about a picture's parts, as sentences."""
    return ". ".join(clauses) + "."


def of_each(words: Callable[[Any], str], rows: Mapping[str, Any]) -> list[str]:
    """Describe each row of any `Picture` for its alt text, by name; None stands for an exercise not yet written."""
    descriptions = []
    for name, row in rows.items():
        text = "not yet" if row is None else words(row)
        descriptions.append(f"{name}: {text}")

    return descriptions


def listed(values: Mapping[str, Any], text: Callable[[Any], str] = str) -> str:
    """Return a picture's values behind their names: "weights 3 MB, gradients 2 MB"."""
    return ", ".join(f"{name} {text(value)}" for name, value in values.items())


def numbered(what: str, count: int) -> list[str]:
    """Return the names of a picture's lanes: "rank 0", "rank 1" and so on."""
    return [f"{what} {number}" for number in range(count)]


def written(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return a picture's rows without exercises not yet written, which are None."""
    return {name: row for name, row in rows.items() if row is not None}


def unframe(ax: Axes, *sides: str) -> None:
    for side in sides:
        ax.spines[side].set_visible(False)


def grid(ax: Axes, axis: str = "y") -> None:
    """Draw a picture's quiet lines at the ticks of an axis, behind the data."""
    ax.grid(axis=axis, color=RULE, linewidth=tokens.HAIR_PT)
    ax.set_axisbelow(True)


def rank_mark(ax: Axes, rank: int, y: float, x: float = -0.012) -> None:
    """Draw in any picture a rank's marker at the left of its lane; `x` in parts of the axes' width, `y` in data."""
    ax.plot(
        x, y, marker=marker(rank), color=colour(rank), markeredgecolor=INK, markeredgewidth=0.6, markersize=7,
        transform=ax.get_yaxis_transform(), clip_on=False,
    )  # fmt: skip


@plain_style
def notice(text: str, alt: str | None = None) -> Picture:
    """Return a `Picture` of text alone, where there is nothing to draw."""
    picture = Picture(WIDTH_IN, 0.45)
    picture.alt = alt or text
    picture.text(0.013, 0.5, text, va="center", fontsize=tokens.LABEL_PT, color=QUIET_INK, wrap=True)
    return picture


@dataclass(frozen=True)
class NothingDrawn:
    """A figure's answer where there is nothing to draw: text alone, and no picture."""

    alt: str

    @override
    def __repr__(self) -> str:
        return self.alt


def not_yet(*names: str) -> Picture:
    """Return the `Picture` that every figure shows for an exercise not yet written: "not yet: Exercise 6.2 …".

    `names` may also name the rows that are missing: the title has two of them, and the alternative text all.
    """
    shown, more = ", ".join(names[:2]), len(names) - 2
    title = f"{shown} and {more} more" if more > 0 else shown
    return notice(f"not yet: {title}", f"not yet: {', '.join(names)}. The picture appears once the exercise is written.")
