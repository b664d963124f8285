"""minutes: what a lab asks of a student, by one rule, and the number in its first cell."""

from pathlib import Path

import pytest

from tests.support.sample_source import course
from worldsize.authoring.build import build
from worldsize.authoring.minutes import SITTING_MINUTES, Workload, first_sitting, parts, said, true_minutes, workload
from worldsize.authoring.source import read_source

pytestmark = pytest.mark.quick

OPTIONAL = """
# %% [markdown]
# ## A look aside (optional)
#
# Many words.

# %% [markdown]
# ### Deeper still
#
# More words.

# %%
lab.predict("aside", "How many?", "s")

# %% [markdown]
# ## Back

# %% tags=["summary"]
"""

# What seven labs asked, and the minutes that their first readers took
READ = {
    "01": (Workload(2838, 461, 14, 4, 37), 130),
    "04": (Workload(1570, 198, 10, 4, 29), 105),
    "12": (Workload(2212, 371, 12, 4, 54), 160),
    "13": (Workload(2165, 269, 11, 4, 37), 115),
    "14": (Workload(1803, 342, 11, 4, 27), 100),
    "15": (Workload(2452, 316, 12, 4, 31), 120),
    "16": (Workload(2562, 358, 15, 4, 46), 150),
}


def changed(tmp_path: Path, old: str, new: str) -> Path:
    source = course(tmp_path)
    text = source.read_text()
    assert old in text
    source.write_text(text.replace(old, new, 1))
    return source


def test_words_code_predictions_and_answers_are_counted(tmp_path):
    found = workload(read_source(course(tmp_path)))
    assert (found.words, found.code_lines, found.predictions) == (9, 9, 0)
    assert (found.exercises, found.answer_lines) == (1, 2)


def test_an_optional_part_counts_for_nothing_up_to_the_next_heading_of_its_level(tmp_path):
    before = workload(read_source(course(tmp_path)))
    source = changed(tmp_path, '\n# %% tags=["summary"]\n', OPTIONAL)
    after = workload(read_source(source))
    assert (after.predictions, after.words) == (before.predictions, before.words + len(["Back"]))


def test_hints_count_for_nothing(tmp_path):
    before = workload(read_source(course(tmp_path)))
    source = changed(tmp_path, "A first paragraph.", "A first paragraph. <details><summary>Hint</summary>Do this.</details>")
    assert workload(read_source(source)) == before


def test_parts_of_a_lab_add_up_to_what_it_asks(tmp_path):
    source = changed(tmp_path, '\n# %% tags=["summary"]', OPTIONAL)
    whole, found = workload(read_source(source)), parts(read_source(source))
    asked = [part.workload for part in found if not part.optional]
    assert sum(part.predictions for part in asked) == whole.predictions
    assert sum(part.exercises for part in asked) == whole.exercises
    assert [(part.title, part.optional) for part in found][-2:] == [("A look aside", True), ("Back", False)]


def test_after_an_optional_part_of_a_part_the_part_goes_on(tmp_path):
    inside = OPTIONAL.replace("##", "###").replace("### Back", "## Back")
    source = changed(tmp_path, '\n# %% tags=["summary"]', "\n# %% [markdown]\n# ## Around\n#\n# Two words.\n" + inside)
    around, aside, _ = parts(read_source(source))[-3:]
    assert (around.title, around.optional, aside.title, aside.optional) == ("Around", False, "A look aside", True)
    assert (around.workload.predictions, aside.workload.predictions) == (0, 1)


def test_a_build_writes_the_minutes_of_the_rule(tmp_path):
    source = changed(tmp_path, "A first paragraph.", "A first paragraph. **Minutes:** 1234 and more")
    assert source in build(tmp_path, check=True)
    build(tmp_path)
    assert said(read_source(source)) == f"**Minutes:** {workload(read_source(source)).minutes}"
    assert f"{said(read_source(source))} and more" in read_source(source).cells[0].text
    assert true_minutes(source) is None
    assert build(tmp_path, check=True) == []


def test_a_source_that_promises_no_minutes_is_left_alone(tmp_path):
    assert true_minutes(course(tmp_path)) is None


def test_the_rule_misses_the_minutes_of_first_readers_by_an_eighth_at_most():
    misses = {lab: asked.minutes / minutes - 1 for lab, (asked, minutes) in READ.items()}
    assert max(map(abs, misses.values())) <= 1 / 8, misses
    assert abs(sum(misses.values())) / len(misses) <= 0.05, misses


PART = "\n# %% [markdown]\n# ## Part {k}\n#\n# " + "word " * 4000


def test_a_lab_of_more_than_two_hours_says_where_its_first_sitting_ends(tmp_path):
    parts = "\n".join(PART.format(k=k) for k in range(1, 5)) + '\n# %% tags=["summary"]\n'
    source = changed(tmp_path, '\n# %% tags=["summary"]\n', parts)
    source.write_text(source.read_text().replace("A first paragraph.", "Before it. **Minutes:** 5 · **Points:** 2", 1))
    build(tmp_path)
    whole, first = workload(read_source(source)).minutes, first_sitting(read_source(source))
    assert (first.ends_before, abs(first.minutes - whole / 2) <= 10) == ("Part 3", True)
    opening = f"**Minutes:** {whole} (two sittings: {first.minutes} up to “Part 3”, then {whole - first.minutes}) · **Points:** 2"
    assert f"Before it. {opening}" in " ".join(read_source(source).cells[0].text.split())
    assert build(tmp_path, check=True) == []


def test_a_lab_of_one_sitting_names_no_second(tmp_path):
    source = read_source(course(tmp_path))
    assert workload(source).minutes <= SITTING_MINUTES and first_sitting(source) is None
