"""Ranks that fail, die, hang and deadlock, for real: the culprit is named at once and nothing is left behind."""

import os
import signal
import threading
import time

import psutil
import pytest
import torch
import torch.distributed as dist

from tests.support.kernels import seconds_until
from tests.support.processes import LONG_S, agents, ranks_alive
from worldsize.errors import Deadlock, Interrupted, RankFailed, RunTimedOut
from worldsize.launch import last_run, launch

QUICK, SOAK = pytest.mark.quick, pytest.mark.soak


def die(how, culprit):
    """Everybody meets in a collective; then the culprit fails while the others block in the next one."""
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == culprit:
        if how == "raise":
            raise KeyError("the culprit")
        if how == "exit":
            os._exit(3)
        if how == "silent":
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(3))


EXPECTED = {
    "raise": "KeyError: 'the culprit'",
    "exit": "exited with code 3 and no result",
    "silent": "exited with code 0 and no result",
    "kill": "was killed by SIGKILL",
}


IN_SUITE = [("raise", 0), ("exit", 1), ("silent", 0), ("kill", 1)]
ELSEWHERE = [pytest.param(how, 1 - culprit, marks=SOAK) for how, culprit in IN_SUITE]


@pytest.mark.parametrize(("how", "culprit"), IN_SUITE + ELSEWHERE)
def test_the_first_failure_is_named_while_the_others_block(how, culprit):
    with pytest.raises(RankFailed) as caught:
        launch(die, 3, args=(how, culprit))
    message = str(caught.value)
    assert caught.value.rank == culprit
    assert message.startswith(f"rank {culprit} of 3") and EXPECTED[how] in message.splitlines()[0]
    assert len(message.splitlines()) <= 40
    assert ranks_alive() == []


@QUICK
def test_the_message_points_at_the_line_that_raised():
    with pytest.raises(RankFailed) as caught:
        launch(die, 2, args=("raise", 1))
    assert 'raise KeyError("the culprit")' in str(caught.value)
    assert "line " in str(caught.value) and "in die" in str(caught.value)


def test_the_survivors_stand_where_they_were():
    with pytest.raises(RankFailed) as caught:
        launch(die, 2, args=("raise", 0))
    assert "rank 1" in str(caught.value) and "dist.all_reduce(torch.ones(3))" in str(caught.value)


def test_a_deep_recursion_is_folded_to_a_readable_message():
    def down(n):
        return down(n + 1)

    with pytest.raises(RankFailed) as caught:
        launch(down, 2, args=(0,))
    assert "RecursionError" in str(caught.value) and len(str(caught.value).splitlines()) <= 40


def test_the_cause_of_an_exception_is_told():
    def chained():
        try:
            {}["missing"]
        except KeyError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(RankFailed, match="caused by KeyError: 'missing'"):
        launch(chained, 1)


def test_an_exception_that_cannot_be_pickled_or_printed_still_names_its_rank():
    class Awkward(Exception):
        def __str__(self):
            raise ValueError("no text")

    def fail():
        raise Awkward(threading.Lock())

    with pytest.raises(RankFailed, match="rank 0 of 1 failed first: Awkward"):
        launch(fail, 1)


def test_sys_exit_is_an_exit_with_no_result():
    def leave():
        raise SystemExit(4)

    with pytest.raises(RankFailed, match="exited with code 4 and no result"):
        launch(leave, 2)


def test_a_result_that_cannot_be_pickled_is_a_failure_of_its_rank():
    with pytest.raises(RankFailed, match="lock"):
        launch(lambda: threading.Lock(), 2)


def test_what_was_printed_before_the_failure_is_in_the_log():
    def speak_then_fail():
        print("before")
        raise ValueError("after")

    with pytest.raises(RankFailed) as caught:
        launch(speak_then_fail, 2)
    assert caught.value.run.log(0) == "before\n"
    assert last_run() is caught.value.run


def both_send_first(fabric):
    other = 1 - fabric.rank
    fabric.send(torch.ones(2), other)
    fabric.recv(torch.empty(2), other)


@QUICK
def test_two_ranks_that_both_send_first_are_a_deadlock_that_is_named_at_once():
    with pytest.raises(Deadlock, match=r"deadlock: rank 0 waits for 1 \(send\), rank 1 waits for 0 \(send\)"):
        launch(both_send_first, 2, timeout_s=60)
    assert ranks_alive() == []


def test_a_ring_of_receivers_is_a_deadlock():
    def all_receive(fabric):
        fabric.recv(torch.empty(1), (fabric.rank + 1) % fabric.world_size)

    with pytest.raises(Deadlock, match="rank 0 waits for 1 .*rank 3 waits for 0"):
        launch(all_receive, 4, timeout_s=60)


def test_waiting_for_a_rank_that_has_ended_is_a_deadlock():
    def one_waits(fabric):
        if fabric.rank == 0:
            fabric.recv(torch.empty(1), 1)

    with pytest.raises(Deadlock, match=r"rank 0 waits for 1 \(recv\), which has ended"):
        launch(one_waits, 2, timeout_s=60)


