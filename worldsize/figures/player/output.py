"""An HTML output that holds a still picture, data, and the player that draws the data as a moving view.

Where scripts run, the moving view replaces the picture. The output fetches nothing and needs no kernel, so the view works
in a saved notebook and in an exported page.
"""

import base64
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from matplotlib.markers import MarkerStyle
from matplotlib.path import Path as Outline

from worldsize.figures import tokens
from worldsize.figures.base import Picture

PLAYER = Path(__file__).with_name("player.js")
CSS = Path(__file__).with_name("player.css")
PICTURE_BYTES = 20_000
PICTURE_DPI = 96
COMMANDS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C"}  # of SVG


@functools.cache
def _shapes() -> tuple[str, ...]:
    """Return the ranks' markers (`tokens.MARKERS`) for the player's script, as SVG paths about (0, 0) of size 1."""
    shapes = []
    for marker in tokens.MARKERS:
        style = MarkerStyle(marker)
        outline = style.get_path().transformed(style.get_transform())
        box = outline.get_extents()
        size = max(box.width, box.height)
        middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        parts = []
        for points, code in outline.iter_segments():
            if code == Outline.CLOSEPOLY:
                parts.append("Z")
                continue
            pairs = (points.reshape(-1, 2) - middle) / size * (1, -1)  # SVG's y points down
            parts.append(COMMANDS[code] + " ".join(f"{x:.3f},{y:.3f}" for x, y in pairs))
        shapes.append("".join(parts))
    return tuple(shapes)


class Scripted:
    """An output that a notebook shows as the moving view; `alt` says what it holds.

    `script` has a class `View(live, parts, data)`, which draws `data` for the player (`player.js` says how); `kind` is the
    word for the view in the page, as in `data-steps`.
    """

    def __init__(self, still: Picture, data: dict[str, Any], script: Path, kind: str) -> None:
        self.alt, self._still, self._data = still.alt, still, data
        self._script, self._kind = script, kind

    def _repr_html_(self) -> str:
        return self._html(self._png())

    def _png(self) -> bytes:
        return self._still.png(PICTURE_BYTES, PICTURE_DPI)

    def _html(self, png: bytes) -> str:
        # "<" is escaped, so that no "</script>" in the data can end the script
        data = json.dumps(self._data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        name = hashlib.sha256(data.encode()).hexdigest()[:12]
        still = self._still.image(png)
        css = json.dumps(CSS.read_text(encoding="utf-8"))
        scripts = (PLAYER.read_text(encoding="utf-8"), self._script.read_text(encoding="utf-8"))
        given = f"const CSS = {css}, SHAPES = {json.dumps(_shapes())};"
        script = "\n".join([given, *scripts, f'showAll("{self._kind}", "{name}", {data});'])

        # data-lm-suppress-shortcuts: otherwise JupyterLab takes the keys for its own shortcuts
        attributes = f'class="ws-{self._kind}" data-{self._kind}="{name}" data-lm-suppress-shortcuts="true"'
        style = tokens.css(f".ws-{self._kind}")
        return f'<style>{style}</style><div {attributes}>{still}</div>\n<script type="module">\n{script}\n</script>'

    def _ipython_display_(self) -> None:
        from IPython.display import display

        png = self._png()
        kept = {"text/html": self._html(png), "image/png": base64.b64encode(png).decode(), "text/plain": self.alt}
        display(kept, raw=True, metadata={"image/png": {"alt": self.alt}})
