"""The fork server of an agent's ranks: its imports, and their order.

Imports for the first launch come first. Modules that torch imports late, at the first `out.backward(gradient)` and the
first optimizer, are imported here too, or every rank of every launch would pay for them; but only when no launch waits.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import forkserver, resource_tracker
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worldsize.engines.job import Framework

IMPORT_LATE = getattr(signal, "SIGUSR1", None)  # makes a fork server do its late imports
_PRELOAD = {  # imported once here, not in every rank
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
    """Tell a serving fork server to do its late imports. A rank that is requested meanwhile waits."""
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # Python's own, private
    if framework == "torch" and IMPORT_LATE is not None and pid is not None:
        os.kill(pid, IMPORT_LATE)
