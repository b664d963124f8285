"""A verdict in a notebook, as a small HTML table with the messages of the failing run below it.

In a terminal a verdict is its own text (`checks.verdict`).
"""

from worldsize import figures, pages, units
from worldsize.checks.verdict import Verdict


def verdict_html(verdict: Verdict) -> str:
    """Return the HTML of the verdict of `check.<exercise>(fn)`: its first line, the properties that hold, the first mismatch.

    An unwritten exercise is a small chip with its name and points.
    """
    if verdict.state == "not yet":
        points = f"{verdict.possible:g} points"
        if verdict.possible % 1 == 0:
            points = units.count(int(verdict.possible), "point")
        chip = f"○ not yet: {verdict.mismatch or verdict.exercise} · {points}"
        return pages.render("verdict.html", head="", chip=chip, properties=(), mismatch="", picture="", tried="")

    mismatch = picture = ""
    if verdict.state == "fail":
        mismatch = verdict.mismatch or ""
        if verdict.trace is not None and verdict.trace.transfers:
            picture = figures.messages(verdict.trace)._repr_html_()

    head, *_ = str(verdict).splitlines()
    return pages.render(
        "verdict.html",
        head=head,
        chip="",
        properties=verdict.properties,
        mismatch=mismatch,
        picture=picture,
        tried=str(verdict.tried or ""),
    )
