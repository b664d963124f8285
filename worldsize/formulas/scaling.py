"""Laws of scaling: how many times as fast n workers are, where a part of the work stays with one of them.

A job of one second on one worker has a serial part, which one worker does while the others wait, and the rest, which
n workers share evenly. Amdahl keeps the job and adds workers (strong scaling); Gustafson lets the job grow with them
(weak scaling). `serial` is a fraction from 0 to 1. Left out: messages between workers, which both laws take for free,
and the fit, which lab 01 has its reader write.

G. Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", AFIPS 1967.
J. Gustafson, "Reevaluating Amdahl's law", Communications of the ACM 31, 1988.
"""

from __future__ import annotations

import math


def speedup(one_s: float, many_s: float) -> float:
    """How many times as fast the same work is done: seconds of one worker over seconds of many."""
    return one_s / many_s


def efficiency(n: int, times: float) -> float:
    """The part of n workers that is put to use: the speedup over n."""
    _check(n, 0.0)
    return times / n


def amdahl(n: float, serial: float) -> float:
    """The speedup of a job of fixed size: 1 / (f + (1 − f)/n). Amdahl 1967."""
    _check(n, serial)
    return 1 / (serial + (1 - serial) / n)


def amdahl_limit(serial: float) -> float:
    """Scaling by Amdahl's law: the limit.

    What no number of workers gets past: 1/f; infinite where nothing is serial.
    """
    _check(1, serial)
    return 1 / serial if serial else math.inf


def gustafson(n: float, serial: float) -> float:
    """The scaled speedup: f + (1 − f) n. Here f is the serial part of the time that n workers take. Gustafson 1988."""
    _check(n, serial)
    return serial + (1 - serial) * n


def _check(n: float, serial: float) -> None:
    if not n >= 1:
        raise ValueError(f"scaling: the number of workers is {n!r}; expected 1 or more.")
    if not 0 <= serial <= 1:
        raise ValueError(f"scaling: the serial fraction is {serial!r}; expected 0 to 1. Write 5 % as 0.05.")
