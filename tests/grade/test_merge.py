"""Shards that were graded apart become one folder, which says what a grading of the whole says; what differs is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.gradebook import RING, row
from tests.support.quick_marking import hand_in, quick_marking
from worldsize import cli
from worldsize.grade.marking.grade_folder import grade
from worldsize.grade.marking.grading_record import GradingRecord, write_record
from worldsize.grade.marking.merge import merge
from worldsize.grade.marking.rows import GradeRow, write
from worldsize.grade.marking.selection import Selection, Shard
from worldsize.grade.reports import table

pytestmark = pytest.mark.quick
ROOT = Path(__file__).resolve().parents[2]


def graded(folder: Path, *made: GradeRow, seed: int = 7, paths: dict | None = None) -> Path:
    for one in made:
        write(one, folder / "rows")
    write_record(folder, GradingRecord(seed, paths or {one.file_name: one.path for one in made}))
    return folder


def test_seven_shards_merged_say_what_one_grading_says(tmp_path, monkeypatch):
    quick_marking(monkeypatch)
    folder = hand_in(tmp_path / "submitted", *(f"s_{k}/{RING}.ipynb" for k in range(60)), "odd/report.pdf")
    whole = grade(folder, tmp_path / "whole", root=ROOT, mode="own", seed=7)
    for k in range(1, 8):
        grade(folder, tmp_path / f"part{k}", root=ROOT, mode="own", seed=7, selection=Selection(shard=Shard(k, 7)))
    answer = CliRunner().invoke(cli.app, ["merge", str(tmp_path / "all"), *(str(tmp_path / f"part{k}") for k in range(1, 8))])
    assert answer.exit_code == 0, answer.output
    made = merge(tmp_path / "all", [])
    assert [one.result for one in made.rows] == [one.result for one in whole.rows] and made.missing == ()
    assert table.table(whole.rows) in answer.output


def test_a_shard_that_is_not_there_yet_is_named_and_can_come_later(tmp_path):
    paths = {one.file_name: one.path for one in (row("anna_1"), row("ben_2"))}
    first = graded(tmp_path / "a", row("anna_1"), paths=paths)
    second = graded(tmp_path / "b", row("ben_2"), paths=paths)
    assert merge(tmp_path / "all", [first]).missing == ("ben_2/06_ring_all_reduce.ipynb",)
    made = merge(tmp_path / "all", [second])
    assert ([one.student for one in made.rows], made.missing) == (["anna_1", "ben_2"], ())


def test_what_one_lost_the_other_may_have(tmp_path):
    lost = replace(row("anna_1"), state="lost", reason="killed")
    parts = [graded(tmp_path / "a", lost), graded(tmp_path / "b", row("anna_1"))]
    for order in (parts, parts[::-1]):
        assert [one.state for one in merge(tmp_path / f"out{order[0].name}", order).rows] == ["graded"]


def test_the_same_row_of_another_machine_in_other_seconds_is_one(tmp_path):
    made = row("anna_1", host="n1", seconds=1.0), row("anna_1", host="n2", attempt=2)
    parts = [graded(tmp_path / name, one) for name, one in zip("ab", made, strict=True)]
    assert len(merge(tmp_path / "all", parts).rows) == 1


@pytest.mark.parametrize(
    ("other", "seed", "words"),
    [
        (row("anna_1", points=0.25), 7, "expected one mark for anna_1, 06_ring_all_reduce, got graded 2.5.*and graded 1.25"),
        (row("anna_1", digest="e" * 64), 7, "expected one mark for anna_1"),
        (row("ben_2", release="new"), 7, "expected rows of one release of 06_ring_all_reduce"),
        (row("ben_2"), 8, "expected folders graded with one seed, got 7 in .* 8 in"),
    ],
)
def test_what_does_not_fit_together_is_refused_and_nothing_is_written(tmp_path, other, seed, words):
    parts = [graded(tmp_path / "a", row("anna_1")), graded(tmp_path / "b", other, seed=seed)]
    with pytest.raises(ValueError, match=words):
        merge(tmp_path / "all", parts)
    assert not (tmp_path / "all").exists()


def test_what_is_no_folder_of_grades_is_one_paragraph(tmp_path):
    answer = CliRunner().invoke(cli.app, ["merge", str(tmp_path / "all"), str(tmp_path / "nothere")])
    said = " ".join(answer.output.split())
    assert answer.exit_code == 1 and "nothere: expected the folder that `worldsize grade` wrote" in said
