"""Alarms and interrupts at every line of a simulation: its caller gets the documented error, and its own state back.

The handlers are called by hand from a trace function, at lines that are counted, so nothing here hangs on seconds.
"""

import random
import signal
import sys
import threading
import time
import weakref
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from greenlet import getcurrent

from worldsize import report
from worldsize.errors import Deadlock, Interrupted, RankFailed, RunTimedOut
from worldsize.links import Link
from worldsize.simulate import simulate, symmetry
from worldsize.simulate.watch import Watch

FOLDERS = (str(Path(symmetry.__file__).parent), str(Path(__file__)))
ENDLESS_S = 1e-9  # a real time limit that has passed at the first alarm
AT_MOST = 5_000


class Fired:
    """A trace function that calls the handler of `signum` by hand at lines of the simulator, where `when(line)` is true.

    An exception in a trace function is raised in the line that is traced, and ends the tracing.
    """

    def __init__(self, signum, when):
        self.signum = signum
        self.when = when
        self.lines = 0

    def __call__(self, frame, event, arg):
        name = frame.f_code.co_filename
        if not (name.startswith(FOLDERS) or name.endswith("contextlib.py")):
            return None
        if event != "line":
            return self

        self.lines += 1
        handler = signal.getsignal(self.signum)
        watches = isinstance(getattr(handler, "__self__", None), Watch)
        if (watches or self.signum == signal.SIGINT) and self.when(self.lines):
            handler(self.signum, frame)
        return self


@contextmanager
def traced(fired):
    before = sys.gettrace()
    sys.settrace(fired)
    try:
        yield fired
    finally:
        sys.settrace(before)


def callers_state():
    handlers = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)
    clocks = time.sleep, time.monotonic, time.perf_counter
    patched = clocks, sys.stdout, sys.unraisablehook, threading.Thread.start, list(report._gathering)
    return handlers, patched, random.getstate(), torch.is_grad_enabled(), torch.get_rng_state().tolist()


def two_messages(fabric):
    x = torch.zeros(1)
    if fabric.rank == 0:
        fabric.send(x, 1)
        fabric.recv(x, 1)
    else:
        fabric.recv(x, 0)
        fabric.send(x, 0)


def waits_for_ever(fabric):
    try:
        fabric.recv(torch.zeros(1), 1 - fabric.rank)
    finally:
        fabric.compute(1.0)


def draws(fabric):
    two_messages(fabric)
    return random.random()


def outcome_of(fn, fired, timeout_s):
    """The class of what a simulation raises, or the state of its run, with `fired` as the trace function."""
    before = callers_state()
    try:
        with traced(fired):
            ended = simulate(fn, 2, link=Link("1 GB/s", "1 us"), timeout_s=timeout_s).state
    except BaseException as error:
        ended = type(error)
    assert callers_state() == before
    return ended


def outcomes_by_line(fn, signum, timeout_s, stride):
    """{outcome}: of a signal at one line, for every `stride`th line until the simulation has no more of them."""
    found, line = set(), 1
    while True:
        assert line < AT_MOST
        fired = Fired(signum, lambda number, line=line: number == line)
        found.add(outcome_of(fn, fired, timeout_s))
        if fired.lines < line:
            return found
        line += stride


STRIDES = [pytest.param(23, id="some"), pytest.param(1, id="all", marks=pytest.mark.soak)]


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("fn, ends", [(two_messages, "done"), (waits_for_ever, Deadlock), (draws, "done")])
def test_a_time_limit_at_any_line_is_told_as_such_or_comes_too_late(fn, ends, stride):
    assert outcomes_by_line(fn, signal.SIGALRM, ENDLESS_S, stride) == {ends, RunTimedOut}


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("fn, ends", [(two_messages, "done"), (waits_for_ever, Deadlock), (draws, "done")])
def test_the_stop_button_at_any_line_is_an_interrupt(fn, ends, stride):
    assert outcomes_by_line(fn, signal.SIGINT, 60.0, stride) <= {ends, Interrupted, KeyboardInterrupt}


def by_hand(signum):
    """Call the handler of `signum`, as Python does between two instructions."""
    signal.getsignal(signum)(signum, sys._getframe())


def test_alarms_at_every_line_after_the_first_change_nothing():
    begun, outside = [], getcurrent()

    def is_late(fabric):
        if fabric.rank == 0:
            fabric.recv(torch.zeros(1), 1)
        begun.append(True)
        by_hand(signal.SIGALRM)

    fired = Fired(signal.SIGALRM, lambda _: bool(begun) and getcurrent() is outside)
    assert outcome_of(is_late, fired, ENDLESS_S) is RunTimedOut
    assert fired.lines > 100


def test_a_function_that_catches_the_time_limit_is_ended_at_its_next_turn():
    def catches(fabric):
        try:
            by_hand(signal.SIGALRM)
        except BaseException:
            two_messages(fabric)

    with pytest.raises(RunTimedOut):
        simulate(catches, 2, timeout_s=ENDLESS_S)


@pytest.mark.parametrize("signum, error", [(signal.SIGALRM, Deadlock), (signal.SIGINT, Interrupted)])
def test_a_signal_while_ranks_are_made_to_leave_lets_the_others_leave_too(signum, error):
    left = []

    def cleans_up(fabric):
        try:
            fabric.recv(torch.zeros(1), 1 - fabric.rank)
        finally:
            left.append(fabric.rank)
            by_hand(signum)

    with pytest.raises(error):
        simulate(cleans_up, 2, timeout_s=ENDLESS_S)
    assert left == [0, 1]


def test_what_fails_while_ranks_are_made_to_leave_is_not_the_first_failure():
    def fails(fabric):
        if fabric.rank == 0:
            fabric.compute(1.0)
            raise KeyError("loss")
        try:
            fabric.recv(torch.zeros(1), 0)
        finally:
            raise RuntimeError("my neighbour is gone")

    with pytest.raises(RankFailed, match="rank 0 of 2 failed first: KeyError: 'loss'"):
        simulate(fails, 2)


@pytest.mark.parametrize("signum, error", [(signal.SIGALRM, RunTimedOut), (signal.SIGINT, Interrupted)])
def test_a_signal_in_a_callback_whose_errors_python_swallows_ends_the_simulation_without_a_word(signum, error, capfd):
    class Dropped: ...

    def drops(fabric):
        dropped = Dropped()
        callback = weakref.ref(dropped, lambda _: by_hand(signum))
        del dropped
        while callback() is None:
            fabric.compute(1.0)

    with pytest.raises(error):
        simulate(drops, 2, timeout_s=ENDLESS_S if error is RunTimedOut else 60.0)
    assert "ignored" not in capfd.readouterr().err


def test_another_timer_of_the_process_goes_on_afterwards():
    before = signal.setitimer(signal.ITIMER_REAL, 1000.0, 7.0)
    try:
        simulate(two_messages, 2)
        left_s, tick_s = signal.getitimer(signal.ITIMER_REAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
    assert 0 < left_s <= 1000.0 and tick_s == 7.0


def test_how_far_a_simulation_is_is_told_to_its_caller_and_to_no_rank(monkeypatch, capsys):
    monkeypatch.setattr("worldsize.simulate.watch._TELLS_AFTER_S", 0.0)

    def is_slow(fabric):
        by_hand(signal.SIGALRM)

    assert simulate(is_slow, 1).log() == ""
    assert "simulating for 0 s: 0 messages, 0 of 1 ranks done" in capsys.readouterr().out
