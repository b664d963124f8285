"""A submission's writer: it runs the cells, waits for a save to make, makes it, and says how that ended.

All of this runs in the submission's own process, so what it says is believed as words alone: what the save did to its
folder is seen by the warden, which stands outside. Left out: the warden (`warden`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

from worldsize.engines.plain_values import decode
from worldsize.grade.box import changed_objects, rank
from worldsize.grade.box.broker_channel import BrokerChannel


def serve(channel: BrokerChannel, folder: str) -> NoReturn:
    """Take one job, then one save in `folder`; tell how the save ended, and leave. Never returns."""
    try:
        rank.tell_end(channel, 0, lambda: _do(channel, folder), changed_objects.names)
    finally:
        os._exit(0)


def _do(channel: BrokerChannel, folder: str) -> dict[str, Any]:
    job, _ = channel.read()
    rank.seed_rank(job["seed"], job["run"], 0)
    module, errors = rank.run_cells(job["cells"])
    function = rank.function_of(vars(module), job["function"], errors)

    channel.tell({"op": "ready"})
    save, blob = channel.read()
    path, data = Path(folder, save["name"]), decode(save["data"], blob).tobytes()
    try:
        function(path, data)
    except Exception as error:
        if save["here"]:  # an error is told with its place
            raise
        return {"how": "raised", "error": error_in_words(error, path)}
    return {"how": "returned"}


def error_in_words(error: Exception, path: Path) -> str:
    """The error of a save, without the folder, which has another name each time."""
    return f"{type(error).__name__}: {str(error)[:200]}".replace(f"{path.parent}{os.sep}", "")
