"""What a launched function displays: beside its lines, in order, as a picture in a notebook and as text elsewhere."""

import json

import pytest

from worldsize.launch.rank_output import OutputTail, Piece

PICTURE = (("image/png", "aGk="), ("text/plain", "<Figure>"))


@pytest.fixture
def files(tmp_path):
    return tmp_path / "log", tmp_path / "shown"


def show(files, bundle=PICTURE):
    log, shown = files
    with open(shown, "a") as file:
        file.write(json.dumps({"at": log.stat().st_size, "data": dict(bundle)}) + "\n")


def write(files, text: str):
    with open(files[0], "a") as file:
        file.write(text)


def test_bundles_come_between_the_lines_around_them(files):
    tail = OutputTail(*files)
    write(files, "a\nb")
    show(files)
    write(files, "c\nd\n")
    show(files)
    write(files, "e")
    assert tail.new_pieces() == [Piece("a\nb"), Piece(bundle=PICTURE), Piece("c\nd\n"), Piece(bundle=PICTURE)]
    assert tail.new_pieces() == [] and tail.new_pieces(last=True) == [Piece("e")] and tail.new_pieces(last=True) == []


def test_output_that_grows_is_read_once(files):
    tail = OutputTail(*files)
    assert tail.new_pieces() == []
    write(files, "a\n")
    assert tail.new_pieces() == [Piece("a\n")]
    show(files)
    assert tail.new_pieces() == [Piece(bundle=PICTURE)] and tail.new_pieces() == []
    write(files, "b\n")
    assert tail.new_pieces() == [Piece("b\n")]


def test_a_bundle_that_arrives_after_the_text_behind_it_is_not_lost(files):
    tail = OutputTail(*files)
    write(files, "a\n")
    text = files[0].read_text()
    show(files)
    kept = files[1].read_text()
    files[1].unlink()
    write(files, "b\n")
    assert tail.new_pieces() == [Piece(text + "b\n")]
    files[1].write_text(kept)
    assert tail.new_pieces() == [Piece(bundle=PICTURE)]


@pytest.mark.parametrize("line", ["{", "[]", '{"at": "x", "data": {}}', '{"at": 1, "data": {}}'])
def test_a_malformed_line_of_bundles_is_passed_over(files, line):
    write(files, "a\n")
    files[1].write_text(f"{line}\n")
    assert OutputTail(*files).new_pieces(last=True) == [Piece("a\n")]
