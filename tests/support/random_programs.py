"""Random programs of torch's own communication, each with a known answer: it runs through, or some rank waits for ever.

`drawn(seed)` makes a program that runs through, and often spoils it on one rank: a call left out, two calls exchanged, another
operation in its place. `hangs` decides by playing it: a collective ends when all members have posted the same operation at its
place, a message when both sides are posted. `play` is the function for ranks.
"""

import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.distributed as dist

COLLECTIVES = ("all_reduce", "barrier", "all_gather")


@dataclass(frozen=True)
class Step:
    """A rank's step. `handle` is the number of an asynchronous call, 0 for one that waits; a "wait" step waits for it."""

    does: Literal["collective", "send", "recv", "wait", "sleep", "work"]
    op: str = ""
    group: int = 0
    peer: int = 0
    tag: int = 0
    handle: int = 0
    seconds: float = 0.0
    in_thread: bool = False


@dataclass(frozen=True)
class Program:
    seed: int
    groups: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[Step, ...], ...]  # by rank

    @property
    def world_size(self) -> int:
        return len(self.steps)


def drawn(seed: int) -> Program:
    draw = random.Random(seed)
    n = draw.choice((2, 3, 4))
    groups = [tuple(range(n))]
    for _ in range(draw.randrange(3)):
        groups.append(tuple(sorted(draw.sample(range(n), draw.randint(2, n)))))

    steps: list[list[Step]] = [[] for _ in range(n)]
    open_handles: list[list[int]] = [[] for _ in range(n)]
    handles = 0
    for _ in range(draw.randint(3, 12)):
        kind = draw.random()
        if kind < 0.5:
            group = draw.randrange(len(groups))
            op = draw.choice(COLLECTIVES)
            later = op == "all_reduce" and draw.random() < 0.3
            # gloo 2.13 itself stalls now and then with two such open at once, although all ranks have posted both
            later = later and not any(open_handles[rank] for rank in groups[group])
            handles += later
            for rank in groups[group]:
                steps[rank].append(Step("collective", op, group, handle=handles if later else 0))
                if later:
                    open_handles[rank].append(handles)
        elif kind < 0.8:
            src, dst = draw.sample(range(n), 2)
            tag = draw.randrange(2)
            for rank, does, peer in ((src, "send", dst), (dst, "recv", src)):
                later = draw.random() < 0.4
                handles += later
                steps[rank].append(Step(does, peer=peer, tag=tag, handle=handles if later else 0))
                if later:
                    open_handles[rank].append(handles)
        else:
            rank, seconds = draw.randrange(n), draw.choice((0.02, 0.1, 0.5, 0.8))
            steps[rank].append(Step(draw.choice(("sleep", "work")), seconds=seconds))
        for rank in range(n):
            if open_handles[rank] and draw.random() < 0.4:
                steps[rank].append(Step("wait", handle=open_handles[rank].pop(0)))
    for rank in range(n):
        steps[rank] += [Step("wait", handle=handle) for handle in open_handles[rank]]

    program = Program(seed, tuple(groups), tuple(map(tuple, steps)))
    if draw.random() < 0.5:
        return _spoilt(program, draw)
    if draw.random() < 0.2:
        return _threaded(program, draw)
    return program


def _spoilt(program: Program, draw: random.Random) -> Program:
    rank = draw.randrange(program.world_size)
    steps = list(program.steps[rank])
    calls = [place for place, step in enumerate(steps) if step.does in ("collective", "send", "recv") and not step.handle]
    if not calls:
        return program
    place = draw.choice(calls)
    way = draw.choice(("left out", "exchanged", "another", "ends early"))
    if way == "left out":
        del steps[place]
    elif way == "ends early":
        steps = steps[:place]
        waited = {step.handle for step in steps if step.does == "wait"}
        begun = [step.handle for step in steps if step.handle and step.does != "wait"]
        # gloo may forget a message whose handle is dropped, so every handle is waited for
        steps += [Step("wait", handle=handle) for handle in begun if handle not in waited]
    elif way == "exchanged" and len(calls) > 1:
        other = draw.choice([each for each in calls if each != place])
        steps[place], steps[other] = steps[other], steps[place]
    elif steps[place].does == "collective":
        steps[place] = replace(steps[place], op=draw.choice([op for op in COLLECTIVES if op != steps[place].op]))
    else:
        steps[place] = replace(steps[place], tag=steps[place].tag + 5)
    return replace(program, steps=(*program.steps[:rank], tuple(steps), *program.steps[rank + 1 :]))


