"""Words about ranks that were not done."""

import pytest

from worldsize.failures import Frame, Standing, Wait, is_library, unfinished_line


def test_of_ranks_that_were_not_done_it_is_said_who_waits_and_who_runs():
    standings = [Standing(0, Wait(0, "recv", 2)), Standing(1)]
    assert unfinished_line(2.0, 3, standings) == (
        "after timeout_s=2 s these ranks of 3 were not done: rank 0 waits for 2 (recv), rank 1 running"
    )


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/opt/env/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", True),
        ("/usr/lib/python3/dist-packages/numpy/core.py", True),
        ("/users/ada/.local/lib/python3.12/site-packages/accelerate/state.py", True),
        ("/users/ada/site-packages.py", False),
        ("/users/ada/torch/train.py", False),
        ("/users/ada/ipykernel_7/123.py", False),
    ],
)
def test_a_file_in_any_folder_of_packages_is_a_librarys(file: str, library: bool):
    assert is_library(Frame(file, 1, "f", "")) is library
