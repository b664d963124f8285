"""minutes: what a lab asks of a student, by one rule, and the number in its first cell."""

from pathlib import Path

import pytest

from tests.support.sample_source import course
from worldsize.authoring.build import build
from worldsize.authoring.minutes import stated_minutes, true_minutes, workload
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


def test_a_build_writes_the_minutes_of_the_rule(tmp_path):
    source = changed(tmp_path, "A first paragraph.", "A first paragraph. **Minutes:** 1234 and more")
    assert source in build(tmp_path, check=True)
    build(tmp_path)
    assert stated_minutes(read_source(source)) == workload(read_source(source)).minutes
    assert true_minutes(source) is None
    assert build(tmp_path, check=True) == []


def test_a_source_that_promises_no_minutes_is_left_alone(tmp_path):
    assert true_minutes(course(tmp_path)) is None
