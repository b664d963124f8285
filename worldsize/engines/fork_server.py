"""The fork server from which an agent's ranks are forked: what it has imported by then, and in which order.

What the first launch needs comes first. What torch imports late, at the first `out.backward(gradient)` and at the first
optimizer, is imported once in the fork server too, or every rank of every launch would pay for it; but only when no
launch waits. Left out: what a forked process does (`rank.py`, `torch_services.py`).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import forkserver, resource_tracker
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worldsize.engines.job import Framework

IMPORT_LATE = getattr(signal, "SIGUSR1", None)  # what makes a fork server import what comes late
_PRELOAD = {
    "torch": ("torch.distributed", "worldsize.engines.ranks.torch_rank", "worldsize.engines.ranks.cell_work"),
    "tensorflow": ("worldsize.engines.ranks.tensorflow_rank", "tensorflow", "keras", "tf_keras"),
}


def start(framework: Framework) -> None:
    """Start this process's fork server, and return at once while it imports `framework`."""
    early, late = "worldsize.engines.early_imports", "worldsize.engines.late_imports"
    modules = [early, "worldsize.engines.ranks.rank", *_PRELOAD[framework], late]
    multiprocessing.set_forkserver_preload(modules)
    resource_tracker.ensure_running()
    forkserver.ensure_running()


def import_late(framework: Framework) -> None:
    """Let a fork server that serves already import what is wanted late. A rank that is asked for meanwhile waits."""
    pid = forkserver._forkserver._forkserver_pid
    if framework == "torch" and IMPORT_LATE is not None and pid is not None:
        os.kill(pid, IMPORT_LATE)
