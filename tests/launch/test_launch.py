"""`launch`: real ranks, their results, logs, random numbers and environment."""

import os
import random
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.support.kernels import seconds_until
from tests.support.processes import LONG_S
from worldsize import machine
from worldsize.errors import Deadlock, Interrupted, LaunchError, NotYet, RankFailed
from worldsize.launch import launch
from worldsize.launch.rank_output import Tail
from worldsize.launch.run import Observer, Run, observe, unobserved
from worldsize.links import Link, Nodes

QUICK = pytest.mark.quick
SIZES = [1, 2, 3, 4]
LINK = Link("1 GB/s")


def all_reduce():
    dist.init_process_group("gloo")
    x = torch.arange(5.0) + 1000 * dist.get_rank()
    dist.all_reduce(x)
    return x


@QUICK
@pytest.mark.parametrize("world_size", SIZES)
def test_ranks_find_each_other_and_every_result_comes_back_by_rank(world_size):
    run = launch(all_reduce, world_size)
    expected = torch.arange(5.0) * world_size + 1000 * sum(range(world_size))
    assert len(run.results) == world_size
    assert all(torch.equal(result, expected) for result in run.results)


def test_a_function_made_on_the_spot_takes_its_closure_along():
    factor = 7

    def scaled(x):
        return factor * x + int(os.environ["RANK"])

    assert launch(scaled, 3, args=(10,)).results == [70, 71, 72]


def test_keyword_arguments_arrive():
    assert launch(lambda x, y: x - y, 2, args=(5,), kwargs={"y": 2}).results == [3, 3]


@QUICK
def test_every_line_is_in_the_log_of_its_rank():
    def chatter():
        for number in range(2000):
            print(f"line {number} of rank {os.environ['RANK']}")
        print("to stderr", file=sys.stderr)
        os.write(1, b"past Python\n")

    run = launch(chatter, 2)
    for rank in range(2):
        lines = run.log(rank).splitlines()
        assert lines[:2000] == [f"line {n} of rank {rank}" for n in range(2000)]
        assert lines[2000:] == ["to stderr", "past Python"]
    assert run.log().startswith("[rank 0] line 0 of rank 0\n")


def test_a_log_of_a_rank_that_is_not_there_is_a_value_error():
    run = launch(lambda: None, 2)
    with pytest.raises(ValueError, match="from 0 to 1, got 2"):
        run.log(2)


class Collecting(Observer):
    def __init__(self):
        self.text, self.setups, self.states = {}, [], []

    def started(self, run):
        self.setups.append(run.setup)

    def printed(self, run, rank, text):
        self.text[rank] = self.text.get(rank, "") + text

    def ended(self, run):
        self.states.append(run.state)


@pytest.fixture
def watcher():
    made = Collecting()
    with unobserved():
        observe(made)
        yield made


def test_an_observer_hears_the_setup_once_every_line_and_the_end(watcher):
    def speak():
        print("first")
        print("no newline at the end", end="")

    launch(speak, 2)
    assert len(watcher.setups) == 1 and watcher.setups[0].startswith("2 ranks · gloo on CPU")
    assert watcher.text == {0: "first\nno newline at the end", 1: "first\nno newline at the end"}
    assert watcher.states == ["done"]


def draw():
    return torch.rand(2).tolist(), np.random.rand(), random.random()


def test_a_saved_trace_is_where_it_says(tmp_path):
    run = Run(world_size=2, dir=tmp_path, seed=0)
    saved = run.save_trace(tmp_path / "trace.json")
    assert saved == tmp_path / "trace.json" and "traceEvents" in saved.read_text()


def test_two_ranks_and_two_launches_draw_different_numbers():
    first, second = launch(draw, 2), launch(draw, 2)
    drawn = [str(result) for result in first.results + second.results]
    assert len(set(drawn)) == 4


def test_a_seed_replays_the_numbers_of_every_rank():
    first = launch(draw, 3)
    again = launch(draw, 3, seed=first.seed)
    assert first.results == again.results


def test_an_environment_variable_set_just_before_is_seen_by_the_ranks(monkeypatch):
    launch(lambda: None, 1)
    monkeypatch.setenv("WORLDSIZE_TEST_WORD", "now")
    assert launch(lambda: os.environ.get("WORLDSIZE_TEST_WORD"), 2).results == ["now", "now"]
    monkeypatch.delenv("WORLDSIZE_TEST_WORD")
    assert launch(lambda: os.environ.get("WORLDSIZE_TEST_WORD"), 2).results == [None, None]


