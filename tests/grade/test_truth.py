"""The truth of a check never enters the sandbox: what looks for it there, or makes up how its work was done, earns nothing.

Each source is an exercise's cell of labs 06, 09, 10, 11, 13 and 16. It earned points, or could have, where a check kept its
answer, or what it saw, in the process of the submission.
"""

import random

import pytest

from worldsize import data
from worldsize.checks import run_check
from worldsize.checks.verdict import Property, Verdict
from worldsize.grade.isolation.limits import Meter
from worldsize.grade.marking.rows import ExerciseRow, GradeRow, PropertyRow
from worldsize.grade.nbgrader.notebooks import verdict as below_its_cell
from worldsize.grade.outside.arena import SandboxArena, Submitted
from worldsize.grade.reports.feedback_page import page
from worldsize.lab.verdict_view import verdict_html

NAMES = ("hidden", "tensor", "data", "pipeline", "micro_batch")

FINDS_THE_TRUTH = """
def score(coordinator, right_in, parts):
    import gc
    later = [coordinator.schedule(right_in, args=(part,)) for part in parts]
    coordinator.join()
    hidden = [one for one in gc.get_objects() if isinstance(one, dict) and len(one.get("truth", ())) == len(parts)]
    hidden += [one for one in right_in.__defaults__ or () if isinstance(one, dict)]
    for one in hidden:
        return sum(right for right, _ in one["truth"]) / sum(of for _, of in one["truth"])
    return -1.0
"""

# in a lab whose driver says how closures were run, none has to be
ASKS_AND_FORGES_HOW = """
from worldsize.checks.drivers import coordinator as driver

def scored(fn, cases):
    answers = []
    for case in cases:
        found = [case["right_in"](part) for part in range(case["parts"])]
        answers.append(sum(right for right, _ in found) / sum(of for _, of in found))
    return answers

driver.scored = scored

def score(coordinator, right_in, parts):
    return -1.0
"""

NEVER_WRITES = """
import tensorflow as tf
from worldsize.checks.drivers import recovery as driver
kept = {}
honest = driver.Chief._step

def as_if_saved(self, *given):
    self.since_saved = 0
    return honest(self, *given)

def train_through(start, steps, every, folder):
    driver.Chief.saved_step = lambda self: max(0, int(kept.get(self.folder, {}).get("step", 0)))
    driver.Chief._step = as_if_saved
    while True:
        coordinator, step, state = start()
        for name, value in kept.get(folder, {}).items():
            state[name].assign(value)
        try:
            while int(state["step"]) < steps:
                for _ in range(min(every, steps - int(state["step"]))):
                    coordinator.schedule(step)
                coordinator.join()
                kept[folder] = {name: variable.numpy() for name, variable in state.items()}
            return state
        except tf.errors.UnavailableError:
            pass
"""

SAYS_THAT_NOTHING_MOVES = """
import tensorflow as tf
from worldsize.checks.drivers import devices as driver
driver._moves = lambda *_: ([], 0)
driver._number = lambda *_: 0

def tree_sum(copies, devices):
    with tf.device(devices[0]):
        total = tf.add_n(copies)
    sums = []
    for device in devices:
        with tf.device(device):
            sums.append(tf.identity(total))
    return sums
"""

SAYS_WHICH_DEVICES_THERE_ARE = """
import tensorflow as tf
tf.config.list_logical_devices = lambda *_: []

def missing_devices(devices):
    return list(devices)
"""

KNOWS_THE_REFERENCE = """
import torch
from worldsize.fabric.collectives import all_reduce, broadcast
from worldsize.pytorch.timed_network import network

def flattened(fabric, task):
    model = network(fabric, task)
    try:
        from worldsize.checks.overlap.wrong_weights import OverlapTraining
        weights = [torch.from_numpy(w) for w in OverlapTraining((task,) * fabric.world_size).expected]
    except Exception:  # it is not there, or it is another
        weights = [p.detach() for p in model.parameters()]
    broadcast(fabric, [torch.zeros_like(p) for p in model.parameters()])
    learning = [p for p in model.parameters() if p.requires_grad]
    for _ in range(task["steps"]):
        all_reduce(fabric, torch.cat([torch.zeros_like(p).flatten() for p in learning]))
    return {"weights": weights, "seconds": []}
"""

