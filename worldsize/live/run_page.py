"""A run as one HTML page that stands alone: picture, player, table, messages, and the ranks' output.

The page fetches nothing and needs no kernel, so it can be mailed, or opened in a year. Long runs are cut to `MOST_MESSAGES`
and `MOST_LOG_CHARS`, and the page says so.
"""

from typing import Any

from worldsize import pages, units
from worldsize.figures.replay.bands import replay
from worldsize.launch.run import Run
from worldsize.live import result

MOST_MESSAGES = 1000
MOST_LOG_CHARS = 200_000


def run_page(run: Run) -> str:
    """Return the page of a run that has ended, as HTML of at most about a megabyte."""
    picture = result.picture(run)
    heads, rows = result.table(run, result.state_of(run))
    log = run.log()

    return pages.render(
        "run_page.html",
        caption=result.caption(run),
        setup=run.setup,
        picture=picture.html(picture.png()) if picture else "",
        player=replay({"this run": run})._repr_html_() if run.trace.transfers else "",
        heads=heads,
        rows=[row.texts() for row in rows],
        messages=_messages(run.trace),
        left_out=max(0, len(run.trace.transfers) - MOST_MESSAGES),
        log=log[:MOST_LOG_CHARS],
        log_cut=len(log) > MOST_LOG_CHARS,
    )


def run_text(run: Run) -> str:
    """Return the page as text: the picture's finding, the table, and the ranks' output."""
    told = result.bundle(run, result.state_of(run))["text/plain"]
    return "\n".join(filter(None, [run.setup, told, run.log().rstrip()]))


def _messages(trace: Any) -> list[list[str]]:
    """Return the first messages as rows: source, destination, tag, size, and the moments of sending and of full receipt."""
    start_s = min((t.start_s for t in trace.transfers), default=0.0)

    found = []
    for t in trace.transfers[:MOST_MESSAGES]:
        sent, received = units.seconds(t.start_s - start_s), units.seconds(t.end_s - start_s)
        found.append([str(t.src), str(t.dst), str(t.tag), units.size(t.size_bytes), sent, received])
    return found
