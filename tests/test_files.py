"""A file that is written whole or not at all, and a folder that goes whole."""

import os
import shutil
from itertools import islice

import pytest

from worldsize.files import PRIVATE, remove_whole, write_whole

pytestmark = pytest.mark.quick


def test_text_and_bytes_come_back_as_they_were_written(tmp_path):
    for data in ("ä\r\n", b"\xff\0"):
        write_whole(tmp_path / "new" / "file", data, durable=True)
        assert (tmp_path / "new" / "file").read_bytes() == (data.encode() if isinstance(data, str) else data)


def test_a_new_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "plain").write_text("")
    write_whole(tmp_path / "whole", "")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("mode", [PRIVATE, 0o644])
def test_the_permissions_that_were_asked_for_hold_whatever_the_umask(tmp_path, mode):
    before = os.umask(0o077)
    try:
        write_whole(tmp_path / "file", "", mode)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("text", ["new", "half a character: \ud800"])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch, text):
    def full(source, target):
        raise OSError("no space left on device")

    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr("os.replace", full)
    with pytest.raises((OSError, UnicodeEncodeError)):
        write_whole(path, text)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_goes_whole_though_a_file_is_made_while_it_is_removed(tmp_path, monkeypatch):
    folder, rmtree = tmp_path / "run1", shutil.rmtree
    (folder / "below").mkdir(parents=True)
    late = iter([folder / "rank0", folder / "rank1"])

    def meanwhile(path, **how):
        rmtree(path, **how)
        for made in islice(late, 1):
            path.mkdir()
            made.touch()

    monkeypatch.setattr(shutil, "rmtree", meanwhile)
    remove_whole(folder)
    assert not folder.exists() and next(late, None) is None
