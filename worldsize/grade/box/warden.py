"""The warden of writers: start each in its own process, see every call by which it touches files, and kill it.

The warden runs in the sandbox, out of the submission's reach, and runs none of its code. The kernel holds a writer
before each call that could change a folder (`isolation.notifications`), so "killed", "left" and "on disk" are observed,
not reported. A warden's rows have the form of `checks.drivers.killed_writer`.
"""

from __future__ import annotations

import os
import resource
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from worldsize.checks.drivers.killed_writer import is_past_the_last_change
from worldsize.engines.json_and_bytes import BadFrame, decode, encode, text_of
from worldsize.engines.libc import KernelRefused
from worldsize.grade.box.broker_channel import BrokerChannel, write_frame
from worldsize.grade.box.changed_objects import MOST_NAMES
from worldsize.grade.box.writer_tree import WatchedWriter, WriterTree
from worldsize.grade.isolation import notifications
from worldsize.grade.pipes import CHUNK

if TYPE_CHECKING:
    from worldsize.grade.isolation.bubblewrap import SandboxMode

_STATUS_BYTES = 1024
_MOST_FRAME_BYTES = 1_000_000


def oversee(channel: BrokerChannel, order: dict[str, Any], mode: SandboxMode, fork: Callable[[], int]) -> NoReturn:
    """Take one job, run its scenarios, report what was left after each, and exit. Never returns.

    `fork` makes the first process of a PID namespace, where the machine has such.
    """
    try:
        job, blob = channel.read()
        out = bytearray()

        try:
            trees = partial(WriterTree, order, job, mode, fork)
            rows, changed = _tried(trees, decode(job["scenarios"], blob))
            channel.tell({"op": "done", "returned": encode(rows, out), "changed": changed}, out)
        except SaveFailed as failed:
            channel.tell(failed.frame)
        except KernelRefused as refused:
            channel.tell({"op": "done", "returned": encode({"unseen": str(refused)}, out)}, out)
    finally:
        os._exit(0)


