"""Check of a between-graph worker: a real cluster of two parameter servers and two workers, in one launch.

The check supplies the graph, with a constant gradient for each worker, so the final weights show how often each
gradient was applied, in any order. Devices are noted while the graph is built; wrong ones stop the run before its first
step. M. Abadi et al., "TensorFlow", OSDI 2016, section 4.4.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from worldsize.checks import needs
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers.between_graph import drive
from worldsize.checks.kit import evidence
from worldsize.checks.kit.error_advice import HANG
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.kit.values import NOTHING, same
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.engines.cluster_spec import Cluster

PLACES = "variables on all servers, the rest on the worker's own"
CHIEF = "worker 0 is the chief, and no other"
THREADS = "2 s at most for threads"
STEPS = "steps until the session stops, each in the list"
WEIGHTS = "one set of weights for all, changed by every step"
WORKERS, SERVERS = 2, 2
MOST_GRACE_S = 2.0  # a closing session's wait for stuck threads is only noted: nobody waits


@exercise(
    {PLACES: 0.0, CHIEF: 0.0, THREADS: 0.0, STEPS: 0.75, WEIGHTS: 1.25},
    seen=dict.fromkeys((PLACES, CHIEF, THREADS), evidence.OWN_PROCESS),
    needs=needs.TENSORFLOW,
)
def between_graph(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check between-graph replication in TensorFlow 1.

    `between_graph(config, build)` runs on each of two workers; `build(is_chief)` returns (fetches, hooks).
    """
    inputs: list[Any] = []
    for worker, count in enumerate(arena.draws.sample(range(3, 15), WORKERS)):
        gradient = [float(arena.draws.randint(1, 9)) * 10**k for k in (worker, 2, 3)]
        inputs.append({"steps": count, "gradient": gradient})

    def run() -> ArenaResult:
        cluster = Cluster(worker=WORKERS, ps=SERVERS)
        return arena.tensorflow(fn, [*inputs, *[None] * SERVERS], driver=drive, cluster=cluster, servers=("ps",))

    case = Case(f"{SERVERS} ps and {WORKERS} workers", run, lambda ended: _examine(ended.returned[:WORKERS], inputs), _ADVICE)
    return [case]


_ADVICE = {
    "Cannot assign a device": (
        "Is the session connected? Give MonitoredTrainingSession master=server.target. Without a master the session is local "
        "and sees no ps."
    ),
    "invalid literal for int()": (
        'Give Server only the table of the jobs, config["cluster"], with job_name="worker" and this worker\'s '
        "task_index."
    ),
    "Graph is finalized": "A session freezes the graph: call build before it.",
    "after should_stop requested": "Check session.should_stop() before every run: the hooks decide when to stop.",
    "Could not start gRPC server": (
        'Another worker already listens there: give this worker\'s own task_index, config["task"]["index"].'
    ),
    HANG: (
        "Does every worker start its own Server, and connect its session to it (master=server.target)? Does build get "
        "is_chief=True on worker 0, and False on the others? is_chief is not a worker's number."
    ),
}


def _examine(reports: Sequence[dict], inputs: Sequence[dict]) -> dict[str, Complaint]:
    unexamined = dict.fromkeys(between_graph.points, UNEXAMINED)
    for worker, report in enumerate(reports):
        complaint = _misplaced(worker, report)
        if complaint:
            return {**unexamined, PLACES: complaint}

    for worker, report in enumerate(reports):
        complaint = _wrong_chief(worker, report["chief"])
        if complaint:
            return {**unexamined, PLACES: None, CHIEF: complaint}

    for worker, report in enumerate(reports):
        if "session" in report:
            would = {
                "ChiefSessionCreator": "would fill the variables, too",
                "WorkerSessionCreator": "waits for another worker to fill the variables, and none does",
            }[report["session"]]
            complaint = (
                f"worker {worker}'s session {would}: give MonitoredTrainingSession is_chief=True on worker 0, and False on all "
                f"others."
            )
            return {**unexamined, PLACES: None, CHIEF: complaint}

    for worker, report in enumerate(reports):
        if "waited" in report:
            late = "Do all workers use the same servers, and does only worker 0's session get is_chief=True?"
            return {**unexamined, PLACES: None, CHIEF: None, STEPS: f"worker {worker} {report['waited']}. {late}"}

    for worker, report in enumerate(reports):
        if "hooked" not in report:
            complaint = (
                f"worker {worker}: the session did not get the hooks that build returned (hooks=hooks): they decide when it "
                f"stops. Run steps while not session.should_stop()."
            )
            return {**unexamined, PLACES: None, CHIEF: None, STEPS: complaint}

    complaints: dict[str, Complaint] = dict.fromkeys((PLACES, CHIEF, STEPS, THREADS))
    complaints[WEIGHTS] = _wrong_weights(reports, inputs)
    for worker, report in enumerate(reports):
        complaints[STEPS] = complaints[STEPS] or _wrong_list(worker, report["returned"], inputs[worker]["steps"])
        complaints[THREADS] = complaints[THREADS] or _long_wait(worker, report.get("grace_s"))

    return complaints


