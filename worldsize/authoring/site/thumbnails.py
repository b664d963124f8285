"""A lab's cover at the size of a card: its picture without words, unreadable at that size, and with lines of full width.

A cover that is no SVG is shown as it is.
"""

import html
import re
from xml.etree import ElementTree

from nbformat import NotebookNode

from worldsize.authoring.covers import TAG
from worldsize.authoring.covers import players as outputs_of
from worldsize.figures import tokens
from worldsize.figures.frame.heading import LEFT_IN

_COVER = re.compile(r"^!\[(?P<alt>[^\n]*)\]\((?P<path>covers/\d\d\.png)\)$", re.MULTILINE)
_SVG = "http://www.w3.org/2000/svg"
_VARIABLE = re.compile(r"var\(--[\w-]+,\s*(#[0-9a-f]{6})\)")
_PLACE = re.compile(r"(?:translate|rotate)\((?:-?0 )?([\d.]+)[ ,]([\d.]+)\)")
_STYLE = '[style*="fill:none"]{vector-effect:non-scaling-stroke}'
_POINTS = 72


def thumbnail(run: NotebookNode) -> str | None:
    """Return the picture of the cover in a lab's executed notebook as a standalone SVG, on light paper; None if it is no SVG."""
    for shown in outputs_of(run, TAG):
        found = re.search(r'<div class="worldsize-picture">.*?(<svg .*?</svg>)', shown, re.DOTALL)
        if found:
            return small(found[1])
    return None


def with_card(text: str, number: str) -> str:
    """Return a lab's Markdown whose cover has no words on screens too narrow to read them."""
    return _COVER.sub(
        lambda cover: '<picture>'
        f'<source media="(max-width: 959px)" srcset="../cards/{number}.svg">'
        f'<img src="../{cover["path"]}" alt="{html.escape(html.unescape(cover["alt"]))}"></picture>',
        text,
    )


def small(svg: str) -> str:
    """Return a picture's SVG without its words and the head over it."""
    root = ElementTree.fromstring(_VARIABLE.sub(r"\1", svg))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    top = 0.0  # the lower end of the head's lines, which begin at the picture's left edge
    for text in root.iter(f"{{{_SVG}}}text"):
        place = _PLACE.search(text.get("transform", ""))
        if place and abs(float(place[1]) - LEFT_IN * _POINTS) < 0.1:
            top = max(top, float(place[2]) + tokens.TINY_PT)

    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{_SVG}}}text":
                parent.remove(child)

    for name in ("width", "style", "role", "aria-label"):
        root.attrib.pop(name, None)
    root.attrib["viewBox"] = f"0 {top:g} {width:g} {height - top:g}"
    style = ElementTree.Element(f"{{{_SVG}}}style")
    style.text = _STYLE
    root.insert(0, style)
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")
