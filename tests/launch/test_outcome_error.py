"""What the error of a launch says, where it has to say more than what the rank said itself."""

import re
import socket
import urllib.request

import pytest
import torch
import torch.distributed as dist

from tests.support import own_network
from worldsize import data
from worldsize.errors import RankFailed
from worldsize.launch import launch

pytestmark = pytest.mark.skipif(bool(own_network.why_not()), reason=own_network.why_not())

SAID = re.compile(r"ranks on this machine have their own network.*`(import os; .+)` in a cell and launch again")
NOWHERE = "192.0.2.1"  # an address that is nobody's (RFC 5737)


def look_up():
    socket.getaddrinfo("example.org", 80)


def connect():
    socket.create_connection((NOWHERE, 80), timeout=5)


def open_a_page():
    urllib.request.urlopen(f"http://{NOWHERE}/", timeout=5)


def as_torchvision():
    try:
        urllib.request.urlopen("http://example.org/", timeout=5)
    except OSError as error:
        raise RuntimeError("Error downloading train-images.gz") from error


def fetch_as_requests_does(folder):
    file = data.DataFile("some.gz", 1, "md5", "0" * 32, "Delete it.", f"http://{NOWHERE}/" + "long/" * 80)
    data.fetch(file, [folder], stall_s=5)


OTHER_WAYS = [pytest.param(work, marks=pytest.mark.soak) for work in (connect, open_a_page, fetch_as_requests_does)]


@pytest.mark.parametrize("work", [look_up, as_torchvision, *OTHER_WAYS])
def test_a_rank_that_misses_the_network_is_told_that_it_has_one_of_its_own(work, tmp_path):
    with pytest.raises(RankFailed) as caught:
        launch(work, 1, args=(tmp_path,) if work is fetch_as_requests_does else ())
    assert len(SAID.findall(str(caught.value))) == 1


def test_what_it_advises_gives_the_next_launch_the_machines_network(monkeypatch):
    monkeypatch.setenv("WORLDSIZE_NETWORK", "own")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def call_the_notebook():
            try:
                socket.create_connection(address, timeout=5).close()
            except ConnectionRefusedError:
                look_up()
            return "reached"

        with pytest.raises(RankFailed) as caught:
            launch(call_the_notebook, 1)
        exec(SAID.search(str(caught.value))[1])
        assert launch(call_the_notebook, 1).results == ["reached"]


def test_any_other_failure_says_nothing_of_networks():
    with pytest.raises(RankFailed) as caught:
        launch(lambda: {}["example.org"], 1)
    assert "network" not in str(caught.value)


def test_a_rank_on_the_machines_network_is_not_told_so(monkeypatch):
    monkeypatch.setenv("WORLDSIZE_NETWORK", "shared")

    def fail():
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    with pytest.raises(RankFailed) as caught:
        launch(fail, 1)
    assert "gaierror" in str(caught.value) and SAID.search(str(caught.value)) is None


def test_a_server_of_the_notebook_that_does_not_answer_is_explained(monkeypatch):
    monkeypatch.setenv("WORLDSIZE_NETWORK", "own")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(RankFailed, match="127.0.0.1 in a rank is the ranks' own.*WORLDSIZE_NETWORK"):
            launch(lambda: urllib.request.urlopen(url, timeout=5), 1)


def test_a_crash_of_native_code_is_told_with_its_last_words():
    def mismatched():
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(30_000 if dist.get_rank() else 1_000_000))

    with pytest.raises(RankFailed, match="SIGABRT") as failed:
        launch(mismatched, 2)
    assert "its last fatal line: op.preamble.length" in str(failed.value)
    assert "Is there a distributed collective mismatch" in str(failed.value)