def _misplaced(worker: int, report: dict) -> Complaint:
    if not report["built"]:
        return f"worker {worker}: build was never called: it makes the graph"

    operation = report["operation"] or "no device"
    outside = [device or "no device" for device in report["variables"] if not device.startswith("/job:ps")]
    if outside:
        return (
            f"worker {worker}: expected the variables on /job:ps, got {outside[0]}. Call build inside tf.device(…) with a "
            "replica_device_setter that knows the cluster."
        )
    if not report["operation"].startswith(f"/job:worker/task:{worker}"):
        other = "that is another worker's" if "task:" in operation else "the worker is missing: give worker_device"
        return f"worker {worker}: expected operations on /job:worker/task:{worker}, got {operation}: {other}"
    if len(set(report["variables"])) < SERVERS:
        return (
            f"worker {worker}: all variables lie on {report['variables'][0]}, but there are {SERVERS} servers. "
            "replica_device_setter(cluster=…) spreads them over all."
        )
    return None


def _wrong_chief(worker: int, is_chief: Any) -> Complaint:
    if is_chief is not None and bool(is_chief) == (worker == 0):
        return None

    said = "nothing" if is_chief is None else repr(is_chief)
    right = "is the chief and fills the variables: pass True" if worker == 0 else "is not the chief: pass False"
    return f"worker {worker}: build got is_chief = {said}; worker {worker} {right}"


def _long_wait(worker: int, grace_s: float | None) -> Complaint:
    if grace_s is None:
        return f"worker {worker}: its session was never closed: use it in `with tf.train.MonitoredTrainingSession(…) as session`"
    if grace_s <= MOST_GRACE_S:
        return None
    return (
        f"worker {worker}: at its end the session would wait {grace_s:g} s for a thread that does not end by itself, as in "
        f"synchronous training: give MonitoredTrainingSession stop_grace_period_secs={MOST_GRACE_S:g}"
    )


def _wrong_list(worker: int, returned: Any, steps: int) -> Complaint:
    if not isinstance(returned, tuple):
        came = NOTHING if returned == "NoneType" else f"a {returned}"
        return f"worker {worker}: expected a list of the steps' results, got {came}"

    if list(returned) == list(range(1, steps + 1)):
        return None
    if len(returned) < steps:
        return f"worker {worker}: expected {steps} steps, until the session stops, got {len(returned)}"
    return f"worker {worker}: expected the results of {steps} steps, in order, got {list(returned)!r:.60}"


def _wrong_weights(reports: Sequence[dict], inputs: Sequence[dict]) -> Complaint:
    held = [one["weights"] for one in reports if one["weights"] is not None]
    if not held:
        return "no worker filled the weights on the server: does each worker have its own variables?"

    parts = [-own["steps"] * np.array(own["gradient"]) for own in inputs]
    expected = sum(parts)
    got = next((got for got in held if not same(got, expected)), None)
    if got is None:
        return None

    for worker, part in enumerate(parts):
        if same(got, part):
            return f"the weights on the server hold only the steps of worker {worker}"

    return f"the weights on the server: expected {expected.tolist()} after all steps of all workers, got {got.tolist()}"
