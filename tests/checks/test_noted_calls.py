"""A check's own callables among the inputs of a task of TensorFlow: they answer there, and the check sees each call."""

import numpy as np
import pytest

from worldsize.checks.arena import LaunchArena
from worldsize.checks.noted_calls import NotedCalls, make_again


class Counter:
    """What a check keeps of its calls."""

    def __init__(self) -> None:
        self.asked: list = []

    def next(self, step):
        self.asked.append(step)
        return {"sum": sum(self.asked), "row": np.arange(2.0)}

    def refuses(self):
        self.asked.append(0)
        raise ValueError("not this one")


def asks(given, more):
    try:
        given["refuses"]()
    except ValueError as error:
        return [given["next"](k) for k in (3, 4)], more[0](5), str(error)


def test_a_callable_answers_in_the_task_and_the_check_sees_each_call():
    counter, other = Counter(), Counter()
    calls = {"next": counter.next, "refuses": counter.refuses}
    ended = LaunchArena().tensorflow(asks, [calls], [other.next])

    assert ended.state == "done", ended.message
    rows, last, said = ended.returned[0]
    # the sum tells that calls of one object meet the same object there
    assert (said, last["sum"], rows[1]["sum"], rows[0]["row"].tolist()) == ("not this one", 5, 7, [0.0, 1.0])
    assert (counter.asked, other.asked) == ([0, 3, 4], [5])


@pytest.mark.quick
def test_calls_made_again_meet_the_same_callables_in_whatever_they_lie():
    first, second = Counter(), Counter()
    value = {"a": [first.next, 1], "b": (second.next,)}
    noted = NotedCalls()
    copy = noted.instead(value)
    copy["b"][0](2)
    copy["a"][0](np.int64(1))

    fresh = Counter(), Counter()
    make_again(noted.calls, {"a": [fresh[0].next, 1], "b": (fresh[1].next,)})
    assert (fresh[0].asked, fresh[1].asked) == ([1], [2]) == (first.asked, second.asked)
