"""Measured points on predicted curves: how a quantity grows with the world size, or with the size of a message.

Markers are measurements, dashed lines the formula, lines with small dots simulated ranks. A thin line through a marker goes
from the least repetition to the greatest. Where x is training's time, a hair line joins a series' markers, which stand a
little beside the other series' markers.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations_with_replacement, product
from operator import attrgetter
from types import MappingProxyType

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation

from worldsize import units
from worldsize.figures import base, tokens
from worldsize.figures.base import Picture
from worldsize.figures.frame import charts, crossings, findings, heading, predictions, scales
from worldsize.figures.frame.curve_ends import settled, standing
from worldsize.figures.frame.findings import XY, Text, be, both, points, pronoun, tie, verb

MOST = 0.9  # of a curve's sum


def within(
    name: str, curve: Iterable[XY], limit: str, limits: Iterable[XY], x: Text = units.number, y: Text = units.number
) -> str:
    """Say from which x on a measured curve is at most its limit, with its value there and at the x before."""
    mine, most = points(curve), points(limits)
    shared = [place for place in mine if place in most]
    over = [place for place in shared if mine[place] > most[place]]
    if not shared:
        return ""
    if not over:
        return f"{name} {be(name)} at most {limit} everywhere"

    last_over = over[-1]
    if last_over == shared[-1]:
        return f"{name} {be(name)} over {limit} at {x(last_over)}: {y(mine[last_over])}"
    first = shared[shared.index(last_over) + 1]
    it = pronoun(name)
    before = f"at {x(last_over)} {it} {be(it)} {y(mine[last_over])}"
    return f"{name} {be(name)} at most {limit} from {x(first)} on: {y(mine[first])}; {before}"


def lowest_place(name: str, curve: Iterable[XY], x: Text = units.number, y: Text = units.number) -> str:
    """Say where a measured curve is lowest, naming all places that tie with the lowest."""
    y_at = points(curve)
    if not y_at:
        return ""

    lowest = min(y_at.values())
    places = [place for place in y_at if tie(y_at[place], lowest)]
    if len(places) == len(y_at):
        return f"{name} {be(name)} about {y(lowest)} at each of them"
    ties = verb(places, "", ", a tie")
    return f"{name} {be(name)} least, {y(lowest)}, at {both(list(map(x, places)))}{ties}"


def bulk_range(name: str, curve: Iterable[XY], x: Text = units.number) -> str:
    """Name the shortest range of x that holds nine tenths of a measured curve's sum."""
    y_at = points(curve)
    whole = sum(y_at.values())
    if whole <= 0:
        return ""

    ranges = []
    for first, last in combinations_with_replacement(y_at, 2):
        share = sum(y for place, y in y_at.items() if first <= place <= last) / whole
        if share >= MOST:
            ranges.append((list(y_at).index(last) - list(y_at).index(first), -share, first, last))
    _, share, first, last = min(ranges)  # the narrowest; of several, the fullest
    where = x(first)
    if first != last:
        where = f"{where} to {x(last)}"
    return f"{round(-100 * share)} % of the {name} lie in {where}"


PREDICTED = (0, (4, 2))  # dashes
LEAST_STEP = 0.045  # of the axis, from label to label
MOST_TICKS = 8
MOST_TOLD = 20  # points of a curve in its alt text
BACK = {"boxstyle": "square,pad=0.1", "facecolor": base.PAPER, "edgecolor": "none"}  # behind a mark's name
FASTER = ("faster", "fastest")
# axes that count begin with a noun ("16 images"); axes that number are named by it alone ("layer 3")
NOUNS = "workers|ranks|images|micro-batches|towers|buckets|GPUs|rows|tokens|examples|epochs|parts|minutes"
COUNTED = re.compile(rf"((backup )?({NOUNS}))\b")
NUMBERED = re.compile(r"layer|step|epoch|call")
ON_THE_WAY = re.compile(r"(epoch|step)s?\b(?! after)")  # axes along which one training is measured again and again
ON_TICKS = re.compile(r" \((bytes|s)\)$")  # a unit that each tick of the axis carries
BESIDE_PT = 2.5  # from series to series at one x
UNIT = re.compile(r"\(([a-zA-Z][^)]*)\)$")
RATE = re.compile(r"\S+/\S+")
MeasuredPoint = tuple[float, float | None]  # y is None for an exercise not yet written


