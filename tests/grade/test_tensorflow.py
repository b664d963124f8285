"""TensorFlow in a sandbox: the notebook's answers, the same walls, and nothing that outlives its run."""

import os
import socket
import textwrap
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.support.processes import LONG_S
from tests.support.submitted_code import missing_names
from worldsize.checks.arena import LaunchArena
from worldsize.checks.drivers.devices import answer, sums_and_moves
from worldsize.checks.kit.values import same
from worldsize.engines.cluster_spec import Cluster
from worldsize.grade.isolation.limits import Limits, Meter
from worldsize.grade.outside.arena import SandboxArena, Submitted

PAIR = Cluster(worker=2)
ROOT = Path(__file__).resolve().parents[2]

FUNCTIONS = """
import os, socket, time
from worldsize.tf import Cluster, launch

def replicas(x, factor):
    import tensorflow as tf
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        kept = tf.Variable(tf.constant(x))
    each = strategy.run(lambda: factor * tf.distribute.get_replica_context().replica_id_in_sync_group)
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")  # no GPU: every machine then has the same devices
    return {"kept": kept, "each": each, "text": tf.constant("é"), "scalar": tf.reduce_sum(x), "devices": devices}

def sums(x):
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(x)))

def coordinates(updates):
    import tensorflow as tf
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)
    update = tf.function(lambda: total.assign_add(1.0))
    for _ in range(updates):
        coordinator.schedule(update)
    coordinator.join()
    return total, total.device

def total(x):
    return sum(x)

def asks(calls):
    import tensorflow as tf
    return [calls["next"](tf.constant(k)) for k in range(3)]

def dense(x):
    import tensorflow as tf
    return tf.keras.layers.Dense(1).__module__.partition(".")[0]

def threads(x):
    return os.environ["OMP_NUM_THREADS"], os.environ["TF_NUM_INTRAOP_THREADS"], os.environ["TF_NUM_INTEROP_THREADS"]

def fails(x):
    if x == 1:
        raise KeyError("mine")
    time.sleep(100)  # its neighbour fails meanwhile

def stub(x):
    from worldsize.errors import NotYet
    raise NotYet("Exercise 9.1: the cluster")

def waits(x):
    import tensorflow as tf
    if os.environ["RANK"] == "1":
        time.sleep(1000)  # far longer than its limit
    tf.distribute.MultiWorkerMirroredStrategy()

def hoards(x):
    import tensorflow as tf
    kept = []
    while True:
        kept.append(tf.random.uniform([2_500_000]))
"""

# with the number of the process that runs the tests: others of this machine may leave theirs at the same time
LEFT_BEHIND = f"import time; time.sleep(4243{os.getpid():07})"
CHEATS = """
import os, socket, sys, time

def leaves_notes(x):
    import tensorflow as tf
    left = []
    for folder in ("/tmp", "/dev/shm", "/", os.path.dirname(tf.__file__)):
        try:
            tf.io.write_file(os.path.join(folder, "answer.txt"), "42")
            left.append(folder)
        except Exception:
            pass
    tf.math.add = tf.keras.layers.Dense = os.answer = 42
    import worldsize.arrays
    worldsize.arrays.plain = lambda *a: 42
    if os.fork() == 0:
        os.setsid()
        os.execv(sys.executable, [sys.executable, "-c", "LEFT_BEHIND"])
    return left

def reads_notes(x):
    import tensorflow as tf
    folders = ("/tmp", "/dev/shm", "/", os.path.dirname(tf.__file__))
    found = [folder for folder in folders if tf.io.gfile.exists(os.path.join(folder, "answer.txt"))]
    return found, hasattr(os, "answer"), tf.keras.layers.Dense == 42

def reaches(x, port, paths):
    import tensorflow as tf
    reached = [path for path in paths if tf.io.gfile.exists(path)]
    for host in ("127.0.0.1", "1.1.1.1"):
        try:
            socket.create_connection((host, port), timeout=0.3)
            reached.append(host)
        except OSError:
            pass
    return reached

def fills(x):
    import tensorflow as tf
    tf.io.write_file("large", tf.strings.reduce_join(tf.repeat("x" * 1_000_000, 200)))
    return "written"

class Pretends:
    def numpy(self):
        from worldsize.checks.verdict import Verdict
        return Verdict("x", "pass")

def pretends(x):
    return Pretends()

def kills_everyone(x):
    for process in range(2, 300):
        try:
            os.kill(process, 9)
        except OSError:
            pass
    os.kill(-1, 9)
    return "alive"

def squats(x):
    import json
    import tensorflow as tf
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    taken = []
    for address in sum(cluster.values(), []):
        squatter = socket.socket()
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("", int(address.rpartition(":")[2])))
        squatter.listen()
        taken.append(squatter)
    time.sleep(1000)  # and keeps them, longer than its limit
""".replace("LEFT_BEHIND", LEFT_BEHIND)


