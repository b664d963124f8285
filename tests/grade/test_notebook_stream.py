"""A notebook's file as a stream: what is kept is what `json` would read, whatever lies between, and memory stays small."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.grade.honest import RIGHT, notebook
from worldsize.grade.marking import notebook_stream, submission
from worldsize.grade.marking.notebook_stream import NoNotebook
from worldsize.grade.marking.submission import Ungradable

KEPT = {"cell_type", "source", "input", "id", "metadata"}
MB = 1_000_000
_HANG_S = 500  # a bound against a hang

MEASURED = """
import sys
from pathlib import Path
from worldsize.grade import course
from worldsize.grade.marking import submission
file = submission.read_notebook(Path(sys.argv[1]))
(lab,) = [lab for lab in course.load(Path(".")).values() if lab.number == "00"]
print(len(submission.repair(file.cells, lab).sources["pass_right"]))
rows = Path("/proc/self/status").read_text().splitlines()  # its own: ru_maxrss begins with that of whoever started it
print(next(int(row.split()[1]) // 1024 for row in rows if row.startswith("VmHWM:")))
"""


def rows(data: bytes) -> list[dict]:
    return notebook_stream.rows(io.BytesIO(data))


class RandomJson:
    """Values with every kind of thing in them, the same for a seed."""

    SCALARS = (None, True, 1, -2.5e10, float("inf"), "", 'a"\\', '{"[', "]}", "é\u2028\U0001f600", "\\\\", "outputs", "\ud800")

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def value(self, depth: int = 0) -> object:
        kind = self.draw.random()
        if depth > 4 or kind < 0.3:
            return self.draw.choice(self.SCALARS)
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


@pytest.mark.quick
@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, 50, 1 << 20])
def test_what_is_kept_of_a_notebook_is_what_it_says(monkeypatch, chunk_bytes):
    monkeypatch.setattr(notebook_stream, "CHUNK_BYTES", chunk_bytes)
    for seed in range(200):
        data = RandomJson(seed).text()
        cells = [cell for cell in json.loads(data)["cells"] if isinstance(cell, dict)]
        assert rows(data) == [{k: v for k, v in cell.items() if k in KEPT} for cell in cells]


@pytest.mark.quick
def test_a_part_of_a_notebook_is_none():
    data = RandomJson(3).text()
    for end in range(len(data)):
        with pytest.raises(NoNotebook):
            rows(data[:end])


@pytest.mark.quick
@pytest.mark.parametrize(
    "data", [b"{}{}", b'{"cells": [] x}', b'{"cells": [1 2]}', b"{cells: []}", b'{"cells": [],}x', b"[1]", b"nul"]
)
def test_what_is_no_json_is_no_notebook(data):
    with pytest.raises(NoNotebook):
        rows(data)


@pytest.mark.quick
def test_of_a_value_that_is_too_long_or_too_deep_the_rest_of_the_cell_is_kept():
    deep = "[" * 100_000 + "]" * 100_000
    data = f'{{"cells": [{{"source": "a", "metadata": {deep}, "id": {"1" * 9_999}, "cell_type": "code"}}]}}'
    assert rows(data.encode()) == [{"source": "a", "metadata": None, "id": None, "cell_type": "code"}]


@pytest.mark.quick
def test_there_is_a_limit_to_cells_and_to_their_text(monkeypatch):
    with pytest.raises(NoNotebook, match="more than 20000 cells"):
        rows(b'{"cells": [' + b"{}," * 30_000 + b"{}]}")
    monkeypatch.setattr(notebook_stream, "MOST_KEPT_BYTES", 1_000)
    with pytest.raises(NoNotebook, match="besides its outputs"):
        rows(json.dumps({"cells": [{"source": "x" * 2_000}]}).encode())


@pytest.mark.quick
def test_lists_in_lists_without_end_come_to_one(monkeypatch):
    monkeypatch.setattr(notebook_stream, "_MOST_STEPS", 1_000)
    with pytest.raises(NoNotebook, match="more nested lists than any notebook"):
        rows(b'{"metadata": [' + b"[[[[[1]]]]]," * 1_000)


@pytest.mark.quick
def test_the_digest_is_of_all_bytes_of_the_file(tmp_path: Path):
    path = tmp_path / "a.ipynb"
    for data in (b"", b"{}", b'{"cells": []} ' * 3, json.dumps(notebook()).encode()):
        path.write_bytes(data)
        assert submission.read_notebook(path).digest == submission.digest(data)


@pytest.mark.quick
def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path):
    path = tmp_path / "a.ipynb"
    with path.open("wb") as file:
        file.truncate(submission.MAX_NOTEBOOK_BYTES + 1)
    with pytest.raises(Ungradable, match="1000 MB: clear its outputs"):
        submission.read_notebook(path)


OUTPUTS = {
    "lines": '"step 17 loss 0.1234 \\"quoted\\" \\u2588\\n",' * 25_000,
    "a picture": '"' + "iVBORw0KGg" * 100_000 + '",',
    "a table": '[0.12345, [1, {"cells": 2}]],' * 35_000,
}


@pytest.mark.parametrize(
    ("kind", "millions"), [("a table", 100), *(pytest.param(kind, 300, marks=pytest.mark.soak) for kind in OUTPUTS)]
)
def test_outputs_of_hundreds_of_megabytes_cost_no_memory(tmp_path: Path, kind: str, millions: int):
    head, tail = json.dumps(notebook(RIGHT)).rsplit('"outputs": []', 1)
    path = tmp_path / "00_start_here.ipynb"
    with path.open("w") as file:
        file.write(head + '"outputs": [')
        for _ in range(millions):
            file.write(OUTPUTS[kind])
        file.write("0]" + tail)
    assert path.stat().st_size > 0.96 * millions * MB

    command = [sys.executable, "-c", MEASURED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_HANG_S)
    path.unlink()
    length, most_mb = map(int, done.stdout.split())
    assert length == len(RIGHT) and most_mb < 256


CUT = """
import importlib.util, io, json, sys
spec = importlib.util.spec_from_file_location("stream", sys.argv[1])
stream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stream)
skipped = [{'a"\\\\': ["[" * 5, {"b": ['"{', [1, {"c": ["]", "\\\\"]}]]}]}] * 20
text = json.dumps({"metadata": skipped, "cells": [{"source": "kept", "outputs": skipped}]}).encode()
for stream.CHUNK_BYTES in range(1, 200):
    assert stream.rows(io.BytesIO(text)) == [{"source": "kept"}], stream.CHUNK_BYTES
"""


def test_where_a_chunk_is_cut_does_not_matter_to_any_python_here():
    """Debian 12's 3.11.2 is one: its regular expressions go on from the middle of a turn that failed."""
    programs = {sys.executable, shutil.which("python3", path=os.defpath)} - {None}
    version = "import sys; sys.exit(sys.version_info < (3, 11))"
    for program in programs:
        if subprocess.run([program, "-c", version]).returncode == 0:
            done = subprocess.run([program, "-c", CUT, notebook_stream.__file__], capture_output=True, text=True)
            assert done.returncode == 0, f"{program}: {done.stderr}"