@dataclass(frozen=True)
class Curve:
    """A series of (x, y) points: measured, predicted by a formula, and simulated.

    `repeats` maps an x to the repetitions of which the measured y is the middle; curves tie where their repetitions
    overlap. `limit` marks the prediction as the most that the other curves may reach, not a forecast.
    """

    name: str
    measured: Sequence[MeasuredPoint] = ()
    predicted: Sequence[MeasuredPoint] = ()
    simulated: Sequence[MeasuredPoint] = ()
    repeats: Mapping[float, Sequence[float]] = field(default_factory=dict)
    limit: bool = False

    @property
    def known(self) -> list[tuple[float, float]]:
        """Return the measured points, without exercises not yet written."""
        return [(x, y) for x, y in self.measured if y is not None]

    @property
    def played(self) -> list[tuple[float, float]]:
        """Return the simulated points, without exercises not yet written."""
        return [(x, y) for x, y in self.simulated if y is not None]

    @property
    def unwritten(self) -> bool:
        """Tell whether all points of the curve wait for an exercise not yet written."""
        return bool(self.measured or self.simulated) and not (self.known or self.played)


@base.plain_style
def curves(
    rows: Iterable[Curve], asks: str = "", *, x: str, y: str, log: bool = False,
    marks: Mapping[str, float | None] = MappingProxyType({}), beside: Sequence[Sequence[str]] = (), growth: bool = False,
    least: bool = False, bulk: bool = False, at_end: bool = False, until_level: bool = False,
) -> Picture:  # fmt: skip
    """Draw measured points on predicted curves; `x` and `y` name the axes, with "(bytes)" or "(s)" for such a unit.

    The finding answers `asks`. By default it says which curve is lowest where. `beside` compares each pair or group of
    names, measured or only predicted; `growth` tells how each curve runs; `least`, where each is lowest; `bulk`, where most
    of each lies; `at_end`, how curves stand at the last shared x; `until_level`, up to which x repetitions still rise or
    fall. With a `limit` curve, the finding says where the others keep it.

    `marks` are places on the x axis by name, None for an exercise not yet written. `asks` is the question above the
    picture; ValueError unless it ends in "?".
    """
    rows = tuple(rows)
    if rows and not any(row.predicted or row.known or row.played for row in rows):
        return base.not_yet(*map(attrgetter("name"), rows))

    picture = Picture(8.5, 3.8)
    ax = picture.plot_area()
    tones = charts.tones([row.name for row in rows])
    joined = ON_THE_WAY.match(x) is not None
    measured = [row.name for row in rows if row.known]
    for index, row in enumerate(rows):
        beside_pt = 0.0
        if joined and row.known:
            beside_pt = BESIDE_PT * (measured.index(row.name) - (len(measured) - 1) / 2)
        _curve(ax, index, row, tones[row.name], joined, beside_pt)

    places: set[float] = set()
    computed: set[float] = set()
    for row in rows:
        places |= {*dict(row.measured), *dict(row.simulated)}
        computed |= set(dict(row.predicted))
    if not places and len(computed) <= MOST_TICKS:
        places = computed

    _axis(ax.xaxis, x, log)
    _axis(ax.yaxis, y, log)
    if places:
        ax.xaxis.set_ticks(_apart(sorted(places), log))
        ax.xaxis.set_minor_locator(NullLocator())
    if not log:
        ax.set_ylim(0, 1.06 * ax.get_ylim()[1])  # room for the top marker
    base.grid(ax)

    known = [row for row in rows if row.known]
    at, value = partial(unit_text, name=x), partial(unit_text, name=y)
    if known and until_level:
        courses = [settled(row.name, row.repeats, at, value) for row in known]
        statement = findings.line(*courses)
    elif known and at_end:
        statement = _standing(known, at, value)
    else:
        statement = finding(rows, x, y, beside, growth, least, bulk)
    heading.head(picture, asks, statement, _drawn(rows))
    if not charts.name_ends(picture, ax, _ends(rows, tones)) and (len(rows) > 1 or any(row.unwritten for row in rows)):
        # framed, so that its markers do not pass for points
        ax.legend(fontsize=tokens.LABEL_PT, loc="best", handlelength=3, fancybox=False, edgecolor=base.RULE, framealpha=1)
    _marks(ax, marks, x)

    sentences = [_words(row, x, y) for row in rows]
    for name, place in marks.items():
        where = "not yet"
        if place is not None:
            where = f"at {_text(place, x)}"
        sentences.append(f"{name}: {where}")
    heading.tell(picture, asks, statement, *sentences)
    return picture


