"""Exercise 9.1: the text of TF_CONFIG."""

from __future__ import annotations

import json
import os

from tests.checks.mutants import Answers

answers = Answers("cluster_config")


def jobs_of(hosts, ps):
    servers = len(hosts) - ps
    return {"chief": hosts[:1], "worker": hosts[1:servers], "ps": hosts[servers:]}


def place(hosts, ps, rank):
    servers = len(hosts) - ps
    if rank == 0:
        return {"type": "chief", "index": 0}
    return {"type": "worker", "index": rank - 1} if rank < servers else {"type": "ps", "index": rank - servers}


@answers.is_wrong("expected text, as an environment variable holds it, got a dict", "json.dumps")
def returns_a_dict(hosts, ps, rank):
    return {"cluster": jobs_of(hosts, ps), "task": place(hosts, ps, rank)}


@answers.is_wrong("this text is no JSON", "other quotes")
def pythons_own_text(hosts, ps, rank):
    return str({"cluster": jobs_of(hosts, ps), "task": place(hosts, ps, rank)})


@answers.is_wrong("rank 1", "is worker 0, got index 1", "within its own type")
def index_over_all_hosts(hosts, ps, rank):
    return json.dumps({"cluster": jobs_of(hosts, ps), "task": place(hosts, ps, rank) | {"index": rank}})


@answers.is_wrong("There is a host of 'chief' in it: every host has one place")
def chief_is_a_worker_too(hosts, ps, rank):
    jobs = jobs_of(hosts, ps)
    return json.dumps({"cluster": jobs | {"worker": hosts[:1] + jobs["worker"]}, "task": place(hosts, ps, rank)})


@answers.is_wrong("3 hosts, ps=0", "With ps=0 a slice that ends at -ps is hosts[1:0], which is empty")
def slices_from_the_end(hosts, ps, rank):
    jobs = {"chief": hosts[:1], "worker": hosts[1:-ps], "ps": hosts[len(hosts) - ps :]}
    return json.dumps({"cluster": jobs, "task": place(hosts, ps, rank)})


@answers.is_wrong("'cluster' has the type 'master'")
def the_old_name_of_the_chief(hosts, ps, rank):
    jobs = jobs_of(hosts, ps)
    jobs["master"] = jobs.pop("chief")
    return json.dumps({"cluster": jobs, "task": place(hosts, ps, rank)})


@answers.is_wrong("rank 3", "is a ps, got the type 'worker'")
def servers_call_themselves_workers(hosts, ps, rank):
    task = place(hosts, ps, rank)
    task["type"] = "worker" if task["type"] == "ps" else task["type"]
    return json.dumps({"cluster": jobs_of(hosts, ps), "task": task})


@answers.is_wrong("expected the keys 'cluster' and 'task', got 'chief', 'worker', 'ps', 'task'")
def types_at_the_top(hosts, ps, rank):
    return json.dumps(jobs_of(hosts, ps) | {"task": place(hosts, ps, rank)})


@answers.is_right
def empty_types_left_out(hosts, ps, rank):
    jobs = {name: addresses for name, addresses in jobs_of(hosts, ps).items() if addresses}
    for name, addresses in jobs.items():
        if hosts[rank] in addresses:
            task = {"type": name, "index": addresses.index(hosts[rank])}
    return json.dumps({"task": task, "cluster": jobs}, indent=2)


@answers.is_right
def built_from_names(hosts, ps, rank):
    names = ["chief"] + ["worker"] * (len(hosts) - ps - 1) + ["ps"] * ps
    cluster = {}
    for name, host in zip(names, hosts, strict=True):
        cluster.setdefault(name, []).append(host)
    index = names[:rank].count(names[rank])
    return f'{{"cluster": {json.dumps(cluster)}, "task": {{"type": "{names[rank]}", "index": {index}}}}}'


