"""Rendering of what ranks put out: as text, and as HTML, by groups of ranks with the same output.

Short outputs stand one below the other, long ones in tabs. Tabs are radio buttons and a style sheet: they need no kernel
and no script, and work by keyboard. A running cell shows each rank's last lines. `launch/rank_output.py` collects the
output.
"""

import html
import re
import secrets
from collections.abc import Mapping, Sequence

from worldsize.launch.rank_output import Group, Piece, as_seen

MOST_TABS = 32
SHORT_LINES = 3  # an output of at most so many lines is short …
SHORT_OUTPUTS = 16  # … and at most so many short outputs stand one below the other
LIVE_LINES = 12
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_QUIET = "color:inherit;opacity:.75;font-size:90%"
_OWN_KEYS = 'data-lm-suppress-shortcuts="true"'  # else JupyterLab takes the arrow keys to move between cells
_LIST = "display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 14px;align-items:baseline"
_GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(26em,100%),1fr));gap:4px 16px"
_CUT = "margin:0;white-space:pre;overflow:hidden;text-overflow:ellipsis"


def text_of(groups: Sequence[Group], of: Sequence[int], caption: str = "") -> str:
    """Return the ranks' output as text; a group with a single line has its name on that line, else above its lines."""
    rows: list[str] = []
    for group in groups:
        lines: list[str] = []
        for piece in group.pieces:
            text = piece.text or dict(piece.bundle).get("text/plain", "")
            lines += _ANSI.sub("", text).removesuffix("\n").split("\n")

        name = group.name(of)
        if len(lines) == 1:
            rows.append(f"[{name}] {lines[0]}")
        else:
            rows += [f"[{name}]", *lines]
    return "\n".join([*rows, *filter(None, [caption])])


def html_of(groups: Sequence[Group], of: Sequence[int], caption: str = "") -> str:
    """Return the ranks' output as HTML: one output under its ranks' name, short ones in rows, and long ones in tabs."""
    foot = f'<div style="{_QUIET}">{html.escape(caption)}</div>' if caption else ""
    if not groups:
        return foot
    if len(groups) == 1:  # every rank with output put out the same
        content = "".join(map(_face, groups[0].pieces))
        return f'<div style="{_QUIET}">{html.escape(groups[0].name(of))}</div>{content}{foot}'
    if len(groups) <= SHORT_OUTPUTS and all(map(_is_short, groups)):
        return _rows(groups, of) + foot

    tabs, beyond = _tabs(groups[:MOST_TABS], of), len(groups) - MOST_TABS
    if beyond > 0:
        tabs += f"<p>… and {beyond} more outputs: last_run().log(rank) has a rank's text</p>"
    return tabs + foot


def _is_short(group: Group) -> bool:
    """Return True for an output of a few lines of text, without a picture or a table."""
    if any(kind != "text/plain" for piece in group.pieces for kind, _ in piece.bundle):
        return False
    return len(text_of([group], ()).splitlines()) <= SHORT_LINES + 1  # the name has a line if there are several


def _rows(groups: Sequence[Group], of: Sequence[int]) -> str:
    rows = ""
    for group in groups:
        content = "".join(map(_face, group.pieces))
        name = f'<span class="ranks" style="{_QUIET}">{html.escape(group.name(of))}</span>'
        output = f'<div class="output" style="min-width:0">{content}</div>'
        rows += f'<div role="listitem" style="display:contents">{name}{output}</div>'
    return f'<div role="list" aria-label="output by rank" style="{_LIST}">{rows}</div>'


def _tabs(groups: Sequence[Group], of: Sequence[int]) -> str:
    name = f"ws-cell-{secrets.token_hex(8)}"
    buttons, panels, rules = [], [], []
    for place, group in enumerate(groups):
        own = f"{name}-{place}"
        checked = " checked" if place == 0 else ""
        buttons.append(
            f'<input type="radio" name="{name}" id="{own}" {_OWN_KEYS}{checked}>'
            f'<label for="{own}">{html.escape(group.name(of))}</label>'
        )
        content = "".join(map(_face, group.pieces))
        panels.append(
            f'<div class="panel p{place}" role="group" aria-label="{html.escape(group.name(of))}">{content}</div>'
        )
        rules.append(f"#{name} > #{own}:checked ~ .p{place}{{display:block}}")

    style = (
        f"#{name} > input{{position:absolute;opacity:0}}"
        f"#{name} > label{{display:inline-block;padding:2px 9px;margin:0 4px 4px 0;border:1px solid currentColor;"
        f"border-radius:3px;cursor:pointer;opacity:.75}}"
        f"#{name} > input:checked + label{{opacity:1;font-weight:bold;border-width:2px;padding:1px 8px}}"
        f"#{name} > input:focus-visible + label{{outline:3px solid currentColor;outline-offset:1px}}"
        f"#{name} > .panel{{display:none}}" + "".join(rules)
    )

    return (
        f'<style>{style}</style><div id="{name}" role="group" aria-label="output by rank" style="position:relative">'
        f"{''.join(buttons)}{''.join(panels)}</div>"
    )


def _face(piece: Piece) -> str:
    """Return a piece of a rank's output as HTML, in its richest form that needs no script."""
    faces = dict(piece.bundle)
    for kind in ("text/html", "image/svg+xml"):
        if kind in faces:
            return f"<div>{faces[kind]}</div>"
    for kind in ("image/png", "image/jpeg"):
        if kind in faces:
            alt = html.escape(faces.get("text/plain", "a picture")[:200], quote=True)
            return f'<img alt="{alt}" src="data:{kind};base64,{html.escape(faces[kind], quote=True)}">'

    text = piece.text or faces.get("text/markdown") or faces.get("text/latex") or faces.get("text/plain", "")
    return f'<pre style="margin:0">{html.escape(_ANSI.sub("", text))}</pre>'


def live_html(texts: Mapping[int, str], ran_s: float) -> str:
    """Return HTML for a running cell: the last lines of each rank that has printed, and the elapsed time."""
    most = max(2, LIVE_LINES * 4 // (len(texts) + 3))  # fewer lines each, the more ranks print

    boxes = []
    for rank, text in sorted(texts.items()):
        lines = as_seen(_ANSI.sub("", text)).removesuffix("\n").split("\n")[-most:]
        shown = html.escape("\n".join(lines + [""] * (most - len(lines))))  # pad, so that the height stays constant
        boxes.append(
            f'<div style="min-width:0"><div style="{_QUIET}">rank {rank}</div><pre style="{_CUT}">{shown}</pre></div>'
        )

    return f'<div style="{_GRID}">{"".join(boxes)}</div><div style="{_QUIET}">at work for {ran_s:.0f} s</div>'
