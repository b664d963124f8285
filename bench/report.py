"""What every bench shares: medians and ratios, a plain table, targets met or missed, one picture of bars.

A table is printed; the raw numbers and the picture go to `bench/out/`, which git ignores. Left out: measuring, and any
judgement but the targets that a bench names itself.
"""

import argparse
import json
import os
import platform
import random
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#767676", "#000000")
_RESAMPLES = 4000
_HATCHES = ("", "///", "...", "xx", "\\\\", "++", "oo", "--")


def options(doc: str, repeats: int | None) -> argparse.ArgumentParser:
    """A parser with the options that every bench has."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--smoke", action="store_true", help="the smallest form that prints every ratio")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "out", help="folder for results")
    return parser


def median(values: Sequence[float]) -> float | None:
    """The median, or None where nothing was measured."""
    return statistics.median(values) if values else None


def quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def ratio_of_medians(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of the medians of pairs that were measured in turn, and its 95 % interval.

    Pairs are drawn again with replacement, both values together, so that a machine that slows down moves both alike
    (B. Efron, R. Tibshirani, "An introduction to the bootstrap", 1993, chapter 13).
    """
    draw = random.Random(0)
    pairs = list(zip(above, below, strict=True))
    found = []
    for _ in range(_RESAMPLES):
        drawn = draw.choices(pairs, k=len(pairs))
        found.append(statistics.median(a for a, _ in drawn) / statistics.median(b for _, b in drawn))
    found.sort()
    ratio = statistics.median(above) / statistics.median(below)
    return ratio, found[round(0.025 * _RESAMPLES)], found[round(0.975 * _RESAMPLES) - 1]


def machine() -> str:
    """One line that says under which conditions the numbers came about."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return f"{cores} cores{load}, Python {platform.python_version()}, torch {torch.__version__}"


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table: the first column to the left, numbers with three digits to the right."""
    cells = [[*map(_text, row)] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    print(f"\n{title}")
    for number, row in enumerate(cells):
        print("  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]), flush=True)
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def target(what: str, value: float | None, *, at_most: float | None = None, at_least: float | None = None) -> None:
    """Print one line: the target, what was measured, met or missed."""
    if value is None:
        print(f"  target: {what}: not measured")
        return
    met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    bound = f"at most {at_most:g}" if at_most is not None else f"at least {at_least:g}"
    print(f"  target: {what} {bound}: {value:.3g}, {'met' if met else 'MISSED'}", flush=True)


def keep(path: Path, numbers: object) -> None:
    """Write the raw numbers as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(numbers, indent=1) + "\n")


def bars(
    path: Path, title: str, groups: Sequence[str], series: dict[str, Sequence[float | None]], *, axis: str,
    log: bool = False, line: float | None = None,
) -> None:  # fmt: skip
    """Draw a PNG: one bar a series in each group, its number above it; `line` is where ours and the other are equal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(max(7.0, 0.42 * len(groups) * len(series) + 2), 4.2), layout="constrained")
    ax = figure.add_subplot()
    width = 0.84 / len(series)
    for k, (label, values) in enumerate(series.items()):
        at = [g + (k - (len(series) - 1) / 2) * width for g, v in enumerate(values) if v is not None]
        style = {"color": _COLOURS[k % 8], "hatch": _HATCHES[k % 8], "edgecolor": "white"}
        drawn = ax.bar(at, [v for v in values if v is not None], width, label=label, **style)
        ax.bar_label(drawn, fmt="%.3g", fontsize=7, padding=1)
    if line is not None:
        ax.axhline(line, color="#1a1a1a", linewidth=0.8, linestyle="--")
    ax.set_xticks(range(len(groups)), groups)
    ax.set(title=title, ylabel=axis, yscale="log" if log else "linear")
    figure.legend(fontsize=8, ncols=4, loc="outside lower center")
    figure.savefig(path, dpi=110)
    print(f"\npicture: {path.parent.name}/{path.name}")
