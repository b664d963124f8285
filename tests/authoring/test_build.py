"""build: a lab's source to its two notebooks, and what it does with files."""

from pathlib import Path

import nbformat
import pytest

from tests.support.sample_source import BEGIN, CHECK, END, EXERCISE, RING, course
from worldsize.authoring.build import BuildError, build, notebooks
from worldsize.authoring.source import answer_lines, points
from worldsize.cells import digest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]


def lab_of(source: Path) -> nbformat.NotebookNode:
    return nbformat.reads(notebooks(source)[1], as_version=nbformat.NO_CONVERT)


def solution_of(source: Path) -> nbformat.NotebookNode:
    return nbformat.reads(notebooks(source)[0], as_version=nbformat.NO_CONVERT)


def cell_of(notebook: nbformat.NotebookNode, id: str) -> nbformat.NotebookNode:
    return next(cell for cell in notebook.cells if cell.id == id)


def test_committed_notebooks_are_what_their_sources_give():
    if not list((ROOT / "solutions").glob("*.py")):
        pytest.skip("no lab has a source yet")
    stale = [str(path.relative_to(ROOT)) for path in build(ROOT, check=True)]
    assert not stale, f"stale: {', '.join(stale)}. Run `make build`; delete a generated notebook that has no source."


def test_a_stub_stands_where_the_answer_was(tmp_path):
    assert cell_of(lab_of(course(tmp_path)), "ring").source == (
        '# Exercise 6.2: send it "round" the ring\n'
        "def ring(x):\n"
        '    """Three lines."""\n'
        "    given = 1\n"
        '    raise NotYet("Exercise 6.2: send it \\"round\\" the ring")\n'
        "    return total"
    )


def test_the_solution_keeps_its_answer(tmp_path):
    assert "secret = x + 1" in cell_of(solution_of(course(tmp_path)), "ring").source


def test_an_exercise_cell_is_a_solution_cell_of_nbgrader(tmp_path):
    meta = cell_of(lab_of(course(tmp_path)), "ring").metadata.nbgrader
    kept = {key: meta[key] for key in ("grade", "solution", "locked", "task", "grade_id", "schema_version")}
    assert kept == {
        "grade": False,
        "solution": True,
        "locked": False,
        "task": False,
        "grade_id": "ring",
        "schema_version": 3,
    }


def test_a_check_cell_is_a_locked_test_of_nbgrader_with_its_points(tmp_path):
    meta = cell_of(lab_of(course(tmp_path)), "check_ring").metadata.nbgrader
    assert (meta.grade, meta.solution, meta.locked, meta.points, meta.grade_id) == (
        True,
        False,
        True,
        2,
        "check_ring",
    )


def test_nbgrader_itself_finds_the_checksums_right(tmp_path):
    from nbgrader.utils import compute_checksum

    graded = [cell for cell in lab_of(course(tmp_path)).cells if "nbgrader" in cell.metadata]
    assert [c.metadata.nbgrader.checksum for c in graded] == [compute_checksum(c) for c in graded]
    assert len(graded) == 2


def test_a_students_notebook_is_what_nbgraders_generate_assignment_makes_of_the_solution(tmp_path):
    from nbgrader.converters.generate_assignment import GenerateAssignment
    from traitlets.config import Config

    source = course(tmp_path)
    stub = 'raise NotYet("Exercise 6.2: send it \\"round\\" the ring")'
    config = Config(ClearSolutions={"code_stub": {"python": stub}})
    made = solution_of(source)
    for step in GenerateAssignment.preprocessors.default_args[0]:
        if step.__name__ not in ("InstantiateTests", "SaveCells"):  # no source has tests to generate; a database
            made, _ = step(config=config).preprocess(made, {})
    assert stub in cell_of(made, "ring").source
    assert made == lab_of(source)


def test_both_notebooks_keep_no_metadata_but_kernel_and_language(tmp_path):
    expected = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    source = course(tmp_path, "# ---\n# jupyter:\n#   accelerator: GPU\n# ---\n\n" + RING)
    for notebook in (lab_of(source), solution_of(source)):
        assert (notebook.metadata, notebook.nbformat, notebook.nbformat_minor) == (expected, 4, 5)


def test_points_of_the_header_are_not_kept_twice(tmp_path):
    assert "points" not in cell_of(solution_of(course(tmp_path)), "check_ring").metadata


def test_two_builds_give_the_same_bytes(tmp_path):
    source = course(tmp_path)
    assert notebooks(source) == notebooks(source)


def test_windows_line_ends_in_a_source_give_the_same_bytes(tmp_path):
    unix = notebooks(course(tmp_path))
    source = course(tmp_path)
    source.write_bytes(RING.replace("\n", "\r\n").encode())
    assert notebooks(source) == unix


def test_answer_lines_are_those_between_the_markers(tmp_path):
    assert answer_lines(course(tmp_path)) == {"ring": ["    secret = x + 1", "    total = secret * 2"]}


def test_an_exercise_may_have_two_regions(tmp_path):
    source = course(tmp_path, RING.replace("    return total", BEGIN + "    total += 9\n" + END + "    return total"))
    assert answer_lines(source)["ring"][-1] == "    total += 9"
    assert cell_of(lab_of(source), "ring").source.count("raise NotYet") == 2


def test_points_are_summed_over_checks(tmp_path):
    second = (EXERCISE + CHECK).replace(":ring", ":more").replace("6.2", "6.3").replace("=2", "=1.5")
    assert points(course(tmp_path, RING + "\n" + second)) == 3.5


def names(paths: list[Path]) -> list[str]:
    return [f"{path.parent.name}/{path.name}" for path in paths]


BOTH = ["solutions/06_ring.ipynb", "labs/06_ring.ipynb"]


