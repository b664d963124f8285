"""A job's way from the call to the `Run` or the error; every launch of ranks goes through here.

A process executes one job at a time. Observers get the ranks' output and news while the job runs; then the run is filled
in, and errors are put into words. `engines/` starts the ranks.
"""

import linecache
import logging
import multiprocessing
import os
import pickle
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from worldsize import errors, failures
from worldsize.engines import payload
from worldsize.engines.job import Close, Job, Order, Progress, Prompt, Setup
from worldsize.engines.local_engine import LocalEngine, LocalRanks
from worldsize.engines.payload import Payload
from worldsize.engines.ranks.edited_modules import EditedModules
from worldsize.failures import Failure, Outcome
from worldsize.launch.outcome_error import edited_modules_note, error_of, large_payload_note, notes_of
from worldsize.launch.rank_output import OutputTail
from worldsize.launch.run import STUDENTS_LAUNCHES, KernelLaunches, Observer, Run, in_kernel

_TICK_S = 0.05  # between two updates of the observers
_FREED_S = 10.0  # extra time to stop ranks that stay: ending the agent would lose their state

_one_at_a_time = threading.Lock()
_modules = EditedModules()  # the caller's


def execute(engine: LocalEngine, call: Payload, job: Job, launches: KernelLaunches) -> Run:
    """Execute a launch: run `call` as a job, and return its `Run` or raise the error that ended it.

    Fills in the job's folder and time origin. Sets `launches.latest` at once and informs its observers. Students'
    observers always hear of an engine that is still starting.
    """
    packed = payload.pack(call)
    notes = [large_payload_note(packed, call)] if len(packed) > payload.LARGE_BYTES else []
    notes += [edited_modules_note(names) for names in [_modules.edited()] if names]
    _modules.note()
    job = replace(job, wants_late_imports=payload.wants_late_imports(call))

    name = getattr(call.fn, "__name__", "")
    return execute_order(engine, packed, job, launches, lambda job: job, notes, function=name if name.isidentifier() else "")


def execute_order(
    engine: LocalEngine,
    packed: bytes,
    job: Job,
    launches: KernelLaunches,
    order_of: Callable[[Job], Order],
    notes: Sequence[str] = (),
    ended: Callable[[Run, Outcome], None] = lambda run, outcome: None,
    function: str = "",
) -> Run:
    """Execute the order that `order_of` makes of the job once its folder and time origin are filled in.

    `packed` is the payload, b"" if the order itself carries it; `notes` start the run's notes; `function` names what
    runs. `ended` is called with the run's end before its observers are. Returns the `Run`, or raises its error.
    """
    with _one_at_a_time:
        job = replace(job, origin_s=time.monotonic(), dir=_run_dir(engine))
        if packed:
            job.files.payload.write_bytes(packed)

        run = Run(
            world_size=job.world_size, dir=job.dir, seed=job.seed, tasks=job.task_names,
            notes=[*notes, *filter(None, [engine.take_note()])], function=function,
        )  # fmt: skip
        weakref.finalize(run, engine.discarded.put, job.dir)  # delete the folder with the last reference to the run
        launches.latest = run

        observers = launches.observers
        try:
            outcome = _follow(engine, run, job, order_of(job), launches)
            error = _settle(run, job, outcome)
            ended(run, outcome)
        finally:
            if run.state == "running":  # the engine was lost
                run.state = "failed"
            for observer in observers:
                observer.ended(run)

    if error is not None:
        raise error
    return run


def close_order(engine: LocalEngine, order: Close) -> None:
    """End ranks that stay, and return when they have ended. Raises EngineLost."""
    with _one_at_a_time:
        ranks = engine.start(order)
        while not isinstance(ranks.next_event(_TICK_S), Outcome):
            pass


