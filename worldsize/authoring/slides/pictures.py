"""A cell's pictures for a slide: an SVG without its head, whose words the slide shows large; a bitmap; or a player.

Left out: pictures at a knob's other values.
"""

from __future__ import annotations

import html
import math
import re
from dataclasses import dataclass

from nbformat import NotebookNode

MOST_CAPTION_LETTERS, LEAST_CLAUSES = 260, 2

_SVG = re.compile(
    r'<div class="worldsize-picture">.*?(?:<p class="ws-head"[^>]*>(?P<head>.*?)</p>)?(?P<svg><svg .*?</svg>)', re.DOTALL
)
_BITMAP = re.compile(r'<img alt="(?P<alt>[^"]+)"[^>]* src="data:image/png;base64,[^"]+">')
_PLAYER = re.compile(r'<div class="ws-(?:steps|replay)"')
_VIEW = re.compile(r'width="[\d.]+" viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)"')
_VIEW_BOX = re.compile(r'viewBox="0 [\d.]+ (?P<width>[\d.]+) (?P<height>[\d.]+)"')
# a line of the head, which `lab_page` has marked, or another text
_TEXT = re.compile(
    r'<text (?P<said>class="ws-said" )?style="font-size: ?(?P<size>[\d.]+)px;'
    r'[^>]*?(?: y="(?P<y>[\d.]+)"|translate\([\d.]+ (?P<top>[\d.]+)\))'
)
_SIZE = re.compile(r'<text [^>]*?font-size: ?([\d.]+)px')
_NAME = re.compile(r'(?<=\bid=")[^"]+(?=")')


@dataclass(frozen=True)
class Shown:
    """A picture as HTML, and its head's words: its question, its finding, and how to read it; "" if absent.

    A bitmap has no head; the first sentence of its alternative text is its finding.
    """

    html: str
    asks: str = ""
    finds: str = ""
    note: str = ""
    is_player: bool = False

    @property
    def caption(self) -> str:
        """As much of the finding as fits beside the question, clause by clause; at least two clauses."""
        clauses = self.finds.split("; ")
        kept = len(clauses)
        while kept > LEAST_CLAUSES and len(f"{self.asks} {'; '.join(clauses[:kept])}") > MOST_CAPTION_LETTERS:
            kept -= 1
        return "; ".join(clauses[:kept])

    @property
    def steepness(self) -> float:
        """The picture's height divided by its width, 1 if the HTML does not say: a steep picture loses more in less room."""
        view = _VIEW_BOX.search(self.html)
        return float(view["height"]) / float(view["width"]) if view else 1.0

    def smallest_text(self, width: float, height: float) -> float:
        """Return the size of the smallest text if the picture gets this room; infinite if the HTML does not say."""
        view, sizes = _VIEW_BOX.search(self.html), _SIZE.findall(self.html)
        if not view or not sizes:
            return math.inf
        return min(map(float, sizes)) * min(width / float(view["width"]), height / float(view["height"]))


def shown_in(cell: NotebookNode) -> list[Shown]:
    """Return the pictures that a cell of a lab's page shows."""
    found = []
    for output in cell.get("outputs", []):
        shown = _shown("".join(output.get("data", {}).get("text/html", "")))
        if shown:
            found.append(shown)
    return found


def _shown(output: str) -> Shown | None:
    svg = _SVG.search(output)
    if svg:
        said = [html.unescape(words) for words in re.findall(r"<span>(.*?)</span>", svg["head"] or "")]
        asks = said.pop(0) if said and said[0].endswith("?") else ""
        finds, note = [*said, "", ""][:2]
        return Shown(_without_head(svg["svg"]), asks, finds, note)

    if _PLAYER.search(output):
        return Shown(output, is_player=True)
    bitmap = _BITMAP.search(output)
    if bitmap is None:
        return None
    first, *_ = re.split(r"\.(?= |$)", html.unescape(bitmap["alt"]), maxsplit=1)
    return Shown(bitmap[0], finds=first)


def _without_head(svg: str) -> str:
    """Return the SVG below its head's last line, without a width of its own. A legend beside that line stays."""
    head, rest = [], []
    for text in _TEXT.finditer(svg):
        baseline, size = float(text["y"] or text["top"]), float(text["size"])
        if text["said"]:
            head.append(baseline + 0.5 * size)
        else:
            rest.append(baseline - 1.5 * size)

    top = max(0.0, min([max(head, default=0.0), *rest]))
    svg = re.sub(r'<text class="ws-said".*?</text>', "", svg, flags=re.DOTALL)
    return _VIEW.sub(lambda view: f'viewBox="0 {top:g} {view["width"]} {float(view["height"]) - top:g}"', svg, count=1)


def with_own_names(svg: str, number: int) -> str:
    """Return the SVG with unique names: a shown picture cannot use definitions from a hidden slide."""
    for name in sorted(set(_NAME.findall(svg))):
        svg = re.sub(rf'(\bid="|href="#|url\(#){re.escape(name)}(?=["\)])', rf"\g<1>s{number}-{name}", svg)
    return svg
