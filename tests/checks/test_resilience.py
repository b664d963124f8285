"""What the checks of lab 15 hold answers against: a day replayed, a training put together of parts, a folder that is watched."""

import random
from dataclasses import fields
from itertools import combinations, pairwise

import numpy as np
import pytest

from tests.checks.mutants import goodput as days
from tests.checks.mutants import save_atomically as saves
from worldsize.checks.drivers import killed_writer
from worldsize.checks.resilience.exact_resume import PLANS, RESUMED
from worldsize.checks.resilience.goodput import FIXED, RIGHT, Rules, _drawn, goodput, replayed
from worldsize.checks.resilience.resumed_lesson import PARTS, State, drawn_lesson
from worldsize.checks.resilience.save_atomically import NAME, save, scenario
from worldsize.checks.resilience.shares_after_loss import shares_after_loss
from worldsize.checks.simulated_arena import SimulatedArena

WRONG = [
    *({"lost": lost} for lost in ("nothing", "all", "interval", "half")),
    {"restart": "ignored"}, {"restart": "after"}, {"in_save": "kept"}, {"in_save": "ignored"}, {"at_end": "lost"},
    {"goes_on": "rest"}, {"save_counts": True}, {"restart_costs": False}, {"first_save": True}, {"beyond": True},
    {"at_end": "save too"},
]  # fmt: skip


@pytest.mark.parametrize("failures", [0, 6, 40])
def test_a_replay_is_the_account_of_the_stretches_between_failures(failures):
    draws = random.Random(failures)
    for _ in range(100):
        day = _drawn(draws, failures)
        given = (day.interval_s, day.save_s, day.restart_s, day.day_s, list(day.failures_at))
        assert replayed(day) == pytest.approx(days.by_the_stretches_between_failures(*given), abs=1e-12)


def test_every_way_to_keep_account_is_among_the_wrong_ones():
    changed = {name for rules in WRONG for name in rules}
    assert changed == {field.name for field in fields(Rules)}


@pytest.mark.parametrize("rules", WRONG, ids=lambda rules: "_".join(f"{k}_{v}" for k, v in rules.items()))
def test_a_wrong_rule_is_told_by_its_own_words(rules):
    from worldsize.checks.resilience.goodput import Day, _mistakes

    def wrong(interval_s, save_s, restart_s, day_s, failures_at):
        return replayed(Day(interval_s, save_s, restart_s, day_s, tuple(failures_at)), Rules(**rules))

    verdict = goodput(SimulatedArena(1), wrong)
    first = next(day for _, day in FIXED if abs(replayed(day, Rules(**rules)) - replayed(day)) > 1e-9)
    told = [words for words in _mistakes(first) if words in verdict.mismatch]
    assert verdict.state == "fail" and len(told) == 1, verdict.mismatch
    assert _mistakes(first)[told[0]] == replayed(first, Rules(**rules))
    others = [Rules(**other) for other in WRONG if other != rules]
    assert Rules(**rules) not in (RIGHT, *others)


def test_whatever_part_is_left_out_leads_to_other_weights():
    for seed in range(20):
        lesson = drawn_lesson(PLANS[0], np.random.default_rng(seed))
        saved, fresh = lesson.advanced(lesson.fresh(0), 4), lesson.fresh(1)
        ends = [lesson.advanced(saved, 9).parts[0]]
        for many in range(1, len(PARTS) + 1):
            for missing in combinations(range(len(PARTS)), many):
                parts = tuple((fresh if k in missing else saved).parts[k] for k in range(len(PARTS)))
                ends.append(lesson.advanced(State(parts, 4), 9).parts[0])
        for one, other in combinations(ends, 2):
            assert np.abs(one - other).max() > 1e-6
        assert np.array_equal(lesson.advanced(lesson.advanced(lesson.fresh(0), 4), 9).parts[0], ends[0])


def test_a_training_is_ended_at_every_step():
    assert set(range(2, 7)) | {8, 9} == {ends[0] for ends in PLANS[0].ends if ends}
    assert "same bits" in RESUMED


def left(fn, dies) -> dict:
    old, new = np.arange(90, dtype="uint8"), np.arange(50, dtype="uint8")[::-1].copy()
    (row,) = killed_writer.tried(fn, None, [scenario({NAME: old}, save(new, dies=dies))])
    return {"how": row["ended"][0]["how"], "size": {name: len(data) for name, data in row["files"].items()}}


@pytest.mark.parametrize("byte", [0, 1, 49])
def test_a_writer_dies_at_its_byte(byte):
    assert left(saves.plain, ["byte", byte]) == {"how": "killed", "size": {NAME: 90, f"{NAME}.tmp": byte}}
    assert left(saves.writes_in_place, ["byte", byte]) == {"how": "killed", "size": {NAME: byte}}


def test_a_writer_that_may_write_all_bytes_lives():
    assert left(saves.plain, ["byte", 50]) == {"how": "returned", "size": {NAME: 50}}


def test_a_writer_dies_at_every_change_of_its_folder():
    sizes = [left(saves.removes_the_old_file_first, ["change", j])["size"] for j in range(1, 5)]
    assert [NAME in size for size in sizes] == [True, False, True, True]
    assert sizes[-1] == {NAME: 50}  # there is no fourth change
    assert all(one != other for one, other in pairwise(sizes[:3]))


def test_blocks_earn_no_more_than_half():
    from tests.checks.mutants.shares_after_loss import in_blocks

    assert shares_after_loss(SimulatedArena(3), in_blocks).points == 0.75
