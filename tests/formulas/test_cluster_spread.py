"""A forecast of measured steps: which rows it was fitted to decides how far off it is, and by how much."""

import numpy as np
import pytest

from worldsize import data
from worldsize.formulas import cluster_spread
from worldsize.formulas import measured_clusters as clusters

SINGLE, MULTI = data.measured_iterations("single"), data.measured_iterations("multi")
SMALL = [row for row in MULTI if row.gpus == 64]
LARGE = [row for row in MULTI if row.gpus > 64]


def test_the_26_cannot_see_which_rows_memory_was_fitted_to_and_the_83_can():
    choices = cluster_spread.by_micro_batch(SINGLE, SMALL, LARGE)
    fitted, asked = ([getattr(one, name) for one in choices] for name in ("error_fitted", "error_asked"))
    assert max(fitted) - min(fitted) < 0.002
    assert max(asked) > 4 * min(asked)
    assert [one.rows for one in choices] == sorted((one.rows for one in choices), reverse=True)


def test_resamples_of_memorys_rows_are_six_to_eleven_percent_off():
    errors = cluster_spread.bootstrapped(SINGLE, SMALL, LARGE, draws=60)
    assert 0.055 < np.percentile(errors, 2.5) < np.percentile(errors, 97.5) < 0.115


def test_random_splits_are_as_far_off_and_their_intervals_hold_less_often_than_they_say():
    errors, covered = cluster_spread.random_splits(SINGLE, MULTI, draws=60).T
    assert 0.06 < np.median(errors) < 0.08
    assert 0.8 < covered.mean() < clusters.NOMINAL


def test_every_model_is_forecast_from_the_others_within_11_percent():
    found = cluster_spread.without_a_model(SINGLE, MULTI)
    assert list(found) == [3072, 6144, 8192, 12288]
    assert max(found.values()) < 0.11


def test_two_ranks_a_layer_are_the_weak_place_and_are_forecast_too_short():
    fit = clusters.fit(SMALL, clusters.fit_memory(SINGLE))
    found = {tensor: row for tensor, row in cluster_spread.by_tensor(fit, LARGE).items() if row[0] >= 10}
    rows, off, signed = found[2]
    assert off == max(row[1] for row in found.values()) > 3 * found[8][1]
    assert rows == 10 and signed < -0.15


def test_the_five_farthest_share_width_and_few_ranks_a_layer_but_neither_is_the_cause():
    fit = clusters.fit(SMALL, clusters.fit_memory(SINGLE))
    off = [float(clusters.predict(fit, [row])[0] / row.iteration_s - 1) for row in LARGE]
    farthest = sorted(zip(off, LARGE, strict=True), key=lambda pair: -abs(pair[0]))[:5]
    assert all(share < -0.2 and row.hidden == 8192 for share, row in farthest)
    assert [row.tensor for _, row in farthest] == [2, 2, 2, 2, 4]

    widest = [abs(share) for share, row in zip(off, LARGE, strict=True) if row.hidden == 12288 and row.tensor in (2, 4)]
    many_share = [abs(share) for share, row in zip(off, LARGE, strict=True) if row.hidden == 8192 and row.tensor == 8]
    assert len(widest) == 10 and max(widest) < 0.05
    assert len(many_share) == 26 and max(many_share) < 0.1


def test_the_same_seed_draws_the_same_rows():
    one, other = (cluster_spread.bootstrapped(SINGLE, SMALL, LARGE, draws=5, seed=seed) for seed in (3, 3))
    assert one == pytest.approx(other)
