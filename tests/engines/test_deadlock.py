"""Which ranks can never go on, from what each has posted: pure functions, and no process."""

import pytest

from worldsize.engines.deadlock import Posts, TorchCall, stuck

MEMBERS = (0, 1, 2)


def waiting(op: str, number: int = 1) -> Posts:
    """A rank that waits in the `number`-th collective of the default group, and has posted it."""
    call = TorchCall("collective", op, "default", MEMBERS, number, size="3 float32")
    recent = {f"default {number}": f"{op}|3 float32"}
    return Posts("waits", (call,), groups={"default": MEMBERS}, posted={"default": number}, recent=recent)


def ended(posted: int) -> Posts:
    return Posts("ended", groups={"default": MEMBERS}, posted={"default": posted})


@pytest.mark.quick
@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "barrier"])
def test_who_waits_in_a_collective_that_needs_all_waits_for_ever_once_a_member_has_ended(op, quiet):
    posts = {0: waiting(op), 1: waiting(op), 2: ended(0)}
    assert stuck(posts, quiet) == {0: (2,), 1: (2,)}


@pytest.mark.quick
@pytest.mark.parametrize("op", ["broadcast", "reduce", "gather", "scatter"])
def test_who_waits_in_a_rooted_collective_may_wait_for_a_slow_member_while_threads_run(op):
    posts = {0: waiting(op), 1: waiting(op), 2: ended(0)}
    assert stuck(posts, quiet=False) == {}
    assert stuck(posts, quiet=True) == {0: (2,), 1: (2,)}


@pytest.mark.quick
def test_nobody_waits_in_vain_for_a_member_that_goes_on_or_has_come():
    busy = Posts("goes on", groups={"default": MEMBERS}, posted={"default": 0})
    assert stuck({0: waiting("all_reduce"), 1: waiting("all_reduce"), 2: busy}, quiet=True) == {}
    assert stuck({0: waiting("all_reduce"), 1: waiting("all_reduce"), 2: ended(1)}, quiet=True) == {}


@pytest.mark.quick
@pytest.mark.parametrize("op", ["barrier", "broadcast"])
def test_two_operations_in_one_place_are_a_deadlock_at_once(op):
    posts = {0: waiting(op), 1: waiting("all_reduce"), 2: waiting("all_reduce")}
    assert stuck(posts, quiet=False) == {0: (1, 2), 1: (0,), 2: (0,)}
