"""Name what a parameter server did wrong: in its weights, its letters, its counts, or where it got stuck.

Every gradient has an element of its own, so the final weights show how much each gradient counted. `update_plan.py` says
what is right.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from worldsize.checks.arena import ArenaResult
from worldsize.checks.asynchronous.scripted_workers import STOP, WorkerScript
from worldsize.checks.asynchronous.update_plan import UpdatePlan, ahead, shares, weights_at
from worldsize.checks.kit.transfers import received_by_each
from worldsize.checks.kit.values import close, differing, same, shown, type_in_words
from worldsize.checks.verdict import Complaint
from worldsize.failures import Wait
from worldsize.units import count, number

TOLERANCE = 1e-3  # of a gradient's count: float32 rounds at every update, and two shares differ by far more
CLOSE = {"tolerance": TOLERANCE, "near_zero": TOLERANCE}
EXACT = {"tolerance": 1e-5, "near_zero": TOLERANCE}  # for letters: numbers of 16 bits are farther off, sums of float32 are not
ROUNDED = {"tolerance": 1e-2, "near_zero": TOLERANCE}  # within which numbers of 16 bits lie


def wrong_weights(ended: ArenaResult, play: WorkerScript, plan: UpdatePlan, rate: float) -> Complaint:
    """Return the complaint about a server's weights: the first gradient that counts too much or too little.

    The weights are the first of the two values that rank 0 returns.
    """
    returned = ended.returned[0]
    if not isinstance(returned, tuple) or len(returned) != 2:
        came = "nothing" if returned is None else f"a {type_in_words(returned)}"
        return f"rank 0: expected two values, the weights and the second one of the contract, got {came}"

    try:
        got = np.asarray(returned[0], float)
    except (TypeError, ValueError):
        return f"rank 0: expected the weights first, got {shown(returned[0])}"

    if got.shape != play.start.shape:
        return f"rank 0: expected the weights first, of shape {list(play.start.shape)}, got shape {list(got.shape)}"

    counted = (play.start - got) / (rate * play.sizes)
    wanted = shares(play, plan, plan.updates)
    if same(counted, -wanted, **CLOSE):
        return "every gradient was added: a step goes against the gradient, weights -= …"

    where = differing(counted, wanted, **CLOSE)
    if not where.size:
        return None
    return _miscounted(int(where[0]), counted, wanted, play, plan).rstrip()


def _miscounted(k: int, counted: np.ndarray, wanted: np.ndarray, play: WorkerScript, plan: UpdatePlan) -> str:
    if k >= len(play.order):
        return (
            f"rank {k - len(play.order) + 1} had a gradient under way when the {count(plan.updates, 'update')} were done, "
            f"and this gradient counts {_times(counted[k])}. Only receive it, as `dismiss` does."
        )

    what = f"{_nth(play, k)} counts {_times(counted[k])}, expected {_times(wanted[k])}. "
    if plan.need:
        return what + _miscounted_in_a_step(k, counted, wanted[k], play, plan)

    arrived = slice(len(play.order))
    if play.workers > 1 and same(counted[arrived], wanted[arrived] / play.workers, **CLOSE):
        return f"every gradient counts 1/{play.workers}. Take no mean here: each gradient is an update at the full rate."
    earlier: list[float] = []
    for use in plan.uses[:k]:
        earlier += use.values()
    before = np.prod(earlier)

    got, want, age = counted[k], wanted[k], plan.ages[k]
    if before < 1 and close(got, before * want, TOLERANCE):
        return f"{what}An earlier update divided the rate for good: leave `rate` itself unchanged."
    if close(got, 0, TOLERANCE):
        return f"{what}It was received and never applied: every gradient is an update."
    if close(got, 1 / (age + 1), TOLERANCE):
        return f"{what}The update divided the rate by {age + 1}, and the staleness is {age}: divide by the staleness, above 1."
    if close(got, -want, TOLERANCE):
        return f"{what}Values of a gradient may be negative: keep their sign."
    if want < 1:
        return f"{what}Its staleness is {age}: with scaled=True, divide the rate of this update by its staleness."
    if close(got * age, 1, TOLERANCE):
        return f"{what}Its staleness is {age}, but the update takes the full rate."
    return what


def _miscounted_in_a_step(k: int, counted: np.ndarray, want: float, play: WorkerScript, plan: UpdatePlan) -> str:
    got = counted[k]
    if not want:
        return f"It was computed on version {plan.bases[k]}, and the weights are at version {plan.at[k]}: drop this gradient."
    last = max(plan.uses[plan.at[k]])
    if close(got, 0, TOLERANCE) and close(counted[last], 1, TOLERANCE):
        return f"Gradient {last + 1} counts instead: a letter's values are a view of the box, and the next recv overwrites them."
    if close(got, 1 / play.workers, TOLERANCE):
        return f"Divide the sum of {count(plan.need, 'gradient')} by {plan.need}, not by all {play.workers} workers."
    if close(got, 1, TOLERANCE):
        return f"A step takes the mean of its {count(plan.need, 'gradient')}, not the sum."
    return f"Step {plan.at[k]} takes the first {plan.need} of its {play.workers} gradients."


def _nth(play: WorkerScript, k: int) -> str:
    return f"gradient {k + 1} of {len(play.order)} (from rank {play.order[k]})"


def _times(value: float) -> str:
    return f"{number(round(float(value), 2))} times"


def wrong_versions(ended: ArenaResult, play: WorkerScript, plan: UpdatePlan, rate: float) -> Complaint:
    """Return the complaint about a server's letters: other versions than a worker should get, or no word to stop.

    A letter whose version is not its weights' is named, or else the first such worker. The version after the last update may be
    sent or not: nothing that counts is computed on it.
    """
    complaint = None
    for worker in range(1, play.workers + 1):
        got = [int(letter[0]) for letter in ended.returned[worker]]
        if got[-1] != STOP:
            done = count(plan.updates, "update")
            complaint = complaint or f"rank {worker} got version {got[-1]}, expected −1, to stop: {done} were done."
            continue

        got = [version for version in got[:-1] if version != plan.updates]
        want = [version for version in plan.versions_sent[worker] if version != plan.updates]
        if got == want:
            continue
        which = f"rank {worker} got the versions {got}, expected {want}."
        misnumbered = _misnumbered(worker, ended.returned[worker][:-1], want, play, plan, rate)
        if misnumbered:
            return f"{which} {misnumbered}"
        complaint = complaint or f"{which} {_why(worker, got, want, play, plan)}".rstrip()

    return complaint


def _misnumbered(
    worker: int, letters: Sequence[np.ndarray], want: list[int], play: WorkerScript, plan: UpdatePlan, rate: float
) -> str:
    """Return words for the first letter with another version than is due, or "" if its weights are neither version's."""
    for place, (letter, due) in enumerate(zip(letters, want, strict=False), start=1):
        sent = int(letter[0])
        if sent == due:
            continue
        if same(letter[1:], weights_at(play, plan, due, rate), **EXACT):
            right = "a letter's version is the number of updates in its weights"
            return f"Letter {place} says version {sent} and holds the weights of version {due}: {right}."
        if sent < due and plan.bound is None and same(letter[1:], weights_at(play, plan, sent, rate), **EXACT):
            if plan.need is not None and _was_in_time(worker, place, play, plan):
                return f"The rank's gradient of version {sent} was in time: count it, and send nothing before version {due}."
            return f"Letter {place} holds the weights of version {sent}, not the newest ones: update first, then answer."
        return ""
    return ""


