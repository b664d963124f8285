"""A submission's writer: it runs the cells, waits for a save to make, makes it, and reports how the save ended.

All of this runs in the submission's own process, so its report is only text. Outside, a keeper (`warden`) sees what the save
leaves in its folder.
"""

import os
from pathlib import Path
from typing import Any, NoReturn

from worldsize.grade.frames import decode
from worldsize.grade.inside import changed_objects, sandboxed_rank
from worldsize.grade.inside.broker_channel import BrokerChannel


def serve(channel: BrokerChannel, folder: str) -> NoReturn:
    """Take, as writer, one job, then one save in `folder`; report how the save ended, and exit. Never returns."""
    try:
        sandboxed_rank.tell_end(channel, 0, lambda: _do(channel, folder), changed_objects.names)
    finally:
        os._exit(0)


def _do(channel: BrokerChannel, folder: str) -> dict[str, Any]:
    job, _ = channel.read()
    sandboxed_rank.seed_rank(job["seed"], job["run"], 0)
    module, errors = sandboxed_rank.run_cells(job["cells"])
    function = sandboxed_rank.function_of(vars(module), job["function"], errors)

    channel.tell({"op": "ready"})
    save, blob = channel.read()
    path, data = Path(folder, save["name"]), decode(save["data"], blob).tobytes()
    try:
        function(path, data)
    except Exception as error:
        if save["here"]:  # the error is reported with its place
            raise
        words = f"{type(error).__name__}: {str(error)[:200]}"
        return {"how": "raised", "error": words.replace(f"{path.parent}{os.sep}", "")}  # the folder's name differs each time
    return {"how": "returned"}
