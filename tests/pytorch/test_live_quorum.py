"""Ranks that go on when others are killed: no step counts by halves, no sample is lost, and who comes back has the same bits."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest

from worldsize.launch import launch
from worldsize.pytorch.live_quorum import QuorumPlan, live_quorum

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks its ranks")

RUN_S, STEP_S, AWAY_S = 2.0, 0.01, 0.2
KILLS = ((0.4, 1), (0.41, 3), (1.0, 0))  # two in one step; the root of the sums


def newborn():
    return {"step": 0, "done": 0, "weights": np.zeros(50), "momentum": np.zeros(50), "taken": []}


def example(number):
    return np.random.default_rng(number).integers(-8, 9, 50) / 8


def update(state, total, taken):
    state["momentum"] = 0.9 * state["momentum"] + state["weights"] - total / len(taken)
    state["weights"] = state["weights"] - 0.1 * state["momentum"]
    state["step"] += 1
    state["done"] += len(taken)
    state["taken"].append(taken)


def one_step(rank, state, quorum):
    if rank in quorum.behind:
        state.update(quorum.fetch())
    own = state["done"] + quorum.members.index(rank)
    time.sleep(STEP_S)
    total, taken = quorum.all_reduce(example(own)), quorum.all_gather(own)
    if quorum.all_finished(taken is not None):
        update(state, total, taken)


def a_run(ranks=4, failures=KILLS, step=one_step, run_s=RUN_S):
    return live_quorum(QuorumPlan(ranks, run_s, run_s / 8, AWAY_S, failures), newborn(), step)


@pytest.fixture(scope="module")
def run():
    return a_run()


def test_every_rank_that_is_killed_is_followed_by_one_that_joins(run):
    assert [rank for _, what, rank in run["events"] if what == "killed"] == [1, 3, 0]
    assert sorted(rank for _, what, rank in run["events"] if what == "joined") == [0, 1, 3]


def test_in_the_end_all_ranks_have_the_same_state(run):
    assert list(run["states"]) == [0, 1, 2, 3]
    first = run["states"][0]
    for state in run["states"].values():
        assert all(np.array_equal(state[name], first[name]) for name in ("weights", "momentum", "step", "done"))
        assert state["taken"] == first["taken"]


def test_no_sample_is_lost_and_none_is_taken_twice(run):
    state = run["states"][0]
    assert [number for taken in state["taken"] for number in taken] == list(range(state["done"]))


def test_the_weights_are_those_of_one_process_that_takes_the_same_samples(run):
    alone = newborn()
    for taken in run["states"][0]["taken"]:
        update(alone, sum(map(example, taken)), taken)
    assert np.array_equal(alone["weights"], run["states"][0]["weights"])


def test_a_step_in_which_a_member_is_lost_does_not_count(run):
    """The one under way, or the next if the member had reported that one before it was killed."""
    first_s = run["events"][0][0]
    assert False in [counts for second, _, counts in run["steps"] if second > first_s][:2]


def test_the_others_go_on_while_a_rank_is_away(run):
    second_of = {(what, rank): second for second, what, rank in run["events"]}
    killed_s, joined_s = second_of["killed", 0], second_of["joined", 0]
    assert any(counts and members < 4 for second, members, counts in run["steps"] if killed_s < second < joined_s)


def test_steps_are_those_that_the_states_count(run):
    counted = sum(counts for _, _, counts in run["steps"])
    assert run["states"][0]["step"] in (counted, counted + 1)  # the one in which the run ended


def test_work_never_falls(run):
    assert all(a[1] <= b[1] for a, b in pairwise(run["course"]))
    assert run["work_s"] == run["course"][-1][1]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_a_quiet_run_has_one_quorum(ranks):
    run = a_run(ranks, (), run_s=0.3)
    assert {members for _, members, _ in run["steps"]} == {ranks}
    assert all(counts for *_, counts in run["steps"])


def test_a_run_that_loses_all_its_members_says_so(capfd):
    with pytest.raises(RuntimeError, match="the supervisor ended"):
        a_run(2, ((0.2, 0), (0.2, 1)))
    assert "all members were lost at once" in capfd.readouterr().err


def test_a_step_that_is_never_decided_is_told(capfd):
    def forgets(rank, state, quorum):
        quorum.all_reduce(np.zeros(1))

    with pytest.raises(RuntimeError, match="the supervisor ended"):
        a_run(2, (), forgets)
    assert "without all_finished" in capfd.readouterr().err


def test_a_rank_that_raises_ends_the_run(capfd):
    def raises(rank, state, quorum):
        raise ValueError("no such sample")

    with pytest.raises(RuntimeError, match="the supervisor ended"):
        a_run(2, (), raises)
    assert "no such sample" in capfd.readouterr().err


def test_a_step_that_a_member_refuses_is_taken_again_by_the_same_quorum():
    def refuses(rank, state, quorum):
        number = state["tries"] = state.get("tries", 0) + 1
        if quorum.all_finished((rank, number) != (1, 2)):
            state["step"] += 1

    run = a_run(3, (), refuses, run_s=0.3)
    assert [counts for *_, counts in run["steps"][:4]] == [True, False, True, True]
    assert {state["tries"] - state["step"] for state in run["states"].values()} == {1}


def test_no_rank_outlives_its_supervisor(tmp_path):
    path = str(tmp_path / "lives")
    os.mkfifo(path)
    lives = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def kills_it(rank, state, quorum):
        state.setdefault("line", os.open(path, os.O_WRONLY))  # open as long as this rank lives
        os.write(state["line"], b"x")
        if quorum.all_finished(True):
            state["step"] += 1
        if rank == 0 and state["step"] == 3:
            os.kill(os.getppid(), signal.SIGKILL)

    with pytest.raises(RuntimeError):
        a_run(3, (), kills_it)
    os.set_blocking(lives, True)
    while os.read(lives, 1000):
        pass  # until the last rank has ended
    os.close(lives)


def test_a_rank_reports_the_hours_of_its_run():
    run = launch(a_run, 1, args=(2, (), one_step, 0.4), device="cpu", timeout_s=60)
    assert run.reports[0][-1]["step"] > 0 and run.reports[0][-1]["members"] == 2


def test_it_starts_without_torch():
    code = "import sys; import worldsize.pytorch.live_quorum; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
