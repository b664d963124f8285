"""The capability sheet: a machine's abilities for a course on distributed training, as data.

`examine()` looks at the machine and launches two real ranks that all-reduce, twice: the first launch starts the fork server, the
second shows the cost of every later launch. Questions that need torch (backends, GPUs) go to those ranks, so that neither torch
nor CUDA starts in the caller. As in `brew doctor`, each failing row says what to do next.
"""

import html
import importlib.metadata
import io
import platform
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import override

from worldsize import machine
from worldsize.course import shipped_files

LaunchFunction = Callable[..., Any]
CapabilityState = Literal["ok", "note", "fails"]
BACKENDS = ("gloo", "nccl", "mpi")
_COLUMNS = ("what", "here", "remark")


@dataclass(frozen=True)
class Capability:
    """A line of the capability sheet. `state`: "ok", "note" (works, with a remark) or "fails" (`remark` is the next step)."""

    what: str
    value: str
    remark: str = ""
    state: CapabilityState = "ok"


@dataclass(frozen=True, repr=False)
class CapabilitySheet:
    """The capability sheet of one machine at one time."""

    rows: tuple[Capability, ...]

    @property
    def ok(self) -> bool:
        """False if, by the sheet, something that every lab needs does not work."""
        return all(row.state != "fails" for row in self.rows)

    def __getitem__(self, what: str) -> Capability:
        for row in self.rows:
            if row.what == what:
                return row
        raise KeyError(f"no row {what!r}; rows: {', '.join(row.what for row in self.rows)}")

    @override
    def __str__(self) -> str:
        width = max(len(row.what) for row in self.rows)
        hanging = " " * (width + 4)

        lines = []
        for row in self.rows:
            mark = "!" if row.state == "fails" else " "
            text = f"{row.value} ({row.remark})" if row.remark else row.value
            start = f"{mark} {row.what:{width}}  "
            lines.append(textwrap.fill(text, 100, initial_indent=start, subsequent_indent=hanging))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def table(rows: list[Capability]) -> str:
            lines = [("th", *_COLUMNS)]
            for row in rows:
                value = f"FAILS: {row.value}" if row.state == "fails" else row.value
                lines.append(("td", row.what, value, row.remark))

            body = ""
            for tag, *cells in lines:
                inner = "".join(f'<{tag} style="text-align:left">{html.escape(cell)}</{tag}>' for cell in cells)
                body += f"<tr>{inner}</tr>"
            caption = '<caption style="text-align:left;font-weight:600">This machine</caption>'
            return f"<table>{caption}{body}</table>"

        first, rest = [], []
        for row in self.rows:
            if row.what == "cores" or row.state == "fails":
                first.append(row)
            else:
                rest.append(row)

        if not first or not rest:
            return table([*self.rows])
        names = html.escape(", ".join(row.what for row in rest))
        folded = f'<details data-lm-suppress-shortcuts="true"><summary>the rest: {names}</summary>{table(rest)}</details>'
        return table(first) + folded


def examine(launch: LaunchFunction | None = None) -> CapabilitySheet:
    """Examine this machine and launch two real ranks on it, twice. Takes a few seconds; raises nothing.

    `launch` replaces `worldsize.launch.launch`, for a test or another engine.
    """
    tensorflow = _version("TensorFlow", "tensorflow")
    if tensorflow.state != "ok":  # a note, because most labs run without it: a small container, a lent host
        remark = f"only labs 07 to 09 need it: {_install('tensorflow')} installs it"
        tensorflow = Capability(tensorflow.what, tensorflow.value, remark, state="note")

    rows = [system(), _cores(), _memory(), _version("PyTorch", "torch"), tensorflow]
    return CapabilitySheet((*rows, *_ranks(launch), sandbox()))


def system() -> Capability:
    """Return the system's row of the capability sheet; it fails on native Windows, which can neither fork nor shape ranks."""
    value = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if platform.system() == "Windows":
        remark = "ranks need Linux: install WSL2 (`wsl --install`), and run this again in its terminal"
        return Capability("system", value, remark, state="fails")
    return Capability("system", value)


def _cores() -> Capability:
    usable, present = machine.usable_cores(), machine.present_cores()

    if usable < present:
        remark = "an affinity mask, a container's limit or the hub's CPU_LIMIT holds the rest back"
        return Capability("cores", f"{usable:g} of {present}", remark)
    if usable < 4:
        return Capability("cores", f"{usable:g}", "more ranks than this do not run faster")
    return Capability("cores", f"{usable:g}")