@answers.is_wrong("expected 'chief' to be ['node", "to be", "got [['node")
def a_list_in_a_list(hosts, ps, rank):
    jobs = {name: [addresses] for name, addresses in jobs_of(hosts, ps).items()}
    return json.dumps({"cluster": jobs, "task": place(hosts, ps, rank)})


@answers.is_wrong("'task': expected the index as a whole number, got inf")
def an_index_without_end(hosts, ps, rank):
    return json.dumps({"cluster": jobs_of(hosts, ps), "task": place(hosts, ps, rank) | {"index": float("inf")}})


@answers.is_wrong("expected the keys 'cluster' and 'task', got 'cluster'")
def forgets_the_task(hosts, ps, rank):
    return json.dumps({"cluster": jobs_of(hosts, ps)})


@answers.is_wrong("'chief'", "Also one address stands in a list")
def the_chief_without_a_list(hosts, ps, rank):
    return json.dumps({"cluster": jobs_of(hosts, ps) | {"chief": hosts[0]}, "task": place(hosts, ps, rank)})


@answers.is_wrong("6 hosts, ps=2", "Is a host left out?")
def one_server_whatever_is_asked(hosts, ps, rank):
    servers = len(hosts) - ps
    jobs = {"chief": hosts[:1], "worker": hosts[1:servers], "ps": hosts[servers : servers + 1]}
    return json.dumps({"cluster": jobs, "task": place(hosts, ps, rank)})


@answers.is_right
def an_index_in_text(hosts, ps, rank):
    task = place(hosts, ps, rank)
    return json.dumps({"cluster": jobs_of(hosts, ps), "task": task | {"index": str(task["index"])}})


@answers.is_right
def with_a_key_more(hosts, ps, rank):
    return json.dumps({"cluster": jobs_of(hosts, ps), "task": place(hosts, ps, rank), "environment": "cloud"})


@answers.is_wrong("'cluster': expected 'chief' to be", "There is a host of")
def sorts_the_hosts(hosts, ps, rank):
    in_order = sorted(hosts)
    task = place(in_order, ps, in_order.index(hosts[rank]))
    return json.dumps({"cluster": jobs_of(in_order, ps), "task": task})


@answers.is_wrong("is ps 0, got index 2", "within its own type")
def counts_servers_on_from_the_workers(hosts, ps, rank):
    task = place(hosts, ps, rank)
    if task["type"] == "ps":
        task["index"] = rank - 1
    return json.dumps({"cluster": jobs_of(hosts, ps), "task": task})


@answers.is_wrong("expected 'chief' to be ['node", "The port belongs to the address")
def names_without_ports(hosts, ps, rank):
    names = [host.partition(":")[0] for host in hosts]
    return json.dumps({"cluster": jobs_of(names, ps), "task": place(hosts, ps, rank)})


@answers.is_wrong("'task': expected a dict with 'type' and 'index', got 'chief:0'")
def a_task_in_words(hosts, ps, rank):
    task = place(hosts, ps, rank)
    return json.dumps({"cluster": jobs_of(hosts, ps), "task": f"{task['type']}:{task['index']}"})


@answers.is_wrong("expected text, as an environment variable holds it, got None (does the function return it?)")
def sets_the_variable_itself(hosts, ps, rank):
    os.environ["TF_CONFIG"] = json.dumps({"cluster": jobs_of(hosts, ps), "task": place(hosts, ps, rank)})


@answers.is_right
def compact_and_sorted_with_tensorflows_other_key(hosts, ps, rank):
    said = {"cluster": jobs_of(hosts, ps), "task": place(hosts, ps, rank), "rpc_layer": "grpc"}
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


@answers.is_right
def tuples_and_a_line_end(hosts, ps, rank):
    cluster = {name: tuple(addresses) for name, addresses in jobs_of(hosts, ps).items()}
    return json.dumps({"cluster": cluster, "task": place(hosts, ps, rank)}, ensure_ascii=False) + "\n"
