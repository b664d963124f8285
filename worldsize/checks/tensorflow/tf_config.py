"""Check of a task's `TF_CONFIG`: every task names the same cluster, and itself by its type and its index there.

Every rank is asked for its own text, on hosts with fresh names; the first plan's number of hosts is drawn. TensorFlow
never contacts the hosts.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, of_both
from worldsize.checks.kit.unchanged import changed
from worldsize.checks.kit.values import has_keys, kind_in_words
from worldsize.checks.verdict import UNEXAMINED, Complaint

CLUSTER = "the cluster has every host in its place"
TASK = "each task names itself"
PLANS = ((3, 0), (6, 2), (1, 0), (2, 1))  # (hosts, parameter servers)
DRAWN = ((2, 9), (1, 4))  # ranges of workers, besides the chief, and of parameter servers

Jobs = dict[str, list[str]]


@exercise({CLUSTER: 0.5, TASK: 0.5})
def cluster_config(arena: Arena, fn: Callable) -> Iterable[Case]:
    """Check the text of TF_CONFIG.

    `cluster_config(hosts, ps, rank)` returns the text for hosts[rank]; the hosts are a chief, workers, then `ps` servers.
    """
    cases = []
    workers, servers = (arena.draws.randint(*span) for span in DRAWN)
    for count, ps in ((1 + workers + servers, servers), *PLANS):
        numbers = arena.draws.sample(range(10, 100), count)
        lowest = numbers.pop(numbers.index(min(numbers)))
        numbers.insert(count - ps - 1, lowest)  # the last worker: an answer that sorts hosts or workers fails
        hosts = [f"node{number}:{arena.draws.randrange(2000, 9000)}" for number in numbers]
        jobs = {"chief": hosts[:1], "worker": hosts[1 : count - ps], "ps": hosts[count - ps :]}
        name = f"{count} hosts, ps={ps}" if count > 1 else "one host, ps=0"
        cases.append(Case(name, partial(_called, arena, fn, hosts, ps), partial(_examine_all, hosts=hosts, jobs=jobs)))
    return cases


def _called(arena: Arena, fn: Callable, hosts: list[str], ps: int) -> ArenaResult:
    """Call `cluster_config` once for each host; return the first call that fails, or all answers, and the hosts after each."""
    returned, inputs = [], []
    for rank in range(len(hosts)):
        ended = arena.call(fn, list(hosts), ps, rank)
        if ended.state == "not yet":
            return ended
        if ended.state != "done":
            return replace(ended, message=f"rank {rank}: {ended.message}")
        returned += ended.returned
        inputs.append(ended.inputs[0])
    return ArenaResult("done", returned=tuple(returned), inputs=tuple(inputs))


def _examine_all(ended: ArenaResult, hosts: list[str], jobs: Jobs) -> dict[str, Complaint]:
    """Return, by property, the first complaint over all hosts; UNEXAMINED where a host's TF_CONFIG could not be read."""
    complaints: dict[str, Complaint] = dict.fromkeys(cluster_config.points)
    for rank, (text, after) in enumerate(zip(ended.returned, ended.inputs, strict=True)):
        found = _examine(text, hosts, jobs, rank)
        found[CLUSTER] = found[CLUSTER] or changed(after, hosts, "hosts")
        for name, complaint in found.items():
            if complaint:
                complaint = f"rank {rank}: {complaint}"
            complaints[name] = of_both(complaints[name], complaint)

    return complaints


def _examine(text: Any, hosts: list[str], jobs: Jobs, rank: int) -> dict[str, Complaint]:
    if not isinstance(text, str):
        came = kind_in_words(text)
        return _unread(f"expected text, as an environment variable holds it, got {came}. json.dumps makes it.")

    try:
        config = json.loads(text)
    except ValueError:
        return _unread(f"this text is not JSON: {text[:60]!r}. str() of a dict writes other quotes; use json.dumps.")

    if not has_keys(config, "cluster", "task"):
        keys = ", ".join(map(repr, config)) if isinstance(config, dict) else type(config).__name__
        return _unread(f"expected the keys 'cluster' and 'task', got {keys}")
    return {CLUSTER: _wrong_cluster(config["cluster"], jobs), TASK: _wrong_task(config["task"], hosts, jobs, rank)}


def _unread(complaint: str) -> dict[str, Complaint]:
    return {CLUSTER: complaint, TASK: UNEXAMINED}


def _wrong_cluster(cluster: Any, jobs: Jobs) -> Complaint:
    if not isinstance(cluster, dict):
        return f"'cluster': expected a dict from a type to its addresses, got a {type(cluster).__name__}"

    for name in cluster:
        if name not in jobs:
            return f"'cluster' has the type {name!r}; the types here are {', '.join(map(repr, jobs))}"

    for name, addresses in jobs.items():
        got = cluster.get(name, [])
        if got != addresses:
            return f"'cluster': expected {name!r} to be {addresses}, got {got!r}. {_why(name, got, jobs)}"

    return None


def _why(name: str, got: Any, jobs: Jobs) -> str:
    if not isinstance(got, list):
        return "Even a single address must be in a list."

    for other, addresses in jobs.items():
        if other != name and any(address in got for address in addresses):
            return f"It holds a host of {other!r}: every host has one place."

    if got == [address.partition(":")[0] for address in jobs[name]]:
        return "The port belongs to the address."
    if sorted(map(str, got)) == sorted(jobs[name]):
        return "The order counts: an index is a place in this list."
    if name == "worker" and not jobs["ps"] and not got:
        return "With ps=0 a slice that ends at -ps is hosts[1:0], which is empty."
    if len(got) < len(jobs[name]):
        return "Is a host left out?"
    return "Keep each address as it was passed in."


def _wrong_task(task: Any, hosts: list[str], jobs: Jobs, rank: int) -> Complaint:
    if not has_keys(task, "type", "index"):
        return f"'task': expected a dict with 'type' and 'index', got {task!r}"

    [kind] = [name for name, addresses in jobs.items() if hosts[rank] in addresses]
    index = jobs[kind].index(hosts[rank])
    if task["type"] != kind:
        return f"'task': {hosts[rank]} is a {kind}, got the type {task['type']!r}"

    got = task["index"]
    if type(got) is not int:  # a bool is an int too
        return f"'task': expected the index as a whole number, got {got!r}"

    if got != index:
        complaint = f"'task': {hosts[rank]} is {kind} {index}, got index {got}."
        if got in (rank, rank - 1):  # counted over all hosts, or over all but the chief
            complaint += " Count it within its own type, not over all hosts."
        return complaint

    return None
