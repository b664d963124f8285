"""Checks of lab 05: an asynchronous server, the gate of bounded staleness, and the barrier with backup workers.

The check plays all workers from a `WorkerScript`; the expected result (`UpdatePlan`) follows from the order of arrivals
alone. The server is judged by the final weights, the letters to each worker, and what it returns about its gradients.
J. Dean et al. (NIPS 2012), Q. Ho et al. (NIPS 2013), J. Chen et al. ("Revisiting distributed synchronous SGD", 2016) and W.
Zhang et al. (IJCAI 2016): the rules.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.asynchronous import server_mistakes
from worldsize.checks.asynchronous.scripted_workers import WorkerScript, played_worker, script
from worldsize.checks.asynchronous.server_mistakes import stuck
from worldsize.checks.asynchronous.update_plan import UpdatePlan, first_of_each, one_by_one
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.units import count

RATE = 0.25
MOST_MORE = 9

ANSWERED = "each sender gets the newest weights at once"
COUNTED = "every gradient counts once"
STALENESS = "the staleness of each gradient is returned"
SCALED = "scaled: the rate is divided by the staleness"
GATE = "nobody begins more than `bound` ahead, and nobody waits without need"
MEAN = "a step is the mean of the first gradients of its version"
RELEASED = "all who wait get the new weights, a late sender at once"
DROPPED = "the number of dropped gradients is returned"


@exercise(
    {ANSWERED: 0.5, COUNTED: 0.25, STALENESS: 0.25, SCALED: 0.5},
    seen=dict.fromkeys((ANSWERED, COUNTED, SCALED), evidence.PLAYED_RANKS),
)
def async_server(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a parameter server for asynchronous updates.

    `async_server(fabric, weights, updates, rate, scaled=False)` returns (weights, staleness of each gradient).
    """
    many = arena.draws.randint(4, 7)
    orders = {
        "2 workers": (2, any_order(2, arena.draws)),
        "3 workers": (3, any_order(3, arena.draws)),
        "1 worker": (1, any_order(1, arena.draws)),
        f"{many} workers, 2 updates": (many, few_are_heard(many, 2, arena.draws)),
        "2 workers, one very slow": (2, very_slow_order(arena.draws)),
    }
    for name, (workers, order) in orders.items():
        play = script(workers, order, arena.draws.getrandbits(32))
        yield _case(name, arena, fn, play, one_by_one(play), (), (ANSWERED, COUNTED, STALENESS))

    for name, workers, order in (
        ("3 workers, scaled=True", 3, any_order(3, arena.draws)),
        ("2 workers, one very slow, scaled=True", 2, very_slow_order(arena.draws)),
    ):
        play = script(workers, order, arena.draws.getrandbits(32))
        yield _case(name, arena, fn, play, one_by_one(play, scaled=True), (True,), (ANSWERED, SCALED, STALENESS))


