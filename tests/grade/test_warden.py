"""A writer as its warden sees it, from outside its process, in every kind of sandbox."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.graded_arena import arena_of
from worldsize.checks.resilience.save_atomically import NAME, save, scenario
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.outside.arena import Submitted
from worldsize.grade.outside.boxes import Sandbox

OLD, NEW = (np.full(size, value, "uint8") for size, value in ((9, 1), (5, 2)))
SAVES = """
import mmap, os, signal, threading
from pathlib import Path

def at_once(path, data):
    with open(f"{path}.tmp", "wb") as file:
        file.write(data)
    os.replace(f"{path}.tmp", path)

def in_a_thread(path, data):
    one = threading.Thread(target=at_once, args=(path, data))
    one.start()
    one.join()

def leaves(path, data):
    os._exit(3)

def in_place(path, data):
    path.write_bytes(data)

def by_another_name(path, data):
    other = path.parent.parent / "other"
    os.link(path, other)
    other.write_bytes(data)
    other.unlink()

def through_a_map(path, data):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as room:
        room[:len(data)] = data

def after_removing(path, data):
    path.unlink()
    at_once(path, data)

def after_moving_away(path, data):
    os.replace(path, f"{path}.old")
    at_once(path, data)
    os.unlink(f"{path}.old")

def from_another_folder(path, data):
    other = path.parent.parent / "other"
    other.write_bytes(data)
    os.replace(other, path)

def after_more_events_than_are_kept(path, data):
    with open(f"{path}.tmp", "wb", buffering=0) as one, open(f"{path}.tmp2", "wb", buffering=0) as other:
        for _ in range(20_000):
            one.write(b"x")
            other.write(b"x")
    at_once(path, data)

def in_a_folder_of_the_same_name(path, data):
    folder = path.parent
    folder.rename(f"{folder}.away")
    folder.mkdir()
    at_once(path, data)

def holds_the_signal_off(path, data):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    at_once(path, data)

def leaves_a_process_that_writes(path, data):
    if os.fork():
        os._exit(0)
    os.setsid()
    while True:
        path.write_bytes(data)
"""


@pytest.fixture(scope="module", params=["own", pytest.param("fresh", marks=pytest.mark.soak)])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))
    kept = Sandbox(request.param)
    yield kept
    kept.close()


def seen(box: Sandbox, name: str, *saves: dict) -> dict:
    ended = arena_of(box, SAVES).saves(Submitted(name), [scenario({NAME: OLD}, *saves)])
    assert ended.state == "done", ended.message
    return ended.returned[0][0]


def sizes(files: dict) -> dict[str, int]:
    return {name: len(data) for name, data in files.items()}


@pytest.mark.parametrize("name", ["at_once", "in_a_thread"])
def test_a_file_that_is_replaced_gets_its_name_and_nothing_else(box, name):
    row = seen(box, name, save(NEW))
    assert row["ended"] == [{"how": "returned", "touched": ""}]
    assert list(row["files"]) == [NAME] and row["files"][NAME].tolist() == NEW.tolist()


@pytest.mark.parametrize(("name", "touched"), [
    ("in_place", "written"), ("by_another_name", "written"), ("through_a_map", "written"),
    ("after_more_events_than_are_kept", "written"), ("after_removing", "removed"), ("after_moving_away", "removed"),
    ("from_another_folder", "elsewhere"),
])  # fmt: skip
def test_what_happened_to_the_old_file_is_seen(box, name, touched):
    assert seen(box, name, save(NEW))["ended"] == [{"how": "returned", "touched": touched}]


@pytest.mark.parametrize("name", ["at_once", "in_a_thread"])
def test_a_writer_is_killed_before_the_byte_that_it_may_not_write(box, name):
    row = seen(box, name, save(NEW, dies=["byte", 3]))
    assert row["ended"] == [{"how": "killed", "touched": ""}]
    assert sizes(row["files"]) == {NAME: len(OLD), f"{NAME}.tmp": 3}


@pytest.mark.parametrize("name", ["at_once", "holds_the_signal_off"])
def test_on_a_full_disk_a_write_fails(box, name):
    row = seen(box, name, save(NEW, dies=["full", 3]))
    assert row["ended"][0]["how"] == "raised" and row["ended"][0]["error"].startswith("OSError: [Errno 27]")


def test_who_holds_the_signal_off_writes_no_further(box):
    row = seen(box, "holds_the_signal_off", save(NEW, dies=["byte", 3]))
    assert (row["ended"][0]["how"], sizes(row["files"])) == ("raised", {NAME: len(OLD), f"{NAME}.tmp": 3})


def test_what_a_killed_writer_left_is_there_for_the_next_one(box):
    row = seen(box, "at_once", save(NEW, dies=["byte", 2]), save(NEW))
    assert [ended["how"] for ended in row["ended"]] == ["killed", "returned"]
    assert (sizes(row["before"]), list(row["files"])) == ({NAME: len(OLD), f"{NAME}.tmp": 2}, [NAME])


def test_another_folder_in_the_place_of_the_writers_does_not_count(box):
    row = seen(box, "in_a_folder_of_the_same_name", save(NEW))
    assert sizes(row["files"]) == {NAME: len(OLD)}


def test_a_folder_is_read_when_all_processes_of_its_save_are_dead(box):
    row = seen(box, "leaves_a_process_that_writes", save(NEW))
    assert row["ended"][0]["how"] == "left"


def test_a_writer_that_leaves_has_not_returned(box):
    assert seen(box, "leaves", save(NEW))["ended"] == [{"how": "left", "touched": ""}]


def test_rows_of_watched_and_of_noted_saves_come_in_the_order_of_their_scenarios(box):
    tried = [save(NEW, dies=["change", 1]), save(NEW), save(NEW, meets=[1, "other", OLD]), save(NEW, dies=["byte", 3])]
    ended = arena_of(box, SAVES).saves(Submitted("at_once"), [scenario({NAME: OLD}, one) for one in tried])
    assert [row["ended"][0]["how"] for row in ended.returned[0]] == ["killed", "returned", "returned", "killed"]
    assert ["touched" in row["ended"][0] for row in ended.returned[0]] == [False, True, False, True]
    assert sorted(ended.returned[0][2]["files"]) == ["other", NAME]
