"""Hosts that Slurm grants: submitit submits one job of several nodes, and each node runs an invited member.

squeue reports the job's state, because submitit asks Slurm's accounting, which not every cluster has. The job is never
requeued: its invitations would be used up. `on_node.py` runs on the nodes.
"""

import io
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from typing_extensions import override

from worldsize.engines.remote.engine import HostsEngine
from worldsize.engines.remote.host_program import address_towards
from worldsize.engines.remote.ways.on_node import PACKAGE_PATH, become_member
from worldsize.engines.remote.ways.way import NoHosts, Way

_ASK_LESS = "Ask for less, or in a partition or QOS that allows it: see `sacctmgr show qos`, `scontrol show partition`."
# squeue's reasons for which a job would wait for ever (https://slurm.schedmd.com/job_reason_codes.html); not those that
# pass, such as Resources and Priority
_ADVICE = {
    r"PartitionDown|PartitionInactive": "That partition starts no job: choose another (slurm_partition=…; `sinfo` "
    "shows which are up), or ask who runs the cluster.",
    r"PartitionTimeLimit": "The time limit is above the partition's: give a lower timeout_min (`sinfo -o '%P %l'` "
    "shows the limits).",
    r"PartitionNodeLimit": "The partition does not give one job that many nodes: ask for fewer (nodes=…), or choose "
    "another (slurm_partition=…).",
    r"PartitionConfig|BadConstraints": "The partition has no such nodes, or too few: see `sinfo -N -l`.",
    r"(QOS|Assoc)Max\w*Per(Job|Node)\w*": _ASK_LESS,
    r"(QOS|Assoc)Max\w*Per(User|Account)\w*": f"That is more than this user or account may have at a time. {_ASK_LESS}",
    r"(QOS|Assoc)(Max(Wall|TRESMins|CpuMinutes)\w*|Grp\w*Minutes\w*)": _ASK_LESS,
    r"QOSTimeLimit|QOSMin\w+|AssociationTimeLimit|QOSUsageThreshold": _ASK_LESS,
    r"AccountNotAllowed|InvalidAccount|QOSNotAllowed|InvalidQOS|AccountingPolicy": "This user may not have that "
    "account or QOS: give others (slurm_account=…, slurm_qos=…; `sacctmgr show assoc user=$USER` lists them).",
    r"JobHeldUser|JobHeldAdmin|JobHoldMaxRequeue": "The job is held: release it with `scontrol release` if you may.",
    r"DependencyNeverSatisfied": "The job that it depends on has failed: leave slurm_dependency out.",
    r"ReservationDeleted|Reservation(Invalid|Unusable)|InvalidReservation": "The reservation is gone: leave it out.",
    r"Licenses?Invalid": "This cluster has no such licence: leave it out.",
}


def advice(reason: str) -> str:
    """Return what to do about Slurm's reason that waiting does not change; "" for a reason that may pass."""
    for pattern, what_to_do in _ADVICE.items():
        if re.fullmatch(pattern, reason):
            return what_to_do
    return ""


_ANSWER_S = 20.0  # for a Slurm command
_ASK_EVERY_S = 1.0  # between two calls of squeue
_LATE_S = 60.0  # an invitation outlasts the wait for its host by this much
_LAST_LINES = 12
_SLURMS_OWN = re.compile(r"(srun|slurmstepd\S*): ")
_PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
ALIVE = {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "RESV_DEL_HOLD", "STOPPED", "SIGNALING"}
# one task a node, never requeued, with the node's own environment and all granted resources
_OPTIONS = {"export": "NONE", "no-requeue": True}
_SRUN = ("--export=ALL", "--kill-on-bad-exit=1", "--cpu-bind=none")
# variables that override the job script's options in sbatch
STRONGER_VARIABLES = ("SBATCH_EXPORT", "SBATCH_GET_USER_ENV", "SBATCH_REQUEUE", "SBATCH_ARRAY_INX")
_REFUSED = re.compile(r"(slurm_)?(tasks_per_node|ntasks_per_node|stderr_to_stdout)|slurm_(use_srun|array_parallelism)")
_REFUSED_OPTIONS = {
    "array", "export", "export-file", "input", "no-requeue", "ntasks", "ntasks-per-node", "nodes", "output", "error",
    "requeue",
}  # fmt: skip


