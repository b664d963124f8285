"""Who waits for whom in a run that hangs: the circle that is found, and the words beside it."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from worldsize import figures
from worldsize.errors import Deadlock
from worldsize.failures import Outcome, Standing, Wait
from worldsize.figures import base
from worldsize.figures.wait_graph import WaitArrow, arrows, circle, finding, hangs
from worldsize.launch import launch
from worldsize.live import result
from worldsize.trace import Trace


def hung(*standings, world_size=None, status="deadlock"):
    outcome = Outcome(status, standings=standings, waits=tuple(s.wait for s in standings if s.wait))
    return SimpleNamespace(outcome=outcome, world_size=world_size or len(standings), trace=Trace(1), tasks=(), state="failed")


def receives(rank, peer, **more):
    return Standing(rank, Wait(rank, "recv", peer, **more))


def ring(n):
    return [receives(rank, (rank + 1) % n) for rank in range(n)]


@pytest.mark.parametrize("n", [2, 3, 4, 9])
def test_ranks_that_each_wait_for_the_next_are_a_circle(n):
    assert sorted(circle(arrows(hung(*ring(n)).outcome, n))) == list(range(n))


def test_a_circle_is_the_shortest_one_and_leaves_out_who_waits_for_it():
    run = hung(receives(0, 3), receives(1, 2), receives(2, 1), receives(3, 1))
    assert sorted(circle(arrows(run.outcome, 4))) == [1, 2]
    assert finding(run.outcome, 4) == "Deadlock: rank 1 and rank 2 wait for each other"


def test_a_rank_that_waits_for_anyone_closes_no_circle():
    assert circle([WaitArrow(0, 1, one_of_many=True), WaitArrow(1, 0)]) == []


def test_ranks_in_a_collective_wait_for_each_that_has_not_come():
    stood = [Standing(0, collective="barrier"), Standing(1, collective="barrier"), receives(2, 1)]
    run = hung(*stood, status="timeout")
    assert arrows(run.outcome, 3) == [WaitArrow(0, 2), WaitArrow(1, 2), WaitArrow(2, 1)]
    assert sorted(circle(arrows(run.outcome, 3))) == [1, 2]


def test_who_has_not_come_to_a_collective_is_said_where_no_circle_is():
    stood = [Standing(0, collective="barrier"), Standing(2, collective="barrier")]
    assert finding(hung(*stood, world_size=3).outcome, 3) == "Ranks 0, 2 wait in barrier; rank 1 has not come"


def test_a_rank_that_has_ended_is_named_as_the_one_that_is_awaited():
    run = hung(receives(1, 0, peer_ended=True), world_size=2)
    assert finding(run.outcome, 2) == "Rank 1 waits for rank 0, which has ended"


def test_messages_that_nobody_sends_are_said_to_be():
    assert finding(hung(receives(0, None), receives(1, None)).outcome, 2).endswith("wait for messages that nobody sends")


@pytest.mark.parametrize("run", [
    hung(receives(0, 1), Standing(1), status="timeout"), hung(status="timeout", world_size=2), hung(*ring(2), status="failed"),
    SimpleNamespace(outcome=None),
])  # fmt: skip
def test_a_run_in_which_a_rank_could_go_on_does_not_hang(run):
    assert not hangs(run)
    assert "no rank of this run waits" in figures.waiting(run).alt


@pytest.mark.parametrize("n", [2, 5, 16, 33])
def test_each_rank_is_told_in_the_alt_text_too_those_that_wait_alike_in_one_clause(n):
    alt = figures.waiting(hung(*ring(n))).alt
    if n == 2:
        assert "rank 0 waits in recv from rank 1" in alt and "rank 1 waits in recv from rank 0" in alt
    else:
        assert f"ranks 0 to {n - 1} wait in recv from ranks 1, 2, 3" in alt


def test_of_many_ranks_the_picture_says_how_many_it_draws():
    texts = [text.get_text() for text in figures.waiting(hung(*ring(33))).texts]
    assert any("16 of 33 ranks are drawn" in text for text in texts)


def test_of_a_real_deadlock_the_line_and_the_time_are_told():
    def both_receive(fabric):
        fabric.recv(torch.zeros(3), 1 - fabric.rank)

    with pytest.raises(Deadlock) as caught:
        launch(both_receive, 2)
    picture = result.pictures(caught.value.run)[0]
    assert picture.alt.startswith("Deadlock: rank 0 and rank 1 wait for each other.")
    assert "waits in recv from rank 1 for " in picture.alt and "fabric.recv(torch.zeros(3), 1 - fabric.rank)" in picture.alt


def test_a_circle_of_torch_s_own_messages_is_drawn_as_one_of_the_fabric_s():
    def both_receive():
        dist.init_process_group("gloo")
        dist.recv(torch.zeros(3), 1 - dist.get_rank())

    with pytest.raises(Deadlock) as caught:
        launch(both_receive, 2)
    assert result.pictures(caught.value.run)[0].alt.startswith("Deadlock: rank 0 and rank 1 wait for each other.")


def test_ranks_that_wait_for_a_rank_which_returned_point_at_it():
    def only_one_returns():
        dist.init_process_group("gloo")
        if dist.get_rank():
            dist.barrier()

    with pytest.raises(Deadlock) as caught:
        launch(only_one_returns, 3)
    run = caught.value.run
    assert arrows(run.outcome, 3) == [WaitArrow(1, 0), WaitArrow(2, 0)]
    alt = result.pictures(run)[0].alt
    assert alt.startswith("Rank 0 returned; ranks 1, 2 wait in barrier.") and "stopped" not in alt


@pytest.mark.parametrize("n", [2, 4, 9])
def test_ranks_have_their_markers(n):
    lines = figures.waiting(hung(*ring(n))).axes[0].lines
    assert [line.get_marker() for line in lines if line.get_markersize() == 7] == [
        base.marker(rank) for rank in range(n)
    ]
