"""Words about ranks that were not done."""

from worldsize.failures import Standing, Wait, unfinished_line


def test_of_ranks_that_were_not_done_it_is_said_who_waits_and_who_runs():
    standings = [Standing(0, Wait(0, "recv", 2)), Standing(1)]
    assert unfinished_line(2.0, 3, standings) == (
        "after timeout_s=2 s these ranks of 3 were not done: rank 0 waits for 2 (recv), rank 1 running"
    )
