"""A helper that starts ranks ends after minutes without a launch, and comes back with the next one."""

import math
import threading

import pytest

from worldsize.engines import idle_end
from worldsize.engines.idle_end import IdleEnd
from worldsize.engines.job import Close, Job
from worldsize.engines.local_engine import LocalEngine
from worldsize.engines.payload import Payload
from worldsize.failures import Outcome
from worldsize.launch.execute import callers_state, close_order, execute, execute_order
from worldsize.launch.run import KernelLaunches

LONG_S = 60  # a bound against a hang


class Clock:
    """Seconds that pass when told to, and timers on them."""

    def __init__(self):
        self.now_s = 0.0
        self.timers = []

    def __call__(self):
        return self.now_s

    def timer(self, after_s, then):
        made = Timer(self, self.now_s + after_s, then)
        self.timers.append(made)
        return made

    def to(self, moment_s):
        while due := [timer for timer in self.timers if timer.runs and timer.due_s <= moment_s]:
            timer = min(due, key=lambda timer: timer.due_s)
            self.now_s, timer.runs = timer.due_s, False
            timer.then()
        self.now_s = moment_s


class Timer:
    def __init__(self, clock, due_s, then):
        self.due_s, self.then, self.runs = due_s, then, False

    def start(self):
        self.runs = True

    def cancel(self):
        self.runs = False


class Watched:
    def __init__(self):
        self.clock, self.ends_s, self.at_work = Clock(), [], False
        end = lambda: self.ends_s.append(self.clock.now_s)  # noqa: E731 - a line
        self.idle = IdleEnd(end, lambda: self.at_work, self.clock, self.clock.timer)


def test_what_is_used_once_ends_after_the_idle_time_and_once():
    watched = Watched()
    watched.idle.used(600)
    watched.clock.to(599)
    assert watched.ends_s == []
    watched.clock.to(5000)
    assert watched.ends_s == [600]


def test_each_use_counts_from_itself_and_one_timer_serves_them_all():
    watched = Watched()
    for moment_s in range(0, 500, 100):
        watched.clock.to(moment_s)
        watched.idle.used(600)
    assert len(watched.clock.timers) == 1
    watched.clock.to(5000)
    assert watched.ends_s == [1000]


def test_what_is_at_work_when_it_is_due_counts_as_used_then():
    watched = Watched()
    watched.idle.used(600)
    watched.at_work = True
    watched.clock.to(700)
    watched.at_work = False
    watched.clock.to(5000)
    assert watched.ends_s == [1200]


def test_a_shorter_time_counts_at_once():
    watched = Watched()
    watched.idle.used(600)
    watched.idle.used(60)
    watched.clock.to(5000)
    assert watched.ends_s == [60]


def test_after_its_end_it_counts_again_from_the_next_use():
    watched = Watched()
    watched.idle.used(600)
    watched.clock.to(700)
    watched.idle.used()
    watched.clock.to(5000)
    assert watched.ends_s == [600, 1300]


@pytest.mark.parametrize("without_end", ["never", "stopped"])
def test_what_never_ends_or_is_stopped_waits_for_no_timer(without_end):
    watched = Watched()
    watched.idle.used(math.inf if without_end == "never" else 600)
    watched.idle.stop()
    watched.clock.to(1e9)
    assert watched.ends_s == []


@pytest.mark.parametrize(
    ("said", "seconds"), [("", 600), ("0.5", 30), (" 20 ", 1200), ("0", math.inf), ("inf", math.inf), ("1e12", math.inf)]
)
def test_the_variable_says_the_minutes_and_zero_is_never(monkeypatch, said, seconds):
    monkeypatch.setenv("WORLDSIZE_IDLE_MINUTES", said)
    assert idle_end.idle_s() == seconds


@pytest.mark.parametrize("said", ["-1", "ten", "nan"])
def test_another_word_is_refused_with_what_is_expected(monkeypatch, said):
    monkeypatch.setenv("WORLDSIZE_IDLE_MINUTES", said)
    with pytest.raises(ValueError, match=f"WORLDSIZE_IDLE_MINUTES: expected a number of minutes, or 0 for never, got '{said}'"):
        idle_end.idle_s()


class Engine(LocalEngine):
    """Its minutes are over when a test says so: `due()` is what its timer does."""

    def __init__(self):
        super().__init__("torch")
        self.timers = []
        self._idle = IdleEnd(self._end_idle, self._at_work, self.clock, self.timer)
        self.now_s = 0.0

    def clock(self):
        return self.now_s

    def timer(self, after_s, then):
        self.timers.append(Timer(None, self.now_s + after_s, then))
        return self.timers[-1]

    def due(self):
        """Let an hour pass, and have the timers that are due look."""
        self.now_s += 3600
        for timer in [timer for timer in self.timers if timer.runs]:
            timer.runs = False
            thread = threading.Thread(target=timer.then)
            thread.start()
            thread.join(LONG_S)

    def processes(self):
        return [agent.process for agent in self._agents.values()]


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.delenv("WORLDSIZE_IDLE_MINUTES", raising=False)
    made = Engine()
    yield made
    made.close()


def hello():
    print("hello")
    return 7


def launched(engine):
    return execute(engine, Payload(hello, (), {}), Job(world_size=1, timeout_s=LONG_S, **callers_state(1)), KernelLaunches())


def test_an_idle_engine_has_no_process_and_its_next_launch_says_so_once_and_old_runs_stay(engine):
    old = launched(engine)
    (process,) = engine.processes()
    assert old.notes == []

    engine.due()
    assert process.poll() is not None and engine.processes() == []
    assert old.log(0) == "hello\n"

    new = launched(engine)
    assert new.results == [7]
    assert new.notes == [
        "the helper that starts ranks had ended after 10 minutes without a launch, to free its memory; this launch "
        "started it again"
    ]
    assert launched(engine).notes == []


def test_ranks_that_stay_keep_their_engine_until_they_are_closed(engine):
    job = Job(world_size=1, timeout_s=LONG_S, world="w", wants_late_imports=True, **callers_state(1))
    execute_order(engine, b"", job, KernelLaunches(), lambda job: job)
    (process,) = engine.processes()
    engine.due()
    assert process.poll() is None

    close_order(engine, Close("w"))
    engine.due()
    assert process.poll() is not None


def test_an_engine_at_work_is_not_idle_however_long_that_takes(engine):
    folder = engine.new_run_dir()
    ranks = engine.start(Job(world_size=1, timeout_s=LONG_S, dir=folder, **callers_state(1)))  # no payload: its rank fails
    engine.due()
    assert len(engine.processes()) == 1
    while not isinstance(ranks.next_event(1), Outcome):
        pass
    engine.due()
    assert engine.processes() == []