def _threaded(program: Program, draw: random.Random) -> Program:
    """Let one rank's last collective come late, from a thread of its own."""
    rank = draw.randrange(program.world_size)
    steps = list(program.steps[rank])
    calls = [place for place, step in enumerate(steps) if step.does == "collective"]
    if calls and not steps[calls[-1]].handle:
        last = steps.pop(calls[-1])
        steps.append(replace(last, in_thread=True, seconds=0.9))
    late = replace(program, steps=(*program.steps[:rank], tuple(steps), *program.steps[rank + 1 :]))
    return program if hangs(late) else late


def hangs(program: Program) -> bool:
    """Play the program, each rank as far as it comes; return True if one does not come to its end."""
    n = program.world_size
    at = [0] * n
    posted = [False] * n  # whether the rank's current step has been posted
    collectives: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)  # by group and number: operations by rank
    counts: dict[tuple, int] = defaultdict(int)
    numbers: dict[tuple[int, int], tuple] = {}  # by rank and handle, 0 for the current step: what was posted

    def over(what: tuple) -> bool:
        if what[0] == "collective":
            _, group, number = what
            told = collectives[group, number]
            return len(told) == len(program.groups[group]) and len(set(told.values())) == 1
        _, other, number = what
        return counts[other] >= number

    moved = True
    while moved:
        moved = False
        for rank in range(n):
            while at[rank] < len(program.steps[rank]):
                step = program.steps[rank][at[rank]]
                if step.does in ("collective", "send", "recv") and not posted[rank]:
                    posted[rank] = moved = True
                    if step.does == "collective":
                        counts["group", rank, step.group] += 1
                        number = counts["group", rank, step.group]
                        collectives[step.group, number][rank] = step.op
                        numbers[rank, step.handle] = ("collective", step.group, number)
                    else:
                        other = "recv" if step.does == "send" else "send"
                        way = (rank, step.peer) if step.does == "send" else (step.peer, rank)
                        counts[step.does, *way, step.tag] += 1
                        number = counts[step.does, *way, step.tag]
                        numbers[rank, step.handle] = ("message", (other, *way, step.tag), number)
                waits = step.does == "wait" or (step.does in ("collective", "send", "recv") and not step.handle)
                if waits and (rank, step.handle) in numbers and not over(numbers[rank, step.handle]):
                    break
                at[rank] += 1
                posted[rank] = False
                moved = True
    return any(at[rank] < len(program.steps[rank]) for rank in range(n))


def play(program: Program) -> str:
    """Run a rank's steps. A function for `launch`."""
    dist.init_process_group("gloo")
    groups = [dist.group.WORLD, *(dist.new_group(list(ranks)) for ranks in program.groups[1:])]
    works: dict[int, dist.Work] = {}
    kept: list[torch.Tensor] = []
    threads: list[threading.Thread] = []
    for step in program.steps[dist.get_rank()]:
        if step.does == "wait":
            if step.handle in works:
                works.pop(step.handle).wait()
        elif step.does == "sleep":
            time.sleep(step.seconds)
        elif step.does == "work":
            until_s = time.monotonic() + step.seconds
            while time.monotonic() < until_s:
                torch.ones(100, 100) @ torch.ones(100, 100)
        elif step.in_thread:
            threads.append(threading.Thread(target=_late, args=(step, groups, program)))
            threads[-1].start()
        else:
            x = torch.ones(3)
            kept.append(x)
            work = _posted(step, x, groups, program)
            if step.handle and work is not None:
                works[step.handle] = work
    for thread in threads:
        thread.join()
    return "through"


def _late(step: Step, groups: list, program: Program) -> None:
    time.sleep(step.seconds)
    _posted(step, torch.ones(3), groups, program)


def _posted(step: Step, x: torch.Tensor, groups: list, program: Program) -> dist.Work | None:
    later = step.handle != 0
    if step.does == "send":
        return dist.isend(x, step.peer, tag=step.tag) if later else dist.send(x, step.peer, tag=step.tag)
    if step.does == "recv":
        if later:
            return dist.irecv(x, step.peer, tag=step.tag)
        dist.recv(x, step.peer, tag=step.tag)
        return None
    group = groups[step.group]
    if step.op == "all_reduce":
        return dist.all_reduce(x, group=group, async_op=later)
    if step.op == "barrier":
        return dist.barrier(group=group)
    dist.all_gather([torch.empty(3) for _ in program.groups[step.group]], x, group=group)
    return None
