"""What a host and this machine compare before ranks run on both."""

from importlib import metadata

import pytest

import worldsize
from worldsize.engines.remote import host_checks

pytestmark = pytest.mark.quick


def test_the_versions_are_those_of_what_ranks_share() -> None:
    found = host_checks.own_versions()
    assert set(found) == {"python", "torch", "tensorflow", "numpy", "cloudpickle", "worldsize"}
    for name in ("torch", "numpy", "cloudpickle"):
        assert found[name] == metadata.version(name).partition("+")[0]
    assert found["worldsize"].startswith(f"{worldsize.__version__} (")


def test_another_version_and_a_missing_one_are_named() -> None:
    here = host_checks.own_versions()
    there = {name: version for name, version in here.items() if name != "numpy"} | {"torch": "1.0"}
    assert host_checks.differences(there) == [f"torch 1.0 there, {here['torch']} here", f"numpy none there, {here['numpy']} here"]
    assert host_checks.differences(here) == []