def test_the_working_folder_and_the_module_path_are_those_of_the_caller(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("word = 'found'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def look():
        import beside

        return beside.word, os.getcwd()

    assert launch(look, 1).results == [("found", str(tmp_path))]


def test_a_rank_gets_its_share_of_the_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = int(machine.usable_cores())
    for world_size in (1, 4):
        assert launch(torch.get_num_threads, world_size).results == [max(1, cores // world_size)] * world_size


def test_a_stub_makes_a_run_that_is_not_yet():
    def stub():
        raise NotYet("Exercise 6.2: reduce-scatter")

    run = launch(stub, 2)
    assert (run.state, run.not_yet) == ("not yet", "Exercise 6.2: reduce-scatter")
    with pytest.raises(NotYet):
        run[0]


def test_a_list_that_a_rank_changed_is_reported_once_with_the_remedy():
    losses, untouched = [], [1]

    def train():
        losses.append(len(untouched))

    run = launch(train, 3)
    assert losses == []
    assert len(run.notes) == 1 and "`losses`" in run.notes[0] and "Return it instead" in run.notes[0]
    assert "untouched" not in run.notes[0]


def test_a_module_that_is_missing_on_this_machine_is_no_matter_of_hosts():
    with pytest.raises(RankFailed, match="ModuleNotFoundError") as raised:
        launch(lambda: __import__("no_such_module"), 1)
    assert "host" not in str(raised.value)


def test_the_three_largest_of_much_data_are_named_by_their_variables():
    images, masks, labels, names = (np.zeros(size * 1_000_000, dtype=np.uint8) for size in (60, 3, 2, 1))
    run = launch(lambda: images.nbytes + masks.nbytes + labels.nbytes + names.nbytes, 2)
    assert run.results == [66_000_000] * 2
    assert "the largest: `images` 60 MB, `masks` 3 MB, `labels` 2 MB. " in run.notes[0]


def test_what_cannot_be_pickled_is_named_with_the_remedy():
    lock = threading.Lock()

    def work():
        with lock:
            return 1

    with pytest.raises(ValueError, match=r"`lock` \(a _thread.lock\).*Create it inside the function"):
        launch(work, 2)


@QUICK
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"world_size": 0}, "world_size from 1 to .* got 0"),
        ({"world_size": 2.0}, "got 2.0"),
        ({"world_size": True}, "got True"),
        ({"timeout_s": 0}, "timeout_s .* got 0"),
        ({"args": 5}, "args as a tuple, got int"),
        ({"link": "1 Gbit/s"}, "expected link=Link"),
        ({"nodes": 2}, "expected nodes=Nodes"),
        ({"nodes": Nodes(1, LINK, LINK), "link": LINK}, "got both"),
        ({"world_size": 3, "nodes": Nodes(2, LINK, LINK, cards=2)}, "2 ranks divide a world size of 3"),
        ({"nodes": Nodes(2, LINK, LINK)}, "got cards=1: .* Write cards=2"),
        ({"seed": -1}, "seed .* got -1"),
        ({"device": "tpu"}, '"cuda", got .tpu.'),
    ],
)
def test_a_wrong_argument_is_one_paragraph_that_says_expected_and_got(arguments, words):
    with pytest.raises(ValueError, match=words) as caught:
        launch(all_reduce, **arguments)
    assert "\n" not in str(caught.value)


def test_calling_the_function_by_mistake_is_explained():
    with pytest.raises(ValueError, match=r"launch\(train\), not launch\(train\(\)\)"):
        launch(None)


def test_a_machine_without_a_gpu_says_so():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match="with no GPU"):
        launch(all_reduce, 2, device="cuda")


def test_torch_used_in_the_caller_first_does_no_harm():
    torch.rand(100, 100) @ torch.rand(100, 100)
    x = torch.rand(10, requires_grad=True)
    x.sum().backward()
    assert len(launch(all_reduce, 2).results) == 2