@exercise({GATE: 1.0, COUNTED: 0.25, STALENESS: 0.25}, seen=dict.fromkeys((GATE, COUNTED), evidence.PLAYED_RANKS))
def bounded_server(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a parameter server for asynchronous updates with bounded staleness.

    `bounded_server(fabric, weights, updates, rate, bound)` returns (weights, staleness of each gradient).
    """
    for workers, bound in ((2, 1), (3, 2), (3, 0), (1, 1)):
        play = script(workers, gated_order(workers, bound, arena.draws), arena.draws.getrandbits(32))
        name = f"{count(workers, 'worker')}, bound={bound}"
        yield _case(name, arena, fn, play, one_by_one(play, bound=bound), (bound,), (GATE, COUNTED, STALENESS))

    drawn = (2, arena.draws.randint(12, 20)), (arena.draws.randint(6, 8), 1)  # drawn, so that no list of cases passes
    for workers, bound in drawn:
        play = script(workers, far_order(workers, bound, arena.draws), arena.draws.getrandbits(32))
        name = f"{count(workers, 'worker')}, bound={bound}"
        yield _case(name, arena, fn, play, one_by_one(play, bound=bound), (bound,), (GATE, COUNTED, STALENESS))

    many = arena.draws.randint(4, 6)
    first, *others = few_are_heard(many, 2, arena.draws)
    play = script(many, [first, first, *others], arena.draws.getrandbits(32))
    name = f"{many} workers, bound=1, 3 updates"
    yield _case(name, arena, fn, play, one_by_one(play, bound=1), (1,), (GATE, COUNTED, STALENESS))


@exercise({MEAN: 0.75, RELEASED: 0.5, DROPPED: 0.25}, seen=dict.fromkeys((MEAN, RELEASED), evidence.PLAYED_RANKS))
def backup_server(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check a parameter server for synchronous updates with backup workers.

    `backup_server(fabric, weights, updates, rate, backups)` returns (weights, number of dropped gradients).
    """
    drawn = arena.draws.randint(7, 9), arena.draws.randint(1, 2)
    for workers, backups in ((3, 1), (2, 0), (3, 2), (2, 1), drawn):
        play = script(workers, hurried_order(workers, backups, arena.draws), arena.draws.getrandbits(32))
        name = f"{count(workers, 'worker')}, backups={backups}"
        yield _case(name, arena, fn, play, first_of_each(play, backups), (backups,), (RELEASED, MEAN, DROPPED))

    for workers, backups in ((3, 1), (arena.draws.randint(4, 6), 2)):
        play = script(workers, alternating_order(workers, backups, arena.draws), arena.draws.getrandbits(32))
        name = f"{workers} workers, backups={backups}, each late once"
        yield _case(name, arena, fn, play, first_of_each(play, backups), (backups,), (RELEASED, MEAN, DROPPED))

    workers, backups = arena.draws.randint(5, 7), 2
    play = script(workers, few_are_heard(workers, workers - backups, arena.draws), arena.draws.getrandbits(32))
    name = f"{workers} workers, backups={backups}, 1 update"
    yield _case(name, arena, fn, play, first_of_each(play, backups), (backups,), (RELEASED, MEAN, DROPPED))


def _case(
    name: str, arena: Arena, fn: Callable, play: WorkerScript, plan: UpdatePlan, more: tuple, properties: tuple[str, str, str]
) -> Case:
    """Return a server's case; `properties` name the points for letters, for weights, and for the second returned value."""
    letters_property, weights_property, second_property = properties

    def run() -> ArenaResult:
        workers = dict.fromkeys(range(1, play.workers + 1), played_worker)
        ended = arena.ranks(fn, play.inputs, plan.updates, RATE, *more, played=workers)
        if ended.state != "deadlock":
            return ended
        return replace(ended, message=stuck(ended, play, plan), waits=())  # the message already has the advice

    def examine(ended: ArenaResult) -> dict[str, Complaint]:
        versions = server_mistakes.wrong_versions(ended, play, plan, RATE)
        weights = server_mistakes.wrong_weights(ended, play, plan, RATE)

        sent = versions or server_mistakes.wrong_weights_sent(ended, play, plan, RATE)
        if not versions and weights and sent:  # the letters may hold the weights of a server that counts otherwise
            sent = None if server_mistakes.are_its_own_weights(ended, play, plan) else UNEXAMINED

        if plan.need is None:
            second = server_mistakes.wrong_ages(ended, play, plan)
        else:
            second = server_mistakes.wrong_dropped(ended, plan)
        if versions and second:  # wrong numbers on the letters make others of the staleness
            second = UNEXAMINED
        return {letters_property: sent, weights_property: weights, second_property: second}

    return Case(name, run, examine)


def any_order(workers: int, chance: random.Random) -> list[int]:
    """Return a server's order with a slow last worker: its first gradient comes when the others have sent several."""
    quick = chance.randint(2, 3) * list(range(1, max(2, workers)))
    chance.shuffle(quick)
    return [*quick, workers, *chance.choices(range(1, workers + 1), k=chance.randint(2, 5)), workers]


def very_slow_order(chance: random.Random) -> list[int]:
    """Return a server's order of two workers, of which one delivers a gradient when the other has delivered 12 to 20."""
    quick, slow = chance.sample((1, 2), 2)
    return [*[quick] * chance.randint(12, 20), slow, quick]


def few_are_heard(workers: int, heard: int, chance: random.Random) -> list[int]:
    """Return a server's order of a run in which `heard` workers deliver once, and the others, the last among them, never do."""
    return chance.sample(range(1, workers), heard)


def gated_order(workers: int, bound: int, chance: random.Random) -> list[int]:
    """Return a server's order in which workers run ahead in turn, as far as the gate lets them, so that earlier ones wait. Twice.

    In between come up to MOST_MORE gradients of any workers for whom the gate is open.
    """
    order: list[int] = []

    def may_go() -> list[int]:
        clocks = [order.count(rank) for rank in range(1, workers + 1)]
        return [rank for rank, clock in enumerate(clocks, start=1) if clock - min(clocks) <= bound]

    ranked = chance.sample(range(1, workers + 1), workers)
    for between in (chance.randint(0, MOST_MORE), 0):
        for worker in ranked:
            for _ in range(bound + 2):
                order += [worker] * (worker in may_go())
        for _ in range(between):
            order.append(chance.choice(may_go()))

    return order


def far_order(workers: int, bound: int, chance: random.Random) -> list[int]:
    """Return a server's order in which a worker runs ahead up to the gate, and a gradient of each other worker opens the gate."""
    first, *others = chance.sample(range(1, workers + 1), workers)
    return [*[first] * (bound + 1), *others, first, *chance.sample(others, min(2, len(others)))]


def hurried_order(workers: int, backups: int, chance: random.Random) -> list[int]:
    """Return a server's order of three steps by the same workers. Others are late for the second step, and again for the third.

    Up to MOST_MORE more steps follow, for which the others are late, too.
    """
    need = workers - backups
    ranked = chance.sample(range(1, workers + 1), workers)
    quick, late = ranked[:need], ranked[need:]
    before = 1 if need > 1 else 0  # where it can, a late gradient comes in the middle of a step
    second = [*quick[:before], *late[:1], *quick[before:]]

    return [*quick, *second, *late[1:], *late[:1], *quick, *chance.randint(0, MOST_MORE) * [*late, *quick]]


def alternating_order(workers: int, backups: int, chance: random.Random) -> list[int]:
    """Return a server's order of steps in which each worker is late once, and in time for the same step with its next gradient.

    There is at least one backup.
    """
    ranked = chance.sample(range(1, workers + 1), workers)
    in_time, late = ranked[: workers - backups], ranked[workers - backups :]
    order = list(in_time)
    for _ in range(workers):
        late.append(in_time.pop(0))
        worker = late.pop(0)
        order += [worker, worker, *chance.sample(in_time, len(in_time))]
        in_time.append(worker)
    return order
