"""`worldsize.tf.launch`: TensorFlow in fresh processes with logical devices or as a cluster, really run."""

import errno
import os
import random
import socket
import subprocess
import sys

import numpy as np
import pytest

from tests.support.tensorflow_work import COORDINATED, PAIR, between_graphs, coordinate, mirrored, multi_worker
from worldsize import machine
from worldsize.checks.arena import LaunchArena
from worldsize.errors import NotYet
from worldsize.launch import last_run
from worldsize.launch import launch as launch_ranks
from worldsize.live import result
from worldsize.live.run_state import RunState
from worldsize.live.text import Screenful
from worldsize.report import report
from worldsize.tf import Cluster, launch

SOAK = pytest.mark.soak


@pytest.mark.parametrize("n", [1, pytest.param(2, marks=SOAK), 3, pytest.param(4, marks=SOAK)])
def test_mirrored_replicas_run_on_as_many_logical_devices_as_asked_for(n):
    assert launch(mirrored, logical_devices=n).results == [[n * (n + 1) / 2] * n]


def test_workers_find_each_other_and_results_come_by_rank_and_by_task():
    run = launch(multi_worker, cluster=PAIR)
    assert run.tasks == ("worker:0", "worker:1") and run.world_size == 2
    assert run.results == [12.0, 12.0] and run["worker:1"] == run[1] == 12.0


@SOAK
def test_a_chief_and_a_worker_mirror_too():
    assert launch(multi_worker, cluster=Cluster(chief=1, worker=1)).results == [12.0, 12.0]


def test_a_coordinator_gets_workers_and_parameter_servers_that_serve():
    run = launch(coordinate, args=(20,), cluster=COORDINATED)
    assert run["chief:0"] == (20.0, "/job:ps/replica:0/task:0/device:CPU:0")
    assert run.results[1:] == [None, None, None]
    assert "chief 1 · worker 2 · ps 1 · TensorFlow 2." in run.setup and "gRPC on loopback" in run.setup


def test_with_no_servers_every_task_runs_the_function():
    run = launch(between_graphs, cluster=Cluster(worker=2, ps=1), servers=())
    assert run.results == ["/job:ps/task:0", "/job:ps/task:0", 2]


def test_an_evaluator_runs_the_function_and_is_no_part_of_the_cluster_that_talks():
    run = launch(lambda task: (task.type, sorted(task.cluster)), cluster=Cluster(worker=1, evaluator=1))
    assert run.results == [("worker", ["worker"]), ("evaluator", ["worker"])]


def test_a_task_knows_itself_and_shares_a_folder_with_the_others():
    def look(task):
        (task.dir / task.type).write_text("here")
        return task.type, task.index, task.rank, task.attempt, {name: len(at) for name, at in task.cluster.items()}

    run = launch(look, cluster=Cluster(chief=1, worker=1))
    counts = {"chief": 1, "worker": 1}
    assert run.results == [("chief", 0, 0, 0, counts), ("worker", 0, 1, 0, counts)]
    assert sorted(path.name for path in (run.dir / "shared").iterdir()) == ["chief", "worker"]


def test_keras_3_and_tf_keras_are_chosen_at_each_launch():
    def version():
        import tensorflow as tf

        return tf.keras.layers.Dense(1).__module__.partition(".")[0]

    assert [launch(version, legacy_keras=legacy)[0] for legacy in (True, False, True)] == ["tf_keras", "keras", "tf_keras"]