def check_arguments(fn: Any, args: Any, timeout_s: Any, seed: Any) -> None:
    """Check, before execution, the arguments common to all launches: function, `args`, time limit and seed.

    Raises ValueError for an argument that no launch takes.
    """
    if not callable(fn):
        got = type(fn).__name__
        raise ValueError(f"launch: expected a function, got {got}. Write launch(train), not launch(train()).")
    if not isinstance(args, (tuple, list)):
        raise ValueError(f"launch: expected args as a tuple, got {type(args).__name__}. Write args=(x,) for one argument.")
    if not isinstance(timeout_s, (int, float)) or isinstance(timeout_s, bool) or not 0 < timeout_s < 1e9:
        raise ValueError(f"launch: expected timeout_s as a number of seconds above 0, got {timeout_s!r}")
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        raise ValueError(f"launch: expected seed as a whole number of 0 or more, got {seed!r}")


def callers_state(seed: int | None) -> dict[str, Any]:
    """Return the caller's state for a launch: environment, `sys.path`, directory, seed, cell sources, multiprocessing,
    and whether it can show pictures.

    `seed` None draws a new one.
    """
    return {
        "env": dict(os.environ),
        "sys_path": tuple(sys.path),
        "cwd": os.getcwd(),
        "seed": secrets.randbits(62) if seed is None else seed,
        "sources": cell_sources(),
        "children": _children(),
        "shows": in_kernel(),
    }


def _children() -> str | None:
    """Return how a launch's caller has told multiprocessing to start processes; None if in the platform's usual way."""
    chosen = multiprocessing.get_start_method(allow_none=True)
    return None if chosen == multiprocessing.get_all_start_methods()[0] else chosen


def cell_sources() -> tuple[tuple[str, str], ...]:
    """Return (file, text) of the notebook's executed cells, so that a rank's traceback shows their lines."""
    sources = []
    for file, entry in linecache.cache.items():
        if "ipykernel" not in file and "ipython" not in file:
            continue
        if len(entry) == 4 and entry[1] is None:  # no modification time, so no file on disk
            sources.append((file, "".join(entry[2])))
    return tuple(sources)


def _run_dir(engine: LocalEngine) -> Path:
    """Return a folder for a run, once the engine is warm; tell observers meanwhile: on a busy machine that takes seconds."""
    observers, began_s = STUDENTS_LAUNCHES.observers, time.monotonic()
    waited = ready = False

    def tell() -> None:
        nonlocal waited
        waited = True
        for observer in observers:
            observer.warming(time.monotonic() - began_s)

    try:
        made = engine.new_run_dir(tell)
        ready = True
        return made
    finally:
        if waited:
            for observer in observers:
                observer.warmed(time.monotonic() - began_s, ready)


def _follow(engine: LocalEngine, run: Run, job: Job, order: Order, launches: KernelLaunches) -> Outcome:
    """Pass a launch's output to the observers until the outcome comes, and return the outcome."""
    observers = launches.observers
    tails = []
    for rank in range(job.world_size):
        tails.append(OutputTail(job.files.of(rank, "log"), job.files.of(rank, "shown"), launches.partial_lines))
    prompts: dict[int, Prompt] = {}  # by rank, of debuggers that wait for a command
    ranks = None
    due_s = 0.0

    try:
        ranks = engine.start(order)
        while True:
            event = ranks.next_event(_TICK_S)
            if isinstance(event, Outcome):
                _publish(run, tails, observers, last=True)
                return event

            _take_in(run, event, observers)
            if isinstance(event, Prompt):
                prompts[event.rank] = event
            at_prompt = event is None and len(prompts) > 0
            if time.monotonic() >= due_s or at_prompt:
                _publish(run, tails, observers, last=False)
                due_s = time.monotonic() + _TICK_S

            if at_prompt and launches.ask is not None:
                typed = launches.ask(prompts)
                del prompts[typed.rank]
                ranks.answer(typed)
    except KeyboardInterrupt:
        outcome = _stop(engine, run, ranks or engine.running(), engine.stops_within_s + (_FREED_S if job.world else 0))
        _publish(run, tails, observers, last=True)
        return outcome
    except BaseException:
        engine.abandon()
        raise