def import_submitit() -> ModuleType:
    """Import submitit without its logging set-up, which closes everybody else's handlers. Raises ModuleNotFoundError."""
    mine = "SUBMITIT_LOG_LEVEL" not in os.environ
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")

    try:
        import submitit
    except ModuleNotFoundError as error:
        if error.name != "submitit":
            raise
        raise ModuleNotFoundError(
            "Slurm: expected the package submitit, got none. Install it in the course's folder: "
            "pip install -c constraints.txt -e '.[cluster]'",
            name="submitit",
        ) from None
    finally:
        if mine:
            del os.environ["SUBMITIT_LOG_LEVEL"]
    return submitit


class JobState(NamedTuple):
    """squeue's report on a job: a state such as PENDING, and the reason why it waits, such as Resources."""

    name: str
    reason: str = ""

    @property
    def ended(self) -> bool:
        return self.name not in ALIVE


_LISTS = {"slurm_setup", "slurm_srun_args"}  # submitit takes lists of texts


class Slurm(Way):
    """`Slurm(nodes=2, gpus_per_node=8, timeout_min=60, slurm_partition="gpu")`: the nodes of one job.

    The parameters are submitit's, such as cpus_per_task and slurm_account; `timeout_min` is the job's time limit.
    `address` and `ports` (first, last) are where the nodes reach this machine; the default address is the one on the
    route to Slurm's controller. `folder` holds submitit's files, which the nodes must see; default ~/.worldsize/slurm.
    `python` is the interpreter on the nodes, by default the one at this interpreter's path.
    """

    def __init__(
        self,
        nodes: int = 2,
        gpus_per_node: int | None = None,
        timeout_min: int = 60,
        *,
        address: str = "",
        ports: tuple[int, int] | None = None,
        folder: str | Path | None = None,
        python: str = "",
        **parameters: Any,
    ) -> None:
        for name, value in (("nodes", nodes), ("timeout_min", timeout_min)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"Slurm: expected {name} as a whole number of at least 1, got {value!r}")
        _check(parameters)

        self.count = nodes
        asked = {"nodes": nodes, "gpus_per_node": gpus_per_node, "timeout_min": timeout_min, **parameters}
        self.parameters: dict[str, Any] = {}  # by submitit's names
        for name, value in asked.items():
            if value is None:
                continue
            if name in _LISTS:
                value = [value] if isinstance(value, str) else list(value)  # a text would be taken by letters
            self.parameters[name] = value
        self._address, self._ports = address, ports
        self._python = python or sys.executable
        self._folder = Path(folder).expanduser() if folder else Path.home() / ".worldsize" / "slurm"

        self._name = ""  # the job's unique name, set before it is submitted
        self._own_folder = Path()
        self._job = ""
        self._state = JobState("PENDING")
        self._asked_s = 0.0

    @override
    def begin(self, engine: HostsEngine) -> None:
        for program in _PROGRAMS:
            if shutil.which(program) is None:
                raise NoHosts(
                    f"Slurm: expected the program {program} on this machine, got none. Open the notebook on a login "
                    f"node of the cluster, or install Slurm's client programs and its slurm.conf here."
                )

        engine.open_door(self._address or _address_towards_controller(), self._ports)
        invitations = engine.invite(self.count, engine.opening_s + _LATE_S)

        self._job, self._state, self._asked_s = "", JobState("PENDING"), 0.0  # reset, since this object may be opened again
        # a folder that only its user can enter, and the job's name from the folder's
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder.chmod(0o700)
        token = secrets.token_hex(4)
        self._own_folder = self._folder / token
        self._own_folder.mkdir(mode=0o700)
        self._name = f"{self.parameters.get('name', 'worldsize')}-{token}"

        umask = os.umask(0o077)  # submitit's files will hold the invitations
        stronger = {name: os.environ.pop(name) for name in STRONGER_VARIABLES if name in os.environ}
        try:
            self._job = self._submit(invitations, umask)
        finally:
            os.umask(umask)
            os.environ.update(stronger)

    @override
    def label(self) -> str:
        return f"Slurm job {self._job}"

    @override
    def standing(self) -> str:
        state = self._look()
        why = f" ({state.reason})" if state.name == "PENDING" and state.reason not in ("", "None") else ""
        return f"{self.label()} is {state.name.lower()}{why}"

    @override
    def hopeless(self) -> str:
        state = self._look()
        if state.ended:
            return (
                f"{self.label()} has ended ({state.name.lower()}) before its hosts joined. {self._said()} If a node "
                f"cannot reach this machine, give an address and ports that it can reach: Slurm(address=…, ports=…)."
            )

        what_to_do = advice(state.reason) if state.name == "PENDING" else ""
        if not what_to_do:
            return ""

        # such a limit counts all jobs of a user or account, so that another job's end may be enough
        if "PerUser" in state.reason or "PerAccount" in state.reason:
            try:
                running = ask("squeue", "-h", "--me", "-t", "RUNNING", "-o", "%i").stdout.split()
            except NoHosts:  # then another job may run
                return ""
            if set(running) - {self._job}:
                return ""
        return f"{self.label()} would wait for ever ({state.reason}). {what_to_do}"

    @override
    def close(self) -> None:
        """Cancel the Slurm job in any state. Keep its logs if it ended by itself, so that the reason can be read."""
        if not self._name:
            return

        which = [self._job] if self._job else [f"--name={self._name}"]  # an interrupt may hide the number
        failed = ""
        try:
            done = ask("scancel", *which)
            failed = "" if "Invalid job id" in done.stderr else done.stderr.strip()
        except NoHosts as error:
            failed = str(error)

        if failed:
            print(f"{self.label()} may still exist; end it with scancel {which[0]}: {failed}")

        self._name = ""
        for secret in self._own_folder.glob("*.pkl"):  # they hold the invitations
            secret.unlink(missing_ok=True)
        if not self._state.ended:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    # ---- submitting ------------------------------------------------------------------------------

    def _submit(self, invitations: list[str], umask: int) -> str:
        """Submit the Slurm job and return its number. Raises NoHosts, ValueError."""
        submitit = import_submitit()
        executor = submitit.AutoExecutor(folder=self._own_folder, cluster="slurm", slurm_python=shlex.quote(self._python))

        given = dict(self.parameters)
        options = {**given.pop("slurm_additional_parameters", {}), **_OPTIONS}  # ours win
        path = f"export PYTHONPATH={shlex.quote(PACKAGE_PATH)}${{PYTHONPATH:+:$PYTHONPATH}}"
        setup = [*given.pop("slurm_setup", ()), path]
        srun_args = [*given.pop("slurm_srun_args", ()), *_SRUN]

        try:
            executor.update_parameters(
                **{"slurm_signal_delay_s": 0, **given},
                name=self._name,
                tasks_per_node=1,
                slurm_additional_parameters=options,
                slurm_srun_args=srun_args,
                slurm_setup=setup,
            )
        except (NameError, AssertionError, TypeError) as error:
            raise ValueError(f"Slurm: {str(error).splitlines()[0]}{_in_our_words(given)}") from None

        try:
            with redirect_stderr(io.StringIO()):  # submitit also prints sbatch's error
                return executor.submit(become_member, invitations, umask).job_id
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            said = str(error).strip()
            raise NoHosts(f"Slurm rejects the job: {said}. {_which_partitions(said)}") from None

    # ---- asking ----------------------------------------------------------------------------------

    def _look(self) -> JobState:
        """Return the Slurm job's state, asked at most once a second; the last known one if Slurm does not answer."""
        now_s = time.monotonic()
        if self._state.ended or (self._asked_s and now_s - self._asked_s < _ASK_EVERY_S):
            return self._state

        with suppress(NoHosts):
            done = ask("squeue", "-h", "-t", "all", "-j", self._job, "-o", "%T|%r")
            if done.returncode == 0 or "Invalid job id" in done.stderr:
                name, _, reason = done.stdout.strip().partition("|")
                self._state = JobState(name or "FORGOTTEN", reason)
        self._asked_s = time.monotonic()
        return self._state

    def _said(self) -> str:
        """Return the last lines that a task wrote to stderr; if no task wrote any, Slurm's own messages there."""
        said = {path: path.read_text(errors="replace").splitlines() for path in self._own_folder.glob("*_log.err")}
        for of_slurm in (False, True):
            for path in sorted(said):
                lines = [line for line in said[path] if line.strip() and bool(_SLURMS_OWN.match(line)) is of_slurm]
                if lines:
                    return f"Its last output, in {path}:\n" + "\n".join(lines[-_LAST_LINES:]) + "\n"
        return f"It wrote nothing in {self._own_folder}: do the nodes see this folder? Give one that they see (folder=…)."


