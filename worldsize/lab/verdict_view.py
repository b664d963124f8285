"""A verdict in a notebook, as a small table in HTML with the messages of the failing run below it.

Left out: the verdict in a terminal, which is its own text (`checks.verdict`).
"""

from __future__ import annotations

from worldsize import figures, pages
from worldsize.checks.verdict import Verdict


def verdict_html(verdict: Verdict) -> str:
    """How a notebook shows the verdict of `check.<exercise>(fn)`: its first line, what holds, the first mismatch.

    One that passes is a line.
    """
    head, *_ = str(verdict).splitlines()
    properties = verdict.properties if verdict.state == "fail" else ()
    return pages.render(
        "verdict.html",
        head=head,
        properties=properties,
        mismatch=verdict.mismatch or "",
        picture=_messages(verdict),
    )


def _messages(verdict: Verdict) -> str:
    """The picture of the messages of a run that failed, as HTML; empty where none was sent."""
    if verdict.state != "fail" or verdict.trace is None or not verdict.trace.transfers:
        return ""
    return figures.messages(verdict.trace)._repr_html_()
