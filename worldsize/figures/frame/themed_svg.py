"""A Matplotlib figure as a small SVG whose colours follow the theme of the page around it.

Text stays text. Every colour that is a design token becomes its CSS variable, which the page's style sets (`tokens.css`).
"""

import hashlib
import io
import re
from collections.abc import Sequence
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

from worldsize.figures import tokens
from worldsize.figures.tokens import Tone

_SVG = "http://www.w3.org/2000/svg"
_HREF = "{http://www.w3.org/1999/xlink}href"
_TONES = {tone.light: tone for tone in tokens.ALL}
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_POINT = re.compile(r"(-?[\d.]+(?:e-?\d+)?)[ ,]+(-?[\d.]+(?:e-?\d+)?)")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
# text as text, and the same ids in every run
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "worldsize", "path.simplify": True}
# a browser's defaults, and what the root sets once
_PLAIN = {"font-stretch: normal", "font-style: normal", "opacity: 1", "stroke-opacity: 1", "stroke-dashoffset: 0"}
_TILE = 24  # points; holds whole periods of all Matplotlib hatches of one to four characters, whose own tile is 72
_ROOT_STYLE = f"max-width:100%;height:auto;stroke-linejoin:round;font-family:{tokens.FONTS}".replace('"', "'")


def themed_svg(figure: Figure, alt: str, width_px: int) -> tuple[str, set[Tone]]:
    """Return `figure` as an inline `<svg>` of `width_px` pixels, labelled `alt` for screen readers, and its tones."""
    file = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})  # the page's background shows through

    root = ElementTree.fromstring(file.getvalue())
    ElementTree.register_namespace("", _SVG)
    _prune(root)
    for pattern in root.iter(f"{{{_SVG}}}pattern"):
        _shrink(pattern)

    references = _references(root)
    prefix = "w" + hashlib.sha256(ElementTree.tostring(root)).hexdigest()[:8]  # ids of no other picture on the page
    names = {name: f"{prefix}{number}" for number, name in enumerate(sorted(references))}
    tones: set[Tone] = set()
    for element in root.iter():
        _shorten(element, names, tones)

    for name in ("height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"width": str(width_px), "role": "img", "aria-label": alt, "style": _ROOT_STYLE}
    return ElementTree.tostring(root, encoding="unicode"), tones


def _prune(parent: ElementTree.Element) -> None:
    """Remove what draws nothing: metadata, styles, unfilled paths, empty definitions, and groups without attributes."""
    kept = []
    for child in parent:
        kind = child.tag.rpartition("}")[2]
        if kind in ("metadata", "style") or (kind == "path" and child.get("style") == "fill: none"):
            continue
        _prune(child)
        if kind == "g" and not set(child.attrib) - {"id"}:
            kept += list(child)
        elif kind != "defs" or len(child):
            kept.append(child)
    parent[:] = kept


def _shrink(pattern: ElementTree.Element) -> None:
    """Cut an SVG's hatch to its smallest repeating tile, its circles as arcs: Matplotlib writes 80 kB for a hatch of dots."""
    ground, lines = pattern
    kept = []
    for part in filter(str.strip, lines.get("d", "").split("M")):
        points = [tuple(map(float, pair)) for pair in _POINT.findall(part)]
        xs, ys = zip(*points, strict=True)
        if max(min(xs), min(ys)) > _TILE or min(max(xs), max(ys)) < 0:  # outside of the tile
            continue
        kept.append(_circle(points, xs, ys) if "C" in part else f"M {part.strip()}")

    lines.set("d", " ".join(kept))
    if ground.get("fill") not in ("none", tokens.PAPER.light, tokens.SHADE.light):
        lines.set("style", lines.get("style", "").replace(tokens.INK.light, tokens.HATCH.light))
    for element in (pattern, ground):
        element.attrib |= {"width": str(_TILE), "height": str(_TILE)}


def _circle(points: list[tuple[float, ...]], xs: Sequence[float], ys: Sequence[float]) -> str:
    """Return an SVG's closed curve as two arcs in its direction: a ring is a circle with a reversed one inside."""
    radius = (max(xs) - min(xs)) / 2
    middle = (max(ys) + min(ys)) / 2
    turn = 0.0
    for (x, y), (next_x, next_y) in pairwise(points):
        turn += x * next_y - next_x * y
    way = int(turn > 0)
    arc = f"a {radius:.2f} {radius:.2f} 0 1 {way}"
    return f"M {min(xs):.2f} {middle:.2f} {arc} {2 * radius:.2f} 0 {arc} {-2 * radius:.2f} 0 z"


def _references(root: ElementTree.Element) -> set[str]:
    """Return the ids that something in the SVG refers to. Others go: two pictures of a page must not share one."""
    ids = set()
    for element in root.iter():
        ids.add(element.get(_HREF, "#")[1:])
        for value in element.attrib.values():
            ids.update(_REFERENCE.findall(value))
    return ids


def _shorten(element: ElementTree.Element, names: dict[str, str], tones: set[Tone]) -> None:
    element.text = _stripped(element.text)
    element.tail = _stripped(element.tail)

    target = element.attrib.pop(_HREF, None)
    if target is not None:
        element.set("href", f"#{names[target[1:]]}")
    name = element.attrib.pop("id", None)
    if name in names:
        element.set("id", names[name])

    for key, value in list(element.attrib.items()):
        if key in ("id", "href", "viewBox"):
            continue
        value = _REFERENCE.sub(lambda found: f"url(#{names[found[1]]})", value)
        if key == "style":
            value = _style(value, tones)
        elif key in ("fill", "stroke"):
            value = _themed(value, tones)
        else:
            value = _NUMBER.sub(_rounded, value)
        if key == "d":
            value = _relative(value)

        if value:
            element.set(key, value)
        else:
            del element.attrib[key]


def _relative(path: str) -> str:
    """Return an SVG path of straight lines from point to point, which takes half the bytes; others as they are."""
    parts = path.split()
    if not set(filter(str.isalpha, parts)) <= {"M", "L", "z"}:
        return " ".join(parts)

    written, at, begun = [], (0, 0), (0, 0)  # in hundredths, so that no rounding adds up
    place = 0
    while place < len(parts):
        command = parts[place]
        if command == "z":
            written.append("z")
            at, place = begun, place + 1
            continue
        to = round(100 * float(parts[place + 1])), round(100 * float(parts[place + 2]))
        x, y = to[0] - at[0], to[1] - at[1]
        if command == "M":
            written.append(f"M{_hundredths(to[0])} {_hundredths(to[1])}")
            begun = to
        elif not y:
            written.append(f"h{_hundredths(x)}")
        elif not x:
            written.append(f"v{_hundredths(y)}")
        else:
            written.append(f"l{_hundredths(x)} {_hundredths(y)}")
        at, place = to, place + 3
    return "".join(written)


def _hundredths(count: int) -> str:
    return f"{count / 100:.2f}".rstrip("0").rstrip(".")


def _stripped(text: str | None) -> str | None:
    """Strip the line breaks and blanks that indent an SVG file; a label keeps its own blanks, also at its ends."""
    if text is None or not text.strip():
        return None
    blanks = len(text) - len(text.lstrip(" "))
    return "\u00a0" * blanks + text[blanks:]


def _style(style: str, tones: set[Tone]) -> str:
    parts = []
    for part in filter(None, map(str.strip, style.split(";"))):
        if part in _PLAIN:
            continue
        property, _, value = part.partition(":")
        value = value.strip()
        if property == "font":
            value = re.sub(r"(?<=px).*", " sans-serif", value)
        if property == "font" and value[0].isdigit():
            property, value = "font-size", value.split()[0]
        if property == "font-family":
            continue
        parts.append(f"{property}:{_themed(_NUMBER.sub(_rounded, value), tones)}")
    return ";".join(parts)


def _themed(value: str, tones: set[Tone]) -> str:
    def variable(match: re.Match) -> str:
        tone = _TONES.get(match[0])
        if tone is None:
            return match[0]
        tones.add(tone)
        return tokens.variable(tone)

    return _COLOUR.sub(variable, value.lower() if value.startswith("#") else value)


def _rounded(match: re.Match) -> str:
    """Round an SVG's number to two decimals at most."""
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
