"""The picture of what a step moves between devices: totals by device, panels, and what waits for an exercise."""

import math
from types import SimpleNamespace

import pytest

from worldsize import figures
from worldsize.figures.device_traffic import devices, given_out, moved, taken_in

pytestmark = pytest.mark.quick


def send(src: str, dst: str, size: int, kind: str = "gradients") -> dict:
    return {"src": src, "dst": dst, "bytes": size, "kind": kind}


STAR = {
    "holds": {"CPU:0": 100, "CPU:1": 100},
    "sends": [send("CPU:1", "CPU:0", 60), send("CPU:1", "CPU:0", 40), send("CPU:0", "CPU:1", 100)],
    "collectives": {},
}
CENTRAL = {
    "holds": {"CPU:0": 100},
    "sends": [
        send("CPU:0", "CPU:1", 100, "weights"),
        send("CPU:1", "CPU:0", 100),
        send("CPU:1", "CPU:0", 8, "scalars"),
    ],
    "collectives": {},
}
COLLECTIVE = {"holds": {"CPU:0": 100}, "sends": [], "collectives": {"CPU:0": 100, "CPU:1": 100}}


def test_sends_of_one_way_are_added_up():
    assert (taken_in(STAR, "CPU:0"), given_out(STAR, "CPU:0")) == (100, 100)


def test_scalars_are_left_out():
    assert taken_in(CENTRAL, "CPU:0") == 100


def test_a_device_that_only_takes_part_in_a_collective_has_a_box():
    assert devices(COLLECTIVE) == ["CPU:0", "CPU:1"]


def test_devices_stand_in_the_order_of_their_numbers():
    step = {"holds": {f"CPU:{k}": 1 for k in (10, 2, 0)}, "sends": [], "collectives": {}}
    assert devices(step) == ["CPU:0", "CPU:2", "CPU:10"]


def test_the_alt_text_says_who_holds_and_who_sends():
    alt = moved({"star": STAR, "central": CENTRAL, "collective": COLLECTIVE}, "Which way?").alt
    for words in (
        "star: holds 100 B on CPU:0, 100 B on CPU:1; gradients and their sums, 100 B, from CPU:1 to CPU:0",
        "central: holds 100 B on CPU:0; weights, 100 B, from CPU:0 to CPU:1",
        "a collective op of 100 B on each device",
    ):
        assert words in alt


def test_nothing_moved_is_said_too():
    alone = {"holds": {}, "sends": [], "collectives": {}}
    assert moved({"alone": alone}, "What moves?").alt == "What moves? Nothing moves. alone: nothing."


def test_a_step_not_yet_written_has_its_panel():
    assert "tree: not yet" in moved({"star": STAR, "tree": None}, "Which way?").alt


def test_a_picture_of_steps_that_are_all_not_yet_written_says_so():
    run = SimpleNamespace(state="not yet", not_yet="Exercise 8.3", results=[])
    assert figures.moved({"star": run}, "Which way?").alt == "not yet: star"


def test_a_run_that_returned_a_step_may_be_passed():
    class Run(SimpleNamespace):
        def __getitem__(self, rank):
            return self.results[rank]

    assert "star: holds" in figures.moved({"star": Run(state="done", results=[STAR])}, "Which way?").alt


def test_many_devices_fit():
    holds = {f"CPU:{k}": 10_000 for k in range(8)}
    star = {"holds": holds, "sends": [send(f"CPU:{k}", "CPU:0", 10_000) for k in range(1, 8)], "collectives": {}}
    picture = moved({"star": star, "again": star}, "Does it fit?")
    assert picture.png()[1:4] == b"PNG"


def test_of_one_way_alone_what_the_busiest_device_takes_in_and_gives_out_is_told():
    alt = moved({"central": CENTRAL}, "What do they send each other?").alt
    assert "CPU:0 takes in 100 B of gradients and their sums and gives out 100 B of weights." in alt


def test_of_many_devices_the_busiest_stands_in_the_middle_so_that_no_arrow_of_its_passes_behind_another():
    sends = [send(f"CPU:{k}", "CPU:3", 100) for k in range(8) if k != 3]
    picture = moved({"star": {"holds": {}, "sends": sends, "collectives": {}}}, "Which way?")
    boxes = {text.get_text().split("\n")[0]: text.get_position() for text in picture.axes[0].texts}
    middle_x, middle_y = boxes.pop("CPU:3")
    away = [math.hypot(x - middle_x, y - middle_y) for name, (x, y) in boxes.items() if name.startswith("CPU")]
    assert len(away) == 7 and min(away) > 1.2
