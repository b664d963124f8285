"""Curves against their predictions, in words: how far off they are, and which points stand out from the others.

Each function takes points and returns a clause for a finding, empty where nothing compares.
"""

import math
from collections.abc import Iterable, Mapping
from statistics import median

from worldsize import units
from worldsize.figures.frame.findings import AGREE, BUSY, FAR, TIE, XY, Text, be, both, points


def off_prediction(
    name: str, measured: Iterable[XY], predicted: Iterable[XY], x: Text = units.number, what: str = "prediction"
) -> str:
    """Say how far a curve is, at worst, from its prediction at the same x. Outliers do not count."""
    measured, predicted = list(measured), list(predicted)
    worst, ratio = _worst(measured, predicted)
    if worst is None:
        return ""
    if abs(ratio - 1) <= TIE:
        return f"{name} {be(name)} within 5 % of the {what}"

    ratios = _ratios(points(measured), points(predicted))
    near = [place for place, times in ratios.items() if abs(times - 1) <= TIE]
    if 1 < len(near) < len(ratios) and near == list(ratios)[: len(near)]:  # only the first points keep to it
        return f"{name} {be(name)} within 5 % of the {what} up to {x(near[-1])}, then {_off(ratio, 'it', x(worst))}"
    return f"{name} {be(name)} {_off(ratio, f'the {what}', x(worst))}"


def _off(ratio: float, what: str, where: str) -> str:
    off = ratio - 1
    if abs(off) >= 0.6:
        return f"{units.times(ratio)} times {what} at {where}"
    way = "above"
    if off < 0:
        way = "below"
    return f"up to {round(100 * abs(off))} % {way} {what}, at {where}"


def off_predictions(
    curves: Mapping[str, tuple[Iterable[XY], Iterable[XY]]], x: Text = units.number, what: str = "prediction"
) -> str:
    """Say how far several curves, each (measured, predicted), are from their predictions, near ones together.

    `what` names the thing compared with: a prediction, a simulation, or a formula.
    """
    near, far = [], []
    for name, (measured, predicted) in curves.items():
        worst, ratio = _worst(measured, predicted)
        if worst is None:
            continue
        if abs(ratio - 1) <= TIE:
            near.append(name)
        else:
            far.append(off_prediction(name, measured, predicted, x, what))

    if len(near) > 1 and not far:
        far.append(f"{'both' if len(near) == 2 else 'all'} are within 5 % of the {what}")
    elif near:
        far.append(f"{both(near, len(curves))} {be(*near)} within 5 % of the {what}")
    return "; ".join(far)


def _worst(measured: Iterable[XY], predicted: Iterable[XY]) -> tuple[float | None, float]:
    """Return where a curve is farthest from its prediction, and the ratio there; (None, 1) where nothing compares."""
    measured, predicted = list(measured), list(predicted)
    strange = outliers(measured, predicted)
    ratios = {x: ratio for x, ratio in _ratios(points(measured), points(predicted)).items() if x not in strange}
    if not ratios:
        return None, 1.0

    worst = max(ratios, key=lambda place: abs(math.log(ratios[place])))
    return worst, ratios[worst]


def _ratios(measured: Mapping[float, float], predicted: Mapping[float, float]) -> dict[float, float]:
    """Return each point as a multiple of its prediction, where both are above zero, in the order of `measured`."""
    ratios = {}
    for place, y in measured.items():
        foretold = predicted.get(place, 0.0)
        if min(y, foretold) > 0:
            ratios[place] = y / foretold
    return ratios


def outliers(measured: Iterable[XY], predicted: Iterable[XY] = ()) -> dict[float, float]:
    """Return the points of a curve that stand out from the others, as {x: multiple of what the others say}.

    Four or more predicted points are compared by their ratio to the prediction, where the others' ratios agree. Otherwise a
    point is compared with the middle of its two neighbours, where the rest of the curve only rises or only falls. Two
    points must stand on each side: nearer to an end it may be a turn.
    """
    y_at = points(measured)
    if len(y_at) < 4:
        return {}

    times: dict[float, float] = {}  # what the others say
    ratios = _ratios(y_at, points(predicted))
    if len(ratios) >= 4:
        for place, ratio in ratios.items():
            others = [other for where, other in ratios.items() if where != place]
            if max(others) <= AGREE * min(others):  # a curve that nears its prediction bit by bit has no outlier
                times[place] = ratio / median(others)
    else:
        places, ys = list(y_at), list(y_at.values())
        for k in range(2, len(ys) - 2):
            rest = ys[:k] + ys[k + 1 :]
            middle = (ys[k - 1] + ys[k + 1]) / 2
            outside = not min(ys[k - 1], ys[k + 1]) <= ys[k] <= max(ys[k - 1], ys[k + 1])
            if middle > 0 and outside and rest in (sorted(rest), sorted(rest, reverse=True)):
                times[places[k]] = ys[k] / middle
    return {place: ratio for place, ratio in times.items() if not 1 / FAR < ratio < FAR}


def odd(name: str, measured: Iterable[XY], predicted: Iterable[XY] = (), x: Text = units.number) -> str:
    """Describe the farthest outlier of a curve, and ask whether something else ran meanwhile."""
    multiples = outliers(measured, predicted)
    if not multiples:
        return ""

    worst = max(multiples, key=lambda place: abs(math.log(max(multiples[place], 1e-9))))  # a point may be 0
    who = "neighbours"
    if predicted:
        who = "other points"
    return f"at {x(worst)} {name} {be(name)} {units.times(multiples[worst])} times what its {who} say: {BUSY}"