def test_a_task_gets_its_share_of_the_cores_for_openmp_and_for_tensorflow_s_operations(monkeypatch):
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        monkeypatch.delenv(name, raising=False)

    def threads():
        return os.environ["OMP_NUM_THREADS"], os.environ["TF_NUM_INTRAOP_THREADS"]

    share = str(max(1, int(machine.usable_cores()) // 3))
    assert launch(threads, cluster=Cluster(worker=3)).results == [(share, share)] * 3


def test_what_a_task_prints_is_in_its_log_and_what_tensorflow_prints_is_not():
    def speak(task):
        import tensorflow as tf

        print("to stdout")
        print("to stderr", file=sys.stderr)
        tf.distribute.MultiWorkerMirroredStrategy()

    run = launch(speak, cluster=PAIR)
    assert run.log("worker:1") == "to stdout\nto stderr\n"
    assert run.log().startswith("[worker 0] to stdout\n")
    assert "grpc" in run.native_log("worker:0")


def test_reports_come_from_every_task():
    def told(task):
        for step in range(3):
            report(step=step, loss=task.index + 0.5)

    run = launch(told, cluster=PAIR)
    assert [[row["loss"] for row in rows] for rows in run.reports] == [[0.5] * 3, [1.5] * 3]


def draw():
    import tensorflow as tf

    return float(tf.random.uniform([])), float(np.random.rand()), random.random()


def test_two_tasks_and_two_launches_draw_different_numbers_and_a_seed_replays_them():
    first = launch(draw, cluster=PAIR)
    assert len({str(drawn) for drawn in first.results + launch(draw, cluster=PAIR).results}) == 4
    assert launch(draw, cluster=PAIR, seed=first.seed).results == first.results


def test_the_environment_is_the_caller_s_as_it_is_now_with_what_the_launch_adds(monkeypatch):
    monkeypatch.setenv("WORLDSIZE_TEST_WORD", "now")
    run = launch(lambda: (os.environ["WORLDSIZE_TEST_WORD"], os.environ["ADDED"]), env={"ADDED": "too"})
    assert run.results == [("now", "too")]


def test_a_task_s_port_is_taken_for_everybody_else_and_free_for_its_own_server():
    def bind(task):
        at = int(task.cluster["worker"][task.index].rpartition(":")[2])
        with socket.socket() as stranger:
            try:
                stranger.bind(("", at))
            except OSError as error:
                taken = error.errno == errno.EADDRINUSE
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind(("", at))
            own.listen()
        return taken

    assert launch(bind, cluster=PAIR).results == [True, True]


def test_the_caller_imports_neither_tensorflow_nor_torch():
    code = "import sys, worldsize.tf; assert not {'tensorflow', 'keras', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_task_has_tensorflow_imported_and_torch_not():
    def look():
        return [name for name in ("tensorflow", "keras", "tf_keras", "torch") if name in sys.modules]

    assert launch(look)[0] == ["tensorflow", "keras", "tf_keras"]


def test_a_stub_makes_a_run_that_is_not_yet():
    def stub():
        raise NotYet("Exercise 7.1: average the gradients")

    run = launch(stub, cluster=PAIR)
    assert (run.state, run.not_yet) == ("not yet", "Exercise 7.1: average the gradients")


def test_the_latest_run_is_tensorflow_s_too():
    run = launch(lambda: 1)
    assert last_run() is run


@pytest.mark.quick
@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"worker": -1}, "worker as a whole number of 0 or more, got worker=-1"),
        ({"worker": 2.0}, "got worker=2.0"),
        ({"chief": 2, "worker": 1}, "at most one chief, got chief=2"),
        ({}, "from 1 to 32 tasks in all, got 0"),
        ({"worker": 33}, "got 33"),
        ({"ps": 2}, "a chief or a worker that computes"),
    ],
)
def test_a_cluster_that_cannot_be_is_a_value_error(counts, words):
    with pytest.raises(ValueError, match=words):
        Cluster(**counts)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"logical_devices": 0}, "logical_devices from 1 to 64, got 0"),
        ({"logical_devices": "4"}, "whole number, got '4'"),
        ({"cluster": {"worker": 2}}, r"expected cluster=Cluster\(worker=2\)"),
        ({"cluster": PAIR, "servers": ("master",)}, "got 'master'"),
        ({"cluster": PAIR, "servers": ("worker",)}, "no task of .* would run the function"),
        ({"servers": ("ps",)}, "expected a cluster with servers"),
        ({"timeout_s": 0}, "timeout_s .* got 0"),
        ({"args": 2}, r"TensorFlow's launch .* no world_size. Use cluster=Cluster\(worker=2\)"),
        ({"world_size": 2}, r"TensorFlow's launch .* no world_size"),
        ({"env": {"A": 1}}, "names and strings"),
    ],
)
def test_a_wrong_argument_is_one_paragraph_that_says_expected_and_got(arguments, words):
    with pytest.raises(ValueError, match=words) as caught:
        launch(draw, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.quick
def test_each_launch_points_at_the_other():
    for name, given in {"cluster": PAIR, "logical_devices": 2, "servers": (), "legacy_keras": True, "env": {}}.items():
        with pytest.raises(ValueError, match=f"takes no {name}. Use .*: from worldsize.tf import Cluster, launch"):
            launch_ranks(draw, **{name: given})
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrold_size'"):
        launch_ranks(draw, wrold_size=2)
    with pytest.raises(ValueError, match="asks for a fabric"):
        launch(lambda fabric: None)


@pytest.mark.quick
def test_a_cluster_shows_what_it_has():
    assert repr(Cluster(chief=1, ps=2)) == "Cluster(chief=1, ps=2)"


def test_the_tasks_of_a_cluster_see_no_gpu_unless_they_are_given_one():
    def visible():
        return os.environ["CUDA_VISIBLE_DEVICES"]

    assert launch(visible, cluster=PAIR).results == ["-1", "-1"]
    assert launch(visible, cluster=PAIR, env={"CUDA_VISIBLE_DEVICES": "0"}).results == ["0", "0"]


@pytest.mark.quick
def test_a_task_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ValueError, match="one of the tasks worker:0, worker:1, got worker:2"):
        PAIR.rank_of("worker", 2)


