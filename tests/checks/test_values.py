"""What came back from a student's function, in words."""

import numpy as np
import pytest

from worldsize.checks.kit.values import shown

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (np.float64(6.850478231237606), "np.float64(6.85047823)"),
        (np.float64(6.850478231237525), "np.float64(6.85047823)"),
        ((0.1 + 0.2, 1e-17 / 3), "(0.3, 3.33333333e-18)"),
        ([1.5, 2, "3.123456789123"], "[1.5, 2, '3.12345679']"),
        (12345678, "12345678"),
        (None, "None (does the function return it?)"),
    ],
)
def test_what_came_back_is_said_in_digits_that_every_machine_computes(got, words):
    assert shown(got) == words
