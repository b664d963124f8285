"""Papermill runs of a notebook from top to bottom, without a browser, and the notebook's summary.

The kernel is the Python that calls `run`, whatever kernels are registered under the name "python3". A run works in a temporary
folder with its own state, so it neither reads nor writes a student's predictions and points. Points are the results of the
notebook's own checks. Widget state is not stored, because it makes nbconvert hide the pictures.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from typing_extensions import override

from worldsize.course.record import course_above

OnProgress = Callable[[int, int, str], None]


class NotebookFailed(RuntimeError):
    """A headless run failed: a cell raised, ran out of time, lost its kernel, or was ended; `out` is the notebook so far."""

    def __init__(self, message: str, out: Path) -> None:
        super().__init__(message, out)  # both, so that the exception survives pickling
        self.out = out

    @override
    def __str__(self) -> str:
        return self.args[0]


@dataclass(frozen=True)
class HeadlessRun:
    """A notebook's finished headless run. `out` is the executed notebook; points are None if the notebook keeps none."""

    out: Path
    summary_text: str
    points: float | None
    possible: float | None
    seconds: float


def run(
    path: Path | str,
    out: Path | str | None = None,
    parameters: dict[str, Any] | None = None,
    timeout_s: float = 600,
    progress: OnProgress | None = None,
    knobs_beforehand: bool = False,
) -> HeadlessRun:
    """Run the notebook `path` headlessly, from top to bottom.

    The executed copy goes to `out`, by default `.worldsize/headless/` beside the notebook.
    `parameters` replace values of the cell tagged "parameters"; `timeout_s` is for the whole notebook;
    `progress(cell, cells, first_line)` is called as each code cell starts, counting code cells from 1. With `knobs_beforehand`,
    cells with knobs keep the pictures of all positions that need no ranks, as the site shows them.

    Raises ValueError for an unknown notebook or parameter, NotebookFailed for the rest.
    """
    path = _known(Path(path), parameters or {})
    out = Path(out or path.parent / ".worldsize" / "headless" / path.name).resolve()
    out.parent.mkdir(parents=True, exist_ok=True)

    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="worldsize-") as folder:
        room = Path(folder).resolve()  # a path without symbolic links
        shutil.copy(path, room)
        watch = _Watch(room / path.name, timeout_s, progress)
        with _plain_failures(watch, out), _sigterm_raised():
            notebook = _execute(room, watch, out, parameters, _this_python(room, path, knobs_beforehand))
        points, possible = _points(room / "state")

    return HeadlessRun(out, summary_of(notebook), points, possible, time.monotonic() - started_s)


def summary_of(notebook: nbformat.NotebookNode) -> str:
    """Return the plain text of the cells tagged "summary" in a headless run; "" if there is none.

    A headless run prints this at its end.
    """
    texts: list[str] = []
    for cell in notebook.cells:
        if "summary" not in cell.metadata.get("tags", ()):
            continue
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                text = output.text
            else:
                text = output.get("data", {}).get("text/plain", "")
            texts.append("".join(text).rstrip("\n"))

    return "\n".join(filter(None, texts))


