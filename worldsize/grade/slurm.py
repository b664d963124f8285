"""Grade a folder with Slurm: shards run as tasks of job arrays, and write into one folder that all nodes see.

Each task is `grade_folder.grade` on its node. A shard whose node was lost, ran out of time or refused a sandbox is submitted
again, up to `ROUNDS` rounds in all, and never to a node that refused.
"""

import io
import os
import platform
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from worldsize.engines.remote.ways.from_text import hosts_from_text
from worldsize.engines.remote.ways.on_node import PACKAGE_PATH
from worldsize.engines.remote.ways.slurm import ALIVE, STRONGER_VARIABLES, Slurm, ask, import_submitit
from worldsize.engines.remote.ways.way import NoHosts
from worldsize.grade import course
from worldsize.grade.isolation.bubblewrap import NoSandbox
from worldsize.grade.marking import rows
from worldsize.grade.marking.grade_folder import find_submissions, fixed_seed, grade, path_in
from worldsize.grade.marking.grading_record import GradedFolder, read_graded
from worldsize.grade.marking.lateness import DueDates
from worldsize.grade.marking.rows import file_name
from worldsize.grade.marking.selection import Selection, Shard

OnProgress = Callable[[int, int, str], None]
ROUNDS = 3  # a first one and two more
_SHARDS_A_NODE = 4  # small shards: a slow or lost node holds up little
_LEAST_ROWS = 8  # in a shard: a task needs some seconds before its first row
_LOOK_S = 2.0  # between questions to squeue
_CPUS = 2
_SETUP: tuple[str, ...] = ()  # lines of a job's script, before its program
_MOST_TASKS = 1000  # if Slurm does not say its MaxArraySize: the default is 1001


@dataclass(frozen=True)
class ShardCall:
    """The work of one Slurm task: the arguments of `grade` on its node."""

    folder: Path
    out: Path
    root: Path
    jobs: int
    seed: int
    selection: Selection
    due: DueDates


@dataclass(frozen=True)
class ShardEnd:
    """The end of one Slurm task; `why` explains every kind but "done"."""

    shard: Shard
    kind: Literal["done", "refused", "failed", "lost"]
    why: str = ""
    host: str = ""


def grade_shard(call: ShardCall) -> ShardEnd:
    """Grade one shard as a Slurm task, and return how it ended. An expected error becomes a `ShardEnd`, not an exception."""
    shard, host = call.selection.shard, platform.node()
    try:
        for path in (call.folder, call.out, call.root):
            if not path.is_dir():
                raise ValueError(f"expected {path}, got no such folder: all nodes must see it")
        grade(call.folder, call.out, call.jobs, root=call.root, seed=call.seed, selection=call.selection, due=call.due)
    except NoSandbox as error:
        return ShardEnd(shard, "refused", str(error), host)
    except (ValueError, OSError) as error:
        return ShardEnd(shard, "failed", str(error), host)
    return ShardEnd(shard, "done", host=host)


@dataclass(frozen=True)
class SlurmGrading:
    """The graded folder, the shards that no round finished, and the number of tasks submitted."""

    folder: GradedFolder
    unfinished: tuple[ShardEnd, ...]
    tasks: int


def parameters_from_text(text: str) -> dict[str, Any]:
    """Parse "nodes=2,partition=debug,cpus_per_task=4" into submitit's parameters. Raises ValueError."""
    try:
        way = hosts_from_text(f"slurm:{text}").way
    except ValueError as error:
        raise ValueError(re.sub(r"^WORLDSIZE_HOSTS='slurm:", "--slurm='", str(error))) from None
    assert isinstance(way, Slurm)
    return way.parameters


