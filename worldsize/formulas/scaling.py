"""Laws of scaling: the speedup of n workers if one of them does a serial part of the work.

A job of one second on one worker has a serial part, which one worker does while the others wait, and the rest, which n workers
share evenly. Amdahl keeps the job and adds workers (strong scaling); Gustafson lets the job grow with them (weak scaling).
`serial` is a fraction from 0 to 1. Left out: messages, which both laws take for free, and the fit, which lab 01 leaves to its
reader.

G. Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", AFIPS 1967.
J. Gustafson, "Reevaluating Amdahl's law", Communications of the ACM 31, 1988.
"""

import math


def speedup(one_s: float, many_s: float) -> float:
    """Return the speedup for the same work: seconds of one worker over seconds of many."""
    return one_s / many_s


def efficiency(n: int, times: float) -> float:
    """Return the share of n workers that is put to use: the speedup over n."""
    _check(n, 0.0)
    return times / n


def amdahl(n: float, serial: float) -> float:
    """Return the speedup of a job of fixed size: 1 / (f + (1 − f)/n). Amdahl 1967."""
    _check(n, serial)
    return 1 / (serial + (1 - serial) / n)


def amdahl_limit(serial: float) -> float:
    """Return the limit of Amdahl's speedup: 1/f.

    No number of workers exceeds it; infinite without a serial part.
    """
    _check(1, serial)
    return 1 / serial if serial else math.inf


def gustafson(n: float, serial: float) -> float:
    """Return the scaled speedup: f + (1 − f) n. Here f is the serial part of the time that n workers take. Gustafson 1988."""
    _check(n, serial)
    return serial + (1 - serial) * n


def _check(n: float, serial: float) -> None:
    if not n >= 1:
        raise ValueError(f"scaling: the number of workers is {n!r}; expected 1 or more.")
    if not 0 <= serial <= 1:
        raise ValueError(f"scaling: the serial fraction is {serial!r}; expected 0 to 1. Write 5 % as 0.05.")
