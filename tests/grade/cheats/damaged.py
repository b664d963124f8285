"""Notebooks that are damaged, on purpose or not: repaired where they can be, a row in any case."""

import copy
import json
import os
from pathlib import Path

from tests.grade.cheats import ALL, LAB, RIGHT, TITLE, cell, edited, file, with_cell

NOT_NUMBERED = TITLE.replace("Exercise 0.1: ", "")


@edited(ALL)
def claims_100_points(notebook):
    cell(notebook, "check_pass_right")["metadata"]["nbgrader"]["points"] = 100


@edited(0.0)
def claims_points_for_a_check_of_its_own(notebook):
    cell(notebook, "pass_right")["source"] = TITLE + "def pass_right(fabric, x): return x[9]"
    cell(notebook, "check_pass_right")["source"] = "print('all right')"


@edited(ALL)
def a_cell_of_its_own_with_points(notebook):
    extra = copy.deepcopy(cell(notebook, "check_pass_right"))
    extra["metadata"]["nbgrader"] |= {"grade_id": "bonus", "points": 50}
    notebook["cells"].append(extra)


@edited(ALL)
def renamed_cell(notebook):
    cell(notebook, "pass_right").update(id="other", metadata={"nbgrader": {"grade_id": "other", "solution": True}})


@edited(ALL, tampered=False)  # Colab saves so
def all_metadata_lost(notebook):
    for one in notebook["cells"]:
        one["metadata"] = {}
        one.pop("id", None)


@edited(ALL)
def name_and_title_lost(notebook):
    cell(notebook, "pass_right").update(id="a", metadata={}, source=NOT_NUMBERED + RIGHT)


@edited(ALL)
def twice_the_cell_and_one_is_the_stub(notebook):
    extra = copy.deepcopy(cell(with_cell(""), "pass_right"))
    extra["source"] = TITLE + "def pass_right(fabric, x):\n    return x[77]\n"
    extra["id"] = "a-copy"
    notebook["cells"].append(extra)


@edited(0.0)
def the_cell_is_missing(notebook):
    notebook["cells"].remove(cell(notebook, "pass_right"))


@edited(0.0)
def the_cell_became_text(notebook):
    cell(notebook, "pass_right")["cell_type"] = "markdown"


@edited(ALL)
def the_check_is_missing(notebook):
    notebook["cells"].remove(cell(notebook, "check_pass_right"))


@edited(0.0)
def set_up_that_answers(notebook):
    setup = next(c for c in notebook["cells"] if "".join(c["source"]).startswith("# Set-up"))
    setup["source"] = "# Set-up\nimport worldsize.fabric\ndef answer(fabric, x):" + RIGHT.split("\n", 2)[1]
    cell(notebook, "pass_right")["source"] = TITLE + "pass_right = answer"


@edited(ALL, tampered=False)
def sources_as_lists_and_outputs_kept(notebook):
    for one in notebook["cells"]:
        one["source"] = "".join(one["source"]).splitlines(keepends=True)
        if one["cell_type"] == "code":
            one["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["<script>alert(1)</script>"]}]


@edited(ALL, tampered=False)
def cells_that_make_no_sense(notebook):
    notebook["cells"] += [None, 7, [], {}, {"cell_type": 5, "source": {"a": 1}, "metadata": "x", "id": 9}]
    notebook["cells"] += [{"cell_type": "code", "source": None, "metadata": {"nbgrader": []}, "id": None}]
    notebook["metadata"] = {"kernelspec": {"name": "; rm -rf /"}}
    notebook["nbformat"] = "four"


@edited(ALL, tampered=False)
def with_a_byte_order_mark(notebook):
    return b"\xef\xbb\xbf" + json.dumps(notebook).encode()


@edited(ALL, tampered=False)
def in_utf_16(notebook):
    return json.dumps(notebook, ensure_ascii=False).encode("utf-16")


@edited(ALL, tampered=False)
def half_characters(notebook):
    cell(notebook, "pass_right")["source"] = TITLE + "# \ud800\n" + RIGHT


@edited(ALL, tampered=False)
def an_old_format(notebook):
    cells = [{"cell_type": c["cell_type"], "input": "".join(c["source"]), "metadata": {}} for c in notebook["cells"]]
    return {"nbformat": 3, "worksheets": [{"cells": cells}], "metadata": {}}


@edited(0.0, "ungradable", tampered=False)
def half_of_the_file(notebook):
    data = json.dumps(notebook).encode()
    return data[: len(data) // 2]


@edited(0.0, "ungradable", tampered=False)
def no_cells(notebook):
    return {"metadata": {}, "nbformat": 4}


@edited(0.0, "ungradable", tampered=False)
def cells_as_text(notebook):
    return {"cells": "def pass_right(fabric, x): ...", "nbformat": 4}


@edited(0.0, "ungradable", tampered=False)
def a_list(notebook):
    return [notebook]


@file(0.0)
def an_empty_file(path: Path):
    path.write_bytes(b"")


@file(0.0)
def a_picture(path: Path):
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40)


@file(0.0)
def deeper_than_python_can_read(path: Path):
    path.write_text("[" * 200_000)


@file(0.0)
def too_large(path: Path):
    with path.open("wb") as file:  # and next to nothing on the disk
        file.truncate(51_000_000)


@file(0.0)
def too_large_beside_its_outputs(path: Path):
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": "#" * 3_000_000}] * 8}))


@edited(0.0, "ungradable", tampered=False)
def lists_in_lists_as_an_output(notebook):
    data = json.dumps(notebook).encode()
    return data.replace(b'"outputs": []', b'"outputs": ' + b"[" * 300_000 + b"]" * 300_000)


@file(0.0)
def lists_in_lists_without_end(path: Path):
    path.write_bytes(b'{"metadata": [' + b"[[[[[1]]]]]," * 4_000_000)


@file(0.0)
def a_link_to_another_students_file(path: Path):
    path.symlink_to(Path("..") / "the_plain_answer" / f"{LAB}.ipynb")


@file(0.0)
def a_link_to_the_machine(path: Path):
    path.symlink_to("/etc/passwd")


@file(0.0)
def a_pipe(path: Path):
    os.mkfifo(path)


@file(0.0)
def a_page_of_the_web(path: Path):
    path.write_text("<!doctype html><title>Sign in</title>")
