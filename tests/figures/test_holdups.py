"""Who holds whom up: waits are followed to the rank that works, or to a message on its way."""

import pytest

from worldsize.figures.frame.holdups import holdups, sentence
from worldsize.trace import Collective, Span, Trace, Transfer

pytestmark = pytest.mark.quick


def chain(ranks: int, slow: int = 0) -> Trace:
    """Rank after rank waits for the one before, whose message comes when it has its own; `slow` computes for 10 s."""
    spans, sent = [Span(slow, "compute", 0.0, 10.0)], []
    for step in range(1, ranks):
        rank, before = (slow + step) % ranks, (slow + step - 1) % ranks
        spans.append(Span(rank, "recv", 0.0, 10.0 + step, f"from rank {before}"))
        sent.append(Transfer(before, rank, 8, 10.0 + step - 1, 10.0 + step, recv_start_s=0.0))
    return Trace(ranks, tuple(sent), tuple(spans))


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_a_chain_of_waits_leads_to_the_rank_that_works(ranks: int) -> None:
    causes = holdups(chain(ranks, slow=ranks - 1)).by_cause
    assert causes.most_common(1)[0][0] == ranks - 1


@pytest.mark.parametrize(("ranks", "whom"), [(2, "rank 1"), (3, "the others"), (4, "the others")])
def test_the_title_names_who_holds_whom_up_and_how_long(ranks: int, whom: str) -> None:
    assert sentence(chain(ranks)).startswith(f"rank 0 holds {whom} up ")


def test_a_message_on_its_way_is_nobody_s_delay() -> None:
    spans = tuple(Span(rank, "recv", 0.0, 9.0, f"from rank {1 - rank}") for rank in range(2))
    sent = tuple(Transfer(rank, 1 - rank, 8, 0.0, 9.0, recv_start_s=0.0) for rank in range(2))
    assert sentence(Trace(2, sent, (*spans, Span(0, "compute", 9.0, 10.0)))) == (
        "ranks wait 90 % of the time, mostly for messages on their way"
    )


def test_the_last_to_come_to_a_collective_holds_the_others_up() -> None:
    calls = [Collective("all_reduce", 8, rank, 8.0 if rank == 2 else 1.0, 9.0) for rank in range(4)]
    assert sentence(Trace(4, (), (), tuple(calls))).startswith("rank 2 holds the others up ")


def test_a_send_that_nobody_receives_yet_waits_for_its_receiver() -> None:
    spans = (
        Span(0, "send", 0.0, 8.0, "to rank 1", wait_start_s=0.0),
        Span(1, "compute", 0.0, 8.0),
        Span(1, "recv", 8.0, 8.0, "from rank 0"),
    )
    sent = Trace(2, (Transfer(0, 1, 8, 0.0, 8.0, recv_start_s=8.0),), spans)
    assert sentence(sent) == "rank 1 holds rank 0 up 100 % of the time"


def test_a_wait_of_no_time_hides_none_that_begins_with_it() -> None:
    spans = (
        Span(0, "compute", 0.0, 8.0),
        Span(1, "recv", 0.0, 8.0, "from rank 0"),
        Span(2, "recv", 0.0, 8.0, "from rank 0"),
        Span(2, "recv", 0.0, 0.0, "from rank 1"),
    )
    sent = tuple(Transfer(0, rank, 8, 8.0, 8.0, recv_start_s=0.0) for rank in (1, 2))
    assert sentence(Trace(3, sent, spans)) == "rank 0 holds the others up 100 % of the time"


def test_no_rank_is_named_where_two_hold_each_other_up_alike() -> None:
    spans, sent = [], []
    for turn in range(10):
        late, other = turn % 2, 1 - turn % 2
        spans += [Span(late, "compute", turn, turn + 1.0), Span(other, "recv", turn, turn + 1.0, f"from rank {late}")]
        sent.append(Transfer(late, other, 8, turn + 1.0, turn + 1.0, recv_start_s=turn))
    assert sentence(Trace(2, tuple(sent), tuple(spans))) == ""


def test_ranks_that_hardly_wait_need_no_sentence() -> None:
    spans = (Span(0, "compute", 0.0, 10.0), Span(1, "compute", 0.0, 9.8), Span(1, "recv", 9.8, 10.0, "from rank 0"))
    assert sentence(Trace(2, (Transfer(0, 1, 8, 10.0, 10.0),), spans)) == ""


def test_a_wait_without_a_known_peer_blames_nobody() -> None:
    assert sentence(Trace(2, (), (Span(0, "wait", 0.0, 9.0, "barrier"), Span(1, "compute", 0.0, 9.0)))) == ""
