"""Right answers as other programs save them, with outputs of any size."""

import json
from pathlib import Path

from tests.grade.honest import HELPED, HELPER, RIGHT, START, SUBMISSIONS, Honest, cell, hand_in, notebook, own

MB = 1_000_000


def saved(name: str, change, source: str = HELPED, above: str = HELPER) -> None:
    made = notebook(source, above=above)
    changed = change(made)
    hand_in(name, made if changed is None else changed)


def colab(made):
    made.update(nbformat_minor=0, metadata={"colab": {"provenance": [], "gpuType": "T4"}, "accelerator": "GPU"})
    for one in made["cells"]:
        one["metadata"]["id"] = one.pop("id", "q3Xz")
        one["metadata"]["colab"] = {"base_uri": "https://localhost:8080/", "height": 35}


def colab_without_nbgrader(made):
    colab(made)
    for one in made["cells"]:
        one["metadata"].pop("nbgrader", None)


def vs_code(made):
    made["metadata"] = {"kernelspec": {"name": "python3"}, "polyglot_notebook": {"kernelInfo": {"items": []}}}
    for one in made["cells"]:
        one["metadata"]["vscode"] = {"languageId": "python"}
        one["execution_count"] = None


def jupyterlab(made):
    for one in made["cells"]:
        one["metadata"] |= {"scrolled": True, "jp-MarkdownHeadingCollapsed": True, "slideshow": {"slide_type": "slide"}}
        one["metadata"]["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}
        one["attachments"] = {"a.png": {"image/png": "iVBOR" * 1000}}


def kaggle(made):
    made["metadata"]["kaggle"] = {"accelerator": "none", "dataSources": [], "isGpuEnabled": False}
    for one in made["cells"]:
        one["metadata"] |= {"_uuid": "8f2839f2", "_cell_guid": "b1076dfc", "trusted": True}


def deepnote(made):
    made["metadata"] |= {"deepnote_notebook_id": "4f", "deepnote_execution_queue": []}
    for one in made["cells"]:
        one["metadata"] |= {"cell_id": "00001", "deepnote_cell_type": one["cell_type"], "source_hash": "b6"}


def jupytext(made):
    made["metadata"]["jupytext"] = {"formats": "ipynb,py:percent", "text_representation": {"extension": ".py"}}


def format_3(made):
    cells = []
    for one in made["cells"]:
        text = "".join(one["source"])
        if one["cell_type"] == "code":
            cells.append({"cell_type": "code", "input": text, "language": "python", "outputs": [], "metadata": {}})
        else:
            cells.append({"cell_type": "markdown", "source": [text], "metadata": {}})
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": cells}]}


def sources_as_lists(made):
    for one in made["cells"]:
        one["source"] = "".join(one["source"]).splitlines(keepends=True)


def sources_as_strings(made):
    for one in made["cells"]:
        one["source"] = "".join(one["source"])


def windows(made):
    for one in made["cells"]:
        one["source"] = "".join(one["source"]).replace("\n", "\r\n")


def another_kernel(made):
    made["metadata"] = {"kernelspec": {"name": "conda-env-torch-py", "display_name": "Deep learning (GPU)"}}


def widgets(made):
    made["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {"a": "x" * 30 * MB}}}


saved("saved_by_colab", colab)
saved("saved_by_colab_without_nbgrader", colab_without_nbgrader)
saved("saved_by_vs_code", vs_code)
saved("saved_by_jupyterlab", jupyterlab)
saved("saved_by_kaggle", kaggle)
saved("saved_by_deepnote", deepnote)
saved("saved_with_jupytext", jupytext)
saved("saved_in_format_3", format_3)
saved("saved_with_sources_as_lists", sources_as_lists)
saved("saved_with_sources_as_strings", sources_as_strings)
saved("saved_with_windows_lines", windows)
saved("saved_with_another_kernel", another_kernel)
saved("saved_with_30_megabytes_of_widgets", widgets)
saved("saved_with_a_byte_order_mark", lambda made: b"\xef\xbb\xbf" + json.dumps(made).encode())
saved("saved_in_windows_lines_as_a_file", lambda made: json.dumps(made, indent=1).replace("\n", "\r\n").encode())
saved("saved_without_escapes", lambda made: json.dumps(made, ensure_ascii=False, indent=2).encode())


def _forty_megabytes(path: Path) -> None:
    """A log of lines, a picture, a table, and an output that holds a notebook of its own."""
    made = notebook(HELPED, above=HELPER)
    line = "epoch 3 step 17 loss 0.1234 \"quoted\" \u2588\n"
    made["cells"].append(own("train()", outputs=[{"output_type": "stream", "name": "stdout", "text": [line] * (16 * MB // 50)}]))
    data = {"image/png": "iVBORw0KGgo" * (3 * MB // 2), "application/json": [[k, {"cells": []}] for k in range(400_000)]}
    cell(made, "pass_right")["outputs"] = [{"output_type": "display_data", "data": data, "metadata": {}}]
    made["cells"].append(own("print(1)", outputs=[{"text": json.dumps(notebook(RIGHT.replace("rank", "rang")))}]))
    path.write_text(json.dumps(made))
    assert 40 * MB < path.stat().st_size < 50 * MB


SUBMISSIONS.append(Honest("saved_with_40_megabytes_of_outputs", START, _forty_megabytes))
