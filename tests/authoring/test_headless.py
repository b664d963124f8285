"""headless: which Python runs a notebook, where, and what comes back when it ends well or badly."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import nbformat
import psutil
import pytest

from tests.support.daemons import until
from worldsize.authoring import headless
from worldsize.authoring.headless import HeadlessRun, NotebookFailed, run
from worldsize.course.record import CourseRecord, write_record

LAB = """\
from types import SimpleNamespace
from worldsize.lab.lab import Lab
lab = Lab("06")
lab.predict("bytes", "How many bytes?", "bytes", answer=8)
for name, earned in (("ring", 2), ("all_gather", 1)):
    lab.record(SimpleNamespace(exercise=name, points=earned, possible=2, state="pass"))
"""


def notebook(folder: Path, *cells: str, name: str = "06_ring.ipynb", **tags: int) -> Path:
    """A notebook of code cells; `summary=1` tags the cell of that index."""
    made = [nbformat.v4.new_code_cell(source) for source in cells]
    for tag, index in tags.items():
        made[index].metadata["tags"] = [tag]
    path = folder / name
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path


FACTS = """\
import ipywidgets, json, os, sys
open("weights.bin", "w").close()
display(ipywidgets.IntSlider())
print(json.dumps([sys.executable, os.environ["PATH"], os.environ["WORLDSIZE_HEADLESS"], os.getcwd(), ranks]))
"""
OWN_STATE = '{"predictions": {}, "measurements": {}, "points": {"mine": {"earned": 9, "possible": 9}}}'


@dataclass(frozen=True)
class Executed:
    """One run, with what was there before it and what the kernel said of itself."""

    path: Path
    source: bytes
    run: HeadlessRun
    notebook: nbformat.NotebookNode
    steps: list[tuple[int, int, str]]
    own_process_changed: bool
    executable: str
    search_path: str
    headless: str
    folder: str
    ranks: int


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    """A whole lab, run once: beside a student's own state, where "python3" is another program."""
    folder = tmp_path_factory.mktemp("labs")
    path = notebook(
        folder, "ranks = 8", LAB, FACTS, "for n in range(50): print(n, flush=True)", "lab.summary()",
        parameters=0, summary=4,
    )  # fmt: skip
    _write(folder / ".worldsize" / "lab_06.json", OWN_STATE)
    other = {"argv": ["/bin/false"], "display_name": "other", "language": "python"}
    _write(folder.parent / "kernels" / "python3" / "kernel.json", json.dumps(other))
    source, steps = path.read_bytes(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder.parent))
        patch.setenv("PATH", "/usr/bin:/bin")
        before = (dict(os.environ), os.getcwd())
        done = run(path, parameters={"ranks": 2}, progress=lambda *step: steps.append(step))
        changed = before != (dict(os.environ), os.getcwd())
    book = nbformat.read(done.out, 4)
    facts = next(o.text for cell in book.cells if cell.source == FACTS for o in cell.outputs if "text" in o)
    return Executed(path, source, done, book, steps, changed, *json.loads(facts))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.quick
def test_a_labs_summary_comes_back(executed):
    assert "How many bytes?" in executed.run.summary_text
    assert "points: 3 of " in executed.run.summary_text


@pytest.mark.quick
def test_a_labs_points_come_back(executed):
    assert (executed.run.points, executed.run.possible) == (3, 4)


@pytest.mark.quick
def test_a_run_says_how_long_it_took(executed):
    assert executed.run.seconds > 0


@pytest.mark.quick
def test_the_executed_copy_goes_beside_the_notebook(executed):
    assert executed.run.out == executed.path.parent / ".worldsize" / "headless" / "06_ring.ipynb"


@pytest.mark.quick
def test_the_notebook_itself_stays_as_it_was(executed):
    assert executed.path.read_bytes() == executed.source


@pytest.mark.quick
def test_parameters_replace_those_of_the_notebook(executed):
    assert executed.ranks == 2


@pytest.mark.quick
def test_progress_counts_the_code_cells_that_the_notebook_has(executed):
    firsts = ["ranks = 8", LAB.split("\n")[0], FACTS.split("\n")[0]]
    assert executed.steps[:3] == [(n, 5, first) for n, first in enumerate(firsts, 1)]
    assert len(executed.steps) == 5


@pytest.mark.quick
def test_no_widget_state_is_stored(executed):
    assert "widgets" not in executed.notebook.metadata


@pytest.mark.quick
def test_lines_printed_one_by_one_are_one_output(executed):
    assert [len(cell.outputs) for cell in executed.notebook.cells if "range(50)" in cell.source] == [1]


@pytest.mark.quick
def test_the_kernel_is_this_python_whatever_is_registered_as_python3(executed):
    assert executed.executable == sys.executable


@pytest.mark.quick
def test_programs_of_this_environment_come_first(executed):
    assert executed.search_path == os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])


@pytest.mark.quick
def test_the_kernel_knows_that_it_is_headless(executed):
    assert executed.headless == "1"


@pytest.mark.quick
def test_nothing_of_a_run_stays_in_this_process(executed):
    assert not executed.own_process_changed


