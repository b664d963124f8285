"""What runs leave in a notebook, from a real kernel: live, and headless."""

import json
import re

import nbformat
import pytest
from nbclient import NotebookClient

# each sleeps at its work, so that it goes on for longer than a run without a view
CELLS = {
    "setup": "import time\nfrom worldsize.notebook import *",
    "talks": "def talks():\n    for n in range(400):\n        print(f'line {n} ' + 'x' * 60)\n        time.sleep(0.004)\n"
    "run = launch(talks, 4)\nsum(len(run.log(r).splitlines()) for r in range(4))",
    "trains": "def trains():\n    for n in range(20):\n        report(epoch=n // 10, epochs=2, step=n, loss=1 / (1 + n))\n"
    "        time.sleep(0.05)\nrun = launch(trains, 2)",
    "fails": "def fails(fabric):\n    time.sleep(1.2)\n    if fabric.rank == 1:\n        raise ValueError('bad chunk')\n"
    "    fabric.recv(__import__('torch').ones(1), 1)\nlaunch(fails, 2)",
    "again": "last_run().show()",
    "pictured": "from worldsize import figures\ndef told():\n    for n in range(3):\n        report(step=n, loss=1 / (1 + n))\n"
    "told_run = launch(told, 2)\nfigures.timeline(told_run)",
    "shows": "class Table:\n    def __init__(self, rank): self.rank = rank\n"
    "    def _repr_html_(self): return f'<b>of {self.rank}</b>'\n    def __repr__(self): return f'of {self.rank}'\n"
    "def shows(rank, world_size):\n    print('before')\n    if rank != 2:\n        display(Table(rank % 2))\n    print('after')\n"
    "shown_run = launch(shows, 4)",
    "shows again": "shown_run.show()",
    "twice": "launch(told, 2)\nlaunch(told, 3);",
}


def execute(folder, headless, names=tuple(CELLS)):
    setup = f"import os\nos.environ['WORLDSIZE_HEADLESS'] = '{int(headless)}'\n"
    cells = [nbformat.v4.new_code_cell(setup * (name == "setup") + CELLS[name]) for name in names]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(
        notebook, timeout=60, allow_errors=True, store_widget_state=False, coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    ).execute()  # fmt: skip
    return dict(zip(names, notebook.cells, strict=True)), notebook


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return execute(tmp_path_factory.mktemp("live"), headless=False)


@pytest.fixture(scope="module")
def headless(tmp_path_factory):
    return execute(tmp_path_factory.mktemp("headless"), headless=True, names=("setup", "trains", "pictured", "shows", "twice"))


def html_of(cell):
    return "".join(o["data"].get("text/html", "") for o in cell.outputs if "data" in o)


def streams(cell):
    return "".join(o["text"] for o in cell.outputs if o.output_type == "stream")


@pytest.mark.parametrize("name", ["shows", "shows again"])
def test_what_ranks_display_has_a_tab_for_each_group_with_the_same(shown, name):
    page = html_of(shown[0][name])
    assert re.findall(r"<label[^>]*>([^<]+)</label>", page) == ["rank 0", "ranks 1, 3"]
    assert re.findall(r"<b>of \d</b>", page) == ["<b>of 0</b>", "<b>of 1</b>"]


def test_without_a_person_the_text_of_what_ranks_display_stands_between_their_lines(headless):
    cell = headless[0]["shows"]
    assert "<b>" not in html_of(cell)
    lines = [line for line in streams(cell).splitlines() if line.startswith("[rank 1]")]
    assert re.fullmatch(r"\[rank 1\] before \[rank 1\] of 1 \[rank 1\] after", " ".join(lines))


def test_no_line_is_lost_though_few_are_saved(shown):
    cell = shown[0]["talks"]
    assert cell.outputs[-1]["data"]["text/plain"] == "1600" and "… 1570 more lines" in html_of(cell)


@pytest.mark.parametrize("name", ["talks", "trains", "fails"])
def test_a_saved_cell_is_small(shown, name):
    assert len(json.dumps(shown[0][name].outputs)) <= 40_000


@pytest.mark.parametrize("name", ["talks", "trains", "fails"])
def test_no_widget_stays_in_the_notebook_but_the_buttons_of_its_run(shown, name):
    widgets = [o["data"] for o in shown[0][name].outputs if any("widget" in kind for kind in o.get("data", {}))]
    # the view of the run has left its words; one that only printed has nothing for buttons to keep
    assert [data["text/plain"] for data in widgets] == ([] if name == "talks" else [""])
    assert "<table>" in html_of(shown[0][name])


def test_curves_stay_where_ranks_reported(shown):
    assert '<img alt="Curves of 2 ranks: loss falls from 1 to 0.05' in html_of(shown[0]["trains"])


def test_a_failure_stays_above_its_error(shown):
    cell = shown[0]["fails"]
    shows = ["✘ failed</strong>: ValueError: bad chunk" in o.get("data", {}).get("text/html", "") for o in cell.outputs]
    assert shows.index(True) < [o.output_type for o in cell.outputs].index("error")


def test_offline_html_holds_the_picture_and_no_missing_widget(shown):
    nbconvert = pytest.importorskip("nbconvert")
    page, _ = nbconvert.HTMLExporter().from_notebook_node(shown[1])
    assert "Curves of 2 ranks" in page and "<table>" in page
    assert "Error displaying widget" not in page and "Alternative text is missing" not in page


@pytest.mark.parametrize("how", ["live", "headless"])
def test_the_first_picture_under_a_cell_is_the_cells_own(shown, headless, how):
    cells = {"live": shown, "headless": headless}[how][0]
    results = [re.match(r"<details ([^>]*)>", o["data"].get("text/html", "")) for o in cells["pictured"].outputs if "data" in o]
    folded = [not found[1].endswith("open") for found in results if found]
    assert folded == [True] and [o for o in cells["pictured"].outputs if "image/png" in o.get("data", {})]


@pytest.mark.parametrize("how", ["live", "headless"])
def test_two_runs_of_one_cell_are_two_lines(shown, headless, how):
    outputs = {"live": shown, "headless": headless}[how][0]["twice"].outputs
    pages = [o["data"]["text/html"] for o in outputs if o.get("data", {}).get("text/html", "").startswith("<details ")]
    said = [re.match(r"<details ([^>]*)><summary>(told: \d ranks, done)", page).groups() for page in pages]
    assert [words for _, words in said] == ["told: 2 ranks, done", "told: 3 ranks, done"]
    assert not any(look.endswith("open") for look, _ in said)


@pytest.mark.soak
def test_headless_reports_are_one_line_a_rank_an_epoch(headless):
    lines = [line for line in streams(headless[0]["trains"]).splitlines() if "epoch" in line]
    assert sorted(lines) == [
        f"[rank {rank}] epoch {epoch} of 2 · step {step} · loss {loss}"
        for rank in range(2) for epoch, step, loss in ((0, 9, 0.1), (1, 19, 0.05))
    ]  # fmt: skip


@pytest.mark.soak
def test_headless_and_live_leave_the_same_picture_and_table(headless, shown):
    without_time = [re.sub(r"[\d.]+ m?s|base64,[^\"]+", "", html_of(cells["trains"])) for cells, _ in (headless, shown)]
    result, _, buttons = without_time[1].partition('<div class="ws-instead">')  # a headless run has none
    assert without_time[0] == result != "" and buttons


def test_the_latest_run_is_shown_again_as_it_was_left(shown):
    again = html_of(shown[0]["again"])
    assert "Timeline of 2 ranks" in again and "✘ failed</strong>: ValueError: bad chunk" in again
