"""`launch(fn, world_size)`: run a function as real ranks, in fresh processes, and get back all that they did.

This is the room's face: the calls are in `api`, a job's way to its end in `execute`, what came of it in `run`.
"""

from __future__ import annotations

from worldsize.launch.api import last_run, launch, quiet_launch, warm
from worldsize.launch.run import Run, unobserved

__all__ = ["Run", "last_run", "launch", "quiet_launch", "unobserved", "warm"]
