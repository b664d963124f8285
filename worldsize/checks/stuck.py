"""Words for a parameter server that got stuck: whom it waits for, and who waits for it. Reads the messages so far.

Left out: deadlocks of other shapes, whose words the launch gives.
"""

from __future__ import annotations

import re

from worldsize.arena import Ended
from worldsize.checks.plan import Plan, ahead
from worldsize.checks.script import Script
from worldsize.quantity import count

_SERVER = re.compile(r"rank 0 waits for (\w+) \((\w+)")


def stuck(ended: Ended, play: Script, plan: Plan) -> str:
    """Two lines: what went wrong, and who waits for whom."""
    waits = ended.words.partition("\n")[0]
    taken = [t.src for t in ended.trace.transfers if t.dst == 0]
    after = f"after {count(len(taken), 'gradient')} "
    found = _SERVER.search(waits)
    if found is None:
        words = _ended(len(taken), play, plan)
    elif found[2] == "send" and len(taken) >= len(play.order):
        words = f"the server tells rank {found[1]} to stop, which computes: take its gradient first. Is it in `busy`?"
    elif found[2] == "send":
        words = f"the server sends to rank {found[1]}, which has weights and computes: answer only who waits."
    elif len(taken) >= len(play.order):
        words = _at_the_end(found[1], plan)
    elif found[1] != "anyone":
        words = f"the server waits for rank {found[1]}, and rank {play.order[len(taken)]} is first: receive from anyone."
    else:
        words = _unanswered(len(taken), ended, play, plan)
    return f"{after}{words}\n{waits}"


def _ended(taken: int, play: Script, plan: Plan) -> str:
    if taken < len(play.order):
        why = "late ones count nothing" if plan.need else "each is one update"
        return f"the server stops, and {count(plan.updates, 'update')} take {len(play.order)} of these: {why}."
    return "the server has ended, and a worker still waits for it: `dismiss` takes what is under way and tells all to stop."


def _at_the_end(whom: str, plan: Plan) -> str:
    rank = whom if whom == "anyone" else f"rank {whom}"
    done = count(plan.updates, "update")
    return f"the {done} are done, and the server waits for {rank}, which has no gradient under way: `busy` are those who compute."


def _unanswered(taken: int, ended: Ended, play: Script, plan: Plan) -> str:
    """The server waits for anyone, and the worker whose gradient comes next waits for weights."""
    worker = play.order[taken]
    updates = sum(max(use) < taken for use in plan.uses)
    what = f"the server waits for a gradient, and rank {worker} for weights. "
    if plan.bound is not None:
        lead = ahead(play, worker, taken)
        return f"{what}It is {lead} ahead of the slowest worker and the bound is {plan.bound}: it may go on."
    if plan.need is None:
        return f"{what}There is no barrier here: answer each gradient at once."
    late = [k for k in range(taken) if play.order[k] == worker and plan.ages[k]]
    if late and max(late) == max(k for k in range(taken) if play.order[k] == worker):
        return f"{what}Its gradient was late: throw it away, and send the newest weights at once."
    return f"{what}Step {updates - 1} had its {plan.need} of {play.workers} gradients: all who waited get the new weights."
