"""A writer as its warden sees it, from outside its process, in every kind of sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.graded_arena import arena_of
from worldsize.checks.resilience.save_atomically import NAME, save, scenario
from worldsize.grade.host.arena import Submitted
from worldsize.grade.host.boxes import Sandbox
from worldsize.grade.isolation import bubblewrap
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode

OLD, NEW = (np.full(size, value, "uint8") for size, value in ((9, 1), (5, 2)))
SAVES = """
import os, threading

def at_once(path, data):
    with open(f"{path}.tmp", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)

def never_synced(path, data):
    with open(f"{path}.tmp", "wb") as file:
        file.write(data)
    os.replace(f"{path}.tmp", path)

def in_a_thread(path, data):
    one = threading.Thread(target=at_once, args=(path, data))
    one.start()
    one.join()

def leaves(path, data):
    os._exit(3)

def across_file_systems(rename):
    def saves(path, data):
        try:
            rename(path, data)
        except OSError:
            path.write_bytes(data)
    return saves

def by_a_name_in_its_working_directory(path, data):
    os.chdir(path.parent)
    path.with_name("new").write_bytes(data)
    os.rename("new", path)

def by_a_name_in_its_open_folder(path, data):
    folder = os.open(path.parent, os.O_RDONLY)
    path.with_name("new").write_bytes(data)
    os.rename("new", path, src_dir_fd=folder)

@across_file_systems
def from_where_it_started(path, data):
    with open("new", "wb") as file:
        file.write(data)
    os.rename("new", path)

@across_file_systems
def from_another_open_folder(path, data):
    folder = os.open(".", os.O_RDONLY)
    with open("new", "wb") as file:
        file.write(data)
    os.rename("new", path, src_dir_fd=folder)
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


def test_a_synced_file_is_on_disk_when_it_gets_its_name(box):
    row = seen(box, "at_once", save(NEW))
    assert row["ended"] == [{"how": "returned", "on_disk": True, "elsewhere": "", "changed": False}]
    assert list(row["files"]) == [NAME] and row["files"][NAME].tolist() == NEW.tolist()


@pytest.mark.parametrize(("name", "on_disk"), [("never_synced", False), ("in_a_thread", True)])
def test_who_synced_what_is_seen(box, name, on_disk):
    assert seen(box, name, save(NEW))["ended"][0]["on_disk"] == on_disk


def test_a_writer_is_killed_before_the_byte_that_it_may_not_write(box):
    row = seen(box, "at_once", save(NEW, dies=["byte", 3]))
    assert row["ended"] == [{"how": "killed"}]
    assert {name: len(data) for name, data in row["files"].items()} == {NAME: len(OLD), f"{NAME}.tmp": 3}


def test_a_writer_is_killed_when_its_folder_has_changed(box):
    row = seen(box, "at_once", save(NEW, dies=["change", 1]))
    assert (row["ended"], list(row["files"])) == ([{"how": "killed"}], [NAME, f"{NAME}.tmp"])


def test_what_a_killed_writer_left_is_there_for_the_next_one(box):
    row = seen(box, "never_synced", save(NEW, dies=["byte", 2]), save(NEW))
    assert [ended["how"] for ended in row["ended"]] == ["killed", "returned"] and list(row["files"]) == [NAME]


def test_two_writers_share_a_folder_while_one_stands_still(box):
    row = seen(box, "at_once", save(NEW, meets=[1, "other", OLD]))
    assert row["ended"] == [{"how": "returned", "other": {"how": "returned"}, "changed": True}]
    assert sorted(row["files"]) == ["other", NAME]


@pytest.mark.parametrize(("name", "folder"), [
    ("by_a_name_in_its_working_directory", ""), ("by_a_name_in_its_open_folder", ""),
    ("from_where_it_started", bubblewrap.folders()[0]), ("from_another_open_folder", "another folder"),
])  # fmt: skip
def test_a_relative_name_counts_from_the_folder_that_it_is_in(box, name, folder):
    assert seen(box, name, save(NEW))["ended"][0].get("elsewhere") == folder


def test_a_writer_that_leaves_has_not_returned(box):
    assert seen(box, "leaves", save(NEW))["ended"][0]["how"] == "left"