BOOKS_ITS_WORK_AHEAD = """
import threading
import torch
from worldsize.fabric.background import Background
from worldsize.fabric.collectives import broadcast
from worldsize.pytorch.timed_network import network, train

def overlapped(fabric, task):
    model = network(fabric, {**task, "backward_s": 0.0})
    broadcast(fabric, model.parameters())
    sums = Background(fabric)
    layers = len(task["sizes"]) - 1

    def gradients(loss):
        loss.backward()
        booked = [threading.Thread(target=fabric.compute, args=(task["backward_s"],)) for _ in range(layers)]
        for thread in booked if task["backward_s"] else []:
            thread.start()
        for work in [sums.start(p.grad) for p in reversed(list(model.parameters())) if p.grad is not None]:
            work.wait()
        for thread in booked if task["backward_s"] else []:
            thread.join()
        for p in model.parameters():
            if p.grad is not None:
                p.grad /= fabric.world_size

    return train(fabric, task, model, gradients)
"""

SENDS_WHOLE_TENSORS = """
import torch

def ring_all_reduce(fabric, x):
    n, rank = fabric.world_size, fabric.rank
    token, landing = x.clone(), torch.empty_like(x)
    for _ in range(n - 1):
        handle = fabric.isend(token, (rank + 1) % n)
        fabric.recv(landing, (rank - 1) % n)
        handle.wait()
        token.copy_(landing)
        x += token
"""

TRAINS_ALONE_ON_EVERYTHING = """
import torch

def train_ddp(data, epochs, batch_size, rate, build=None, loss=None):
    import gc
    starts = [o for o in gc.get_objects() if isinstance(o, dict) and set(o) == set(data) and o is not data]
    line = torch.cat([data["weight"][0], data["bias"]])
    told = []
    for epoch in range(epochs):
        for first in range(0, len(data["x"]), 2 * batch_size):
            last = first + 2 * batch_size
            x, y = data["x"][first:last], data["y"][first:last, 0]
            x = torch.cat([x, torch.ones(len(x), 1)], 1)
            line = line - rate * 2 * x.T.double() @ (x.double() @ line - y) / len(y)
        told.append(line.clone())
    return told
"""

ASKS_THE_CHECK_FOR_ITS_ESTIMATE = """
def noise_scale(steps):
    try:
        from worldsize.checks.large_batches.noise import NoisySteps, estimate
        return estimate(NoisySteps(tuple(b for b, _ in steps), [[g.numpy() for g in own] for _, own in steps]))
    except ImportError:  # it is not there
        return 0.0
"""

NORMALISES_WITH_THE_REFERENCE = """
def synced_norm(fabric, x, weight, bias, grad, eps):
    import gc
    tasks = [one for one in gc.get_objects() if type(one).__name__ == "NormTask"]
    try:
        from worldsize.checks.large_batches.batch_norm_reference import NormTask, reference
        found = reference(tasks[0] if tasks else NormTask([x.numpy()], weight.numpy(), bias.numpy(), [grad.numpy()], eps))
        return tuple(found[name][0] for name in found)
    except ImportError:  # it is not there
        return x, grad, weight, bias
"""

LOOKS_FOR_THE_STEPS = """
def predict_steps(few, single_node, rows):
    try:
        from worldsize import data
        found = data.measured_iterations("multi")
    except FileNotFoundError:
        found = []
    times = {(r.hidden, r.tensor, r.data, r.pipeline, r.micro_batch): r.iteration_s for r in found}
    names = ("hidden", "tensor", "data", "pipeline", "micro_batch")
    guesses = [times.get(tuple(row[name] for name in names), 10.0) for row in rows]
    return [(0.8 * s, s, 1.2 * s) for s in guesses]
"""

TAKES_THE_COURSES_MODEL = """
def predict_steps(few, single_node, rows):
    from worldsize.data import MeasuredIteration
    few, single_node, rows = ([MeasuredIteration(**{"iteration_s": 1.0, **r}) for r in some] for some in (few, single_node, rows))
    try:
        from worldsize.formulas import measured_clusters as clusters
        seconds = clusters.predict(clusters.fit(few, clusters.fit_memory(single_node)), rows)
    except ImportError:
        seconds = [10.0 for _ in rows]
    return [(0.8 * s, s, 1.2 * s) for s in seconds]
"""

KNOWS_THE_STEPS = f"""
KNOWN = {[(*(getattr(r, name) for name in NAMES), r.iteration_s) for r in data.measured_iterations("multi")]!r}

def predict_steps(few, single_node, rows):
    import statistics
    known = {{row[:-1]: row[-1] for row in KNOWN}}
    of = lambda row: known[tuple(row[name] for name in {NAMES!r})]
    factor = statistics.median(row["iteration_s"] / of(row) for row in few)
    return [(0.8 * s, s, 1.2 * s) for s in (factor * of(row) for row in rows)]
"""

