"""A verdict in a notebook, as a small table in HTML with the messages of the failing run below it.

Left out: the verdict in a terminal, which is its own text (`checks.verdict`).
"""

from __future__ import annotations

from worldsize import figures, pages, units
from worldsize.checks.verdict import Verdict


def verdict_html(verdict: Verdict) -> str:
    """How a notebook shows the verdict of `check.<exercise>(fn)`: its first line, what holds, the first mismatch.

    An exercise not yet written is a small chip with its name and points.
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
    """The picture of the messages of a run that failed, as HTML; empty where none was sent."""
    if verdict.state != "fail" or verdict.trace is None or not verdict.trace.transfers:
        return ""
    return figures.messages(verdict.trace)._repr_html_()
