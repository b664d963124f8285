"""The cells of a notebook's file: what is kept is what `json` would read, and a worker's memory suffices."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.grade.honest import RIGHT, notebook
from worldsize.cells import notebook_file
from worldsize.cells.notebook_file import NoNotebook, rows
from worldsize.grade.marking import submission
from worldsize.grade.marking.submission import Ungradable

MB = 1_000_000
_HANG_S = 500  # a bound against a hang

MEASURED = """
import sys
from pathlib import Path
from worldsize.grade import course
from worldsize.grade.marking import submission, worker_process
(lab,) = [lab for lab in course.load(Path(".")).values() if lab.number == "00"]
worker_process.limit_memory(int(worker_process.ROOM_BYTES * worker_process._LEAST_ROOM))  # the least that is left
file = submission.read_notebook(Path(sys.argv[1]))
print(len(submission.repair(file.cells, lab).sources["pass_right"]))
"""


class RandomJson:
    """Values with every kind of thing in them, the same for a seed; `odd` ones are no strict JSON."""

    SCALARS = (None, True, 1, -2.5e10, "", 'a"\\', '{"[', "]}", "é\u2028\U0001f600", "\\\\", "outputs")
    ODD = (float("inf"), float("nan"), "\ud800")

    def __init__(self, seed: int, odd: bool) -> None:
        self.draw = random.Random(seed)
        self.scalars = self.SCALARS + self.ODD * odd

    def value(self, depth: int = 0) -> object:
        kind = self.draw.random()
        if depth > 4 or kind < 0.3:
            return self.draw.choice(self.scalars)
        if kind < 0.6:
            return [self.value(depth + 1) for _ in range(self.draw.randrange(4))]
        names = ("a", "cells", "outputs", '"', "\\", "source")
        return {self.draw.choice(names): self.value(depth + 1) for _ in range(self.draw.randrange(4))}

    def cell(self) -> object:
        if self.draw.random() < 0.2:
            return self.value()
        names = ("cell_type", "source", "metadata", "outputs", "attachments", "id")
        return {name: self.value() for name in names if self.draw.random() < 0.8}

    def text(self) -> bytes:
        cells = [self.cell() for _ in range(self.draw.randrange(5))]
        made = {"metadata": self.value(), "cells": cells, "nbformat": 4}
        indent = self.draw.choice([None, 1])
        return json.dumps(made, ensure_ascii=self.draw.random() < 0.5, indent=indent).encode("utf-8", "replace")


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether every file of the test is read as a small one or as a large one."""
    if request.param == "large":
        monkeypatch.setattr(notebook_file, "_SMALL_BYTES", 0)
    return request.param


@pytest.mark.quick
def test_what_is_kept_of_a_notebook_is_what_it_says(size):
    for seed in range(300):
        data = RandomJson(seed, odd=size == "small").text()
        cells = [cell for cell in json.loads(data)["cells"] if isinstance(cell, dict)]
        # as text: NaN differs from itself
        assert repr(rows(data)) == repr(
            [{k: cell[k] for k in notebook_file._MOST_BYTES if k in cell} for cell in cells]
        )


@pytest.mark.quick
def test_an_older_format_has_its_cells_in_its_first_worksheet(size):
    assert rows(b'{"worksheets": [{"cells": [{"input": "x"}]}, {"cells": []}]}') == [{"input": "x"}]


@pytest.mark.quick
def test_a_notebook_with_worksheets_besides_keeps_its_own_cells(size):
    assert rows(b'{"cells": [{"source": "new"}], "worksheets": [{"cells": [{"source": "old"}]}]}') == [{"source": "new"}]


@pytest.mark.quick
@pytest.mark.parametrize("data", [b"{}", b'{"nbformat": 4}', b'{"worksheets": []}', b'{"worksheets": [{}]}'])
def test_a_file_without_a_list_of_cells_is_no_notebook(size, data):
    with pytest.raises(NoNotebook, match="it has no list of cells"):
        rows(data)


@pytest.mark.quick
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_notebook_saved_by_an_editor_in_another_encoding_is_read(size, encoding):
    assert rows('{"cells": [{"source": "π ≈ 3.14"}]}\r\n'.encode(encoding)) == [{"source": "π ≈ 3.14"}]


@pytest.mark.quick
def test_a_part_of_a_notebook_is_none(size):
    data = RandomJson(3, odd=False).text()
    for end in range(len(data)):
        with pytest.raises(NoNotebook):
            rows(data[:end])