def _was_in_time(worker: int, place: int, play: WorkerScript, plan: UpdatePlan) -> bool:
    """Return whether the gradient that a worker's letter number `place`, from 2 on, answers is of the newest version."""
    arrivals = [k for k, who in enumerate(play.order) if who == worker]
    k = arrivals[place - 2]
    return plan.bases[k] == plan.at[k]


def _why(worker: int, got: list[int], want: list[int], play: WorkerScript, plan: UpdatePlan) -> str:
    """Return the reason for the first of a server's versions that differs."""
    for sent, due in zip(got, want, strict=False):
        if sent != due:
            break
    else:
        return ""

    if plan.bound is not None and 0 < sent <= plan.updates:
        first = min(sent, due)
        lead = ahead(play, worker, first)
        then = "may go on"
        if sent < due:
            then = "must wait, and then get the newest weights"
        if sent > due or lead > plan.bound:
            after = f"After {count(first, 'update')} this rank is {lead} ahead of the slowest worker"
            return f"{after} and the bound is {plan.bound}: the rank {then}."

    if sent < due:
        return "A letter's version is the number of updates in its weights."
    if plan.need is not None:
        return f"Was the rank left waiting, or did a step end before its {plan.need} gradients were there?"
    return "The rank was left waiting: answer it at once."


