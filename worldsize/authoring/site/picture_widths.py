"""Pictures whose text stays readable on a phone: each has a least width, and scrolls sideways on a narrower screen.

The site's style sheet reads the width, `--ws-least`, and shows a picture's head as a paragraph there, no wider than the screen.
Players are left out, because they adapt their own layout.
"""

import re
from itertools import groupby

from worldsize.figures import tokens

LEAST_PX = 11

_SVG = re.compile(r'(<svg [^>]*width="[\d.]+" viewBox="0 0 (?P<width>[\d.]+) [\d.]+"[^>]* style=")(?P<rest>.*?</svg>)', re.DOTALL)
_IMAGE = re.compile(r'(<img alt="[^"]*" width="(?P<width>\d+)" style=")')
_FONT_SIZE = re.compile(r"font(?:-size)?:\s*(?:[\w ]+ )?([\d.]+)px")
# a left-aligned line; a line of several has its place in a transform
_TEXT = re.compile(
    r'<text (?P<style>style="font-size: ?(?P<size>[\d.]+)px;(?!text-anchor: ?(?:middle|end))[^"]*" '
    r'(?:x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)"|transform="translate\((?P<left>[\d.]+) (?P<top>[\d.]+)\)"))'
    r"[^>]*>(?P<said>[^<]*)</text>"
)
_NEXT_LINE = 18  # units of a picture: the greatest distance between two lines of its head
# an image has the pixels of its picture, whose smallest text may be this
_SMALLEST_PX = tokens.TINY_PT * 96 / 72


def with_least_widths(html: str) -> str:
    """Return an output's HTML; each picture gets the width at which its smallest text is `LEAST_PX` high."""
    html = _SVG.sub(_svg, html)
    return _IMAGE.sub(lambda found: f"{found[1]}{_least(float(found['width']), _SMALLEST_PX)}", html)


def _svg(match: re.Match[str]) -> str:
    """Return an SVG with its least width, behind a paragraph with the words of its head, if any, a line for each size."""
    least = ""
    if sizes := _FONT_SIZE.findall(match["rest"]):
        least = _least(float(match["width"]), min(map(float, sizes)))
    svg = f"{match[1]}{least}{match['rest']}"

    head: list[re.Match[str]] = []
    for text in sorted(_TEXT.finditer(svg), key=lambda text: _place(text)[1]):
        x, y = _place(text)
        if head:
            above_x, above_y = _place(head[-1])
            if abs(x - above_x) < 0.1 and y - above_y <= _NEXT_LINE:
                head.append(text)
        elif float(text["size"]) in (tokens.QUESTION_PT, tokens.TITLE_PT):
            head.append(text)

    if not head:
        return svg
    for line in head:
        svg = svg.replace(line["style"], f'class="ws-said" {line["style"]}', 1)
    spans = ""
    for _, lines in groupby(head, lambda line: line["size"]):
        spans += f"<span>{' '.join(line['said'].strip() for line in lines)}</span>"
    return f'<p class="ws-head" aria-hidden="true">{spans}</p>{svg}'


def _place(text: re.Match[str]) -> tuple[float, float]:
    return float(text["x"] or text["left"]), float(text["y"] or text["top"])


def _least(width: float, smallest: float) -> str:
    return f"--ws-least:{width * LEAST_PX / smallest:.0f}px;"
