"""Words about ranks that were not done."""

import pytest

from worldsize.failures import Frame, Standing, Wait, is_library, render_standings, unfinished_line
from worldsize.trace import Event


def test_of_ranks_that_were_not_done_it_is_said_who_waits_and_who_runs():
    standings = [Standing(0, Wait(0, "recv", 2)), Standing(1)]
    assert unfinished_line(2.0, 3, standings) == (
        "after timeout_s=2 s these ranks of 3 were not done: rank 0 waits for 2 (recv), rank 1 running"
    )


LINE = Frame("/users/eva/r.py", 5, "ring", "fabric.send(x, to=after)")


def test_three_ranks_or_more_that_wait_in_one_line_share_a_line():
    standings = tuple(Standing(rank, Wait(rank, "send", (rank + 1) % 8), (LINE,)) for rank in range(8))
    assert render_standings(standings) == [
        "  ranks 0 to 7 wait in send to ranks 1, 2, 3, 4, 5, 6, …",
        "    at /users/eva/r.py, line 5, in ring: fabric.send(x, to=after)",
    ]


def test_ranks_that_stood_at_one_line_share_it_whatever_they_waited_for():
    other = Frame("/users/eva/r.py", 9, "ring", "x" * 200)
    last = Event("recv", 3, 0, 80_000, 0.0, 1.0)
    standings = (
        Standing(0, Wait(0, "recv", 3), (LINE,), last_message=last), Standing(1, Wait(1, "recv", 0), (other,)),
        Standing(3, Wait(3, "send", 2), (LINE,)),
    )  # fmt: skip
    first, second, where, third, cut = render_standings(standings)
    assert (first, second) == (
        "  rank 0 waits in recv from rank 3 (last message: received 80 kB from rank 3)", "  rank 3 waits in send to rank 2",
    )  # fmt: skip
    assert where == "    at /users/eva/r.py, line 5, in ring: fabric.send(x, to=after)"
    assert third == "  rank 1 waits in recv from rank 0" and len(cut) < 100 and cut.endswith("x…")


def test_ranks_that_wait_for_one_rank_name_it_once_and_others_stay_by_themselves():
    waits = [Standing(rank, Wait(rank, "recv", 2), (LINE,)) for rank in (0, 1, 3)]
    rows = render_standings((*waits, Standing(4, Wait(4, "recv", 3), (Frame("/users/eva/r.py", 9, "ring", "x"),))))
    said = ["  ranks 0, 1, 3 wait in recv from rank 2", "  rank 4 waits in recv from rank 3"]
    assert [row for row in rows if not row.startswith("    at ")] == said


def test_two_ranks_have_a_line_each_and_ranks_in_one_collective_share_theirs():
    two = render_standings(tuple(Standing(rank, Wait(rank, "send", 1 - rank), (LINE,)) for rank in range(2)))
    assert [row.split()[1] for row in two[:2]] == ["0", "1"] and len(two) == 3
    row, _ = render_standings(tuple(Standing(rank, collective="all_reduce", frames=(LINE,)) for rank in range(3)))
    assert row == "  ranks 0 to 2 wait in all_reduce"


def test_of_more_than_six_lines_it_is_said_how_many_ranks_are_left_out():
    alone = tuple(Standing(rank, Wait(rank, "recv", None), (LINE,)) for rank in range(9))
    assert render_standings(alone)[-1] == "  … and 3 more ranks"


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
