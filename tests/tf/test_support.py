"""The support matrix: every cell is really run (in the usual suite one of each kind), as recorded, dated and versioned."""

import datetime
from pathlib import Path

import pytest

from bench.tf_support import matrix as trial_matrix
from bench.tf_support import trials
from bench.tf_support.matrix import LAUNCHES, cells, run, save
from bench.tf_support.trials import RAW
from worldsize.tf import first_words, support
from worldsize.tf.errors import MAX_CHARACTERS
from worldsize.tf.support import GUIDE_2_0, WAYS, Matrix

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "build" / "support"  # this machine's result, beside the committed one
# half a minute of tracing on an idle machine of 2 cores: the usual suite runs a loop of one's own on devices, on workers
# and on servers; the soak each row in all ways
some_of_the_matrix = pytest.mark.timeout(600)
IN_SUITE = [launch for launch in LAUNCHES if {"OneDevice", "MultiWorkerMirrored, RING", "ParameterServer"} & launch.rows.keys()]


def a_whole_matrix(test):
    return pytest.mark.soak(pytest.mark.timeout(900)(test))


@pytest.fixture(scope="module")
def one_way() -> Matrix:
    """The loop of one's own on the rows of the usual suite."""
    return run(RAW, IN_SUITE)


@some_of_the_matrix
@pytest.mark.parametrize("row", [row for launch in IN_SUITE for row, ways in launch.rows.items() if RAW in ways])
def test_a_loop_of_ones_own_does_on_every_row_what_was_recorded(one_way, row):
    before, found = support.recorded().cells[row, RAW], one_way.cells[row, RAW]
    assert found[0] == before[0], found
    assert found[0] != "fails" or found == before


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Every cell, run once; kept in a dated file."""
    matrix = run()
    save(matrix, RESULT / f"{matrix.date}.json")
    return matrix


@a_whole_matrix
@pytest.mark.parametrize("row", support.recorded().rows)
def test_every_cell_is_as_it_was_recorded(matrix, row):
    ran = {way: matrix.cells[row, way][0] for way in WAYS if (row, way) in matrix.cells}
    recorded = {way: found[0] for (its, way), found in support.recorded().cells.items() if its == row}
    assert ran == recorded, {way: matrix.cells[row, way] for way in ran}


@a_whole_matrix
def test_a_cell_that_fails_says_what_it_said_before(matrix):
    before = support.recorded().cells
    changed = {cell: found for cell, found in matrix.cells.items() if found[0] == "fails" and found != before[cell]}
    assert changed == {}


@a_whole_matrix
def test_the_result_of_a_run_is_kept_with_its_date_and_versions(matrix):
    kept = support.recorded(RESULT / f"{matrix.date}.json")
    assert kept == matrix
    assert set(kept.versions) == {"python", "tensorflow", "keras", "tf_keras", "numpy"}


@pytest.mark.quick
def test_the_committed_record_has_every_cell():
    assert tuple(support.recorded().cells) == cells()


@pytest.mark.quick
def test_the_committed_record_has_a_date():
    assert datetime.date.fromisoformat(support.recorded().date)


@pytest.mark.quick
def test_every_way_of_every_row_is_one_of_the_five():
    assert {way for launch in LAUNCHES for ways in launch.rows.values() for way in ways} == set(WAYS)


@pytest.mark.quick
def test_the_guides_matrix_has_its_three_apis_for_six_strategies():
    assert [len(row) for row in GUIDE_2_0.values()] == [6, 6, 6]
    assert "Estimator API" in GUIDE_2_0


@pytest.mark.quick
def test_a_way_that_there_is_not_is_named_with_those_that_are():
    with pytest.raises(ValueError, match="expected one of Keras 3 fit.*got 'fit'"):
        run("fit")


@pytest.mark.quick
def test_a_matrix_survives_its_file(tmp_path):
    matrix = Matrix("2030-01-02", {"python": "3"}, {("TPU", "Keras 3 fit"): ("fails", "ValueError: none")})
    save(matrix, tmp_path / "deep" / "m.json")
    assert support.recorded(tmp_path / "deep" / "m.json") == matrix
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["m.json"]


@pytest.mark.quick
def test_a_cell_of_several_tasks_is_as_its_worst_task_says(monkeypatch):
    cell = ("TPU", WAYS[0])

    class Run:
        results = [{cell: ("works", "")}, None, {cell: ("fails", "here")}]

    monkeypatch.setattr(trial_matrix, "quiet_launch", lambda *args, **kwargs: Run)
    alone = trial_matrix.SupportLaunch(trial_matrix.on_workers, {cell[0]: (cell[1],)})
    assert run(launches=[alone]).cells == {cell: ("fails", "here")}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("in user code:\n\n File x\n\n    AttributeError: no handle\n", "AttributeError: no handle"),
        ("Graph execution error:\n\nNo OpKernel was registered to support Op 'N' used by {{n}} with", "No OpKernel was"),
        ("Attempt to convert (PerReplica:{\n 0: 1\n}) with a type (<class 'x'>) to a Tensor.", "(PerReplica:{…}) with a type"),
        ("Exception encountered when calling Dropout.call().\n\n\x1b[1mYou must. More\x1b[0m", "Dropout: You must"),
    ],
)  # fmt: skip
def test_an_error_is_told_by_the_line_that_matters(text, words):
    told = first_words(ValueError(text))
    assert words in told and len(told) <= MAX_CHARACTERS and "<class" not in told


@pytest.mark.quick
def test_weights_are_held_against_numpys():
    reference = trials.reference()
    assert trials.compared(reference)[0] == "works"
    assert trials.compared(reference + 0.01)[0] == "wrong"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("weights", "iterations", "outcome"),
    [(-5, 50, "works"), (-5, None, "works"), (-5, 49, "loses updates"), (-4.9, 50, "loses updates")],
)
def test_a_server_works_where_weights_and_counter_hold_every_update(weights, iterations, outcome):
    import numpy as np

    assert trials.counted(np.full((3, 1), float(weights)), iterations, 50)[0] == outcome


@pytest.mark.quick
def test_a_cell_of_tensorflow_1_is_found_under_its_row():
    assert {"v1 towers", "v1 in-graph", "v1 between-graph, asynchronous"} <= {row for row, _ in cells()}
