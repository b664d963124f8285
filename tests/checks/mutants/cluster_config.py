"""Exercise 9.1: the text of TF_CONFIG."""

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


@answers.is_right
def plain(hosts, ps, rank):
    servers = len(hosts) - ps
    jobs = {"chief": hosts[:1], "worker": hosts[1:servers], "ps": hosts[servers:]}
    task = place(hosts, ps, rank)
    return json.dumps({"cluster": jobs, "task": task})


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


answers.twin("with_a_key_more", {'"task": task': '"task": task, "environment": "cloud"'})


@answers.is_right
def compact_and_sorted_with_tensorflows_other_key(hosts, ps, rank):
    said = {"cluster": jobs_of(hosts, ps), "task": place(hosts, ps, rank), "rpc_layer": "grpc"}
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


@answers.is_right
def tuples_and_a_line_end(hosts, ps, rank):
    cluster = {name: tuple(addresses) for name, addresses in jobs_of(hosts, ps).items()}
    return json.dumps({"cluster": cluster, "task": place(hosts, ps, rank)}, ensure_ascii=False) + "\n"


answers.mistake("returns_a_dict", {'json.dumps({"cluster": jobs, "task": task})': '{"cluster": jobs, "task": task}'},
    "expected text, as an environment variable holds it, got a dict", "json.dumps")
answers.mistake("pythons_own_text", {"json.dumps": "str"}, "this text is not JSON", "other quotes")
answers.mistake("index_over_all_hosts", {'"task": task': '"task": task | {"index": rank}'},
    "rank 1", "is worker 0, got index 1", "within its own type")
answers.mistake("chief_is_a_worker_too", {"hosts[1:servers]": "hosts[:servers]"},
    "It holds a host of 'chief': every host has one place")
answers.mistake("slices_from_the_end", {"hosts[1:servers]": "hosts[1:-ps]"},
    "3 hosts, ps=0", "With ps=0 a slice that ends at -ps is hosts[1:0], which is empty")
answers.mistake("the_old_name_of_the_chief", {'"chief"': '"master"'}, "'cluster' has the type 'master'")
answers.mistake("servers_call_themselves_workers",
    {"return": 'task["type"] = "worker" if task["type"] == "ps" else task["type"]\nreturn'},
    "is a ps, got the type 'worker'")
answers.mistake("types_at_the_top", {'{"cluster": jobs, "task": task}': 'jobs | {"task": task}'},
    "expected the keys 'cluster' and 'task', got 'chief', 'worker', 'ps', 'task'")
answers.mistake("a_list_in_a_list",
    {'"cluster": jobs': '"cluster": {name: [addresses] for name, addresses in jobs.items()}'},
    "expected 'chief' to be ['node", "to be", "got [['node")
answers.mistake("an_index_without_end", {'"task": task': '"task": task | {"index": float("inf")}'},
    "'task': expected the index as a whole number, got inf")
answers.mistake("a_larger_index_that_rounds_down", {'"task": task': '"task": task | {"index": task["index"] + 0.9}'},
    "'task': expected the index as a whole number, got 0.9")
answers.mistake("an_index_in_text", {'"task": task': '"task": task | {"index": str(task["index"])}'},
    "'task': expected the index as a whole number, got '0'")
answers.mistake("forgets_the_task", {', "task": task': ""}, "expected the keys 'cluster' and 'task', got 'cluster'")
answers.mistake("the_chief_without_a_list", {"hosts[:1]": "hosts[0]"}, "'chief'", "Even a single address must be in a list")
answers.mistake("one_server_whatever_is_asked", {"hosts[servers:]": "hosts[servers : servers + 1]"},
    "expected 'ps' to be", "Is a host left out?")
answers.mistake("sorts_the_hosts",
    {"servers =": "rank, hosts = sorted(hosts).index(hosts[rank]), sorted(hosts)\nservers ="},
    "'cluster': expected 'chief' to be", "It holds a host of")
answers.mistake("sorts_the_workers", {"hosts[1:servers]": "sorted(hosts[1:servers])"},
    "'cluster': expected 'worker' to be", "The order counts: an index is a place in this list")
answers.mistake("counts_servers_on_from_the_workers", {
    "return": """
        if task["type"] == "ps":
            task["index"] = rank - 1
        return
    """,
}, "is ps 0, got index", "within its own type")
answers.mistake("names_without_ports", {"servers =": 'hosts = [host.partition(":")[0] for host in hosts]\nservers ='},
    "expected 'chief' to be ['node", "The port belongs to the address")
answers.mistake("a_task_in_words", {'"task": task': "\"task\": f\"{task['type']}:{task['index']}\""},
    "'task': expected a dict with 'type' and 'index', got 'chief:0'")
answers.mistake("takes_the_chief_off_the_callers_list", {
    "servers =": "task = place(hosts, ps, rank)\nservers =",
    'jobs = {"chief": hosts[:1], "worker": hosts[1:servers], "ps": hosts[servers:]}':
        'jobs = {"chief": [hosts.pop(0)], "worker": hosts[: servers - 1], "ps": hosts[servers - 1 :]}',
    "task = place(hosts, ps, rank)\nreturn": "return",
}, "hosts was changed in place: the caller still needs it unchanged")
answers.mistake("gives_everybody_one_port",
    {"servers =": 'hosts = [host.partition(":")[0] + ":2222" for host in hosts]\nservers ='},
    "Keep each address as it was passed in")
answers.mistake("sets_the_variable_itself", {"return json": 'os.environ["TF_CONFIG"] = json'},
    "expected text, as an environment variable holds it, got None (does the function return it?)")


@answers.spoils()
def says_nothing_to_others_than_the_chief(hosts, ps, rank):
    return "" if rank else json.dumps({"cluster": jobs_of(hosts, ps), "task": {"type": "chief", "index": 0}})
