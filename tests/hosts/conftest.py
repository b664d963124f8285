"""Hosts for tests of what crosses machines, made once for a session; skipped where they cannot be made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import namespaces
from tests.support import slurm as slurm_support
from tests.support.namespaces import Network
from tests.support.slurm import Slurm


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
