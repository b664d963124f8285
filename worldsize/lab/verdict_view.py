"""A verdict in a notebook: the sentence that helps, the points, a chip for each property, the messages of the failing run.

In a terminal a verdict is its own text (`checks.verdict`).
"""

from worldsize import figures, pages, units
from worldsize.checks.verdict import Verdict


def verdict_html(verdict: Verdict) -> str:
    """Return the HTML of the verdict of `check.<exercise>(fn)`.

    The mismatch comes first: its sentences, then the lines that are indented, which name places. Properties that were not
    examined are folded. An unwritten exercise is a small chip with its name and points.
    """
    if verdict.state == "not yet":
        points = f"{verdict.possible:g} points"
        if verdict.possible % 1 == 0:
            points = units.count(int(verdict.possible), "point")
        chip = f"○ not yet: {verdict.mismatch or verdict.exercise} · {points}"
        return pages.render(
            "verdict.html", head="", chip=chip, properties=(), mismatch="", says=(), places="", picture="", tried=""
        )

    mismatch = picture = ""
    if verdict.state == "fail":
        mismatch = verdict.mismatch or ""
        if verdict.trace is not None and verdict.trace.transfers:
            picture = figures.messages(verdict.trace)._repr_html_()

    head, *_ = str(verdict).splitlines()
    rows = mismatch.splitlines()
    return pages.render(
        "verdict.html",
        head=head,
        chip="",
        properties=verdict.properties,
        mismatch=mismatch,
        says=[row for row in rows if not row.startswith("  ")],
        places="\n".join(row for row in rows if row.startswith("  ")),
        picture=picture,
        tried=str(verdict.tried or ""),
    )
