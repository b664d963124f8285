"""A sandbox arena with exercises given as source, for tests of what grading does with them."""

from __future__ import annotations

from worldsize.grade.host.arena import SandboxArena
from worldsize.grade.isolation.limits import Limits, Meter


def arena_of(sandbox, *sources: str, limits: Limits | None = None) -> SandboxArena:
    cells = [["Set-up 1", "import torch"], *([f"Exercise 1.{k}", source] for k, source in enumerate(sources, 1))]
    return SandboxArena(sandbox, Meter(limits or sandbox.limits), cells, seed=1)