def finding(
    rows: Sequence[Curve], x: str, y: str, beside: Sequence[Sequence[str]] = (), growth: bool = False, least: bool = False,
    bulk: bool = False,
) -> str:  # fmt: skip
    """Return a clause on how one curve runs or which of several is lower where, on prediction errors, and on outliers.

    `beside`, `growth`, `least` and `bulk` as in `curves`.
    """
    at, value = partial(unit_text, name=x), partial(unit_text, name=y)
    words = FASTER if y.startswith("time of") else crossings.LESS
    limits = [row for row in rows if row.limit]
    known = [row for row in rows if row.known]
    played = [row for row in rows if row.played]
    if len(played) == 2:
        curve, other = played
        apart = crossings.crossover(curve.name, curve.played, other.name, other.played, at, words, value)
        near = predictions.off_predictions({row.name: (row.known, row.played) for row in known}, at, "simulation")
        if not near:
            return findings.line(apart)
        return findings.line(f"real ranks: {near}", f"simulated: {apart}")
    if len(played) == 1 and played[0].predicted:
        (curve,) = played
        apart = predictions.off_predictions({curve.name: (curve.played, curve.predicted)}, at, "formula")
        near = predictions.off_predictions({row.name: (row.known, curve.played) for row in known}, at, "simulation")
        return findings.line(apart, near)
    if not known:
        ends = [f"{row.name} is {value(max(row.predicted)[1])}" for row in limits if row.predicted]
        computed = [row for row in rows if row.predicted and not row.limit]
        courses = _of_formulas(computed, at, value)
        if growth:
            courses = [findings.course(row.name, row.predicted, at, value) for row in computed]
        if courses and any(row.measured for row in rows):
            courses[0] = f"predicted: {courses[0]}"
        return findings.line(*ends, *courses)

    clauses, drawn = [], {}
    for row in rows:
        drawn[row.name] = row.known if row.measured else row.predicted
    if beside:
        clauses += [_among(names, rows, drawn, at, words, value) for names in beside]
    elif limits:
        for row, limit in product(known, limits):
            clauses.append(within(row.name, row.known, limit.name, limit.predicted, at, value))
    elif least:
        clauses += [lowest_place(row.name, row.known, at, value) for row in known]
    elif bulk:
        clauses += [bulk_range(row.name, row.known, at) for row in known]
    elif growth or len(known) == 1:
        plain = partial(_text, name=x)  # only the first curve's places carry the axis' noun
        clauses += [findings.course(row.name, row.known, plain if k else at, value) for k, row in enumerate(known)]
    else:
        clauses.append(_among([row.name for row in known], rows, drawn, at, words, value))

    compared, odd = {}, []
    for row in known:
        name = row.name if len(known) > 1 or beside else findings.pronoun(row.name)
        compared[name] = (row.known, row.predicted)
        odd.append(predictions.odd(name, row.known, row.predicted, at))
    return findings.line(*clauses, predictions.off_predictions(compared, at), *odd)


def _standing(rows: Sequence[Curve], at: findings.Text, value: findings.Text) -> str:
    """Compare measured curves by their repetitions at the last x that all have; empty where they share none."""
    shared = set.intersection(*(set(dict(row.known)) for row in rows))
    if not shared:
        return ""
    last = max(shared)
    runs = {row.name: row.repeats.get(last) or [dict(row.known)[last]] for row in rows}
    return standing(f"at {at(last)}", runs, text=value)


