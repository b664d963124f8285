"""A robust fit finds constants that data were made with, whatever an outlier says, and none below 0."""

import numpy as np
import pytest

from worldsize.formulas import robust_fit

pytestmark = pytest.mark.quick

PARTS = np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 5.0], [7.0, 1.0], [2.0, 9.0], [4.0, 4.0]])


def test_exact_data_give_their_constants_back():
    assert robust_fit.fit(PARTS, PARTS @ [2.0, 3.0]) == pytest.approx([2, 3])


def test_one_wild_row_moves_the_constants_little():
    seconds = PARTS @ [2.0, 3.0]
    seconds[2] *= 3
    assert robust_fit.fit(PARTS, seconds) == pytest.approx([2, 3], rel=0.1)


def test_a_known_constant_is_kept():
    assert robust_fit.fit(PARTS, PARTS @ [2.0, 3.0], known={1: 3.0}) == pytest.approx([2, 3])


def test_a_constant_that_would_be_negative_is_0():
    assert robust_fit.fit(PARTS, PARTS @ [5.0, -0.2])[1] == 0


@pytest.mark.parametrize("seconds", [[1.0], [0.0] * 6, [-1.0] * 6])
def test_seconds_that_cannot_be_are_refused(seconds):
    with pytest.raises(ValueError, match=r"and \[rows\] seconds above 0"):
        robust_fit.fit(PARTS, seconds)


def test_fewer_rows_than_constants_are_refused():
    with pytest.raises(ValueError, match="Measure more"):
        robust_fit.fit(PARTS[:1], [1.0])