def _check(parameters: Mapping[str, Any]) -> None:
    """Refuse Slurm parameters that would change "one task a node". submitit checks the other names. Raises ValueError."""
    for name in parameters:
        if _REFUSED.fullmatch(name):
            raise ValueError(
                f"Slurm: expected no {name}, because each node has one task, which starts the ranks; leave it out. Give "
                f"launch the number of ranks."
            )

    options = parameters.get("slurm_additional_parameters", {})
    if not isinstance(options, Mapping):
        raise ValueError(f"Slurm: expected slurm_additional_parameters as a dict, got {options!r}")

    for name in options:
        if name.replace("_", "-") in _REFUSED_OPTIONS:
            raise ValueError(
                f"Slurm: expected no {name!r} in slurm_additional_parameters: the job has one task on each node, is not "
                f"requeued, and leaves the environment here; leave it out."
            )


def _in_our_words(parameters: Mapping[str, Any]) -> str:
    """Return advice on Slurm parameters that submitit refuses; "" without any."""
    for name in parameters:
        plain = name.removeprefix("slurm_")
        if plain in ("time", "time_min", "time_limit", "timeout_s"):
            return ". The time limit is timeout_min=60, in minutes."
        if plain in ("gpus", "gres", "num_gpus"):
            return ". The GPUs of each node are gpus_per_node=8."
    return ". Slurm's own parameters begin with slurm_, such as slurm_partition, slurm_account, slurm_qos."