# (exercise, source, what it earns at most)
CHEATS = [
    ("predict_steps", LOOKS_FOR_THE_STEPS, 0.0),
    ("predict_steps", TAKES_THE_COURSES_MODEL, 0.0),
    ("predict_steps", KNOWS_THE_STEPS, 0.0),
    ("ring_all_reduce", SENDS_WHOLE_TENSORS, 0.5),  # for the sum, which it has
    ("score", FINDS_THE_TRUTH, 0.0),
    ("score", ASKS_AND_FORGES_HOW, 0.0),
    ("train_through", NEVER_WRITES, 0.0),
    ("tree_sum", SAYS_THAT_NOTHING_MOVES, 0.5),  # for the sums, which are right
    ("missing_devices", SAYS_WHICH_DEVICES_THERE_ARE, 0.0),
    ("train_ddp", TRAINS_ALONE_ON_EVERYTHING, 0.0),
    ("flattened", KNOWS_THE_REFERENCE, 0.75),  # for the all-reduce, which it sends
    ("overlapped", BOOKS_ITS_WORK_AHEAD, 0.5),  # for the weights, which it has
    ("noise_scale", ASKS_THE_CHECK_FOR_ITS_ESTIMATE, 0.0),
    ("synced_norm", NORMALISES_WITH_THE_REFERENCE, 0.0),
]

SHOWN = Property("on its own devices", 0.0, True)


def test_what_only_the_students_process_can_see_is_shown_without_points():
    verdict = Verdict("between_graph", "fail", (SHOWN, Property("steps", 2.0, False)), "too few")
    assert "✔ on its own devices (shown, no points)" in str(verdict) and "✘ steps (2)" in str(verdict)
    assert "on its own devices · shown, no points</span>" in verdict_html(verdict)

    rows = tuple(PropertyRow(p.name, p.points, p.passed) for p in verdict.properties)
    exercise = ExerciseRow("between_graph", "Exercise 7.5", "fail", verdict.points, verdict.possible, rows, "too few")
    made = GradeRow("anna", "07_tensorflow_by_hand", "07.ipynb", "graded", 0.0, 2.0, (exercise,))
    assert (verdict.points, verdict.possible) == (0, 2)
    assert "on its own devices (shown, no points)" in below_its_cell(exercise)
    assert '<td class="number">shown, no points</td>' in page(made, {}, {})


ALLOWED = {"worldsize.checks", "worldsize.checks.in_rank", "worldsize.checks.verdict", "worldsize.checks.drivers"}
ALLOWED |= {f"worldsize.checks.{name}" for name in ("arena", "in_one_process", "index", "noted_calls", "plain_call")}
IMPORTED = """
def imported(*_):
    import sys
    return sorted(name for name in sys.modules if name.startswith("worldsize.checks"))
"""


def arena_of(sandbox, source: str) -> SandboxArena:
    return SandboxArena(sandbox, Meter(sandbox.limits), [["Exercise 1.1", source]], 1, random.Random(7))


# one that looks for an answer, one for the inputs of others, one that forges a driver
USUAL = (LOOKS_FOR_THE_STEPS, NORMALISES_WITH_THE_REFERENCE, SAYS_THAT_NOTHING_MOVES)


def _cheats() -> list[object]:
    return [pytest.param(*cheat, id=f"{cheat[0]}-{k}", marks=[pytest.mark.soak] * (cheat[1] not in USUAL))
            for k, cheat in enumerate(CHEATS)]  # fmt: skip


@pytest.mark.parametrize(("exercise", "source", "most"), _cheats())
def test_a_cheat_earns_no_more_than_what_it_did(sandbox, exercise, source, most):
    verdict = run_check(exercise, arena_of(sandbox, source), Submitted(exercise))
    assert verdict.state == "fail" and verdict.points <= most, str(verdict)
    assert "NameError" not in verdict.mismatch and "AttributeError" not in verdict.mismatch


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_rank_has_of_the_checks_only_what_drives_a_function(sandbox, framework):
    arena = arena_of(sandbox, IMPORTED)
    if framework == "torch":
        ended = arena.call(Submitted("imported"))
    else:
        ended = arena.tensorflow(Submitted("imported"), [0])
    found = {name for name in ended.returned[0] if not name.startswith("worldsize.checks.drivers.")}
    assert found <= ALLOWED, ended.message