@pytest.mark.quick
def test_a_students_own_state_is_left_alone(executed):
    assert (executed.path.parent / ".worldsize" / "lab_06.json").read_text() == OWN_STATE


@pytest.mark.quick
def test_files_that_a_notebook_writes_do_not_land_beside_it(executed):
    beside = sorted(path.name for path in executed.path.parent.iterdir())
    assert beside == [".worldsize", "06_ring.ipynb"]


@pytest.mark.quick
def test_the_temporary_folder_is_gone_afterwards(executed):
    assert not Path(executed.folder).exists()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, HeadlessRun]:
    """The folder in which it ran, and a run without a lab whose executed copy goes to a path of its own."""
    folder = tmp_path_factory.mktemp("small")
    cell = "from IPython.display import HTML, display\nprint('a line')\ndisplay(HTML('<b>no</b>'), 5)\n6"
    asked = "from worldsize.lab import knob_positions\nprint('knobs:', os.environ.get(knob_positions.WANTED))"
    path = notebook(folder, "'not this'", cell, f"import os\n{asked}", summary=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, run(path, out="a/b/c.ipynb", knobs_beforehand=True)


def test_a_notebook_without_a_lab_has_no_points(small):
    assert (small[1].points, small[1].possible) == (None, None)


def test_the_summary_is_the_plain_text_of_every_output_of_its_cell(small):
    assert small[1].summary_text.split("\n") == ["a line", "<IPython.core.display.HTML object>", "5", "6"]


def test_a_notebook_that_is_to_draw_each_position_of_a_knob_is_told_so(small):
    assert "knobs: beforehand" in small[1].out.read_text()


def test_the_executed_copy_goes_where_it_is_told(small):
    folder, done = small
    assert done.out == folder / "a" / "b" / "c.ipynb" and done.out.is_file()


def test_a_notebook_of_a_laid_course_finds_the_data_in_the_courses_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLDSIZE_DATA", raising=False)
    write_record(tmp_path, CourseRecord("0.2.0"))
    (tmp_path / "labs").mkdir()
    path = notebook(tmp_path / "labs", "from worldsize import data\nprint(data.data_folders()[0])", summary=0)
    assert run(path).summary_text == str(tmp_path / "datasets")


def failure(path: Path, **options: object) -> NotebookFailed:
    with pytest.raises(NotebookFailed) as caught:
        run(path, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_notebook_imports_a_module_beside_it(tmp_path):
    (tmp_path / "beside.py").write_text("value = 7\n")
    assert run(notebook(tmp_path, "import beside\nprint(beside.value)", summary=0)).summary_text == "7"


def test_a_cell_that_raises_is_named_and_what_ran_is_kept(tmp_path):
    path = notebook(tmp_path, "ranks = 8", "print('so far')", "# third\n1 / 0", "2", parameters=0)
    failed = failure(path, parameters={"ranks": 2})
    assert str(failed).startswith(
        "06_ring.ipynb, code cell 3 of 4 ('# third'): expected it to end without an error, but it raised"
        f" ZeroDivisionError: division by zero. Read {failed.out}, "
    )
    assert "so far" in failed.out.read_text() and "ZeroDivisionError" in failed.out.read_text()


def test_a_cell_that_says_it_raises_is_still_an_error_named_by_the_first_line_of_its_message(tmp_path):
    path = notebook(tmp_path, "raise ValueError('first\\nsecond')", "print('later')", **{"raises-exception": 0})
    said = str(failure(path))
    assert "code cell 1 of 2 (" in said and "ValueError: first. Read" in said


def test_a_notebook_that_runs_too_long_is_stopped(tmp_path, monkeypatch):
    begun: list[int] = []
    # its time is over as soon as the second cell begins
    clock = SimpleNamespace(monotonic=lambda: 1000.0 * (2 in begun))
    monkeypatch.setattr(headless, "time", clock)
    path = notebook(tmp_path, "print(__import__('os').getpid())", "import threading\nthreading.Event().wait()")
    failed = failure(path, timeout_s=60, progress=lambda cell, cells, line: begun.append(cell))
    assert "code cell 2 of 2" in str(failed) and "still running when the notebook's 60 s" in str(failed)
    assert not psutil.pid_exists(int(nbformat.read(failed.out, 4).cells[0].outputs[0].text))


def test_a_kernel_that_dies_is_said_to_have_died(tmp_path):
    failed = failure(notebook(tmp_path, "import os\nos._exit(3)"), timeout_s=60)
    assert "code cell 1 of 1" in str(failed) and "but it ended because its kernel died" in str(failed)


def mistake(*arguments: object, **options: object) -> str:
    with pytest.raises(ValueError) as caught:
        run(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.quick
def test_a_missing_notebook_is_answered_with_those_that_exist(tmp_path):
    notebook(tmp_path, "1", name="00_start_here.ipynb")
    notebook(tmp_path, "1")
    notebook(tmp_path, "1", name="Untitled.ipynb")
    assert mistake(tmp_path / "99_none.ipynb") == (
        f"{tmp_path}/99_none.ipynb: expected a notebook, got no such file; the labs in {tmp_path} are:"
        " 00_start_here.ipynb, 06_ring.ipynb. Name an existing one, or run this from the root of the repository."
    )


@pytest.mark.quick
def test_a_folder_without_labs_is_said_to_hold_none(tmp_path):
    assert "are: none." in mistake(tmp_path / "nowhere" / "06_ring.ipynb")


@pytest.mark.quick
def test_a_folder_is_no_notebook(tmp_path):
    assert "got a folder" in mistake(tmp_path)


@pytest.mark.quick
def test_a_source_is_no_notebook(tmp_path):
    (tmp_path / "06_ring.py").touch()
    assert "got another kind of file" in mistake(tmp_path / "06_ring.py")


@pytest.mark.quick
def test_an_unknown_parameter_is_answered_with_those_that_exist(tmp_path):
    path = notebook(tmp_path, "ranks = 8\nseconds = 1", parameters=0)
    said = mistake(path, parameters={"rank": 2})
    assert "06_ring.ipynb: expected parameters of its cell tagged \"parameters\" (ranks, seconds), got 'rank'" in said


@pytest.mark.quick
def test_a_parameter_for_a_notebook_without_any_is_an_error(tmp_path):
    assert "(none), got 'rank'" in mistake(notebook(tmp_path, "1"), parameters={"rank": 2})


@pytest.mark.quick
def test_a_summary_of_a_notebook_that_was_never_run_is_empty():
    cell = nbformat.v4.new_code_cell("lab.summary()", metadata={"tags": ["summary"]})
    assert headless.summary_of(nbformat.v4.new_notebook(cells=[cell])) == ""


def test_a_long_line_and_many_parts_of_a_line_are_one_output_in_little_time(tmp_path):
    cells = ["print(list(range(60_000)))", "for n in range(3_000): print('x' * 9, end='', flush=True)"]
    done = run(notebook(tmp_path, *cells))
    first, second = (cell.outputs for cell in nbformat.read(done.out, as_version=4).cells)
    assert len(first) == len(second) == 1
    assert first[0].text.endswith("59999]\n") and second[0].text == "x" * 27_000


@pytest.mark.skipif(os.name == "nt", reason="no process can be stopped for a while there")
def test_no_output_is_lost_while_the_process_that_reads_it_stands_still(tmp_path):
    stands_still = """\
import os, signal
os.kill(os.getppid(), signal.SIGSTOP)
try:
    for n in range(6_000):
        print("x" * 9, end="", flush=True)
finally:
    os.kill(os.getppid(), signal.SIGCONT)
"""
    path = notebook(tmp_path, stands_still)
    program = "import sys; from worldsize.authoring.headless import run; print(run(sys.argv[1]).out)"
    done = subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True, text=True, timeout=100)
    (output,) = nbformat.read(done.stdout.strip(), as_version=4).cells[0].outputs
    assert len(output.text) == 54_000


@pytest.mark.skipif(os.name == "nt", reason="SIGTERM ends a process at once there")
def test_a_run_that_is_told_to_end_in_a_flood_of_output_keeps_it_and_leaves_no_process(tmp_path):
    path = notebook(tmp_path, "import os, pathlib\nprint('a line')", f"""\
pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
while True:
    print("x" * 99, flush=True)
""")  # fmt: skip
    program = (
        "import sys\nfrom worldsize.authoring.headless import run, NotebookFailed\n"
        "try:\n    run(sys.argv[1])\nexcept NotebookFailed as failed:\n    print(failed.out, failed)"
    )
    runner = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    number = tmp_path / "pid"
    until(lambda: number.exists() and number.read_text() != "", 60, "the kernel's number is there")
    runner.terminate()
    said, _ = runner.communicate(timeout=60)
    assert said.count("\n") == 1 and "code cell 2 of 2" in said and "told to end (SIGTERM)" in said
    first, second = (cell.outputs for cell in nbformat.read(said.split()[0], as_version=4).cells)
    assert first[0].text == "a line\n"
    flood = [output for output in second if output.output_type == "stream"]
    ends = [output.ename for output in second if output not in flood]  # a kernel that is quick to be interrupted says so
    assert len(flood) <= 1 and ends in ([], ["KeyboardInterrupt"])
    assert not psutil.pid_exists(int(number.read_text()))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        ([("stdout", "a\n"), ("stdout", "b\n")], [("stdout", "a\nb\n")]),
        ([("stdout", "1%\r"), ("stdout", "100%\r"), ("stdout", "100% done\n")], [("stdout", "100% done\n")]),
        ([("stdout", "1%\r50%\r\nnext")], [("stdout", "50%\nnext")]),
        ([("stdout", "ab\b\bc")], [("stdout", "c")]),
        ([("stderr", "bar\n"), ("stdout", "a\n"), ("stderr", "!\n")], [("stdout", "a\n"), ("stderr", "bar\n!\n")]),
    ],
)
def test_streams_are_joined_as_a_terminal_shows_them(parts, joined):
    outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in parts]
    cell = nbformat.v4.new_code_cell(outputs=outputs)
    headless.join_streams(cell)
    assert [(output.name, output.text) for output in cell.outputs] == joined