def _of_formulas(rows: Sequence[Curve], at: findings.Text, value: findings.Text) -> list[str]:
    """Describe curves that are only computed: how the first one runs, and where the others are at its end."""
    if not rows:
        return []
    first, *others = rows
    last, _ = max(first.predicted)
    others_y = {row.name: dict(row.predicted).get(last) for row in others}
    said = [f"{name} is at {value(y)}" for name, y in findings.known(others_y).items()]
    course = findings.course(first.name, first.predicted, at, value)
    return [course, findings.both(said) if len(said) < findings.MOST_NAMED else ""]


def _among(
    names: Sequence[str], rows: Sequence[Curve], drawn: Mapping[str, Sequence[MeasuredPoint]], at: Callable[[float], str],
    words: tuple[str, str], value: Callable[[float], str],
) -> str:  # fmt: skip
    """Say which of the named measured curves is lower where; only three or more are compared by their repetitions."""
    names = [name for name in names if any(y is not None for _, y in drawn[name])]
    if len(names) < 2:
        return ""
    if len(names) == 2:
        one, other = names
        return crossings.crossover(one, drawn[one], other, drawn[other], at, words, value)
    repeats = {row.name: row.repeats for row in rows if row.name in names}
    return crossings.lowest({name: drawn[name] for name in names}, repeats, at, words)


def unit_text(value: float, name: str) -> str:
    """Format a value of the curves' axis `name`: "16 images" for "images a step", "50.8 %" for "MFU (% of the peak)"."""
    if name.endswith(("(bytes)", "(s)")):
        return _text(value, name)
    if "(%" in name:
        return units.number(value, "%")
    unit = UNIT.search(name)
    if unit:
        return f"{_text(value, name)} {unit[1]}"
    if RATE.fullmatch(name):
        return f"{_text(value, name)} {name}"

    counted, numbered = COUNTED.match(name), NUMBERED.fullmatch(name)
    if numbered:
        return f"{name} {_text(value, name)}"
    if not counted:
        return _text(value, name)
    noun = counted.group()
    if value == 1:
        noun = noun.removesuffix("s").replace("batche", "batch")
    return f"{_text(value, name)} {noun}"


def _drawn(rows: Sequence[Curve]) -> str:
    """Return the key to the curves' markers and lines; empty for measured points without repetitions."""
    measured = any(row.known for row in rows)
    predicted = any(row.predicted for row in rows)
    if any(row.played for row in rows):
        said = "large markers: real ranks; lines: simulated ones" if measured else "lines: simulated ranks"
        return f"{said}; dashed: by the formula" if predicted else said

    ends = "; thin lines: least to greatest repetition" if any(row.repeats for row in rows) else ""
    if not measured:
        return "dashed lines: computed" if predicted else ""
    if predicted:
        return f"markers: measured; dashed lines: predicted{ends}"
    return f"markers: the middle one{ends}" if ends else ""


def _apart(places: Sequence[float], log: bool) -> list[float]:
    """Return the first place marked on curves, and each later one whose label does not touch the label before."""
    shown = [places[0]]
    span = places[-1] - places[0]
    if log and places[0] > 0:
        span = math.log(places[-1] / places[0])

    for place in places[1:]:
        before = shown[-1]
        step = place - before
        if log and before > 0:
            step = math.log(place / before)
        if step >= LEAST_STEP * span:
            shown.append(place)
    return shown