class _Watch:
    """The progress of a headless run, and its time left."""

    def __init__(self, path: Path, timeout_s: float, progress: OnProgress | None) -> None:
        cells = nbformat.read(path, as_version=4).cells
        self.path = path
        self.timeout_s = timeout_s
        self.deadline_s = time.monotonic() + timeout_s
        self.sources = [cell.source for cell in cells if cell.cell_type == "code"]
        self.cell = 0
        self._progress = progress

    def cell_starts(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        # papermill inserts its own cell where it is given parameters
        if cell.cell_type != "code" or "injected-parameters" in cell.metadata.get("tags", ()):
            return

        self.cell += 1
        if self._progress is not None:
            self._progress(self.cell, len(self.sources), self.first_line)

    @property
    def first_line(self) -> str:
        return self.sources[self.cell - 1].strip().split("\n", 1)[0]

    def left_s(self, cell: object) -> int:
        return max(1, math.ceil(self.deadline_s - time.monotonic()))


def _execute(
    room: Path, watch: _Watch, out: Path, parameters: dict[str, Any] | None, kernel: type
) -> nbformat.NotebookNode:
    import papermill
    from papermill.engines import NBClientEngine, papermill_engines

    class SavesAtTheEnd(NBClientEngine):
        """An engine for papermill that saves once: papermill saves before and after each cell, a tenth of a lab's run."""

        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> None:
            path, nb_man.output_path = nb_man.output_path, None
            try:
                super().execute_managed_notebook(nb_man, kernel_name, **kwargs)
            finally:
                # not nbclient's coalesce_streams, whose time grows with the square of a line's length
                for cell in nb_man.nb.cells:
                    join_streams(cell)
                nb_man.output_path = path  # papermill's next write goes there, however the run ended

    papermill_engines.register("worldsize", SavesAtTheEnd)
    return papermill.execute_notebook(
        watch.path,
        out,
        parameters=parameters,
        engine_name="worldsize",
        kernel_name="python3",
        language="python",
        progress_bar=False,
        # not papermill's cwd, which also moves this process
        resources={"metadata": {"path": str(room)}},
        kernel_manager_class=kernel,
        store_widget_state=False,
        timeout_func=watch.left_s,
        iopub_timeout=math.ceil(watch.timeout_s),  # by default a cell's outputs must arrive within 4 s of its end
        on_cell_start=watch.cell_starts,
    )


def join_streams(cell: nbformat.NotebookNode) -> None:
    """Join an executed cell's streams into one for stdout and one for stderr, each where its first part stood, stdout first."""
    texts: dict[str, list[str]] = {}
    outputs = []
    for output in cell.get("outputs", ()):
        if output.output_type != "stream":
            outputs.append(output)
        elif output.name in texts:
            texts[output.name].append(output.text)
        else:
            texts[output.name] = [output.text]
            outputs.append(output)

    for output in outputs:
        if output.output_type == "stream":
            output.text = _as_seen("".join(texts[output.name]))

    names = [output.get("name") for output in outputs]
    for place in range(len(outputs) - 1):
        if names[place : place + 2] == ["stderr", "stdout"]:  # they come side by side in any order
            outputs[place], outputs[place + 1] = outputs[place + 1], outputs[place]
            break
    if "outputs" in cell:
        cell.outputs = outputs


def _as_seen(text: str) -> str:
    """Return a cell's text as a terminal shows it: a carriage return begins its line anew, a backspace takes a character away."""
    if "\r" not in text and "\b" not in text:
        return text
    lines = []
    for line in text.split("\n"):
        kept: list[str] = []
        for letter in line.rstrip("\r").rpartition("\r")[2]:
            if letter != "\b":
                kept.append(letter)
            elif kept:
                kept.pop()
        lines.append("".join(kept))
    return "\n".join(lines)


def _this_python(room: Path, path: Path, knobs_beforehand: bool) -> type:
    """Return a kernel manager class that starts this Python with the environment of a headless run of `path`."""
    import zmq
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpec

    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    env = {
        "WORLDSIZE_HEADLESS": "1",
        "WORLDSIZE_STATE_DIR": str(room / "state"),
        # a user's own start-up files would be part of the run
        "IPYTHONDIR": str(room / "ipython"),
        "PATH": programs,
        # modules beside the notebook, as in Jupyter, where its folder is the kernel's
        "PYTHONPATH": os.pathsep.join(filter(None, [str(path.parent), os.environ.get("PYTHONPATH")])),
        "WORLDSIZE_KNOBS": "beforehand" if knobs_beforehand else "",
    }
    course = course_above(path.parent)
    if course is not None and not os.environ.get("WORLDSIZE_DATA"):
        env["WORLDSIZE_DATA"] = str(course / "datasets")  # the temporary folder is outside the course's folder

    facts = get_kernel_dict()
    argv = [
        *facts["argv"],
        f"--IPKernelApp.exec_lines={json.dumps([_SEND_EVERY_OUTPUT])}",
        "--IPKernelApp.log_level=50",  # a kernel that is ended at work logs the lines of its own where it stood
    ]
    spec = KernelSpec(**(facts | {"argv": argv, "env": env}))
    # Sockets in the folder need no port that another run could take, and no other user can read them.
    traits = {}
    if os.name != "nt":
        traits = {"transport": "ipc", "connection_file": str(room / "kernel.json")}

    class ThisPython(AsyncKernelManager):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**(kwargs | traits))

        @property
        @override
        def kernel_spec(self) -> KernelSpec:
            return spec

        @override
        def client(self, **kwargs: Any) -> Any:
            made = super().client(**kwargs)
            made.context.setsockopt(zmq.RCVHWM, 0)  # by default ZeroMQ drops messages while 1,000 wait to be read
            return made

    return ThisPython


