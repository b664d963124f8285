"""Simulated seconds beside those of real processes over the same links."""

import numpy as np
import pytest
import torch

from tests.simulate.programs import all_to_all, ring, seconds, server, together, tree
from worldsize.launch import launch
from worldsize.links import Link
from worldsize.simulate import simulate

SLOW = Link("20 MB/s", "10 ms")


@pytest.mark.soak  # seconds of processes hang on what else the machine does
def test_simulated_seconds_are_those_of_shaped_processes_within_a_tenth():
    errors = {}
    for fn in (ring, server, tree, all_to_all):
        for n in (2, 4, 8):
            args = (fn, torch.ones(100_000))
            real, simulated = (run(together, n, args=args, link=SLOW) for run in (launch, simulate))
            errors[fn.__name__, n] = abs(seconds(simulated) / seconds(real) - 1)
    assert np.median(list(errors.values())) <= 0.1, errors
