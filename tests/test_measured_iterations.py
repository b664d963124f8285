"""The measured training steps of real clusters are read as they were published, and a damaged file is refused."""

import pytest

from worldsize import data

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("which", "count"), [("multi", 109), ("single", 1440)])
def test_every_measured_row_is_read(which, count):
    assert len(data.measured_iterations(which)) == count


def test_the_first_row_of_several_nodes_is_the_files():
    assert data.measured_iterations("multi")[0] == data.MeasuredIteration(
        gpus=64, global_batch=512, micro_batch=8, hidden=3072, heads=32, layers=30, tokens=2048,
        tensor=1, data=64, pipeline=1, iteration_s=3.5665,
    )  # fmt: skip


@pytest.mark.parametrize("which", ["multi", "single"])
def test_the_parallel_sizes_of_a_measured_row_multiply_to_its_gpus(which):
    assert all(row.tensor * row.data * row.pipeline == row.gpus for row in data.measured_iterations(which))


def test_the_runs_of_several_nodes_are_26_and_83():
    gpus = [row.gpus for row in data.measured_iterations("multi")]
    assert (gpus.count(64), gpus.count(256) + gpus.count(512)) == (26, 83)


def test_measurements_of_another_name_are_refused():
    with pytest.raises(ValueError, match="expected 'multi' or 'single', got 'all'"):
        data.measured_iterations("all")


def test_a_damaged_file_of_measurements_is_refused(tmp_path, monkeypatch):
    (tmp_path / data.VTRAIN["multi"].name).write_text("cut")
    monkeypatch.setenv("WORLDSIZE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="cut short"):
        data.measured_iterations("multi")


def test_a_missing_file_of_measurements_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "CHECKOUT_FOLDER", tmp_path)
    monkeypatch.setenv("WORLDSIZE_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="vtrain-single.csv"):
        data.measured_iterations("single")