def _take_in(run: Run, event: Setup | Progress | Prompt | None, observers: tuple[Observer, ...]) -> None:
    if isinstance(event, Setup):
        run.setup, run.network, run.why_shared = event.text, event.network, event.why_shared
        run.hosts, run.clock_error_s = event.hosts, event.clock_error_s
        for observer in observers:
            observer.started(run)
    elif isinstance(event, Progress):
        run.reports[event.rank] += event.reports
        for observer in observers:
            observer.progressed(run, event)


def _stop(engine: LocalEngine, run: Run, ranks: LocalRanks | None, within_s: float) -> Outcome:
    """Stop the launched ranks after an interrupt, undeterred by further ones; end the agent if no outcome comes in time."""
    if ranks is None:  # nothing was started yet
        return Outcome(status="stopped")

    deadline_s = time.monotonic() + within_s
    asked_to_stop = False
    with suppress(errors.EngineLost):
        while time.monotonic() < deadline_s:
            try:
                if not asked_to_stop:
                    ranks.stop()
                asked_to_stop = True

                event = ranks.next_event(_TICK_S)
                if isinstance(event, Outcome):
                    return replace(event, status="stopped", waits=())
                _take_in(run, event, ())
            except KeyboardInterrupt:
                asked_to_stop = False  # tell again: the first stop frees ranks that stay, the second kills them

    engine.abandon()
    return Outcome(status="stopped")


def _publish(run: Run, tails: list[OutputTail], observers: tuple[Observer, ...], last: bool) -> None:
    if not observers:
        return

    for rank, tail in enumerate(tails):
        for piece in tail.new_pieces(last):
            for observer in observers:
                if piece.bundle:
                    observer.displayed(run, rank, piece.bundle)
                else:
                    observer.printed(run, rank, piece.text)
    for observer in observers:
        observer.ticked(run)


def _settle(run: Run, job: Job, outcome: Outcome) -> BaseException | None:
    """Fill in the `Run` at the end of a launch, and return the error to raise, or None."""
    if outcome.status == "done":
        with _without_groups():
            outcome = _take_results(run, job, outcome)
    run.outcome = outcome
    if outcome.entered_s:
        run.startup_s = max(outcome.entered_s.values()) - job.origin_s

    error = None
    first = failures.first_failure(outcome.failures) if outcome.status == "failed" else None
    if outcome.status == "done":
        run.notes += notes_of(outcome)
        run.state = "done"
    elif first is not None and first.not_yet:
        run.state, run.not_yet = "not yet", first.message
    else:
        run.state = "interrupted" if outcome.status == "stopped" else "failed"
        error = error_of(run, job, outcome)

    run.wall_s = time.monotonic() - job.origin_s
    return error


@contextmanager
def _without_groups() -> Iterator[None]:
    """Silence PyTorch's warning for each DeviceMesh in results, such as a DTensor's: its process groups are the ranks' own."""
    logger = logging.getLogger("torch.distributed.device_mesh")

    def others(record: logging.LogRecord) -> bool:
        return "unpickling of the DeviceMesh" not in record.getMessage()

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)


def _take_results(run: Run, job: Job, outcome: Outcome) -> Outcome:
    """Read each launched rank's result, None for a rank that was not awaited; an unreadable result makes the run fail."""
    results: list[Any] = [None] * job.world_size
    for rank in sorted(outcome.returned):
        try:
            results[rank] = pickle.loads(outcome.returned[rank].packed or job.files.of(rank, "result").read_bytes())
        except Exception as error:  # unpickling a student's class may raise anything
            message = f"its result cannot be read here: {error}"
            failure = Failure(rank=rank, kind="raised", at_s=time.monotonic(), type=type(error).__name__, message=message)
            return replace(outcome, status="failed", failures=(failure,))

    run.results = results
    return outcome
