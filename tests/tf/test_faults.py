"""Tasks of TensorFlow that fail, die, hang and come back, for real: the culprit is named and nothing is left behind."""

import os
import signal
import threading
import time

import pytest

from tests.support.kernels import Kernel, pid_gone, printed, seconds_until
from tests.support.processes import LONG_S, agents, listens, other_ranks, ranks_alive
from tests.support.tensorflow_work import COORDINATED, EXPECTED, PAIR, counter, die, lose_a_worker, wait_for_a_peer
from worldsize.errors import EngineLost, Interrupted, RankFailed, RunTimedOut
from worldsize.tf import Cluster, launch

SOAK = pytest.mark.soak


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert ranks_alive() == []


IN_SUITE = [("raise", 0), ("kill", 1)]
EVERY = [(how, culprit) for how in EXPECTED for culprit in (0, 1)]


@pytest.mark.parametrize(("how", "culprit"), [c if c in IN_SUITE else pytest.param(*c, marks=SOAK) for c in EVERY])
def test_the_task_that_fails_first_is_named_while_the_other_waits_for_it(how, culprit):
    with pytest.raises(RankFailed) as caught:
        launch(die, (how, culprit), cluster=PAIR, timeout_s=60)
    message = str(caught.value)
    assert message.startswith(f"worker {culprit} {EXPECTED[how]}") and caught.value.rank == culprit
    assert "in die" in message and f"worker {1 - culprit}" in message


def test_a_parameter_server_that_dies_by_itself_is_a_failure_by_its_name():
    def kill_the_server(task):
        seconds_until(other_ranks, LONG_S)  # the chief may be there first
        max(other_ranks(), key=lambda p: p.pid).kill()
        time.sleep(1000)  # until the server's death ends the run

    with pytest.raises(RankFailed, match="ps 0 was killed by SIGKILL"):
        launch(kill_the_server, cluster=Cluster(chief=1, ps=1), timeout_s=60)


@SOAK
def test_a_chief_that_fails_ends_its_servers():
    def fail(task):
        raise KeyError(task.type)

    with pytest.raises(RankFailed, match="chief 0 failed first: KeyError: 'chief'"):
        launch(fail, cluster=COORDINATED)


@SOAK
def test_a_server_that_does_not_heed_sigterm_is_killed():
    def stop_the_server():
        seconds_until(lambda: other_ranks() and all(listens(p.pid) for p in other_ranks()), 30)
        for process in other_ranks():
            process.suspend()
        return "done"

    assert launch(stop_the_server, cluster=Cluster(chief=1, ps=1))["chief:0"] == "done"


def test_a_missing_peer_ends_at_the_time_limit_and_says_who_waits_where():
    with pytest.raises(RunTimedOut) as caught:
        launch(wait_for_a_peer, cluster=PAIR, timeout_s=4)
    message = str(caught.value)
    assert "these tasks of 2 were not done" in message and "every task in TF_CONFIG" in message
    assert "worker 0" in message and "tf.distribute.MultiWorkerMirroredStrategy()" in message


def wait_until_one_waits(paths):
    """Until both workers have written their pids, and worker 0 is inside the constructor, where it holds Python's lock.

    The constructor starts the worker's server: it listens from then on.
    """
    seconds_until(lambda: all(path.exists() and path.read_text() for path in paths), 90)
    worker = int(paths[0].read_text())
    seconds_until(lambda: listens(worker), 60)


def when_there(paths, act):
    """Do `act` in a thread once one of the workers whose `paths` these are waits for the other."""

    def wait_and_act():
        wait_until_one_waits(paths)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def test_an_interrupt_ends_tasks_that_wait_inside_tensorflow(tmp_path):
    notes = [tmp_path / f"pid{rank}" for rank in range(2)]
    thread = when_there(notes, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Interrupted, match="(?s)worker 0 .*MultiWorkerMirroredStrategy"):
        launch(wait_for_a_peer, (str(tmp_path / "pid"),), cluster=PAIR)
    thread.join()


@SOAK
def test_an_agent_that_dies_takes_its_tasks_along_and_the_next_launch_starts_a_new_one(tmp_path):
    notes = [tmp_path / f"pid{rank}" for rank in range(2)]
    thread = when_there(notes, lambda: [agent.kill() for agent in agents()])
    with pytest.raises(EngineLost, match="the next launch starts a new one"):
        launch(wait_for_a_peer, (str(tmp_path / "pid"),), cluster=PAIR)
    thread.join()
    pids = [int(note.read_text()) for note in notes]
    seconds_until(lambda: all(map(pid_gone, pids)), LONG_S)
    assert launch(lambda: 5).results == [5]


