"""`WORLDSIZE_HOSTS` names hosts in one line, and says which part of it is wrong."""

import sys

import pytest

from worldsize.engines import current_engine
from worldsize.engines.remote.ways.from_text import hosts_from_text
from worldsize.engines.remote.ways.programs import Ssh
from worldsize.engines.remote.ways.slurm import Slurm, import_submitit
from worldsize.engines.remote.ways.way import NoHosts
from worldsize.launch import launch

pytestmark = pytest.mark.quick


def test_hosts_by_ssh_are_named() -> None:
    wanted = hosts_from_text("ssh:n1, me@n2,python=/opt/bin/python3")
    assert isinstance(wanted.way, Ssh)
    assert list(wanted.way._commands) == ["n1", "n2"]
    assert wanted.way._commands["n2"][-1].startswith("/opt/bin/python3 ")
    assert (wanted.env, wanted.trusted_network, wanted.timeout_s, wanted.idle_min) == ((), False, 600.0, 30.0)


def test_parameters_of_slurm_have_submitits_names_and_types() -> None:
    wanted = hosts_from_text(
        "slurm:nodes=3,partition=gpu,gpus_per_node=8,timeout_min=90,slurm_cpus_per_gpu=5,ports=50000-50010,"
        "trusted_network=1,env=HF_HOME+MY_DATA,timeout_s=7200,idle_min=5"
    )
    assert isinstance(wanted.way, Slurm)
    assert wanted.way.count == 3
    assert wanted.way.parameters == {
        "nodes": 3, "gpus_per_node": 8, "timeout_min": 90, "slurm_partition": "gpu", "slurm_cpus_per_gpu": 5,
    }  # fmt: skip
    assert wanted.way._ports == (50000, 50010)
    assert (wanted.env, wanted.trusted_network) == (("HF_HOME", "MY_DATA"), True)
    assert (wanted.timeout_s, wanted.idle_min) == (7200.0, 5.0)


def test_the_options_of_slurm_that_a_person_knows_need_no_prefix() -> None:
    names = ("partition", "account", "qos", "constraint", "nodelist", "exclude", "gres", "comment")
    wanted = hosts_from_text("slurm:nodes=2," + ",".join(f"{name}=a-{name}" for name in names))
    assert {name: wanted.way.parameters[f"slurm_{name}"] for name in names} == {name: f"a-{name}" for name in names}


@pytest.mark.parametrize(
    ("text", "part", "expected"),
    [
        ("n1,n2", "n1,n2", "ssh:n1,n2"),
        ("pbs:nodes=2", "pbs:nodes=2", "ssh:n1,n2"),
        ("ssh:", "''", "a host"),
        ("ssh:n1,,n2", "''", "a host"),
        ("ssh:n1,n1", "'n1'", "n1 once"),
        ("ssh:n1,user=me", "user=me", "python=…"),
        ("ssh:python=p", "[]", "a list of hosts"),
        ("slurm:n1", "'n1'", "name=value"),
        ("slurm:nodes=two", "nodes=two", "a whole number"),
        ("slurm:nodes=", "nodes=", "nodes=2"),
        ("slurm:nodes=2,nodes=3", "nodes=3", "nodes once"),
        ("slurm:nodes=2,partitoin=gpu", "partitoin=gpu", "partition"),
        ("slurm:tasks_per_node=2", "tasks_per_node=2", "one of nodes"),
        ("slurm:slurm_ntasks_per_node=2", "slurm_ntasks_per_node", "leave it out"),
        ("slurm:nodes=2,ports=9000", "ports=9000", "50000-50100"),
        ("slurm:nodes=2,timeout_s=0", "timeout_s=0", "above 0"),
        ("slurm:nodes=2,idle_min=soon", "idle_min=soon", "above 0"),
        ("slurm:nodes=2,trusted_network=yes", "trusted_network=yes", "0 or 1"),
        ("slurm:nodes=2,env=A B", "env=A B", "HF_HOME+MY_DATA"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(text: str, part: str, expected: str) -> None:
    with pytest.raises(ValueError) as raised:
        hosts_from_text(text)
    message = str(raised.value)
    assert "WORLDSIZE_HOSTS" in message and part in message and expected in message


def test_a_wrong_variable_is_told_by_each_launch_and_none_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDSIZE_HOSTS", "slurm:nodes=none")
    monkeypatch.setattr(current_engine, "_decided", [])
    for _ in range(2):
        with pytest.raises(NoHosts, match="nodes=none"):
            launch(print, 2)


def test_who_closed_hosts_decided_launches_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDSIZE_HOSTS", "slurm:nodes=none")
    monkeypatch.setattr(current_engine, "_decided", [])
    current_engine.close()
    assert current_engine.current_engine("torch") is current_engine.local_engine("torch")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"tasks_per_node": 2}, "tasks_per_node"),
        ({"slurm_use_srun": False}, "slurm_use_srun"),
        ({"slurm_additional_parameters": {"array": "0-3"}}, "array"),
        ({"slurm_additional_parameters": {"requeue": True}}, "requeue"),
        ({"nodes": 0}, "nodes"),
        ({"timeout_min": 1.5}, "timeout_min"),
    ],
)
def test_slurm_refuses_what_would_break_its_gang(given: dict, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Slurm(**given)


def test_without_submitit_the_extra_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install -c constraints.txt -e '.\[cluster\]'"):
        import_submitit()
