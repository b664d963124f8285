"""An engine that is not warm yet: who launches hears of it, and of its end, once."""

import pytest

from worldsize.engines.job import Job
from worldsize.engines.local_engine import LocalEngine
from worldsize.engines.payload import Payload
from worldsize.launch.execute import callers_state, execute
from worldsize.launch.run import KernelLaunches, Observer, observe, unobserved


class Heard(Observer):
    def __init__(self):
        self.waited_s, self.warm = [], []

    def warming(self, waited_s):
        self.waited_s.append(waited_s)

    def warmed(self, waited_s, ready):
        self.warm.append(ready)


@pytest.fixture
def cold():
    engine = LocalEngine("torch")
    yield engine
    engine.close()


def run(engine, launches):
    return execute(engine, Payload(len, ("ab",), {}), Job(world_size=1, timeout_s=60, **callers_state(1)), launches)


@pytest.mark.parametrize("who", ["a student's launch", pytest.param("a check", marks=pytest.mark.soak)])
def test_a_launch_on_a_cold_engine_says_at_once_that_it_warms_and_then_that_it_is_ready(cold, who):
    with unobserved():
        heard = Heard()
        observe(heard)
        launches = KernelLaunches((heard,) if who == "a student's launch" else ())
        assert run(cold, launches).results == [2]
        assert heard.warm == [True] and heard.waited_s[0] < heard.waited_s[-1]

        said = len(heard.waited_s)
        run(cold, launches)
        assert (heard.warm, len(heard.waited_s)) == ([True], said)


def test_an_engine_that_does_not_come_is_not_told_as_ready(cold):
    class Interrupting(Heard):
        def warming(self, waited_s):
            raise KeyboardInterrupt

    with unobserved():
        heard = Interrupting()
        observe(heard)
        with pytest.raises(KeyboardInterrupt):
            run(cold, KernelLaunches())
    assert heard.warm == [False]
