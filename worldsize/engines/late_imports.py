"""Importing this module is the last that a fork server does before it serves; a signal makes it import more later.

Python's fork server imports first and serves then, for good. A signal's handler runs in its main thread between two
forks, which is the one moment when more can be imported. Everything that is there by then is kept out of the garbage
collector's way: a collection in a child would touch, and so copy, every page that it shares with the server.
Left out: what comes first (`early_imports.py`), who sends the signal, and when (`fork_server.py`, `agent.py`).
"""

from __future__ import annotations

import gc
import importlib
import signal
from contextlib import suppress

from worldsize.engines.fork_server import IMPORT_LATE

_LATE = ("worldsize.engines.ranks.open_rank", "torch.fx.experimental.symbolic_shapes", "torch._dynamo")


def _import_late(*_: object) -> None:
    gc.disable()
    with suppress(ImportError):
        for name in _LATE:
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


gc.freeze()
gc.enable()
if IMPORT_LATE is not None:
    signal.signal(IMPORT_LATE, _import_late)