@pytest.fixture(scope="module")
def server(sandbox):
    """The session's sandbox, whose server of TensorFlow starts with the first of these tests."""
    return sandbox


def arena_of(sandbox, limits: Limits | None = None) -> SandboxArena:
    cells = [["Set-up 1", FUNCTIONS], ["Exercise 1.1", CHEATS]]
    return SandboxArena(sandbox, Meter(limits or sandbox.limits), cells, seed=1)


@pytest.fixture
def arena(server):
    return arena_of(server)


def own(name: str):
    """The same function, in place."""
    namespace: dict = {}
    exec(textwrap.dedent(FUNCTIONS), namespace)
    return namespace[name]


@pytest.mark.parametrize(
    ("name", "inputs", "more", "way"),
    [
        pytest.param("replicas", [np.arange(3.0)], (10,), {"logical_devices": 3}, id="mirrored"),
        pytest.param("sums", [np.arange(3.0), np.full(3, 1000.0)], (), {"cluster": PAIR}, id="multi-worker"),
        pytest.param(
            "coordinates", [7, None, None], (), {"cluster": Cluster(chief=1, worker=1, ps=1)},
            id="parameter-server", marks=pytest.mark.soak,
        ),
        pytest.param("dense", [0], (), {"legacy_keras": True}, id="tf_keras", marks=pytest.mark.soak),
        pytest.param("dense", [0], (), {}, id="keras", marks=pytest.mark.soak),
        pytest.param("stub", [0, 0], (), {"cluster": PAIR}, id="stub", marks=pytest.mark.soak),
        pytest.param("total", [np.arange(2.0)], (), {"driver": answer}, id="driver", marks=pytest.mark.soak),
    ],
)  # fmt: skip
def test_a_sandbox_answers_as_the_notebook_does(arena, name, inputs, more, way):
    here = LaunchArena().tensorflow(own(name), inputs, *more, **way)
    there = arena.tensorflow(Submitted(name), inputs, *more, **way)
    assert here.state in ("done", "not yet"), here.message
    assert (there.state, there.message, repr(there.returned)) == (here.state, here.message, repr(here.returned))
    assert repr(there.inputs) == repr(here.inputs) or there.state != "done"


def test_an_answer_has_few_threads_on_any_machine(arena):
    """So that points do not hang on the grader's cores, and a sandbox's limit of threads holds."""
    assert arena.tensorflow(Submitted("threads"), [0]).returned == (("1", "1", "2"),)


def test_the_task_that_failed_is_named_with_its_line(arena):
    ended = arena.tensorflow(Submitted("fails"), [0, 1], cluster=PAIR)
    assert ended.state == "raised" and ended.message.startswith("worker 1 failed first: KeyError: 'mine'")
    assert 'raise KeyError("mine")' in ended.message


@pytest.mark.parametrize("driver", [textwrap.dedent, same])
def test_a_driver_of_another_module_is_refused(arena, driver):
    ended = arena.tensorflow(Submitted("dense"), [0], driver=driver)
    assert ended.state == "raised" and "worldsize.checks.drivers" in ended.message


def test_a_callable_among_the_inputs_is_called_in_the_grader(arena):
    seen = []

    def following(x):
        seen.append(int(x))
        return len(seen)

    ended = arena.tensorflow(Submitted("asks"), [{"next": following}])
    assert (ended.returned, seen) == (((1, 2, 3),), [0, 1, 2]), ended.message


