"""Experts on several ranks: capacity, rows that travel, and how uneven a router is."""

import pytest

from worldsize.formulas import experts


@pytest.mark.parametrize(
    ("tokens", "count", "factor", "most"), [(100, 4, 1.0, 25), (100, 8, 1.25, 16), (5, 4, 1.0, 2), (0, 4, 1.0, 0)]
)
def test_a_capacity_is_the_even_share_times_the_factor_rounded_up(tokens, count, factor, most):
    assert experts.capacity(tokens, count, factor) == most


def test_an_expert_keeps_the_first_tokens_that_want_it():
    assert experts.kept([0, 1, 0, 0, 1, 2], 2) == [0, 1, 2, 4, 5]
    assert experts.kept([0, 1, 0, 0, 1, 2], None) == [0, 1, 2, 3, 4, 5]


def test_rows_travel_there_and_back_and_not_to_the_own_rank():
    sent = experts.row_bytes_sent([[0, 1, 1], [0, 0, 1]], 2, 10, 8)
    assert sent.tolist() == [[0, 4 * 80], [4 * 80, 0]]


def test_rows_over_the_capacity_do_not_travel():
    sent = experts.row_bytes_sent([[1, 1, 1], [0, 1, 1]], 2, 10, 8, most=1)
    assert sent.tolist() == [[0, 160], [160, 0]]


def test_experts_are_dealt_out_in_order():
    sent = experts.row_bytes_sent([[0, 1, 2, 3], []], 4, 1, 1)
    assert sent.tolist() == [[0, 2], [2, 0]]


def test_the_balancing_loss_is_1_where_all_is_even_and_the_number_of_experts_where_one_has_all():
    assert experts.balancing_loss([0.25] * 4, [0.25] * 4) == 1
    assert experts.balancing_loss([1, 0, 0, 0], [1, 0, 0, 0]) == 4


def test_the_hottest_expert_is_told_in_even_shares():
    assert experts.hottest([10, 10, 10, 10]) == 1
    assert experts.hottest([70, 10, 10, 10]) == pytest.approx(2.8)


@pytest.mark.parametrize("call", [
    lambda: experts.capacity(10, 0, 1.0), lambda: experts.balancing_loss([1], [0.5, 0.5]),
    lambda: experts.row_bytes_sent([[0], [0]], 3, 1, 1),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_what_came(call):
    with pytest.raises(ValueError, match="expected .* got"):
        call()
