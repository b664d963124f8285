"""`launch(fn, …)` for TensorFlow: one fresh process with logical devices, or a cluster of tasks with `TF_CONFIG`.

    run = launch(towers, logical_devices=4)
    run = launch(train, cluster=Cluster(chief=1, worker=2, ps=1))
    run["worker:1"]; run.log("worker:1"); run.results

The fork server has imported tensorflow but never started its runtime, so every task may still choose its devices; the notebook
itself need not import tensorflow. As in `worldsize.launch`, the first failure wins, everything has a time limit, and nothing is
left behind. TensorFlow's messages bypass the fabric, so the trace is empty.
"""

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from worldsize.engines import payload
from worldsize.engines.cluster_spec import Cluster, TensorFlowTasks, serving
from worldsize.engines.current_engine import current_engine, local_engine
from worldsize.engines.job import Job
from worldsize.engines.local_engine import LocalEngine
from worldsize.engines.payload import Payload
from worldsize.launch.execute import callers_state, check_arguments, execute
from worldsize.launch.run import STUDENTS_LAUNCHES, KernelLaunches, Run

_MAX_DEVICES = 64


def warm() -> None:
    """Begin to import TensorFlow in the background, ahead of the first launch, and return at once.

    Raises ValueError where TensorFlow is not installed.
    """
    _expect_tensorflow()
    local_engine("tensorflow").warm()


def launch(
    fn: Callable,
    args: tuple = (),
    kwargs: dict[str, Any] | None = None,
    *,
    logical_devices: int = 1,
    cluster: Cluster | None = None,
    servers: Iterable[str] | None = None,
    legacy_keras: bool = False,
    timeout_s: float = 120.0,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    **unknown: Any,
) -> Run:
    """Run `fn(*args, **kwargs)` with TensorFlow in one fresh process, or in one for each task of a `cluster`.

    Returns the `Run`. `logical_devices`: the number of logical CPUs into which TensorFlow splits the machine's. A first
    parameter named `task` gets the `Task`. `servers`: the types whose tasks run a `tf.distribute.Server` in place of `fn`, ended
    when all others are done; by default ("worker", "ps") if there are a chief and a ps, else ("ps",). `legacy_keras`:
    `tf.keras` is tf_keras. `env`: environment variables of the tasks. The tasks of a cluster see no GPU, which they would share,
    unless `env` has CUDA_VISIBLE_DEVICES. Raises as `worldsize.launch.launch` does.
    """
    if unknown:
        raise _unknown(next(iter(unknown)))
    _check(fn, args, timeout_s, seed, logical_devices, cluster, env)

    tasks = TensorFlowTasks(cluster, serving(cluster, servers), logical_devices, legacy_keras)
    call = Payload(fn, tuple(args), dict(kwargs or {}))
    return _launch(current_engine("tensorflow"), call, tasks, timeout_s, seed, env, STUDENTS_LAUNCHES)


def quiet_launch(
    fn: Callable,
    args: tuple = (),
    *,
    logical_devices: int = 1,
    cluster: Cluster | None = None,
    servers: Iterable[str] | None = None,
    legacy_keras: bool = False,
    timeout_s: float = 120.0,
    env: Mapping[str, str] | None = None,
) -> Run:
    """Launch for a check: as `launch` does, but observers are not told.

    `last_run` stays the student's own.
    """
    _check(fn, args, timeout_s, None, logical_devices, cluster, env)

    tasks = TensorFlowTasks(cluster, serving(cluster, servers), logical_devices, legacy_keras)
    call = Payload(fn, tuple(args), {})
    return _launch(local_engine("tensorflow"), call, tasks, timeout_s, None, env, KernelLaunches())


def _launch(
    engine: LocalEngine,
    call: Payload,
    tasks: TensorFlowTasks,
    timeout_s: float,
    seed: int | None,
    env: Mapping[str, str] | None,
    launches: KernelLaunches,
) -> Run:
    around = callers_state(seed)
    if tasks.cluster:
        around["env"]["CUDA_VISIBLE_DEVICES"] = "-1"
    around["env"] |= dict(env or {})
    asked = (*(env or {}), *(["CUDA_VISIBLE_DEVICES"] if tasks.cluster else []))

    n = len(tasks.names()) or 1
    job = Job(world_size=n, timeout_s=timeout_s, framework="tensorflow", tasks=tasks, asked_env=asked, **around)
    return execute(engine, call, job, launches)


def _expect_tensorflow() -> None:
    if importlib.util.find_spec("tensorflow") is None:
        raise ValueError(
            "worldsize.tf: expected TensorFlow, which is not installed here. Only labs 07 to 09 need it. Install it, restart "
            "the kernel: pip install 'worldsize[tensorflow]' (2.1 GB; it has no release for Python 3.14)"
        )


def _check(
    fn: Callable, args: Any, timeout_s: Any, seed: Any, logical_devices: Any, cluster: Any, env: Any
) -> None:
    if isinstance(args, int):
        raise _unknown("world_size")
    check_arguments(fn, args, timeout_s, seed)
    _expect_tensorflow()
    if not isinstance(logical_devices, int) or isinstance(logical_devices, bool):
        raise ValueError(f"launch: expected logical_devices as a whole number, got {logical_devices!r}")
    if not 1 <= logical_devices <= _MAX_DEVICES:
        raise ValueError(f"launch: expected logical_devices from 1 to {_MAX_DEVICES}, got {logical_devices}")
    if cluster is not None and not isinstance(cluster, Cluster):
        raise ValueError(f"launch: expected cluster=Cluster(worker=2) or None, got {cluster!r}")
    if env is not None and not all(isinstance(text, str) for pair in dict(env).items() for text in pair):
        raise ValueError(f"launch: expected env as names and strings, such as {{'TF_X': '1'}}, got {env!r}")

    if payload.first_parameter(fn) == "fabric":
        raise ValueError(
            f"launch: `{getattr(fn, '__name__', 'fn')}` asks for a fabric, but TensorFlow's tasks have none. Launch it with "
            f"`launch` from worldsize.notebook, or name the first parameter `task`."
        )


def _unknown(name: str) -> ValueError | TypeError:
    if name in ("world_size", "link", "device"):
        return ValueError(
            f"launch: this is TensorFlow's launch (worldsize.tf), which has no {name}. Use cluster=Cluster(worker=2) for "
            f"processes, logical_devices=4 for devices; start torch ranks with `launch` from worldsize.notebook."
        )
    return TypeError(f"launch() got an unexpected keyword argument {name!r}")
