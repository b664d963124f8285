"""A chief whose server may be lost, as a student's function sees it; variables and checkpoints are TensorFlow's.

The check decides remotely when the server is lost and what a step adds to the weights. Notes on checkpoints only choose a
verdict's words; its points follow from the weights. Left out: real tasks (lab 09 runs those).
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from worldsize.checks.drivers.coordinator import Coordinator, lost_server

GONE = -999  # value of the variables of a lost server
NONE, NO_STEP = -1, -2  # returned in place of a checkpoint's step
MOST_WAITING = 100  # most steps scheduled without a wait, or handed to a lost server


class TooOften(Exception):
    """`start` was called, or steps were tried or scheduled, far more often than the recovery needs."""


class Chief:
    """A chief to recover, whose `start` gives a played coordinator, a step and a state, with a record of checkpoints in `folder`.

    `seen` are the check's callables.
    """

    def __init__(self, folder: str, seen: Mapping[str, Callable], eager: bool) -> None:
        self.folder, self._seen, self._eager = folder, seen, eager
        self.starts = self.since_saved = self.most_unsaved = self.waiting = self.refused = 0
        self.broken: Exception | None = None
        self.began: list[list[int]] = []  # for each start that ran a step: its first step, and the newest checkpoint's step
        self._newest: bytes | None = None
        self._server, self._state = -1, {}
        self.late = 0  # saves after a loss that the function had been told of

    def start(self) -> tuple[Coordinator, Callable, dict[str, Any]]:
        import tensorflow as tf

        self.starts, self.since_saved, self.waiting = self.starts + 1, 0, 0
        server = self._seen["start"]()
        if server is None:
            raise TooOften

        self._server = server
        state = self._state = {"step": tf.Variable(0, dtype=tf.int64), "weights": tf.Variable(tf.zeros(3))}
        calls = {name: partial(self._seen[name], server) for name in ("next", "stop")}
        calls["schedule"] = partial(self._schedule, server)
        coordinator = Coordinator(calls, self._eager)
        return coordinator, partial(self._step, server, state, []), state

    def write(self, plainly: Callable, checkpoint: Any, *given: Any, **more: Any) -> str:
        """Write a checkpoint by TensorFlow's own `plainly`. Raises UnavailableError where the server, which it reads, is lost."""
        if self._state and not self._seen["save"](self._server):
            self.late += int(self._state["step"]) == GONE
            _lose(self._state)
            raise lost_server()
        return plainly(checkpoint, *given, **more)

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
        import tensorflow as tf

        path = self._newest_path()
        if path is not None:
            index = Path(f"{path}.index").read_bytes()  # names and checksums, since `write` reuses the same name
            if index != self._newest:
                self._newest, self.since_saved = index, 0

        self.waiting = max(0, self.waiting - 1)
        update = self._seen["step"](server)
        if update is None:
            _lose(state)
            raise lost_server()
        if not update:
            raise TooOften

        if len(update) == 1:  # an error that no new server mends; like a lost server's, it is one of TensorFlow's
            self.broken = tf.errors.InvalidArgumentError(None, None, "this step's own error")
            raise self.broken

        if not used:
            self.began.append([int(state["step"]), self.saved_step()])
            used.append(True)

        state["step"].assign_add(1)
        state["weights"].assign_add(update)
        self.since_saved += 1
        self.most_unsaved = max(self.most_unsaved, self.since_saved)

    def _newest_path(self) -> str | None:
        """Return the newest checkpoint's path, from TensorFlow, or from the files: `Checkpoint.write` leaves no note."""
        import tensorflow as tf

        indexes = sorted(Path(self.folder).glob("*.index"), key=lambda file: file.stat().st_mtime_ns)
        by_file = str(indexes[-1]).removesuffix(".index") if indexes else None
        return tf.train.latest_checkpoint(self.folder) or by_file

    def saved_step(self) -> int:
        """Return the step in the newest checkpoint; NONE without a checkpoint, NO_STEP if it holds no step."""
        import tensorflow as tf

        path = self._newest_path()
        if path is None:
            return NONE

        for name, shape in tf.train.list_variables(path):
            if not shape and "step" in name.split("/"):
                return int(tf.train.load_variable(path, name))
        return NO_STEP


def _lose(state: Mapping[str, Any]) -> None:
    state["step"].assign(GONE)
    state["weights"].assign([float(GONE)] * 3)


def through(fn: Callable, cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for every case of recovery: `fn`'s state, the files in the folder, and what was noted on the way.

    A case has "steps", "every", "eager" (whether steps run while others are scheduled), "seen", and the "files" that are in the
    folder at the start.
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
    # all ways to save go through `_write`; a TensorFlow without it plays no loss in a save
    plainly = getattr(tf.train.Checkpoint, "_write", None)

    def write(checkpoint: Any, *given: Any, **more: Any) -> str:
        return chief.write(plainly, checkpoint, *given, **more)

    try:
        with patch.object(tf.train.Checkpoint, "_write", write) if plainly else nullcontext():
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
    noted |= {"waiting": chief.waiting, "refused": chief.refused, "late": chief.late}
    return row | noted | {"files": files}
