"""A picture in a notebook: a matplotlib Figure that carries its finding as alt text.

Shown as `<img alt=…>` with a PNG inside, which is what Lab, GitHub and a reopened notebook all keep (Lab
writes no alt for image outputs). White background and dark text, so that light and dark themes both read.
Ranks are told apart by colour and by marker or hatch: M. Okabe and K. Ito, "Color universal design", 2008,
with their yellow as grey and their orange and sky blue darkened, so that a thin line has 3:1 on white.
"""

from __future__ import annotations

import base64
import functools
import html
import io
import re
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib
import numpy as np
import PIL.Image
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

WIDTH_IN = 7.6
MOST_DPI, LEAST_DPI = 144, 80
SHOWN_DPI = 96
MOST_BYTES = 80_000
INK = "#1a1a1a"
QUIET_INK = "#595959"  # 7:1 on white
RULE = "#c8c8c8"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#A06A00", "#2A86BD", "#000000", "#767676")
FILLS = ("#E69F00", "#56B4E9")  # the orange and the sky blue as they were, for areas with a dark outline
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h", "d", "H", "8", "$+$")
HEAT = matplotlib.colormaps["Blues"]
BLENDS = (0.25, 0.5, 0.75, 1.0)
HATCHES = ("", "///", "...", "xx", "\\\\\\", "++", "oo", "---")

plain_style = style.context("default")  # a student's own matplotlib style stays out of the course's pictures


class Picture(Figure):
    """A Figure with `alt`, one or two sentences that state the finding."""

    def __init__(self, width_in: float, height_in: float) -> None:
        super().__init__(figsize=(width_in, height_in), dpi=MOST_DPI, facecolor="white")
        self.set_layout_engine("constrained", h_pad=0.1, w_pad=0.1)
        FigureCanvasAgg(self)
        self.alt = ""

    @plain_style
    def png(self, most_bytes: int = MOST_BYTES, dpi: int = MOST_DPI) -> bytes:
        """The picture as a PNG of few colours, coarser where it would else be over `most_bytes`."""
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

    def html(self, png: bytes) -> str:
        """The picture as an `<img>` that holds `png`."""
        data = base64.b64encode(png).decode()
        width = round(self.get_figwidth() * SHOWN_DPI)
        return (
            f'<img alt="{html.escape(self.alt)}" width="{width}" style="max-width:100%;height:auto" '
            f'src="data:image/png;base64,{data}">'
        )

    def _ipython_display_(self) -> None:
        """Shows the HTML alone: with `%matplotlib inline` IPython would store every figure a second time, as a PNG."""
        from IPython.display import display

        display({"text/html": self._repr_html_(), "text/plain": self.alt}, raw=True)

    def calling(self, row: str) -> Picture:
        """The same picture, its ranks called `row`: those of a trace need not be processes. Returns the picture."""
        for ax in self.axes:
            labels = [_called(label.get_text(), row) for label in ax.get_yticklabels()]
            ax.set_yticks(ax.get_yticks(), labels)

        for text in self.findobj(Text):
            text.set_text(_called(text.get_text(), row))

        self.alt = _called(self.alt, row)
        return self

    def plot_area(self) -> Axes:
        """The one pair of axes, plain: no frame but the bottom line, quiet ticks."""
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
    """Every colour in use and its blends with white; a palette fitted to each picture would merge ranks' colours."""
    flat = [to_rgb(name) for name in (*COLOURS, *FILLS, INK, QUIET_INK, RULE)]
    blends = [1 - strength * (1 - np.array(rgb)) for rgb in flat for strength in BLENDS]
    ramp = HEAT(np.linspace(0, 1, 32))[:, :3]

    palette = PIL.Image.new("P", (1, 1))
    palette.putpalette(np.rint(255 * np.vstack([blends, ramp, (1, 1, 1)])).astype("uint8").tobytes())
    return palette


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


def hatch(index: int) -> str:
    return HATCHES[index % len(HATCHES)]


def headline(ax: Axes, text: str, small: str = "") -> None:
    """A picture's finding as the title at the left of its axes, with a quiet line under it."""
    ax.set_title(text, loc="left", fontsize=11, color=INK, pad=22 if small else 8, wrap=True)
    if small:
        ax.annotate(small, (0, 1), (0, 6), "axes fraction", "offset points", fontsize=9, color=QUIET_INK)


def sentences(*said: str) -> str:
    """An alt text: the title, and what is said of each part of the picture, as sentences."""
    return ". ".join(said) + "."


def of_each(words: Callable[[Any], str], rows: Mapping[str, Any]) -> list[str]:
    """What an alt text says of each row of a picture, by its name; None stands for an exercise not yet written."""
    told = []
    for name, row in rows.items():
        said = "not yet" if row is None else words(row)
        told.append(f"{name}: {said}")

    return told


def listed(values: Mapping[str, Any], text: Callable[[Any], str] = str) -> str:
    """Values behind their names: "weights 3 MB, gradients 2 MB"."""
    return ", ".join(f"{name} {text(value)}" for name, value in values.items())


def numbered(what: str, count: int) -> list[str]:
    """The names of lanes: "rank 0", "rank 1" and so on."""
    return [f"{what} {number}" for number in range(count)]


def written(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a picture without those of exercises not yet written, which are None."""
    return {name: row for name, row in rows.items() if row is not None}


def unframe(ax: Axes, *sides: str) -> None:
    for side in sides:
        ax.spines[side].set_visible(False)


def rank_mark(ax: Axes, rank: int, y: float, x: float = -0.012) -> None:
    """A rank's marker at the left of its lane; `x` in parts of the axes' width, `y` in data."""
    ax.plot(
        x, y, marker=marker(rank), color=colour(rank), markeredgecolor=INK, markeredgewidth=0.6, markersize=7,
        transform=ax.get_yaxis_transform(), clip_on=False,
    )  # fmt: skip


@plain_style
def notice(text: str, alt: str | None = None) -> Picture:
    """A `Picture` that holds words alone, for where there is nothing to draw."""
    picture = Picture(WIDTH_IN, 1.1)
    picture.alt = alt or text
    picture.text(0.5, 0.5, text, ha="center", va="center", fontsize=12, color=INK, wrap=True)
    picture.patch.set_edgecolor(QUIET_INK)
    picture.patch.set_linewidth(2)
    return picture


def not_yet(text: str) -> Picture:
    """The plain `Picture` on which every figure falls back for an exercise not yet written: "not yet: Exercise 6.2 …"."""
    return notice(f"not yet: {text}", f"not yet: {text}. The picture comes once the exercise is written.")