@pytest.mark.quick
def test_lines_are_tagged_by_task():
    assert Screenful(PAIR.tasks()).take(1, ["loss 0.5"]) == ["[worker 1] loss 0.5"]


def test_the_table_of_a_run_names_its_tasks_and_says_that_servers_ended():
    run = launch(lambda: report(loss=1.0), cluster=COORDINATED)
    heads, rows = result.table(run, RunState(run.world_size, run.tasks))
    assert [heads[:2], *(row.texts()[:2] for row in rows)] == [
        ["task", "end"], ["chief 0", "done"], ["worker 0", "ended"], ["worker 1", "ended"], ["ps 0", "ended"],
    ]  # fmt: skip
    assert "Chief 0 ends at loss 1" in result.pictures(run)[-1].alt


def replicas(x, factor):
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        kept = tf.Variable(tf.constant(x))
    each = strategy.run(lambda: factor * tf.distribute.get_replica_context().replica_id_in_sync_group)
    return {"kept": kept, "each": each, "text": tf.constant("é"), "half": tf.cast(tf.constant([1.5]), tf.bfloat16)}


def twice(fn, x, factor):
    return [fn(x, factor), fn(x, 2 * factor)]


def test_a_check_gets_plain_arrays_from_logical_devices():
    ended = LaunchArena().tensorflow(replicas, [np.arange(3.0)], 10, logical_devices=2)
    returned = ended.returned[0]
    assert ended.state == "done" and returned["each"] == (0, 10) and returned["text"] == "é"
    assert returned["kept"].tolist() == [0, 1, 2] and returned["half"].dtype == np.float32


def test_a_check_s_driver_runs_in_the_task_and_gets_the_function():
    ended = LaunchArena().tensorflow(replicas, [np.arange(3.0)], 10, logical_devices=2, driver=twice)
    assert [found["each"] for found in ended.returned[0]] == [(0, 10), (0, 20)]


def test_a_check_gives_each_task_its_own_input():
    def add(x):
        import tensorflow as tf

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(x)))

    ended = LaunchArena().tensorflow(add, [np.arange(3.0), np.full(3, 1000.0)], cluster=PAIR)
    assert [got.tolist() for got in ended.returned] == [[1000, 1001, 1002]] * 2


def test_a_check_hears_which_task_failed():
    def fail(x):
        if x == "b":
            raise KeyError(x)

    ended = LaunchArena().tensorflow(fail, ["a", "b"], cluster=Cluster(chief=1, worker=1, ps=0))
    assert ended.state == "raised" and "worker 0 failed first: KeyError" in ended.message


@pytest.mark.quick
def test_a_check_that_forgets_an_input_is_told():
    with pytest.raises(ValueError, match="expected 2 inputs, one for each task of .*, got 1"):
        LaunchArena().tensorflow(replicas, [1], cluster=PAIR)
