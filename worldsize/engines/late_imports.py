"""The last module that a fork server imports before it serves; a signal makes the server import more later.

Python's fork server never imports again once it serves, but a signal handler runs in its main thread between two forks.
Objects made by then are frozen out of garbage collection: a collection in a child would copy the pages it shares with the
server. `fork_server.py` sends the signal, `jobs.py` decides when.
"""

import gc
import importlib
import signal
from contextlib import suppress

from worldsize.engines.fork_server import IMPORT_LATE

_LATE = ("worldsize.engines.ranks.open_rank", "torch.fx.experimental.symbolic_shapes", "torch._dynamo")


def _import_late(*_: object) -> None:
    gc.disable()  # for the reason in `early_imports.py`
    for name in _LATE:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


gc.freeze()
gc.enable()
if IMPORT_LATE is not None:
    signal.signal(IMPORT_LATE, _import_late)