# By default the kernel drops outputs while 1,000 wait to be sent, as this process does while 1,000 wait to be read. The socket
# belongs to the thread that sends them. Set anew before each cell: a limit holds for the connections of that moment, and this
# process may connect after the kernel has begun.
_SEND_EVERY_OUTPUT = """\
(lambda shell, sender: shell.events.register(
    "pre_execute", lambda: sender.schedule(lambda: sender.socket.set_hwm(0))
))(get_ipython(), get_ipython().kernel.iopub_thread)"""


def _points(state: Path) -> tuple[float | None, float | None]:
    """Return (earned, possible) over every lab that the headless notebook opened, from the files that `Lab` keeps."""
    files = sorted(state.glob("lab_*.json"))
    if not files:
        return None, None

    earned, possible = 0, 0
    for file in files:
        for score in json.loads(file.read_text())["points"].values():
            earned += score["earned"] or 0
            possible += score["possible"] or 0
    return earned, possible


def _known(path: Path, parameters: dict[str, Any]) -> Path:
    """Return the absolute path of the notebook to run headlessly. Raises ValueError for an unknown notebook or parameter."""
    if not path.is_file() or path.suffix != ".ipynb":
        got = "no such file"
        if path.is_dir():
            got = "a folder"
        elif path.exists():
            got = "another kind of file"
        labs = ", ".join(sorted(p.name for p in path.parent.glob("[0-9][0-9]_*.ipynb")))
        raise ValueError(
            f"{path}: expected a notebook, got {got}; the labs in {path.parent} are: {labs or 'none'}. Name"
            " an existing one, or run this from the root of the repository."
        )

    path = path.resolve()
    cells = nbformat.read(path, as_version=4).cells
    sources = [cell.source for cell in cells if "parameters" in cell.metadata.get("tags", ())]
    known = re.findall(r"^(\w+) *(?::[^=\n]*)?=", "\n".join(sources), re.MULTILINE)

    for name in parameters:
        if name not in known:
            names = ", ".join(known) or "none"
            raise ValueError(
                f'{path.name}: expected parameters of its cell tagged "parameters" ({names}), got {name!r};'
                " fix the name, or leave it out."
            )
    return path


class _Terminated(KeyboardInterrupt):
    """SIGTERM to a headless run, raised as the event loop raises an interrupt: at once, and out of every task."""


@contextmanager
def _sigterm_raised() -> Iterator[None]:
    """Raise `_Terminated` at SIGTERM, to keep a headless run's outputs so far, if this thread may and nobody else handles it."""
    in_charge = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not in_charge:
        yield
        return

    def ended(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: what follows saves the outputs and ends the kernel
        raise _Terminated

    signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _plain_failures(watch: _Watch, out: Path) -> Iterator[None]:
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    try:
        yield
    except PapermillExecutionError as failed:
        # not always the last: a cell tagged "raises-exception" is reported only at the end
        watch.cell = watch.sources.index(failed.source) + 1
        what = f"raised {failed.ename}: {str(failed.evalue).strip().split(chr(10), 1)[0]}"
    except CellTimeoutError:
        what = f"was still running when the notebook's {watch.timeout_s:g} s were up"
    except DeadKernelError:
        what = "ended because its kernel died"
    except _Terminated:
        what = "was still running when this process was told to end (SIGTERM)"
    else:
        return

    where = f"{watch.path.name}, code cell {watch.cell} of {len(watch.sources)} ({watch.first_line!r})"
    next_step = f"Read {out}, which holds the outputs so far, or run that cell in JupyterLab."
    raise NotebookFailed(f"{where}: expected it to end without an error, but it {what}. {next_step}", out) from None
