"""The rule for arguments: whatever changed in what was handed in has words, and an equal copy has none."""

import numpy as np
import pytest

from worldsize.checks.kit.unchanged import changed

GIVEN = {"x": np.array([1.0, np.nan]), "parts": [(np.arange(3), 2), (np.arange(2), 1)]}


def test_what_is_as_it_was_has_no_words():
    same = {"x": GIVEN["x"].copy(), "parts": tuple((part.copy(), number) for part, number in GIVEN["parts"])}
    assert changed(same, GIVEN, "the task") is None


@pytest.mark.parametrize(
    "after",
    [
        {**GIVEN, "x": np.array([1.0, 2.0])},
        {**GIVEN, "x": GIVEN["x"].astype("float32")},
        {**GIVEN, "parts": GIVEN["parts"][1:]},
        {**GIVEN, "parts": [(np.arange(3), 2), (np.arange(2), 3)]},
        {"x": GIVEN["x"]},
        None,
    ],
    ids=str,
)
def test_whatever_changed_is_told(after):
    assert changed(after, GIVEN, "the task", 2) == (
        "rank 2: the task was changed in place: the caller still needs it unchanged. Work on a copy."
    )