def _memory() -> Capability:
    total, free = machine.memory_bytes()
    value = f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB free"

    if free < 2 * 2**30:
        return Capability("memory", value, "8 ranks take about 2.5 GiB: close something first", state="note")
    return Capability("memory", value)


def _version(name: str, distribution: str) -> Capability:
    try:
        return Capability(name, importlib.metadata.version(distribution))
    except importlib.metadata.PackageNotFoundError:
        return Capability(name, "not installed", f"run {_install()}", state="fails")


def _install(extra: str = "") -> str:
    """Return the command that installs packages missing on the sheet: make in a checkout, pip for a course from a wheel."""
    if shipped_files.CARRIED_FOLDER.is_dir():
        return f"`pip install 'worldsize[{extra}]'`" if extra else "`pip install` with the course's wheel"
    return "`make setup` in the course's folder"


def _rank_facts() -> dict:
    """Return a rank's findings for the sheet. The rank sums [rank + 1, 10 (rank + 1)] over all ranks: every rank counts."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    x = torch.tensor([1.0, 10.0]) * (rank + 1)
    dist.all_reduce(x)

    return {
        "sum": x.tolist(),
        "expected": [world_size * (world_size + 1) / 2, world_size * (world_size + 1) * 5.0],
        "backends": [name for name in BACKENDS if dist.is_backend_available(name)],
    }


def _gpu_names() -> list[str]:
    """Return the GPUs' names for the sheet. A rank alone runs this: it sees every GPU, and the caller never initializes CUDA."""
    import torch

    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def _ranks(launch: LaunchFunction | None) -> list[Capability]:
    try:
        if launch is None:
            from worldsize.launch import launch as on_real_ranks  # here, so that a broken torch still gives a sheet

            launch = on_real_ranks
        with redirect_stdout(io.StringIO()):  # a notebook's observers print a line per launch; the sheet has its own row for that
            first = launch(_rank_facts, world_size=2, timeout_s=60)
            second = launch(_rank_facts, world_size=2, timeout_s=60)
            gpus = launch(_gpu_names, world_size=1, timeout_s=60)[0]
        for rank, facts in enumerate(second.results):
            if facts["sum"] != facts["expected"]:
                raise ValueError(f"rank {rank}: expected the sum {facts['expected']}, got {facts['sum']}")
    except Exception as error:  # any error at all belongs in the sheet
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        remark = (
            "no lab can run like this: if this machine is short of memory or processes, close something; if packages are "
            f"missing, run {_install()}; then run `worldsize doctor` again"
        )
        return [Capability("two ranks", textwrap.shorten(reason, 400, placeholder=" …"), remark, state="fails")]

    value = f"the all-reduce is right; first launch {first.wall_s:.2f} s, second {second.wall_s:.2f} s"
    backends = second.results[0]["backends"]
    absent = ", ".join(name for name in BACKENDS if name not in backends)
    return [
        Capability("two ranks", value),
        Capability("a launch here", second.setup),
        _network(second.network, second.why_shared),
        Capability("backends", ", ".join(backends), f"not in this build of PyTorch: {absent}" if absent else ""),
        _gpus(gpus),
    ]


def _network(network: str, why_shared: str) -> Capability:
    what = "ranks' network"
    if network == "own":
        return Capability(what, "their own", "loopback only: no other user can reach them")

    remark = "; ".join(filter(None, (why_shared, "other users of this machine can reach the ports that ranks listen on")))
    return Capability(what, "the machine's", remark, state="note")


def _gpus(names: list[str]) -> Capability:
    if not names:
        return Capability("GPUs", "none that CUDA can use", "ranks compute on the CPU and talk over gloo")

    kinds = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    if len(names) == 1:
        remark = "NCCL needs a GPU for each rank: ranks share this one only where a lab asks for it"
        return Capability("GPUs", kinds, remark)
    return Capability("GPUs", kinds)


def sandbox() -> Capability:
    """Return the sandbox's row of the capability sheet: is bubblewrap here, and does it start? Only grading needs it."""
    program = shutil.which("bwrap")
    if program is None:
        remark = "only grading needs it: install the package bubblewrap (Linux)"
        return Capability("sandbox", "none", remark, state="note")

    try:
        command = [program, "--ro-bind", "/", "/", "--unshare-all", "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Capability("sandbox", f"bubblewrap does not start: {error}", "only grading needs it", state="note")

    if done.returncode:
        reason = textwrap.shorten(done.stderr, 120, placeholder=" …") or f"exit code {done.returncode}"
        remark = "only grading needs it; this system may forbid user namespaces"
        return Capability("sandbox", f"bubblewrap does not start: {reason}", remark, state="note")
    return Capability("sandbox", "bubblewrap starts")
