"""The step-time model, fitted to 64 GPUs, holds on 256 and 512; with too many free constants it does not."""

import pytest

from worldsize import data
from worldsize.formulas import measured_clusters as clusters

pytestmark = pytest.mark.quick

SINGLE = data.measured_iterations("single")
SMALL = [row for row in data.measured_iterations("multi") if row.gpus == 64]
LARGE = [row for row in data.measured_iterations("multi") if row.gpus > 64]


@pytest.fixture(scope="module")
def fitted():
    return clusters.fit(SMALL, clusters.fit_memory(SINGLE))


@pytest.fixture(scope="module")
def trap():
    return clusters.fit(SMALL)


def test_the_model_fitted_to_64_gpus_is_within_9_percent_on_256_and_512(fitted):
    assert clusters.error(fitted, LARGE) <= 0.09


@pytest.mark.parametrize("hidden", [6144, 8192, 12288])
def test_each_of_the_three_larger_models_is_within_9_percent(fitted, hidden):
    assert clusters.error(fitted, [row for row in LARGE if row.hidden == hidden]) <= 0.09


def test_the_nominal_90_percent_interval_covers_80_percent_and_is_useful(fitted):
    covered, half_width = clusters.coverage(fitted, LARGE)
    assert covered >= 0.8 and half_width <= 0.25


def test_the_rows_of_the_fit_and_of_one_node_are_met(fitted):
    assert clusters.error(fitted, SMALL) <= 0.07
    assert clusters.error(fitted, SINGLE) <= 0.18


def test_every_constant_is_one_that_hardware_could_have(fitted):
    matmul, memory, nvlink, network, overhead_s = fitted.constants
    assert 0.5 < 1 / matmul < 0.9 and 0.5 < 1 / memory < 0.9
    assert 0.8 < 1 / nvlink < 1.15 and 0.8 < 1 / network < 1.1
    assert 0.001 < overhead_s < 0.003


def test_five_free_constants_fit_64_gpus_as_well_and_fail_on_more(fitted, trap):
    assert clusters.error(trap, SMALL) <= clusters.error(fitted, SMALL) < 0.07
    assert clusters.error(trap, LARGE) > 0.4


def test_five_free_constants_take_matrix_products_for_free(trap):
    assert trap.constants[clusters.CONSTANTS.index("matmul")] < 1e-3


@pytest.mark.parametrize(("term", "more_than"), [("memory", 0.2), ("overhead", 0.2), ("matmul", 0.2), ("bubble", 0.15)])
def test_without_a_term_that_matters_the_error_more_than_doubles(term, more_than):
    memory = 0.0
    if term != "memory":
        memory = clusters.fit_memory(SINGLE, term)
    assert clusters.error(clusters.fit(SMALL, memory, term), LARGE) > more_than


def test_the_fit_is_the_same_every_time(fitted):
    assert clusters.fit(SMALL, clusters.fit_memory(SINGLE)) == fitted


def test_an_unknown_term_is_refused():
    with pytest.raises(ValueError, match="expected one of the terms"):
        clusters.work(SMALL[0], "magic")


def test_a_fit_to_no_rows_is_refused():
    with pytest.raises(ValueError, match="got none"):
        clusters.fit([])
