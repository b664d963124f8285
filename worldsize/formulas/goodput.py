"""Goodput under failures: a cluster's failure rate, the best time between saves, and the share of time that is kept work.

Failures come at a constant rate; each costs a restart and the work since the last save. Left out: saves beside the work,
failures in bursts, machines that only slow down, undetected corruption.

J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM 17, 1974. J. T. Daly,
"A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22, 2006.
"""

import math


def mtbf_hours(devices: int, failures_per_1000_node_days: float, devices_a_node: int = 8) -> float:
    """Return the mean time between failures of a job on n devices, hours: 24 · 1000/(rate · nodes).

    Failures are counted per node and day, and any of them stops the job. A. Kokolis et al., "Revisiting reliability in
    large-scale machine learning research clusters", HPCA 2025, arXiv:2410.21680 (6.50 failures per 1,000 node-days).
    """
    _above_0(devices=devices, failures_per_1000_node_days=failures_per_1000_node_days, devices_a_node=devices_a_node)
    return 24 * 1000 / (failures_per_1000_node_days * devices / devices_a_node)


def young_interval_s(save_s: float, mtbf_s: float) -> float:
    """Return Young's interval between two saves for the most goodput: √(2 δ M) seconds of work. Young, 1974."""
    _above_0(save_s=save_s, mtbf_s=mtbf_s)
    return math.sqrt(2 * save_s * mtbf_s)


def daly_interval_s(save_s: float, mtbf_s: float) -> float:
    """Return Daly's interval between two saves for the most goodput: √(2 δ M) (1 + √(δ/2M)/3 + (δ/2M)/9) − δ seconds of work.

    The result is M if a save takes 2M or longer. Daly, 2006, equation 37.
    """
    _above_0(save_s=save_s, mtbf_s=mtbf_s)
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = save_s / (2 * mtbf_s)
    return young_interval_s(save_s, mtbf_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


def effective_share(interval_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """Return the share of time that is kept work: τ/(M e^(R/M) (e^((τ+δ)/M) − 1)). Daly, 2006, equation 20.

    Failures may also come during a save or a restart. `interval_s` is the work between two saves.
    """
    _above_0(interval_s=interval_s, save_s=save_s, mtbf_s=mtbf_s)
    _not_negative(restart_s=restart_s)
    if (restart_s + interval_s + save_s) / mtbf_s > 700:
        return 0.0  # e to a greater power may overflow a float
    return interval_s / (mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1((interval_s + save_s) / mtbf_s))


def effective_share_first_order(interval_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """Return the goodput for rare failures: 1 − δ/τ − (τ/2 + R)/M, and 0 where that is negative. Young, 1974."""
    _above_0(interval_s=interval_s, save_s=save_s, mtbf_s=mtbf_s)
    _not_negative(restart_s=restart_s)
    return max(0.0, 1 - save_s / interval_s - (interval_s / 2 + restart_s) / mtbf_s)


def share_without_restarts(pause_s: float, away_s: float, groups: int, mtbf_s: float) -> float:
    """Return the goodput if a lost replica group is left out and its successor heals from a peer: (1 − P/M)(1 − A/(n M)).

    A failure stops all groups for `pause_s`, and one group is away for `away_s`: A/M groups at a time on average (J. D. C.
    Little, "A proof for the queuing formula L = λW", Operations Research 9, 1961). Never below 0.
    """
    _above_0(groups=groups, mtbf_s=mtbf_s)
    _not_negative(pause_s=pause_s, away_s=away_s)
    return max(0.0, 1 - pause_s / mtbf_s) * max(0.0, 1 - away_s / (groups * mtbf_s))


def _above_0(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"goodput: {name} is {value!r}; expected a number above 0.")


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"goodput: {name} is {value!r}; expected 0 or more.")