def ask(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a Slurm program and return its result. Raises NoHosts if it does not answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoHosts(f"Slurm: {command[0]} does not answer: {error}") from None


def _address_towards_controller() -> str:
    """Return this machine's address on the route to Slurm's controller. Raises NoHosts."""
    config = ask("scontrol", "show", "config")
    host = re.search(r"^SlurmctldHost\[0\]\s*=\s*([^\s(]+)(?:\(([^)]+)\))?", config.stdout, re.MULTILINE)
    if host is None:
        words = (config.stderr or config.stdout).strip()[:500]
        raise NoHosts(f"Slurm: expected the controller in scontrol show config, got {words!r}. Does slurm.conf name it?")

    name = host[2] or host[1]
    try:
        known = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
        return address_towards(known[0][4][0])
    except OSError as error:
        raise NoHosts(
            f"Slurm: the controller {name} cannot be resolved here ({error}). Give the address at which the nodes reach this "
            f"machine: Slurm(address=…)."
        ) from None


def _which_partitions(complaint: str) -> str:
    if "partition" not in complaint.lower():
        return "Ask for what this cluster has: sinfo shows it."
    with suppress(NoHosts):
        names = ask("sinfo", "-h", "-o", "%P").stdout.replace("*", "").split()
        return f"Its partitions are {', '.join(dict.fromkeys(names))}: Slurm(slurm_partition=…)."
    return "sinfo lists the partitions."
