"""A long campaign on TensorFlow's launch: right runs, failures, lost tasks, time limits and interrupts in random order."""

import os
import random
import statistics
import threading
import time
from collections import defaultdict

import pytest

from tests.support import tensorflow_work as work
from tests.support.processes import ranks_alive
from worldsize.errors import RankFailed, RunTimedOut
from worldsize.tf import Cluster, launch

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

RUNS = 200
V1 = Cluster(worker=2, ps=1)


def mirrored():
    assert launch(work.mirrored, logical_devices=4).results == [[10.0] * 4]


def multi_worker():
    assert launch(work.multi_worker, cluster=work.PAIR).results == [12.0, 12.0]


def parameter_server():
    assert launch(work.coordinate, (20,), cluster=work.COORDINATED)[0][0] == 20.0


def between_graphs():
    assert launch(work.between_graphs, cluster=V1, servers=()).results[2] == 2


def lost_worker():
    assert launch(work.lose_a_worker, (None,), cluster=work.COORDINATED, timeout_s=60)[0][2] >= 30


def failure():
    how, culprit = random.choice([*work.EXPECTED]), random.randrange(2)
    with pytest.raises(RankFailed, match=f"^worker {culprit} {work.EXPECTED[how]}"):
        launch(work.die, (how, culprit), cluster=work.PAIR, timeout_s=60)


def time_limit():
    with pytest.raises(RunTimedOut):
        launch(work.wait_for_a_peer, cluster=work.PAIR, timeout_s=random.uniform(0.1, 1))


def interrupt():
    stop = threading.Timer(random.uniform(0.05, 1.2), os.kill, (os.getpid(), 2))
    try:
        stop.start()
        launch(work.coordinate, (20_000,), cluster=work.COORDINATED)
        time.sleep(2)  # the launch was done before: the interrupt comes here
    except KeyboardInterrupt:
        pass
    stop.join()


def test_two_hundred_launches_in_random_order_all_end_as_they_should_and_leave_nothing():
    kinds = [mirrored, multi_worker, parameter_server, between_graphs, lost_worker, failure, time_limit, interrupt]
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(RUNS):
        kind = random.choice(kinds)
        began_s = time.monotonic()
        kind()
        seconds[kind.__name__].append(time.monotonic() - began_s)
        assert ranks_alive() == [], kind.__name__
    for name, each in sorted(seconds.items()):
        print(f"{name}: {len(each)} times, median {statistics.median(each):.2f} s, longest {max(each):.2f} s")
