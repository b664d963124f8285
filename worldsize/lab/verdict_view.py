"""A verdict in a notebook, as a small HTML table with the messages of the failing run below it.

In a terminal a verdict is its own text (`checks.verdict`).
"""

from __future__ import annotations

from worldsize import figures, pages, units
from worldsize.checks.verdict import Verdict


def verdict_html(verdict: Verdict) -> str:
    """Return the HTML of the verdict of `check.<exercise>(fn)`: its first line, the properties that hold, the first mismatch.

    An unwritten exercise is a small chip with its name and points.
    """
    if verdict.state == "not yet":
        return pages.render("verdict.html", head="", chip=_not_yet(verdict), properties=(), mismatch="", picture="", tried="")

    head, *_ = str(verdict).splitlines()
    return pages.render(
        "verdict.html",
        head=head,
        chip="",
        properties=verdict.properties,
        mismatch=(verdict.mismatch or "") if verdict.state == "fail" else "",
        picture=_messages(verdict),
        tried=str(verdict.tried or ""),
    )


def _not_yet(verdict: Verdict) -> str:
    points = units.count(int(verdict.possible), "point") if verdict.possible % 1 == 0 else f"{verdict.possible:g} points"
    return f"○ not yet: {verdict.mismatch or verdict.exercise} · {points}"


def _messages(verdict: Verdict) -> str:
    """Return the picture of a failed run's messages, as HTML; "" if none was sent."""
    if verdict.state != "fail" or verdict.trace is None or not verdict.trace.transfers:
        return ""
    return figures.messages(verdict.trace)._repr_html_()