def _curve(ax: Axes, index: int, row: Curve, tone: str, joined: bool, beside_pt: float) -> None:
    """Draw a curve, what is measured of it `beside_pt` to the right, and `joined` by a hair line if it has no other line."""
    look = {"color": tone}
    if row.predicted:
        ax.plot(*zip(*row.predicted, strict=True), linestyle=PREDICTED, linewidth=tokens.LINE_PT, **look)

    if row.played:
        ax.plot(*zip(*row.played, strict=True), linewidth=tokens.LINE_PT, marker=".", markersize=5, **look)

    of_series = []
    for place, repeats in row.repeats.items():
        if len(repeats) > 1:
            span = [min(repeats), max(repeats)]
            of_series += ax.plot([place, place], span, linewidth=tokens.STRONG_PT, **look)

    if row.known:
        hair = "-" if joined and not (row.predicted or row.played) else "none"
        of_series += ax.plot(
            *zip(*row.known, strict=True), label=row.name, linestyle=hair, linewidth=tokens.THIN_PT, marker=base.marker(index),
            markersize=8, markeredgewidth=0, **look,
        )  # fmt: skip
    else:  # nothing to draw: an entry in the legend alone
        label = f"{row.name}: not yet" if row.unwritten else row.name
        dashes = "none"
        if row.predicted:
            dashes = PREDICTED
        if row.played:
            dashes = "-"
        ax.plot([], [], label=label, linestyle=dashes, **look)

    for line in of_series:  # only now: the axes' limits come from the data
        line.set_transform(ax.transData + ScaledTranslation(beside_pt / 72, 0, ax.get_figure().dpi_scale_trans))


def _ends(rows: Sequence[Curve], tones: Mapping[str, str]) -> list[charts.End | None]:
    ends = []
    for row in rows:
        predicted = [point for point in row.predicted if point[1] is not None]
        drawn: Sequence[tuple[float, float | None]] = sorted(row.played or row.known or predicted)
        ends.append(charts.end([x for x, _ in drawn], [y for _, y in drawn], row.name, tones[row.name]))
    return ends


def _marks(ax: Axes, marks: Mapping[str, float | None], name: str) -> None:
    """Draw a line across the curves at each place, with its name at the top on the side with room, each lower than the last."""
    for index, (mark, place) in enumerate(marks.items()):
        if place is not None:
            ax.axvline(place, color=base.QUIET_INK, linewidth=tokens.LINE_PT, linestyle=(0, (1, 2)))
            part, _ = ax.transAxes.inverted().transform(ax.transData.transform((place, 1)))
            shift, side = (4, "left") if part < 0.6 else (-4, "right")
            ax.annotate(
                f"{mark}: {_text(place, name)}", (place, 1), (shift, -4 - 13 * index), ("data", "axes fraction"),
                "offset points", va="top", ha=side, fontsize=tokens.LABEL_PT, color=base.INK, bbox=BACK,
            )  # fmt: skip


def _axis(axis, name: str, log: bool) -> None:
    shown = ON_TICKS.sub("", name)
    if log:
        scales.log_axis(axis, shown)
    else:
        axis.set_label_text(shown, fontsize=tokens.LABEL_PT)
    axis.set_major_formatter(lambda value, _: _text(value, name))
    axis.set_tick_params(which="both", colors=base.INK, labelsize=9)
    axis.label.set_color(base.QUIET_INK)


def _text(value: float, name: str) -> str:
    if name.endswith("(bytes)"):
        return units.size(value)
    if name.endswith("(s)"):
        return units.seconds(value)
    if abs(value) >= 1e6:
        return f"{units.number(value / 1e6)} million"
    return units.number(value)


def _words(row: Curve, x: str, y: str) -> str:
    if row.unwritten:
        return f"{row.name}: not yet"

    points = row.known or row.predicted
    told = [f"{_text(b, y)} at {_text(a, x)}" for a, b in _some(points)]
    if row.played:
        told.append("simulated " + ", ".join(f"{_text(b, y)} at {_text(a, x)}" for a, b in _some(row.played)))
    which = f" ({MOST_TOLD} of {len(points)} points)" * (len(points) > MOST_TOLD)
    return f"{row.name}{which}: {', '.join(told)}"


def _some(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return the points of a curve that are read out: all, or `MOST_TOLD` of many, with the first and the last."""
    if len(points) <= MOST_TOLD:
        return points
    return [points[round(k * (len(points) - 1) / (MOST_TOLD - 1))] for k in range(MOST_TOLD)]
