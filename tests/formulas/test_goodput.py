"""Intervals and goodput under failures are those of Young, Daly, and of what two clusters reported."""

import pytest

from worldsize.formulas import goodput

pytestmark = pytest.mark.quick

LLAMA_MTBF_S = 54 * 86_400 / 419  # 419 unplanned interruptions in 54 days, arXiv:2407.21783


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, 1.80), (131_072, 0.23), (1_024, 28.85)])
def test_6_5_failures_in_1000_node_days_stop_a_job_as_often_as_meta_says(gpus, hours):
    assert goodput.mtbf_hours(gpus, 6.50) == pytest.approx(hours, abs=0.01)


def test_llama_3_with_saves_of_30_seconds_saves_every_13_6_minutes():
    assert goodput.young_interval_s(30, LLAMA_MTBF_S) / 60 == pytest.approx(13.6, abs=0.05)


def test_llama_3_with_restarts_of_5_minutes_keeps_90_percent():
    interval_s = goodput.young_interval_s(30, LLAMA_MTBF_S)
    assert goodput.effective_share_first_order(interval_s, 30, 300, LLAMA_MTBF_S) == pytest.approx(0.900, abs=0.0005)
    assert goodput.effective_share(interval_s, 30, 300, LLAMA_MTBF_S) == pytest.approx(0.904, abs=0.0005)


@pytest.mark.parametrize("save_s", [1, 30, 600])
def test_dalys_interval_is_within_a_thousandth_of_the_best_goodput(save_s):
    best = max(goodput.effective_share(tau, save_s, 60, 3600) for tau in range(1, 7200))
    assert goodput.effective_share(goodput.daly_interval_s(save_s, 3600), save_s, 60, 3600) > 0.999 * best


@pytest.mark.parametrize("factor", [0.25, 4])
def test_young_beats_a_quarter_and_four_times_his_interval(factor):
    best_s = goodput.young_interval_s(30, 3600)
    assert goodput.effective_share(best_s, 30, 60, 3600) > goodput.effective_share(factor * best_s, 30, 60, 3600)


def test_a_save_longer_than_two_failures_is_made_once_a_failure():
    assert goodput.daly_interval_s(100, 50) == 50


def test_where_failures_are_rare_both_shares_agree():
    args = 1000, 1, 10, 1e7
    assert goodput.effective_share(*args) == pytest.approx(goodput.effective_share_first_order(*args), abs=1e-5)


def test_an_interval_of_many_failures_keeps_nothing():
    assert goodput.effective_share(1e6, 1, 1, 1) == 0


@pytest.mark.parametrize("save_s", [0, -1, float("nan")])
def test_a_save_that_takes_no_time_is_refused(save_s):
    with pytest.raises(ValueError, match="save_s"):
        goodput.young_interval_s(save_s, 3600)


def test_a_negative_restart_is_refused():
    with pytest.raises(ValueError, match="restart_s is -1"):
        goodput.effective_share(100, 1, -1, 3600)


def test_where_no_time_is_lost_all_is_kept():
    assert goodput.share_without_restarts(0, 0, 8, 3600) == 1


def test_a_group_that_is_away_costs_one_in_n():
    assert goodput.share_without_restarts(0, 360, 8, 3600) == pytest.approx(1 - 0.1 / 8)


def test_a_pause_stops_all_groups():
    assert goodput.share_without_restarts(36, 0, 8, 3600) == goodput.share_without_restarts(36, 0, 800, 3600) == 0.99


def test_one_group_without_a_pause_loses_what_it_is_away():
    assert goodput.share_without_restarts(0, 360, 1, 3600) == pytest.approx(0.9)


def test_failures_that_come_sooner_than_a_pause_ends_keep_nothing():
    assert goodput.share_without_restarts(7200, 0, 8, 3600) == 0