@pytest.mark.parametrize("world_size", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_the_spawn_engine_gives_the_same_results(monkeypatch, world_size):
    monkeypatch.setenv("WORLDSIZE_START_METHOD", "spawn")
    run = launch(all_reduce, world_size)
    assert torch.equal(run[0], torch.arange(5.0) * world_size + 1000 * sum(range(world_size)))
    assert "spawn" in run.setup


def test_an_unknown_start_method_is_a_value_error(monkeypatch):
    monkeypatch.setenv("WORLDSIZE_START_METHOD", "fork")
    with pytest.raises(ValueError, match="expected one of forkserver, spawn, got 'fork'"):
        launch(all_reduce, 2)


def test_a_result_of_a_class_from_the_caller_comes_back_as_that_class():
    result = launch(make_point, 1)[0]
    assert (result.x, type(result).__name__) == (3, "Point")


class Point:
    def __init__(self, x):
        self.x = x


def make_point():
    return Point(3)


def test_the_folder_of_a_run_goes_with_the_run():
    run = launch(lambda: print("kept"), 1)
    folder = run.dir
    assert folder.exists()
    launch(lambda: None, 1)  # `last_run` now holds this one
    del run
    seconds_until(lambda: not folder.exists(), LONG_S)


@QUICK
def test_a_rank_need_not_import_what_the_first_backward_and_the_first_optimizer_want():
    def late():
        before = set(sys.modules)
        weight = torch.zeros(2, requires_grad=True)
        (2 * weight).backward(torch.ones(2))
        torch.optim.SGD([weight], lr=0.1).step()
        return sorted({"sympy", "torch._dynamo"} & (set(sys.modules) - before))

    assert launch(late, 1)[0] == []


@pytest.mark.parametrize("rank", [4, 9, -5])
def test_a_rank_that_was_not_there_is_named_with_those_that_were(rank):
    run = launch(lambda: 7, 4)
    assert (run[-1], list(run)) == (7, [7, 7, 7, 7])
    with pytest.raises(IndexError, match=rf"run\[{rank}\]: expected a rank from 0 to 3, got {rank}"):
        run[rank]


def test_a_run_that_failed_says_so_when_it_is_asked_for_a_result():
    with pytest.raises(RankFailed) as failed:
        launch(lambda: 1 / 0, 2)
    with pytest.raises(IndexError, match=r"run\[0\]: expected a run that is done, got a run without results \(failed"):
        failed.value.run[0]


def test_a_very_long_time_limit_is_a_time_limit() -> None:
    assert launch(lambda: 1, 2, timeout_s=9e8).results == [1, 1]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_line_that_grows_is_read_as_it_is_and_no_character_is_torn(tmp_path: Path, cut: int) -> None:
    data = "10 %\r€ 😀\n".encode()
    path = tmp_path / "log"
    tail = Tail(path, partial_lines=True)
    path.write_bytes(data[:cut])
    first = tail.new_text()
    path.write_bytes(data)
    assert first + tail.rest() == data.decode() and data.decode().startswith(first)


@pytest.mark.parametrize("kind", [LaunchError, Deadlock, Interrupted])
def test_an_errors_long_lines_are_wrapped_between_words_for_a_cell(kind):
    path = "/very/long/" + "x" * 120
    shown = kind("\n".join(["rank 1 failed", "", "  and " + "a word " * 30, f"    at {path}"]), None)._render_traceback_()
    assert shown[0] == f"{kind.__name__}: rank 1 failed" and shown[1] == ""
    assert all(len(line) <= 96 for line in shown if path not in line)
    assert shown[2].startswith("  and a word") and shown[3].startswith("      a word")
    assert " ".join(" ".join(shown[2:]).split()) == f"and {'a word ' * 30}at {path}"


def test_a_notebook_shows_the_word_deadlock_once():
    shown = Deadlock("deadlock: rank 0 waits for 1 (recv)\n  rank 0: …", None, "full logs")._render_traceback_()
    assert shown == ["Deadlock: rank 0 waits for 1 (recv)", "  rank 0: …", "full logs"]


@QUICK
def test_what_gloo_prints_as_it_connects_is_no_rank_s_output():
    def connected():
        print("[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\nmine")

    run = launch(connected, 1)
    assert run.log(0) == Tail(run.log_path(0)).rest() == "mine\n"
    assert run.log_path(0).read_text().startswith("[Gloo]")


def test_a_rank_keeps_a_flight_record_unless_its_notebook_says_otherwise(monkeypatch):
    def records():
        return os.environ["TORCH_FR_BUFFER_SIZE"]

    monkeypatch.delenv("TORCH_FR_BUFFER_SIZE", raising=False)
    assert launch(records, 1)[0] == "2000"
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "10")
    assert launch(records, 1)[0] == "10"
