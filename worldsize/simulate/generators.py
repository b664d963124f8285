"""The global random generators of this process, NumPy's, Python's and torch's: their state, to keep ranks' draws apart."""

import random
import sys

import numpy as np


class GeneratorsUsed(Exception):
    """A rank drew random numbers while the generators were shared by all ranks."""


def generators() -> tuple:
    """Return the state of every global generator of this process."""
    torch = sys.modules.get("torch")
    drawn = torch.get_rng_state() if torch is not None else None
    return np.random.get_state(), random.getstate(), drawn  # noqa: NPY002 - students' code draws from it


def set_generators(state: tuple) -> None:
    numpys, pythons, torchs = state
    np.random.set_state(numpys)  # noqa: NPY002
    random.setstate(pythons)
    if torchs is not None:
        sys.modules["torch"].set_rng_state(torchs)


def same_generators(state: tuple, other: tuple) -> bool:
    """Return whether no generator has been drawn from between two states."""
    if state[1] != other[1] or state[0][2:] != other[0][2:] or not np.array_equal(state[0][1], other[0][1]):
        return False
    if state[2] is None or other[2] is None:
        return state[2] is other[2]  # torch was imported in between, and may have been drawn from
    return bool((state[2] == other[2]).all())
