"""The file in which a lab keeps a student's predictions, measurements and points.

Every change rereads the file under a lock and replaces it whole, so two kernels never lose each other's keys and a crash leaves
the old file or the new one. An unreadable file is moved aside, never overwritten; entries that this kernel knew or that are still
sound are written back. Unknown keys are kept.
"""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock

from worldsize.files import write_whole

SECTIONS = ("predictions", "measurements", "points")

LOCK_TIMEOUT_S = 10

# exercises of earlier releases: their points stay in a student's file and no longer count
RETIRED = frozenset(
    {"amdahl_fit", "column_parallel", "gustafson_fit", "naive", "row_parallel", "tree_gather"}
)

State = dict[str, Any]


def state_folder() -> Path:
    """Return the folder of the labs' state as an absolute path.

    The folder is `WORLDSIZE_STATE_DIR`, or `.worldsize` under the current directory.
    """
    return Path(os.environ.get("WORLDSIZE_STATE_DIR") or ".worldsize").absolute()


class LabFile:
    """A lab's state as a JSON file: {"predictions": {id: ...}, "measurements": {id: ...}, "points": {exercise: ...}}."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = _empty()

    def read(self) -> State:
        """Return the lab's current state; an empty state if there is no file yet."""
        try:
            self._known = load_state(self.path)
        except FileNotFoundError:
            self._known = _empty()
        except (ValueError, RecursionError):
            self.update(lambda state: None)
        except OSError as error:
            raise OSError(self._cannot_keep(error)) from error
        return self._known

    def update(self, change: Callable[[State], None]) -> None:
        """Apply `change` to the newest state and replace the file. Raises OSError if it cannot be written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(self.path.with_name(f".{self.path.name}.lock"), timeout=LOCK_TIMEOUT_S):
                state = self._newest()
                change(state)
                text = json.dumps(state, indent=1, ensure_ascii=False, allow_nan=False)
                write_whole(self.path, text, durable=True)
        except OSError as error:
            raise OSError(self._cannot_keep(error)) from error
        self._known = state

    def _newest(self) -> State:
        try:
            return load_state(self.path)
        except FileNotFoundError:
            return _empty()
        except (ValueError, RecursionError) as error:
            reason = error

        # the file is moved aside, and its sound entries are kept
        sound = _sound_part(self.path)
        kept = {**self._known, **sound}
        for section in SECTIONS:
            kept[section] = {**self._known[section], **sound[section]}

        count = 1
        while (aside := self.path.with_name(f"{self.path.stem}.damaged-{count}.json")).exists():
            count += 1
        os.replace(self.path, aside)

        entries = sum(len(kept[section]) for section in SECTIONS)
        print(
            f"{self.path.name} could not be read ({reason}), so it was moved to {aside} and a new one begun. "
            f"Entries saved: {entries}. For the others, type the predictions and run the checks again."
        )
        return kept

    def _cannot_keep(self, error: OSError) -> str:
        if isinstance(error, TimeoutError):
            return (
                f"{self.path} stayed locked for {LOCK_TIMEOUT_S} s; expected another kernel to release it at "
                "once. Stop other notebooks of this lab that hang, then run the cell again."
            )

        return (
            f"{self.path} can't be saved ({error.strerror or error}); expected a folder where this "
            "notebook may write. Set WORLDSIZE_STATE_DIR to such a folder and restart the kernel."
        )


def _empty() -> State:
    return {section: {} for section in SECTIONS}


def load_state(path: Path) -> State:
    """Return the lab's state in the file `path`, which is not changed. Raises ValueError if a part is unsound."""
    raw = json.loads(path.read_bytes())
    if not isinstance(raw, dict):
        raise ValueError("expected one JSON object")

    for section in SECTIONS:
        entries = raw.setdefault(section, {})
        if not isinstance(entries, dict):
            raise ValueError(f'"{section}" is not a JSON object')
        for key, entry in entries.items():
            if not _is_sound(section, entry):
                raise ValueError(f'"{section}" of "{key}" is damaged')

    return raw


def counted_points(state: State) -> dict[str, dict]:
    """Return the points of exercises in a state, without exercises that a later release removed."""
    return {exercise: kept for exercise, kept in state["points"].items() if exercise not in RETIRED}


def _sound_part(path: Path) -> State:
    try:
        raw = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return _empty()
    if not isinstance(raw, dict):
        return _empty()

    kept = {**raw, **_empty()}
    for section in SECTIONS:
        entries = raw.get(section)
        if isinstance(entries, dict):
            kept[section] = {key: entry for key, entry in entries.items() if _is_sound(section, entry)}

    return kept


def _is_sound(section: str, entry: object) -> bool:
    if not isinstance(entry, dict):
        return False
    if section == "points":
        numbers, texts = [entry.get("earned"), entry.get("possible")], [entry.get("state")]
    else:
        value = entry.get("value")
        numbers = [] if value is None else [value]
        texts = [entry.get("unit"), entry.get("question", "")]

    return all(map(is_finite_number, numbers)) and all(isinstance(text, str) for text in texts)


def is_finite_number(value: object) -> bool:
    """Return True for a number of a state's JSON that is finite as a float."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False

    try:
        return math.isfinite(value)
    except OverflowError:
        return False
