"""Sessions of TensorFlow 1 that begin and end together, in a cluster with parameter servers.

A worker that starts before the chief has filled the variables would sleep 30 s, and a worker that leaves early takes its server
with it while others may still need that. The labs decide what a session runs.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.02
LONG_S = 10.0  # a session that would wait longer for threads at its end is stopped, because its user would not see why it waits


def together(is_chief: bool, patience_s: float = 20.0) -> Any:
    """Return a hook for `MonitoredTrainingSession` by which workers' sessions begin and end at the same time.

    Workers wait until the chief has filled the variables, and then for each other, before their first step and after their
    last. Raises TimeoutError after `patience_s` in vain, and at the end if the session would wait longer than LONG_S for
    threads that still run, because it lacks `stop_grace_period_secs`.
    """
    import tensorflow.compat.v1 as tf

    jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
    workers, server = len(jobs["worker"]), "grpc://" + jobs["ps"][0]
    _hush_helpers(tf.errors.CancelledError)

    def until(query: Callable[[Any], Any], wanted: Callable[[Any], bool], what: str) -> None:
        until_s = time.monotonic() + patience_s
        with tf.Session(server) as own:
            while not wanted(query(own)):
                if time.monotonic() > until_s:
                    raise TimeoutError(f"waited {patience_s:g} s for {what}")
                time.sleep(POLL_S)

    class Together(tf.train.SessionRunHook):
        def begin(self) -> None:
            with tf.device("/job:ps/task:0"):
                met = tf.get_variable("workers_met", [], tf.int32, tf.zeros_initializer(), trainable=False)
                self._meet, self._met = met.assign_add(1, read_value=False), met.read_value()
            if not is_chief:
                missing = tf.report_uninitialized_variables(tf.global_variables())
                until(lambda own: own.run(missing), lambda names: not len(names), "the chief to fill the variables")

        def after_create_session(self, session: Any, coord: Any) -> None:
            self._gather(workers, f"all {workers} workers to begin")
            _refuse_long_waits(coord)

        def end(self, session: Any) -> None:
            self._gather(2 * workers, f"all {workers} workers to end")

        def _gather(self, count: int, what: str) -> None:
            with tf.Session(server) as own:
                own.run(self._meet)
            until(lambda own: own.run(self._met), lambda met: met >= count, what)

    return Together()


def _refuse_long_waits(coord: Any) -> None:
    join = coord.join

    def checked(*given: Any, stop_grace_period_secs: float = 120.0, **more: Any) -> None:
        left = [thread.name for thread in coord._registered_threads if thread.is_alive()]  # no public name
        if left and stop_grace_period_secs > LONG_S:
            raise TimeoutError(
                f"the session would now wait up to {stop_grace_period_secs:g} s for {len(left)} helper thread(s), which may "
                "never end by themselves. Give MonitoredTrainingSession stop_grace_period_secs=2."
            )
        join(*given, stop_grace_period_secs=stop_grace_period_secs, **more)

    coord.join = checked


def _hush_helpers(cancelled: type[Exception]) -> None:
    """Silence a chief's helper thread: its session's close cancels it, which is no failure and needs no traceback."""
    usual_hook = threading.excepthook

    def hook(args: Any) -> None:
        if not issubclass(args.exc_type, cancelled):
            usual_hook(args)

    threading.excepthook = hook
