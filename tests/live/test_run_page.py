"""What can be kept of a run: a page that stands alone, a trace for Perfetto, words."""

import json
import re

import pytest
import torch

from worldsize.launch import launch
from worldsize.live import run_buttons
from worldsize.live.run_buttons import MOST_MESSAGES, RunButtons, run_page, run_text

MOST_BYTES = 2_000_000
ELSEWHERE = re.compile(r"""(?:src|href)=["']?(?!data:|#)[^"' >]+|url\((?!["']?data:|#)[^)]+\)|@import|fetch\(""")


def passes_round(fabric, times):
    x, out, n = torch.arange(3.0), torch.empty(3), fabric.world_size
    for _ in range(times):
        handle = fabric.isend(x, (fabric.rank + 1) % n)
        fabric.recv(out, (fabric.rank - 1) % n)
        handle.wait()
    print(f"rank <{fabric.rank}> & done")


@pytest.fixture(scope="module")
def run():
    return launch(passes_round, 3, args=(2,))


@pytest.fixture
def buttons(monkeypatch, run):
    monkeypatch.setattr(run_buttons, "_kept", run_buttons.deque(maxlen=run_buttons.MOST_KEPT))
    monkeypatch.setattr(run_buttons, "WidgetWithFallback", lambda *_: None)
    return RunButtons(run)


def test_the_page_of_a_run_has_its_picture_its_player_and_every_message(run):
    page = run_page(run)
    assert "<svg" in page and "data-replay" in page and "6 messages" in page
    assert page.count("<tr><td>") == 3 + 6  # ranks, messages


def test_what_ranks_printed_is_no_html_on_the_page(run):
    page = run_page(run)
    assert "rank &lt;0&gt; &amp; done" in page and "<0>" not in page


def test_the_page_fetches_nothing(run):
    assert ELSEWHERE.findall(run_page(run)) == []


def test_the_page_of_a_long_run_is_small_and_says_what_it_leaves_out():
    long = launch(passes_round, 3, args=(500,))
    page = run_page(long)
    assert len(page.encode()) < MOST_BYTES
    assert f"{MOST_MESSAGES} messages, and {1500 - MOST_MESSAGES} more that this page leaves out" in page


def test_a_run_without_a_message_has_a_page_too():
    page = run_page(launch(lambda: print("alone"), 2))
    assert "alone" in page and "Its messages, played" not in page


def test_the_words_of_a_run_have_its_finding_its_ranks_and_what_they_printed(run):
    said = run_text(run)
    assert "Timeline of 3 ranks" in said and "rank <2> & done" in said


def test_perfetto_s_file_is_the_one_that_save_trace_writes(run, buttons, tmp_path):
    message = buttons.answer("perfetto")
    assert message["file"] == "run.json" and "ui.perfetto.dev" in message["said"]
    assert json.loads(message["data"]) == json.loads(run.save_trace(tmp_path / "run.json").read_text())


@pytest.mark.parametrize(("asked", "file"), [("page", "run.html"), ("text", "run.txt")])
def test_each_button_gets_what_it_is_named_after(buttons, asked, file):
    message = buttons.answer(asked)
    assert message["file"] == file and message["data"] and message["said"]


@pytest.mark.parametrize("asked", ["another", None, []])
def test_what_no_button_asks_for_gets_words_and_no_file(buttons, asked):
    assert buttons.answer(asked).keys() == {"said"}


def test_the_files_of_an_old_run_make_room_for_newer_ones_and_its_buttons_say_so(buttons, run):
    for _ in range(run_buttons.MOST_KEPT):
        RunButtons(run)
    assert "Run this cell again" in buttons.answer("page")["said"]