CELL = """\
import os, time
from worldsize.tf import Cluster, launch

def wait_for_a_peer(task):
    import tensorflow as tf
    with open(f"rank{task.index}", "w") as file:
        file.write(str(os.getpid()))
    if task.index == 1:
        time.sleep(1000)  # the peer waits in vain
    tf.distribute.MultiWorkerMirroredStrategy()
"""


@SOAK
def test_a_kernel_that_is_killed_leaves_no_process_and_no_file(tmp_path):
    with Kernel(tmp_path) as kernel:
        printed(kernel.run(CELL))
        kernel.begin("launch(wait_for_a_peer, cluster=Cluster(worker=2), timeout_s=1000)")
        wait_until_one_waits([tmp_path / f"rank{rank}" for rank in range(2)])
        os.kill(kernel.pid, signal.SIGKILL)
        kernel.nothing_left()


def test_a_worker_that_is_killed_on_request_is_no_failure_and_comes_back():
    counts = launch(lose_a_worker, (None,), cluster=COORDINATED, timeout_s=60)["chief:0"]
    assert counts[0] >= 10 and counts[1] >= 20 and counts[2] >= 30  # a lost update is sent again: at least once


def lose_the_server(task):
    """The chief saves, kills the parameter server, starts it again, and restores into a new strategy."""
    import tensorflow as tf

    coordinator, update, total = counter()
    for _ in range(5):
        coordinator.schedule(update)
    coordinator.join()
    saved = tf.train.Checkpoint(total=total).write(str(task.dir / "saved"))
    task.kill("ps", 0)
    try:
        coordinator.schedule(update)
        coordinator.join()
        lost = ""
    except Exception as error:
        lost = type(error).__name__
    task.restart("ps", 0)
    while True:
        coordinator, update, total = counter()
        tf.train.Checkpoint(total=total).read(saved)
        coordinator.schedule(update)
        try:
            coordinator.join()
            return lost, float(total.numpy())
        except tf.errors.UnavailableError:
            continue  # the server is there, but the worker's channel waits before it looks again: gRPC's back-off


@SOAK
def test_a_parameter_server_that_was_killed_comes_back_and_is_restored_from_the_shared_folder():
    run = launch(lose_the_server, cluster=Cluster(chief=1, worker=1, ps=1), timeout_s=60)
    assert run["chief:0"] == ("UnavailableError", 6.0)


def test_a_restarted_task_runs_the_function_again_at_the_same_address_and_knows_that_it_does():
    def turn(task):
        if task.index == 0:
            seconds_until((task.dir / "first").exists, 30)
            task.restart("worker", 1)
            seconds_until((task.dir / "second").exists, 30)
            return "restarted it"
        print("attempt", task.attempt)
        (task.dir / ("first", "second")[task.attempt]).write_text("")
        return task.attempt, task.cluster["worker"][1] if task.attempt else time.sleep(1000)  # until it is restarted

    run = launch(turn, cluster=PAIR, timeout_s=60)
    assert run[0] == "restarted it" and run[1][0] == 1
    assert run.log("worker:1") == "attempt 0\nattempt 1\n"


def test_a_task_that_was_killed_and_did_not_come_back_returns_nothing():
    def turn(task):
        if task.index == 1:
            time.sleep(1000)  # until it is killed
        task.kill("worker", 1)
        return "alone"

    assert launch(turn, cluster=PAIR).results == ["alone", None]


def test_killing_a_task_that_is_not_there_is_a_value_error_in_the_task():
    def turn(task):
        task.kill("ps", 0)

    with pytest.raises(RankFailed, match=r'task.kill\("ps", 0\): expected one of the tasks worker:0, worker:1'):
        launch(turn, cluster=PAIR)


def test_a_crash_inside_tensorflow_is_told_with_its_last_words():
    def crash():
        os.write(2, b"F0000 00:00 env.cc:410] Check failed: -1 != path_length\n")
        os.abort()

    with pytest.raises(RankFailed, match="was killed by SIGABRT") as caught:
        launch(crash)
    assert "its last fatal line: F0000 00:00 env.cc:410] Check failed" in str(caught.value)