def test_a_wrong_tag_is_a_deadlock():
    def tags_differ(fabric):
        if fabric.rank == 0:
            fabric.send(torch.ones(1), 1, tag=5)
        else:
            fabric.recv(torch.empty(1), 0, tag=6)

    with pytest.raises(Deadlock, match=r"rank 0 waits for 1 \(send, tag 5\), rank 1 waits for 0 \(recv, tag 6\)"):
        launch(tags_differ, 2, timeout_s=60)


def test_receiving_from_anyone_when_nobody_sends_is_a_deadlock():
    def listen(fabric):
        fabric.recv(torch.empty(1))

    with pytest.raises(Deadlock, match="rank 0 waits for anyone"):
        launch(listen, 2, timeout_s=60)


def test_slow_declared_work_is_not_taken_for_a_deadlock():
    def patient(fabric):
        if fabric.rank == 0:
            fabric.compute(0.6)
            fabric.send(torch.ones(1), 1)
        else:
            fabric.recv(torch.empty(1), 0)
        return True

    assert launch(patient, 2).results == [True, True]


def test_a_hang_in_a_collective_ends_at_the_time_limit_and_says_where_each_rank_stood():
    def one_is_missing():
        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            dist.barrier()
        else:
            time.sleep(1000)  # the hang that the time limit ends

    with pytest.raises(RunTimedOut) as caught:
        launch(one_is_missing, 2, timeout_s=3)
    message = str(caught.value)
    assert "timeout_s=3" in message and "dist.barrier()" in message and "time.sleep(1000)" in message
    assert ranks_alive() == []


def test_a_rank_that_ignores_sigterm_and_spins_is_ended_too():
    def stubborn():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass

    with pytest.raises(RunTimedOut):
        launch(stubborn, 2, timeout_s=1)
    assert ranks_alive() == []


def test_a_child_process_that_a_rank_left_behind_is_ended_with_it(tmp_path):
    path = tmp_path / "pid"

    def leave_a_child():
        child = os.fork()
        if child == 0:
            while True:
                time.sleep(1)  # until it is ended
        path.write_text(str(child))

    launch(leave_a_child, 1)
    ended_soon(int(path.read_text()))


def ended_soon(pid, timeout_s=LONG_S):
    """Raises TimeoutExpired where the process is still there after `timeout_s`."""
    try:
        psutil.Process(pid).wait(timeout_s)
    except psutil.NoSuchProcess:
        return


def interrupt_when(path):
    """Send this process SIGINT as soon as `path` exists."""

    def wait_and_interrupt():
        seconds_until(path.exists, LONG_S)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait_and_interrupt)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["collective", "fabric", "loop"])
def test_an_interrupt_ends_the_run_keeps_what_there_is_and_leaves_no_rank(kind, tmp_path):
    path = tmp_path / "reached"

    def busy(fabric):
        print("got so far")
        if fabric.rank == 0:
            fabric.send(torch.ones(4), 1)
        else:
            fabric.recv(torch.empty(4), 0)
            path.write_text("now")
        if kind == "collective":
            dist.init_process_group("gloo")
            dist.all_reduce(torch.ones(1)) if fabric.rank == 0 else time.sleep(1000)  # until the interrupt
        while kind == "loop":
            pass
        fabric.compute(1000)

    thread = interrupt_when(path)
    with pytest.raises(Interrupted) as caught:
        launch(busy, 2)
    thread.join()
    assert "got so far" in caught.value.run.log(0)
    assert [t.size_bytes for t in caught.value.run.trace.transfers] == [16]
    assert ranks_alive() == []


@pytest.mark.parametrize("runs", [1, pytest.param(10, marks=SOAK)])
def test_correct_runs_follow_a_failure(runs):
    for how in ("raise", "kill"):
        with pytest.raises(RankFailed):
            launch(die, 2, args=(how, 0))
        for _ in range(runs):
            assert launch(lambda x: x + 1, 2, args=(1,)).results == [2, 2]


def test_signal_handlers_are_the_same_after_a_run_as_before():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)
    before = [signal.getsignal(n) for n in numbers]
    launch(lambda: None, 2)
    with pytest.raises(RankFailed):
        launch(die, 2, args=("raise", 0))
    assert [signal.getsignal(n) for n in numbers] == before


def test_the_agent_that_dies_is_reported_and_the_next_launch_starts_a_new_one(tmp_path):
    from worldsize.errors import EngineLost

    path = tmp_path / "agent"

    def kill_the_agent():
        path.write_text("x")
        time.sleep(1000)  # until it is killed

    def kill():
        seconds_until(path.exists, LONG_S)
        [agent.kill() for agent in agents()]

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(EngineLost, match="the next launch starts a new one"):
        launch(kill_the_agent, 2)
    thread.join()
    assert launch(lambda: 5, 2).results == [5, 5]
