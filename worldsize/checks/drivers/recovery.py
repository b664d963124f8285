"""A chief whose server may be lost, as a student's function meets it: variables and checkpoints are TensorFlow's.

When the server is lost, and what a step adds to the weights, the check says from afar. What is noted here of checkpoints
gives a verdict its words; what it is worth follows from the weights. Left out: real tasks (lab 09 runs those).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from worldsize.checks.drivers.coordinator import Coordinator, lost_server

GONE = -999  # what a variable of a lost server holds here
NONE, NO_STEP = -1, -2  # in place of the step that a checkpoint holds
MOST_WAITING = 100  # steps that are scheduled and never waited for, or handed to a lost server


class TooOften(Exception):
    """`start` has been called far more often than a server was lost, or far more steps tried, or scheduled, than asked for."""


def broken_step() -> Exception:
    """A step's own error, which no new server mends: one of TensorFlow's, as that of a lost server is."""
    import tensorflow as tf

    return tf.errors.InvalidArgumentError(None, None, "this step's own error")


class Chief:
    """What `start` gives, and a record of the checkpoints in `folder`. `seen` are the check's own callables."""

    def __init__(self, folder: str, seen: Mapping[str, Callable], eager: bool) -> None:
        self.folder, self._seen, self._eager = folder, seen, eager
        self.starts = self.since_saved = self.most_unsaved = self.waiting = self.refused = 0
        self.broken: Exception | None = None
        self.began: list[list[int]] = []  # for each start that ran a step: its first step, and the checkpoint there was
        self._newest: bytes | None = None

    def start(self) -> tuple[Coordinator, Callable, dict[str, Any]]:
        import tensorflow as tf

        self.starts, self.since_saved, self.waiting = self.starts + 1, 0, 0
        server = self._seen["start"]()
        if server is None:
            raise TooOften

        state = {"step": tf.Variable(0, dtype=tf.int64), "weights": tf.Variable(tf.zeros(3))}
        calls = {name: partial(self._seen[name], server) for name in ("next", "stop")}
        calls["schedule"] = partial(self._schedule, server)
        coordinator = Coordinator(calls, self._eager)
        return coordinator, partial(self._step, server, state, []), state

    def _schedule(self, server: int) -> int | None:
        number = self._seen["schedule"](server)
        if number is None:
            self.refused += 1
        else:
            self.waiting += 1
        if max(self.waiting, self.refused) > MOST_WAITING:
            raise TooOften
        return number

    def _step(self, server: int, state: dict[str, Any], used: list[bool]) -> None:
        self._look_for_checkpoint()
        self.waiting = max(0, self.waiting - 1)
        update = self._seen["step"](server)
        if update is None:
            self._lose(state)
        if not update:
            raise TooOften

        if len(update) == 1:
            self.broken = broken_step()
            raise self.broken

        if not used:
            self.began.append([int(state["step"]), self.saved_step()])
            used.append(True)

        state["step"].assign_add(1)
        state["weights"].assign_add(update)
        self.since_saved += 1
        self.most_unsaved = max(self.most_unsaved, self.since_saved)

    def _lose(self, state: dict[str, Any]) -> None:
        state["step"].assign(GONE)
        state["weights"].assign([float(GONE)] * 3)
        raise lost_server()

    def _look_for_checkpoint(self) -> None:
        path = self._newest_path()
        if path is None:
            return

        index = Path(f"{path}.index").read_bytes()  # its name and sums of what it holds: `write` takes the same name again
        if index != self._newest:
            self._newest, self.since_saved = index, 0

    def _newest_path(self) -> str | None:
        """Where the newest checkpoint is: as TensorFlow says, or by its files, since `Checkpoint.write` leaves no note."""
        import tensorflow as tf

        indexes = sorted(Path(self.folder).glob("*.index"), key=lambda file: file.stat().st_mtime_ns)
        by_file = str(indexes[-1]).removesuffix(".index") if indexes else None
        return tf.train.latest_checkpoint(self.folder) or by_file

    def saved_step(self) -> int:
        """The step that the newest checkpoint holds; NONE where there is none, NO_STEP where it holds no step."""
        import tensorflow as tf

        path = self._newest_path()
        if path is None:
            return NONE

        names = [name for name, shape in tf.train.list_variables(path) if "step" in name.split("/") and not shape]
        return int(tf.train.load_variable(path, names[0])) if names else NO_STEP


def through(fn: Callable, cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What came of `fn` in every case: its state, the files in the folder, and what was noted on the way.

    A case has "steps", "every", "eager" (whether steps run while others are scheduled), "seen", and the "files" that
    are in the folder at the start.
    """
    rows = []
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in case["files"].items():
                (Path(folder) / Path(name).name).write_bytes(content.tobytes())
            rows.append(_run(fn, Chief(folder, case["seen"], case["eager"]), case["steps"], case["every"]))

    return rows


def _run(fn: Callable, chief: Chief, steps: int, every: int) -> dict[str, Any]:
    import tensorflow as tf

    row: dict[str, Any] = {"ended": "returned", "state": None}
    try:
        state = fn(chief.start, steps, every, chief.folder)
        if isinstance(state, dict):
            row["state"] = {k: v.numpy() for k, v in state.items()}
        else:
            row["state"] = type(state).__name__
    except tf.errors.UnavailableError:
        row["ended"] = "unavailable"
    except tf.errors.OpError as error:
        if error is not chief.broken:
            raise
        row["ended"] = "broken"
    except TooOften:
        row["ended"] = "endless"

    files = {path.name: np.fromfile(path, "uint8") for path in Path(chief.folder).iterdir() if path.is_file()}
    noted = {"starts": chief.starts, "began": chief.began, "unsaved": chief.most_unsaved, "saved": chief.saved_step()}
    noted |= {"waiting": chief.waiting, "refused": chief.refused}
    return row | noted | {"files": files}
