"""A training step in two records on one time axis: torch's profiler of one rank above, the run's own record below.

The profiler's rows are operators and collectives; the record's are each rank's work, the rank's waits, and the messages on
its links. The file for Perfetto has the names of single operators.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import charts, findings, heading
from worldsize.figures.frame.inputs import waits_for
from worldsize.figures.rank_timeline import Interval, covered_s, together_s
from worldsize.trace import joined, waits

HEIGHT = 0.6
ROW_IN, TOP_IN, BOTTOM_IN, LETTER_IN = 0.3, 0.1, 0.55, 0.085
TONES = {
    "operators": tokens.BACKWARD.light,
    "compute": tokens.COMPUTE.light,
    "wait": tokens.IDLE.light,
    "collective": tokens.COLLECTIVE.light,
    "send": tokens.SEND.light,
    "recv": tokens.RECV.light,
}
MOST_LINKS = 6
PROFILER, OURS = "profiler", "record"


@dataclass(frozen=True)
class Track:
    """A row of the two records' picture: its record, its rank or link, the kind of event, and the times."""

    record: str
    what: str
    kind: str
    intervals: tuple[Interval, ...]
    events: int = 0  # more than `intervals` where events touch or overlap

    @property
    def label(self) -> str:
        return f"{self.record}: {self.what}"


@base.plain_style
def two_records(run: Any, works_a_step: int, asks: str = "", rank: int = 0) -> Picture:
    """Draw the last step of one rank from its profile and from the run's own record, on one axis.

    `run[rank]` is what `worldsize.pytorch.profiled` saw; a step has `works_a_step` spans of declared work. `asks` is the
    question above the picture; ValueError unless it ends in "?".
    """
    if waits_for(run):
        return base.not_yet(waits_for(run))

    shown = tracks(run.trace, run[rank], works_a_step, rank)
    longest_s = _end_s(shown)
    scale, unit = units.time_unit(longest_s)
    labels = list(map(attrgetter("label"), shown))

    picture = Picture(base.WIDTH_IN, TOP_IN + BOTTOM_IN + ROW_IN * len(shown))
    picture.set_layout_engine(None)  # layout would take half of the drawing time
    statement = finding(shown, rank)
    head_in = heading.head(picture, asks, statement, f"the last step of rank {rank}; both records on the clock of the launch")
    height_in = picture.get_figheight()
    left = (0.2 + LETTER_IN * max(map(len, labels))) / base.WIDTH_IN
    picture.subplots_adjust(left, BOTTOM_IN / height_in, 1 - 0.15 / base.WIDTH_IN, 1 - (head_in + TOP_IN) / height_in)
    ax = picture.plot_area()

    sentences = []
    for place, track in enumerate(shown):
        bars = [(start * scale, (end - start) * scale) for start, end in track.intervals]
        ax.broken_barh(bars, (place - HEIGHT / 2, HEIGHT), facecolor=TONES[track.kind], **charts.FLAT)
        if bars:
            sentences.append(f"{track.label}: {_percent(covered_s(track.intervals) / longest_s)} of the time")
        else:
            ax.text(0.01 * longest_s * scale, place, "nothing", va="center", fontsize=tokens.LABEL_PT, color=base.QUIET_INK)
            sentences.append(f"{track.label}: nothing")

    of_profiler = sum(track.record == PROFILER for track in shown)
    ax.axhline(of_profiler - 0.5, color=base.INK, linewidth=tokens.THIN_PT)
    ax.set_yticks(range(len(shown)), labels)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlim(0, longest_s * scale)
    ax.set_xlabel(f"time since the step began ({unit})", fontsize=tokens.LABEL_PT, color=base.INK)

    heading.tell(picture, asks, statement, *sentences)
    return picture


def tracks(trace: Any, profile: Any, works_a_step: int, rank: int) -> list[Track]:
    """Return the rows of both records, with times from the beginning of the rank's last step."""
    work: dict[int, list[Any]] = {each: [] for each in range(trace.world_size)}
    for span in trace.spans:
        if span.kind == "compute" and span.declared:
            work[span.rank].append(span)
    since_s = work[rank][-works_a_step:][0].start_s
    rows: list[Track] = []

    def add(record: str, what: str, kind: str, intervals: Iterable[Interval]) -> None:
        kept = [(max(0.0, start - since_s), end - since_s) for start, end in intervals if end > since_s]
        rows.append(Track(record, what, kind, tuple(joined(kept)), len(kept)))

    times = attrgetter("start_s", "end_s")
    operators = [one for one in profile.operators if one.name.startswith("aten::")]
    add(PROFILER, f"operators, rank {rank}", "operators", map(times, operators))
    add(PROFILER, f"collectives, rank {rank}", "collective", map(times, profile.collectives))
    for each, spans in work.items():
        add(OURS, f"work, rank {each}", "compute", map(times, spans))
    add(OURS, f"waits, rank {rank}", "wait", waits(trace)[rank])

    links: dict[tuple[int, int], list[Any]] = {}
    for t in trace.transfers:
        if rank in (t.src, t.dst):
            links.setdefault((t.src, t.dst), []).append(t)
    for src, dst in sorted(links)[:MOST_LINKS]:
        add(OURS, f"messages, {src} to {dst}", "send" if src == rank else "recv", map(times, links[src, dst]))
    if not links:
        add(OURS, "messages", "send", ())
    return rows


def in_step(run: Any, works_a_step: int, rank: int = 0) -> dict[str, int]:
    """Return how many operators and collectives the profiler shows of a rank's last step, and the record how many messages."""
    counts = {"operators": 0, "collectives": 0, "messages": 0}
    for track in tracks(run.trace, run[rank], works_a_step, rank):
        what = track.what.split(",")[0]
        if what in counts:
            counts[what] += track.events
    return counts


def at_work(run: Any, works_a_step: int, rank: int = 0) -> dict[int, float]:
    """Return, by two records, the part of a rank's collectives, 0 to 1, in which each other rank still works: {rank: part}."""
    shown = tracks(run.trace, run[rank], works_a_step, rank)
    under_way = [interval for track in shown if track.kind == "collective" for interval in track.intervals]
    whole_s = covered_s(under_way)
    others = {int(track.what.removeprefix("work, rank ")): track.intervals for track in shown if track.kind == "compute"}
    return {other: together_s(under_way, work) / whole_s if whole_s else 0.0 for other, work in others.items() if other != rank}


def finding(shown: Sequence[Track], rank: int) -> str:
    """Say how long a collective is under way and who works meanwhile, and which events one of two records lacks."""
    whole_s = _end_s(shown)
    clauses = []
    others = []  # the work of other ranks
    for track in shown:
        if track.kind == "compute" and not track.what.endswith(f"rank {rank}"):
            others.append(track)

    for track in shown:
        if track.kind != "collective" or not track.intervals:
            continue
        under_way_s = covered_s(track.intervals)
        clauses.append(f"by the profiler a collective is under way {_percent(under_way_s / whole_s)} of the step")
        for other in others[:2]:
            share = together_s(track.intervals, other.intervals) / under_way_s
            clauses.append(f"for {_percent(share)} of that {other.what.removeprefix('work, ')} still works")

    messages = sum(track.events for track in shown if track.what.startswith("messages"))
    if messages:
        clauses.append(f"the {OURS} has {units.count(messages, 'message')} to rank {rank} and from it")
    for track in shown:
        if not track.intervals and track.kind != "wait":
            clauses.append(f"the {track.record} has no {track.what.split(',')[0]}")
    return findings.line(*clauses)


def _end_s(shown: Sequence[Track]) -> float:
    return max(end for track in shown for _, end in track.intervals)


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"