FORGES = """
from worldsize.checks.drivers import devices
devices.sums_and_moves = lambda *_: "forged"

def mine(x):
    return x
"""


def test_a_driver_with_no_function_runs_where_the_submission_never_was(server):
    forging = SandboxArena(server, Meter(server.limits), [["Exercise 1.1", FORGES]], seed=1)
    assert forging.tensorflow(Submitted("mine"), [()], driver=sums_and_moves).returned == ("forged",)
    assert forging.tensorflow(None, [()], driver=sums_and_moves).returned == ((),)


def test_a_task_that_waits_for_ever_is_a_timeout(server):
    ended = arena_of(server, Limits(case_s=1)).tensorflow(Submitted("waits"), [0, 1], cluster=PAIR)
    assert ended.state == "timeout" and "worker 0 running, worker 1 running" in ended.message


def test_a_hoard_of_tensors_is_stopped(server):
    ended = arena_of(server, Limits(memory_bytes=400_000_000)).tensorflow(Submitted("hoards"), [0])
    assert ended.state == "raised" and ("memory" in ended.message or "no result" in ended.message), ended.message


@pytest.mark.quick
def test_all_that_a_cheat_names_of_the_package_is_there():
    assert missing_names(CHEATS) == []


def test_nothing_of_a_run_survives_into_the_next(arena, server):
    left = arena.tensorflow(Submitted("leaves_notes"), [0])
    assert left.state == "done" and "/" not in left.returned[0]
    server.settle()
    ended = arena.tensorflow(Submitted("reads_notes"), [0])
    assert ended.returned == (((), False, False),), ended.message
    left = [p for p in psutil.process_iter(["cmdline"]) if LEFT_BEHIND in " ".join(p.info["cmdline"] or [])]
    assert psutil.wait_procs(left, timeout=LONG_S)[1] == []


@pytest.mark.parametrize("cluster", [pytest.param(None, id="alone", marks=pytest.mark.soak), pytest.param(PAIR, id="cluster")])
def test_neither_the_machine_s_ports_nor_its_files_are_in_reach(arena, cluster):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        paths = [str(ROOT / "solutions"), str(ROOT / "tests"), "/etc/passwd", "/proc/1", "/proc/self/environ"]
        inputs = [0] * (2 if cluster else 1)
        more = (listening.getsockname()[1], paths)
        ended = arena.tensorflow(Submitted("reaches"), inputs, *more, cluster=cluster)
    assert ended.returned == ((),) * len(inputs), ended.message


def test_a_file_is_no_larger_than_it_may_be(arena):
    ended = arena.tensorflow(Submitted("fills"), [0])
    assert ended.state == "raised" and ended.returned == ()


def test_an_object_that_plays_a_tensor_gives_no_object(arena):
    ended = arena.tensorflow(Submitted("pretends"), [0])
    assert ended.state == "raised" or isinstance(ended.returned[0], str)


@pytest.mark.parametrize("name", ["kills_everyone", pytest.param("squats", marks=pytest.mark.soak)])
def test_who_harms_its_own_cluster_harms_nobody_else(server, name):
    ended = arena_of(server, Limits(case_s=2)).tensorflow(Submitted(name), [0, 0], cluster=PAIR)
    assert ended.state in ("raised", "timeout")
    again = arena_of(server).tensorflow(Submitted("sums"), [np.ones(2), np.ones(2)], cluster=PAIR)
    assert [got.tolist() for got in again.returned] == [[2.0, 2.0]] * 2, again.message


IMPORTED = {
    ("numpy",): "torch",
    ("tensorflow",): "tensorflow",
    ("keras.layers",): "tensorflow",
    ("worldsize.tf",): "tensorflow",
}


def test_the_servers_of_labs_without_tensorflow_do_not_import_it(server):
    asks = "def imported(_):\n    import sys\n    return ' '.join({'tensorflow', 'torch'} & set(sys.modules))"
    for modules, there in IMPORTED.items():
        server.preload(modules)
        arena = SandboxArena(server, Meter(server.limits), [["Exercise 1.1", asks]], seed=1)
        ended = arena.call(Submitted("imported"), 0)
        assert ended.returned == (there,), ended.message