def wrong_weights_sent(ended: ArenaResult, play: WorkerScript, plan: UpdatePlan, rate: float) -> Complaint:
    """Return the complaint about a server's first letter with other weights than its version's."""
    for worker in range(1, play.workers + 1):
        for letter in ended.returned[worker][:-1]:
            version = int(letter[0])
            if same(letter[1:], weights_at(play, plan, version, rate), **EXACT):
                continue
            for other in range(plan.updates + 1):
                if same(letter[1:], weights_at(play, plan, other, rate), **EXACT):
                    return f"rank {worker} got the weights of version {other} in a letter that says version {version}."

            its = f"rank {worker}'s letter of version {version}"
            if same(letter[1:], weights_at(play, plan, version, rate), **ROUNDED):
                return f"{its} holds the weights in fewer digits than float32 has: send them as they are."
            return f"{its} does not hold the weights after {count(version, 'update')}."

    return None


def are_its_own_weights(ended: ArenaResult, play: WorkerScript, plan: UpdatePlan) -> bool:
    """Return whether each letter holds what its version has of the server's final weights, however these count a gradient."""
    try:
        final = np.asarray(ended.returned[0][0], float)
    except (TypeError, ValueError, LookupError):
        return False

    at = np.array([*plan.at, *[plan.updates] * play.workers])  # no letter has a gradient that is under way at the end
    letters = [letter for worker in range(1, play.workers + 1) for letter in ended.returned[worker][:-1]]
    if final.shape != play.start.shape:
        return False
    return all(same(letter[1:], np.where(at < int(letter[0]), final, play.start), **CLOSE) for letter in letters)


def wrong_ages(ended: ArenaResult, play: WorkerScript, plan: UpdatePlan) -> Complaint:
    """Return the complaint about the first gradient whose staleness the server returns wrongly.

    The staleness of each gradient is the second value that rank 0 returns.
    """
    got = _second(ended)
    ages = list(map(_whole, got)) if isinstance(got, (tuple, list, np.ndarray)) else [None]
    if None in ages:
        return "rank 0: expected the staleness of each gradient as the second value, a list of whole numbers"

    if len(ages) != plan.updates:
        return f"rank 0 returned the staleness of {count(len(ages), 'gradient')}, expected {plan.updates}, one per update."

    for k, (age, want) in enumerate(zip(ages, plan.ages, strict=True)):
        if age != want:
            where = f"it was computed on version {plan.bases[k]} and applied to version {plan.at[k]}"
            return f"the staleness of {_nth(play, k)} is {want}, got {age}: {where}."

    return None


def wrong_dropped(ended: ArenaResult, plan: UpdatePlan) -> Complaint:
    """Return the complaint about a backup server's second value, its number of late gradients."""
    got, want = _second(ended), sum(age > 0 for age in plan.ages)
    if _whole(got) == want:
        return None
    return f"rank 0: expected {want} as the second value, the number of gradients that came late before the last step, got {got}"


def _second(ended: ArenaResult) -> Any:
    returned = ended.returned[0]
    return returned[1] if isinstance(returned, tuple) and len(returned) == 2 else None


def _whole(value: Any) -> int | None:
    """Return the whole number that a server's value is, or None."""
    numbers = (int, float, np.generic, np.ndarray)
    if not isinstance(value, numbers) or np.size(value) != 1 or float(value) % 1 != 0:
        return None
    return int(value)


