"""Rounds of an all-to-all, from messages made up here: the order of each rank's own calls decides, and no clock."""

import pytest

from worldsize.checks.collectives.all_to_all import more_rounds
from worldsize.trace import Trace, Transfer

pytestmark = pytest.mark.quick


def exchange(n, partner, received_first=0, late_s=0.0):
    """Rank r sends its message k, from 1 on, to partner(r, k) at k; it is received at k + 0.5 + `late_s`.

    With `received_first` a rank's first message starts when all others have arrived.
    """
    transfers = []
    for rank in range(n):
        for k in range(1, n):
            start_s = k + 10 * n * (rank < received_first)
            transfers.append(Transfer(rank, partner(rank, k), 4, start_s, k + 0.5 + late_s))
    return Trace(n, tuple(sorted(transfers, key=lambda t: t.start_s)))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("sign", [1, -1])
def test_shifts_take_n_minus_1_rounds(n, sign):
    assert more_rounds(exchange(n, lambda r, k: (r + sign * k) % n)) is None


@pytest.mark.parametrize("n", [2, 4, 8])
def test_pairs_by_xor_take_n_minus_1_rounds(n):
    assert more_rounds(exchange(n, lambda r, k: r ^ k)) is None


def test_how_long_messages_take_does_not_count():
    assert more_rounds(exchange(5, lambda r, k: (r + k) % 5, late_s=100)) is None


def test_ranks_that_send_to_one_at_the_same_time_are_named():
    words = more_rounds(exchange(4, lambda r, k: [other for other in range(4) if other != r][k - 1]))
    assert "ranks 1, 2 and 3 all send their message 1 to rank 0, whose card receives one at a time" in words


def test_a_rank_that_sends_after_it_has_received_is_named():
    words = more_rounds(exchange(4, lambda r, k: (r + k) % 4, received_first=1))
    assert "rank 0 had received 3 messages before it sent its message 1" in words