def _tried(
    trees: Callable[..., WriterTree], scenarios: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each scenario, and what the writers report as changed in their processes."""
    rows: list[dict[str, Any]] = []
    changed: set[str] = set()
    for scenario in scenarios:
        # the folder never changes that often: this save would end like the last one
        if rows and is_past_the_last_change(scenario, rows[-1]):
            rows.append(rows[-1])
            continue

        files = dict(scenario["files"])
        ended = []
        for save in scenario["saves"]:
            row, files, more = _saved(trees, save, files)
            changed |= more
            ended.append(row)
        rows.append({"ended": ended, "files": files})
    return rows, sorted(changed)[:MOST_NAMES]


class SaveFailed(Exception):
    """A save's error, to be reported with its place; `frame` is the writer's report."""

    def __init__(self, frame: dict[str, Any]) -> None:
        self.frame = frame


def _saved(
    trees: Callable[..., WriterTree], save: dict[str, Any], files: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """Run one save, and another beside it if it `meets` one; return how it ended, the files left, and what was changed."""
    wanted = [(save["name"], save["data"].tobytes())]
    if save["meets"]:
        _, name, data = save["meets"]
        wanted.append((name, data.tobytes()))

    with trees(wanted) as tree:
        tree.record.put(files)
        row = _WatchedSave(tree, save).followed()
        tree.end()

        changed = set()
        for one in tree.writers:
            if one.told is not None and isinstance(one.told.get("changed"), list):
                changed.update(text_of(name, 120) for name in one.told["changed"])
        return row, tree.record.files(), changed


# ---- watching --------------------------------------------------------------------------------


class _WatchedSave:
    """A save from its beginning to its end, or to its death at a byte or at a change of the folder."""

    def __init__(self, tree: WriterTree, save: dict[str, Any]) -> None:
        self._tree, self._record, self._here = tree, tree.record, save["dies"] == "here"
        self._first = tree.writers[0]
        kind, number = save["dies"] if isinstance(save["dies"], list) else (None, 0)
        self._most_bytes = int(number) if kind in ("byte", "full") else None
        self._dies_beyond = kind == "byte"  # a full disk gives an error instead
        self._dies_at = int(number) if kind == "change" else None
        self._stands_at = int(save["meets"][0]) if save["meets"] else None
        self._killed = False
        self._stood = False

    def followed(self) -> dict[str, Any]:
        """Follow the save until its writers end, and return its row of the report."""
        while not self._killed and (live := [one for one in self._tree.writers if one.code is None]):
            asking = {one.listener: one for one in live}
            saying = {one.line.reads: one for one in live}
            ready, _, _ = select.select([*asking, *saying, self._tree.status], [], [])

            for descriptor in ready:
                if descriptor in asking and not self._killed:
                    self._heard(asking[descriptor])
            for descriptor in ready:
                if descriptor in saying:
                    self._read(saying[descriptor])
            if self._tree.status in ready:
                self._reaped()

        row = _ended(self._first, self._killed)
        if self._stands_at is not None:
            return row | {"other": _ended(self._tree.writers[1], killed=False), "changed": self._stood}
        if self._here or self._killed or self._most_bytes is not None:
            return row
        return row | {"on_disk": self._record.on_disk, "elsewhere": self._record.elsewhere, "changed": False}

    def _heard(self, one: WatchedWriter) -> None:
        call = notifications.receive(one.listener)
        if call is None:
            return

        name = self._tree.calls.get(call.number, "")
        if not one.begun:
            self._answer(one, call, name)
            return

        changed = one is self._first and self._record.look()
        if self._dies_beyond:
            dies = self._record.goes_beyond(call, name, self._most_bytes)
        else:
            dies = changed and self._record.changes == self._dies_at
        if dies:
            self._killed = True
            self._tree.end()
            return

        if one is self._first and self._record.changes == self._stands_at and not self._stood:
            self._stood = True
            one.held = call
            self._begin_second()
            return

        self._record.note(call, name)
        self._answer(one, call, name)

    def _answer(self, one: WatchedWriter, call: notifications.Call, name: str) -> None:
        # a sync is already in the record, and the machine need not wait for its disks
        notifications.answer(one.listener, call, carry_out=name not in ("sync", "syncfs"))

    def _read(self, one: WatchedWriter) -> None:
        with suppress(BlockingIOError):
            one.reader.feed(os.read(one.line.reads, CHUNK))
        if one.reader.kept_bytes > _MOST_FRAME_BYTES:
            raise BadFrame("expected less data from a writer")

        while one.told is None and (came := one.reader.next()):
            frame, _ = came
            if frame.get("op") == "ready" and not one.ready:
                one.ready = True
                if one is self._first or self._stood or self._first.code is not None:
                    self._begin(one)
            elif frame.get("op") in ("done", "failed"):
                one.told = frame
                if self._here and frame["op"] == "failed":
                    raise SaveFailed(frame)

    def _begin(self, one: WatchedWriter) -> None:
        """Tell a writer to make its save."""
        one.begun = True
        if one is self._first:
            if self._most_bytes is not None:
                resource.prlimit(one.process, resource.RLIMIT_FSIZE, (self._most_bytes, self._most_bytes))
            self._record.watch(one.name, one.data)

        blob = bytearray()
        data = encode(np.frombuffer(one.data, "uint8"), blob)
        write_frame(one.line, {"name": one.name, "data": data, "here": self._here}, bytes(blob))

    def _begin_second(self) -> None:
        for one in self._tree.writers[1:]:
            if one.ready and not one.begun:
                self._begin(one)

    def _reaped(self) -> None:
        for row in os.read(self._tree.status, _STATUS_BYTES).decode().split():
            number, _, code = row.partition(":")
            one = self._tree.writers[int(number)]
            self._read(one)
            one.code = int(code)

            if one is self._first:
                self._record.look()
                self._begin_second()
            elif self._first.held is not None:
                call, self._first.held = self._first.held, None
                name = self._tree.calls.get(call.number, "")
                self._record.note(call, name)
                self._answer(self._first, call, name)


def _ended(one: WatchedWriter, killed: bool) -> dict[str, Any]:
    if killed or (one.code or 0) < 0:
        return {"how": "killed"}
    told = one.told or {}
    if told.get("op") != "done" or told.get("how") not in ("returned", "raised"):
        return {"how": "left"}
    if told["how"] == "returned":
        return {"how": "returned"}
    return {"how": "raised", "error": text_of(told.get("error"), 400)}