def stuck(ended: ArenaResult, play: WorkerScript, plan: UpdatePlan) -> str:
    """Return two lines for a server that got stuck: its mistake, and the state of every rank.

    A played worker that waits for its turn is said to compute: turns are the script's own.
    """
    taken = received_by_each(ended.trace)[0]
    server = next((wait for wait in ended.waits if wait.rank == 0), None)
    if server is None:
        complaint = _ended(taken, play, plan)
    elif server.op == "send" and taken >= len(play.order):
        complaint = f"the server tells rank {server.peer} to stop, which computes: receive its gradient first. Is it in `busy`?"
        if server.peer not in play.order:
            complaint += " This gradient would be the rank's first: whoever holds weights computes."
    elif server.op == "send":
        complaint = f"the server sends to rank {server.peer}, which has weights and computes: answer only workers that wait."
    elif taken >= len(play.order) and server.peer is None:
        complaint = (
            f"the {count(plan.updates, 'update')} had all their gradients, and the server waits for one more, from anyone, but "
            f"no gradient is under way. Did each that came count?"
        )
        if plan.need is not None:
            complaint += " Whoever's gradient counts must wait for the next version, or the next gradient comes late."
    elif taken >= len(play.order):
        complaint = (
            f"the {count(plan.updates, 'update')} are done, and the server waits for rank {server.peer}, but no gradient is "
            f"under way from there: `busy` lists the workers that compute."
        )
    elif server.peer is not None:
        complaint = f"the server waits for rank {server.peer}, but rank {play.order[taken]} comes first: receive from anyone."
        if taken:
            made = f"{_made(taken, plan)} of {count(plan.updates, 'update')}"
            early = "the loop" if plan.need is None else "the loop or a step"
            complaint += f" These gradients make {made}: if `dismiss` is what waits here, {early} ended too early."
    else:
        complaint = _unanswered(taken, play, plan)

    return f"after {count(taken, 'gradient')} {complaint}\ndeadlock: {', '.join(map(_stands, ended.waits))}"


def _made(taken: int, plan: UpdatePlan) -> int:
    """Return how many of a server's updates have all their gradients among the first `taken` ones."""
    return sum(max(use) < taken for use in plan.uses)


def _stands(wait: Wait) -> str:
    """Return where a rank stands when a server is stuck, in the words of the lab."""
    if wait.rank == 0:
        if wait.op == "send":
            return f"the server sends to rank {wait.peer}"
        return f"the server receives from {_from_whom(wait.peer)}"
    if wait.tag:
        return f"rank {wait.rank} computes"

    what = "for weights"
    if wait.op == "send":
        what = "until the server takes its gradient"
    if wait.peer_ended:
        what += " (the server has ended)"
    return f"rank {wait.rank} waits {what}"


def _from_whom(peer: int | None) -> str:
    if peer is None:
        return "anyone"
    return f"rank {peer}"


def _ended(taken: int, play: WorkerScript, plan: UpdatePlan) -> str:
    if taken >= len(play.order):
        return (
            "the server has ended, but a worker still waits for it: `dismiss` receives what is under way and tells all to "
            "stop."
        )
    if not plan.need:
        return f"the server stops, but {count(plan.updates, 'update')} need {len(play.order)} of these: each is one update."

    late = sum(age > 0 for age in plan.ages[:taken])
    came = f"{taken - late} of these were computed on the newest weights"
    complaint = f"the server stops, but {came}: that makes {_made(taken, plan)} of {count(plan.updates, 'step')} of {plan.need}."
    if late:
        complaint += " Did the loop end too early, or did a late gradient count? Drop it, and answer its sender at once."
        complaint += " That letter says `version`: with a higher number, the sender's next gradient seems to be in time."
    return complaint


def _unanswered(taken: int, play: WorkerScript, plan: UpdatePlan) -> str:
    """Return the mistake of a server that waits for anyone, while the worker of the next gradient waits for weights."""
    worker = play.order[taken]
    what = f"the server waits for a gradient, and rank {worker} for weights. "
    if worker not in play.order[:taken]:
        none = f"{what}This rank has had none yet: at the start, send version 0 to every worker."
        if play.workers > 1 and plan.bound is not None:
            return f"{none} Does a loop change the list that it goes over? Then it skips workers."
        return none
    if plan.bound is not None:
        lead = ahead(play, worker, taken)
        look = "Compare clocks, not staleness, and after every update look at all workers that wait."
        return f"{what}This rank is {lead} ahead of the slowest worker and the bound is {plan.bound}: the rank may go on. {look}"
    if plan.need is None:
        return f"{what}There is no barrier here: answer each gradient at once."

    its_last = max(k for k in range(taken) if play.order[k] == worker)
    if plan.ages[its_last]:
        return f"{what}Its last gradient was late: drop a late gradient, and send the newest weights at once."

    step = f"Step {_made(taken, plan) - 1}"
    return f"{what}{step} had its {plan.need} of {play.workers} gradients: send all who waited the new weights."
