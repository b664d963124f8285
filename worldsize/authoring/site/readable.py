"""Pictures whose text can be read on a phone: each says how wide it has to be, and scrolls sideways where there is less room.

The style sheet of the site reads the width, `--ws-least`. Left out: players, which lay themselves out anew.
"""

from __future__ import annotations

import re

from worldsize.figures import tokens

LEAST_PX = 11

_SVG = re.compile(r'(<svg [^>]*width="[\d.]+" viewBox="0 0 (?P<width>[\d.]+) [\d.]+"[^>]* style=")(?P<rest>.*?</svg>)', re.DOTALL)
_IMAGE = re.compile(r'(<img alt="[^"]*" width="(?P<width>\d+)" style=")')
_FONT_SIZE = re.compile(r"font(?:-size)?:\s*(?:[\w ]+ )?([\d.]+)px")
# an image has the pixels of its picture, whose smallest text may be this
_SMALLEST_PX = tokens.TINY_PT * 96 / 72


def with_least_widths(html: str) -> str:
    """The HTML of an output, each of whose pictures has the width at which its smallest text is `LEAST_PX` high."""
    html = _SVG.sub(_svg, html)
    return _IMAGE.sub(lambda found: f"{found[1]}{_least(float(found['width']), _SMALLEST_PX)}", html)


def _svg(found: re.Match[str]) -> str:
    sizes = [float(size) for size in _FONT_SIZE.findall(found["rest"])]
    return f"{found[1]}{_least(float(found['width']), min(sizes)) if sizes else ''}{found['rest']}"


def _least(width: float, smallest: float) -> str:
    return f"--ws-least:{width * LEAST_PX / smallest:.0f}px;"