def test_build_writes_both_notebooks_and_says_so(tmp_path):
    course(tmp_path)
    written = build(tmp_path)
    assert names(written) == BOTH
    assert tuple(path.read_text(encoding="utf-8") for path in written) == notebooks(tmp_path / "solutions/06_ring.py")


DECLARED = """@exercise({VALUES: 1.0})
def ring(arena, fn):
    yield from ()


def of_another_file():
    pass
"""


def with_checks(root: Path, *modules: str) -> Path:
    """Write an empty index of checks under `root`, and modules that declare a check of `ring`; return the index's path."""
    index = root / "worldsize" / "checks" / "index.py"
    for name in modules:
        path = index.parent / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(DECLARED)
    index.write_text("CHECKS = {}\n")
    return index


def test_the_index_names_the_module_of_each_declared_check(tmp_path):
    course(tmp_path)
    index = with_checks(tmp_path, "collectives/rings")
    assert index in build(tmp_path)
    assert index.read_text().endswith('CHECKS = {\n    "ring": "collectives.rings",\n}\n')
    assert build(tmp_path) == []


def test_two_checks_of_one_exercise_are_an_error_and_nothing_is_written(tmp_path):
    course(tmp_path)
    index = with_checks(tmp_path, "collectives/rings", "collectives/trees")
    with pytest.raises(BuildError, match="trees.py: expected one check of ring, got another in collectives.rings"):
        build(tmp_path)
    assert index.read_text() == "CHECKS = {}\n"


def test_where_the_package_is_there_its_record_of_set_up_cells_is_written_too(tmp_path):
    course(tmp_path, "# %%\n# Set-up\nimport math\n\n" + RING)
    record = tmp_path / "worldsize" / "cells" / "released.py"
    record.parent.mkdir(parents=True)
    record.write_text("")
    assert names(build(tmp_path)) == [*BOTH, "cells/released.py"]
    found: dict = {}
    exec(record.read_text(), found)
    assert found["SETUPS"] == {"06": (digest("# Set-up\nimport math"),)}
    assert build(tmp_path, check=True) == []


def test_a_second_build_writes_nothing(tmp_path):
    course(tmp_path)
    build(tmp_path)
    assert build(tmp_path) == []


def test_check_reports_what_is_missing_and_writes_nothing(tmp_path):
    course(tmp_path)
    assert names(build(tmp_path, check=True)) == BOTH
    assert not list(tmp_path.rglob("*.ipynb"))


def test_check_reports_a_notebook_edited_by_hand(tmp_path):
    course(tmp_path)
    lab = build(tmp_path)[1]
    lab.write_text(lab.read_text().replace("ranks = 4", "ranks = 5"))
    assert build(tmp_path, check=True) == [lab]


def test_check_reports_a_notebook_without_a_source(tmp_path):
    course(tmp_path)
    build(tmp_path)
    stray = tmp_path / "labs" / "05_gone.ipynb"
    stray.write_text("{}")
    assert build(tmp_path, check=True) == [stray]


def test_a_notebook_that_is_kept_by_hand_is_left_alone(tmp_path):
    course(tmp_path)
    build(tmp_path)
    scratch = tmp_path / "labs" / "scratch.ipynb"
    scratch.write_text("{}")
    assert build(tmp_path, check=True) == build(tmp_path) == []
    assert scratch.read_text() == "{}"


def test_check_is_content_after_a_build(tmp_path):
    course(tmp_path)
    build(tmp_path)
    assert build(tmp_path, check=True) == []


def test_a_wrong_source_stops_the_build_before_anything_is_written(tmp_path):
    course(tmp_path)
    course(tmp_path, RING.replace(END, "").replace("6.2", "7.2"), "07_wrong.py")
    with pytest.raises(BuildError):
        build(tmp_path)
    assert not list(tmp_path.rglob("*.ipynb"))


def test_a_failed_write_leaves_the_old_notebook_and_no_temporary_file(tmp_path, monkeypatch):
    course(tmp_path)
    lab = build(tmp_path)[1]
    before = lab.read_bytes()
    course(tmp_path, RING.replace("ranks = 4", "ranks = 8"))

    def full(source, target):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space"):
        build(tmp_path)
    assert lab.read_bytes() == before
    assert sorted(p.name for p in lab.parent.iterdir()) == ["06_ring.ipynb"]


def test_work_done_in_a_lab_is_not_written_over(tmp_path):
    course(tmp_path)
    lab = build(tmp_path)[1]
    worked = nbformat.read(lab, as_version=4)
    worked.cells[1].execution_count = 1
    nbformat.write(worked, lab)
    before = lab.read_bytes()
    with pytest.raises(BuildError, match=r"labs/06_ring\.ipynb.*one that has been run.*delete it"):
        build(tmp_path)
    assert lab.read_bytes() == before


def test_a_broken_notebook_is_written_anew(tmp_path):
    course(tmp_path)
    lab = build(tmp_path)[1]
    lab.write_text("<<<<<<< HEAD\n")
    assert build(tmp_path) == [lab]


def test_a_folder_without_sources_is_an_error(tmp_path):
    with pytest.raises(BuildError, match="expected sources such as .*got none.*root of the repository"):
        build(tmp_path)


def test_two_sources_of_one_lab_are_an_error(tmp_path):
    course(tmp_path)
    course(tmp_path, RING, "06_rings.py")
    with pytest.raises(BuildError, match=r"solutions/06_rings\.py.*06 again.*06_ring\.py"):
        build(tmp_path)


def test_a_source_with_another_kind_of_name_is_an_error(tmp_path):
    with pytest.raises(BuildError, match="expected a file name such as .*got 'ring.py'"):
        notebooks(course(tmp_path, RING, "ring.py"))