def grade_on_slurm(
    folder: Path, out: Path, text: str, root: Path | None = None, seed: int | None = None,
    selection: Selection = Selection(), due: DueDates = DueDates(), progress: OnProgress | None = None,  # noqa: B008 - frozen
    jobs: int | None = None,
) -> SlurmGrading:  # fmt: skip
    """Grade `folder` into `out` on as many nodes at once as `text` says.

    Each task marks `jobs` submissions at once, by default one per processor. Raises ValueError, and NoHosts without a
    Slurm.
    """
    parameters = parameters_from_text(text)
    missing = [program for program in ("sbatch", "squeue", "scancel", "scontrol") if shutil.which(program) is None]
    if missing:
        raise NoHosts(f"--slurm: expected the program {missing[0]} here, got none. Run this on a login node of the cluster.")
    try:
        import_submitit()
    except ModuleNotFoundError as error:
        raise NoHosts(str(error)) from None

    root = (root or course.default_root()).resolve()
    folder, out = folder.resolve(), out.resolve()
    files = find_submissions(folder, course.load(root), selection)
    names = []
    for file in files:
        path = path_in(folder, file)
        name = file_name(file.student, file.lab, path)
        row = rows.read(out / "rows" / name) if selection.crashed and rows.identity(out, name) else None
        if selection.has(file.student, file.lab, path, name, row):
            names.append(name)
    if not names:
        raise ValueError(f"{folder}: expected submissions that match the selection, got none.")

    (out / "leases").mkdir(parents=True, exist_ok=True)
    seed = fixed_seed(out, seed)
    nodes = parameters.get("nodes", 1)
    count = max(1, min(_SHARDS_A_NODE * nodes, len(names) // _LEAST_ROWS))
    jobs = jobs or parameters.get("cpus_per_task", _CPUS)
    calls = []
    for k in range(1, count + 1):
        calls.append(ShardCall(folder, out, root, jobs, seed, replace(selection, shard=Shard(k, count)), due))

    rounds = _Rounds(out, parameters, names, progress)
    unfinished = rounds.run(calls)
    return SlurmGrading(read_graded(out), tuple(unfinished), rounds.tasks)


class _Rounds:
    """The rounds in which Slurm tasks are submitted, followed, and submitted again if unfinished."""

    def __init__(
        self, out: Path, parameters: Mapping[str, Any], names: Sequence[str], progress: OnProgress | None
    ) -> None:
        self._out = out
        self._folder = out / "slurm" / secrets.token_hex(4)
        self._parameters = dict(parameters)
        self._progress = progress
        self._before = {name: rows.identity(out, name) for name in names}
        self._refusing: set[str] = set()
        self.tasks = 0

    def run(self, calls: Sequence[ShardCall]) -> list[ShardEnd]:
        """Run all rounds of Slurm tasks, and return the end of each shard that is not done."""
        ends: dict[Shard, ShardEnd] = {}
        for number in range(1, ROUNDS + 1):
            try:
                made = self._round(calls, number)
            except NoHosts:  # for example, every node has refused a sandbox
                if number == 1:
                    raise
                break

            ends |= {end.shard: end for end in made}
            # "failed" is a mistake of the caller's or of a file: not tried again
            again = {end.shard for end in made if end.kind in ("lost", "refused")}
            self._refusing |= {end.host for end in made if end.kind == "refused"}
            calls = [call for call in calls if call.selection.shard in again]
            if not calls:
                break

        bad = [end for end in ends.values() if end.kind != "done"]
        if not bad:
            shutil.rmtree(self._folder, ignore_errors=True)
        return bad

    def _round(self, calls: Sequence[ShardCall], number: int) -> list[ShardEnd]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.tasks += len(calls)

        tasks: list[tuple[ShardCall, Any]] = []
        try:
            with _as_submitted_here():
                for chunk in _chunks(calls, _most_tasks()):
                    tasks += zip(chunk, self._submit(chunk, len(calls)), strict=True)
            self._follow([job for _, job in tasks], f"round {number}" if number > 1 else "")
        except BaseException:
            numbers = sorted({job.job_id.partition("_")[0] for _, job in tasks})
            if numbers:
                with suppress(NoHosts):
                    ask("scancel", *numbers)
            raise
        return [self._end(call, job) for call, job in tasks]

    def _submit(self, calls: Sequence[ShardCall], of: int) -> list[Any]:
        submitit = import_submitit()
        executor = submitit.AutoExecutor(folder=self._folder, cluster="slurm")
        given = dict(self._parameters)
        at_once = max(1, given.pop("nodes", 1) * len(calls) // of)  # this array's part of the nodes
        options = {**given.pop("slurm_additional_parameters", {}), "export": "NONE", "no-requeue": True}
        if self._refusing:
            options["exclude"] = ",".join(sorted(self._refusing))

        path = f"export PYTHONPATH={shlex.quote(PACKAGE_PATH)}${{PYTHONPATH:+:$PYTHONPATH}}"
        setup = [*given.pop("slurm_setup", ()), *_SETUP, path]
        srun_args = [*given.pop("slurm_srun_args", ()), "--export=ALL"]

        try:
            executor.update_parameters(
                **{"cpus_per_task": _CPUS, "slurm_signal_delay_s": 0, **given},
                name="worldsize-grade", nodes=1, tasks_per_node=1, slurm_array_parallelism=at_once,
                slurm_additional_parameters=options, slurm_setup=setup, slurm_srun_args=srun_args,
            )  # fmt: skip
            with redirect_stderr(io.StringIO()):  # submitit prints sbatch's error there too
                return executor.map_array(grade_shard, calls)
        except (NameError, AssertionError, TypeError) as error:
            raise ValueError(f"--slurm: {str(error).splitlines()[0]}") from None
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            raise NoHosts(
                f"--slurm: Slurm rejects the job: {str(error).strip()}. Run sinfo to see the partitions and nodes."
            ) from None

    def _follow(self, jobs: Sequence[Any], words: str) -> None:
        """Report progress until Slurm lists none of the jobs as alive."""
        numbers = sorted({job.job_id.partition("_")[0] for job in jobs})
        while True:
            done = ask("squeue", "-h", "-r", "-t", "all", "-j", ",".join(numbers), "-o", "%T")
            alive = sum(state in ALIVE for state in done.stdout.split())
            if done.returncode and "Invalid job id" not in done.stderr:
                alive = len(numbers)  # squeue does not answer now: take all as alive
            if alive == 0:
                break
            self._report(f"{words} {alive} tasks left".strip())
            time.sleep(_LOOK_S)
        self._report(words)

    def _report(self, words: str) -> None:
        """Report how many of the selected rows were written since the start."""
        if self._progress is not None:
            made = sum(rows.identity(self._out, name) != before for name, before in self._before.items())
            self._progress(made, len(self._before), words)

    def _end(self, call: ShardCall, job: Any) -> ShardEnd:
        if job.paths.result_pickle.exists():
            with suppress(Exception):  # if the task raised, `result` raises submitit's own error
                return job.result()
        said = job.paths.stderr.read_text(errors="replace").strip().splitlines() if job.paths.stderr.exists() else []
        last = said[-1][:300] if said else "nothing"
        return ShardEnd(call.selection.shard, "lost", f"Slurm job {job.job_id} ended before its shard did; its last line: {last}")


@contextmanager
def _as_submitted_here() -> Iterator[None]:
    """Make files private and drop environment variables that override a job's script, while the body runs."""
    stronger = {name: os.environ.pop(name) for name in STRONGER_VARIABLES if name in os.environ}
    umask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(umask)
        os.environ.update(stronger)


def _chunks(calls: Sequence[ShardCall], most: int) -> Iterator[Sequence[ShardCall]]:
    for k in range(0, len(calls), most):
        yield calls[k : k + most]


def _most_tasks() -> int:
    """Return the largest size of an array: its numbers stay below Slurm's MaxArraySize."""
    found = re.search(r"^MaxArraySize\s*=\s*([0-9]+)", ask("scontrol", "show", "config").stdout, re.MULTILINE)
    return max(1, int(found[1]) - 1) if found else _MOST_TASKS
