"""What lab 02 says of the check of its fit is what the check does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from worldsize.checks.arena import ArenaResult, LaunchArena
from worldsize.checks.measuring import alpha_beta_fit
from worldsize.fabric.gloo import SMALL_BYTES

pytestmark = pytest.mark.quick

SOURCE = Path(__file__).resolve().parents[2] / "solutions" / "02_messages_and_collectives.py"
PROSE = " ".join(SOURCE.read_text().replace("\n# ", " ").split())  # however its lines are broken


class Seen(LaunchArena):
    """An arena that answers with the truth, taken from two points of times without noise, and keeps what it was given."""

    def __init__(self):
        super().__init__()
        self.given = []

    def call(self, fn, sizes, seconds):
        self.given.append((sizes, seconds))
        return ArenaResult("done", returned=(fn(sizes, seconds),))


def weighted(sizes, seconds):
    slope, offset = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    return offset, 1 / slope


def test_the_noise_and_the_sizes_are_those_that_the_lab_tells():
    seen = Seen()
    alpha_beta_fit.fit_alpha_beta(seen, weighted)
    noisy = [sizes for sizes, _ in seen.given[-alpha_beta_fit.DRAWS :]]
    assert {(sizes.min(), sizes.max()) for sizes in noisy} == {(100, 1e8)}
    assert alpha_beta_fit.NOISE == 0.2 and alpha_beta_fit.HELD_OUT == 0.15
    assert "up to 20 % off" in PROSE and "from 100 bytes to 100 MB" in PROSE


def test_no_size_that_is_asked_for_was_given():
    seen = Seen()
    alpha_beta_fit.fit_alpha_beta(seen, weighted)
    asked = set(np.round(np.geomspace(150, 0.8e8, 17)))
    assert all(asked.isdisjoint(sizes) for sizes, _ in seen.given[-alpha_beta_fit.DRAWS :])


def test_a_line_weighted_by_its_times_passes_every_time():
    verdicts = [alpha_beta_fit.fit_alpha_beta(Seen(), weighted) for _ in range(30)]
    assert [verdict.mismatch for verdict in verdicts if verdict.state != "pass"] == []


def test_the_switch_of_the_wires_is_where_the_lab_says():
    assert SMALL_BYTES == 128 * 1024 and "Up to 128 KiB a tensor is *copied*" in PROSE