@pytest.mark.quick
@pytest.mark.parametrize(
    "data", [b"{}{}", b'{"cells": [] x}', b'{"cells": [1 2]}', b"{cells: []}", b'{"cells": [],}x', b"[1]", b"nul"]
)
def test_what_is_no_json_is_no_notebook(size, data):
    with pytest.raises(NoNotebook):
        rows(data)


@pytest.mark.quick
def test_lists_in_lists_without_end_say_what_to_do(size):
    with pytest.raises(NoNotebook, match="deeper than any notebook. Clear its outputs"):
        rows(b'{"metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b', "cells": []}')


@pytest.mark.quick
def test_a_large_notebook_with_what_only_json_reads_says_what_to_do(monkeypatch):
    monkeypatch.setattr(notebook_file, "_SMALL_BYTES", 0)
    for odd in ("NaN", '"\\ud800"'):
        with pytest.raises(NoNotebook, match="not strict JSON .* Clear its outputs .*, save it, and hand it in again"):
            rows(f'{{"cells": [{{"source": "a", "outputs": [{odd}]}}]}}'.encode())


@pytest.mark.quick
def test_of_a_value_that_is_too_long_the_rest_of_the_cell_is_kept(monkeypatch):
    monkeypatch.setattr(notebook_file, "_SMALL_BYTES", 0)
    data = f'{{"cells": [{{"source": "a", "id": "{"1" * 9_999}", "cell_type": "code"}}]}}'
    assert rows(data.encode()) == [{"source": "a", "id": None, "cell_type": "code"}]


@pytest.mark.quick
def test_there_is_a_limit_to_cells(size):
    with pytest.raises(NoNotebook, match="more than 20000 cells"):
        rows(b'{"cells": [' + b"{}," * 30_000 + b"{}]}")


@pytest.mark.quick
def test_there_is_a_limit_to_the_text_of_a_large_notebook():
    with pytest.raises(NoNotebook, match="the file has 24 MB of cells besides its outputs"):
        rows(json.dumps({"cells": [{"source": "x" * 3_000_000}] * 8}).encode())


@pytest.mark.quick
def test_the_digest_is_of_all_bytes_of_the_file(tmp_path: Path):
    path = tmp_path / "a.ipynb"
    for data in (b"", b"{}", b'{"cells": []} ' * 3, json.dumps(notebook()).encode()):
        path.write_bytes(data)
        assert submission.read_notebook(path).digest == submission.digest(data)


@pytest.mark.quick
def test_a_notebook_beyond_the_limit_says_what_to_do(tmp_path: Path):
    path = tmp_path / "a.ipynb"
    with path.open("wb") as file:
        file.truncate(73_400_000)
    with pytest.raises(Ungradable) as refused:
        submission.read_notebook(path)
    assert str(refused.value) == (
        "a.ipynb: expected at most 50 MB, got 73.4 MB. Clear its outputs (in JupyterLab: Kernel > Restart Kernel and Clear "
        "Outputs of All Cells), save it, and hand it in again"
    )


OUTPUTS = {
    "lines": '"step 17 loss 0.1234 \\"quoted\\" \\u2588\\n",' * 25_000,
    "a picture": '"' + "iVBORw0KGg" * 100_000 + '",',
    "a table": '[0.12345, [1, {"cells": 2}]],' * 35_000,
    "empty lists": "[]," * 333_000,
    "letters of four bytes": '"' + "\U0001f600" * 250_000 + '",',
}


@pytest.mark.parametrize(
    "kind", ["a table", *(pytest.param(kind, marks=pytest.mark.soak) for kind in OUTPUTS if kind != "a table")]
)
def test_a_notebook_of_50_megabytes_fits_into_what_a_worker_has_left(tmp_path: Path, kind: str):
    head, tail = json.dumps(notebook(RIGHT)).rsplit('"outputs": []', 1)
    path = tmp_path / "00_start_here.ipynb"
    room_bytes = submission.MAX_NOTEBOOK_BYTES - len(head) - len(tail) - 100
    output = OUTPUTS[kind]
    path.write_text(head + '"outputs": [' + output * (room_bytes // len(output.encode())) + "0]" + tail)
    assert path.stat().st_size > 48 * MB

    command = [sys.executable, "-c", MEASURED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_HANG_S)
    assert (done.stdout.strip(), done.stderr) == (str(len(RIGHT)), "")
