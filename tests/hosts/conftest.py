"""Hosts for tests of what crosses machines, made once for a session; skipped where they cannot be made."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.support import namespaces
from tests.support import slurm as slurm_support
from tests.support.busy_run import right
from tests.support.namespaces import Network
from tests.support.open_hosts import ByInvitation, launch_on
from tests.support.scripted_host import ADDRESS
from tests.support.slurm import Slurm
from worldsize.engines.remote.engine import HostsEngine
from worldsize.engines.remote.ways.opening import open_hosts


@pytest.fixture(scope="session")
def two_hosts() -> Iterator[Network]:
    """Two hosts and this machine on one switch; a test that starts processes there ends them (`kill_all`)."""
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.network(2) as network:
        yield network


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A Slurm of two nodes; a test that submits jobs ends them (`cancel_all`)."""
    if reason := slurm_support.why_not():
        pytest.skip(reason)
    with slurm_support.cluster(2) as running:
        yield running


@dataclass
class Invited:
    """Hosts of this machine that joined by invitation, and what they were given."""

    engine: HostsEngine
    invitations: list[str]


@pytest.fixture(scope="session")
def invited_hosts() -> Iterator[Invited]:
    """Two of them, which no launch takes that does not ask for them (`launch_on`)."""
    with ExitStack() as stack:
        given: list[str] = []

        def start(invitations: Sequence[str]) -> None:
            given.extend(invitations)
            for line in invitations:
                command = [sys.executable, "-m", "worldsize.engines.remote.host_program"]
                member = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
                stack.callback(member.kill)
                member.stdin.write(line.encode() + b"\n")
                member.stdin.flush()

        opened = open_hosts(ByInvitation(2, ADDRESS, start))
        stack.callback(opened.close)
        yield Invited(opened.engine, given)


@pytest.fixture
def engine(invited_hosts: Invited) -> Iterator[HostsEngine]:
    """Of those hosts, which are as they were after the test: a launch is right."""
    made = invited_hosts.engine
    here = set(made.hosts)
    yield made
    run = launch_on(made, right, 2)
    assert run.results == [3.0, 3.0] and set(run.hosts) == here
    assert len(here) == 2
