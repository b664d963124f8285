"""What goes wrong on ranks that stay: it is told in words, the others come free with what they have, and the next text works."""

import _thread
import os
import signal
import threading

import psutil
import pytest

from tests.support.daemons import until
from tests.support.processes import LONG_S
from worldsize.errors import Deadlock, Interrupted, RankFailed, RunTimedOut
from worldsize.launch import last_run
from worldsize.launch.run import Observer, Run
from worldsize.ranks.open_world import CELLS

SIZES = [2, 3, 4, 7]
SUM = "x = torch.ones(2) * (rank + 1)\ndist.all_reduce(x)\ny = torch.zeros(1)\n" + (
    "handle = fabric.isend(torch.ones(1) * rank, (rank + 1) % world_size)\n"
    "fabric.recv(y, (rank - 1) % world_size)\n"
    "handle.wait()"
)

# the signal arrives while it hashes, and Python looks for signals neither then nor before it sleeps
IN_C_UNTIL_IT_SLEEPS = """import collections, functools, hashlib, operator, time
hashes = functools.partial(hashlib.pbkdf2_hmac, "sha256", b"word", b"salt", 1_000_000)
collections.deque(map(operator.call, [hashes, functools.partial(time.sleep, 1000)]))"""


def right(world) -> bool:
    """Whether every rank still has what it had, and both groups work."""
    world.run(SUM)
    size = world.world_size
    sums = [x.tolist() for x in world["x"]] == [[size * (size + 1) / 2] * 2] * size
    return (
        sums
        and [y.item() for y in world["y"]] == [(rank - 1) % size for rank in range(size)]
        and world["kept"] == [*range(size)]
    )


@pytest.mark.parametrize(
    "waits_in", ["dist.all_reduce(torch.ones(3))", "fabric.recv(torch.ones(3), 1)", "dist.barrier()"]
)
@pytest.mark.parametrize("world_size", SIZES)
def test_the_others_of_a_rank_that_raises_come_free_with_what_they_have(opened, world_size, waits_in):
    world = opened(world_size)
    world.run("kept = rank")
    with pytest.raises(RankFailed, match=f"rank 1 of {world_size} failed first: IndexError: chunk 3") as told:
        world.run(f"if rank == 1:\n    raise IndexError('chunk 3')\n{waits_in}")
    assert told.value.rank == 1 and last_run().outcome.freed == tuple(r for r in range(world_size) if r != 1)
    assert right(world)
    assert any("get new process groups" in note for note in told.value.run.notes)


def test_a_rank_that_raises_while_nobody_waits_costs_no_group(opened):
    world = opened(3)
    world.run("kept = rank\nown = dist.distributed_c10d._get_default_group()")
    with pytest.raises(RankFailed, match="rank 2 of 3 failed first: ZeroDivisionError") as told:
        world.run("1 / (rank - 2)")
    assert told.value.run.notes == [] and right(world)
    assert world["own is dist.distributed_c10d._get_default_group()"] == [True] * 3


def test_an_error_shows_the_lines_of_the_text_that_runs_and_of_the_one_that_defined_the_function(four):
    four.run("def halve(x):\n    return x / 0")
    with pytest.raises(RankFailed) as told:
        four.run("y = 4\nhalve(y)")
    frames = told.value.failure.frames[-2:]
    assert [(frame.line, frame.text) for frame in frames] == [(2, "halve(y)"), (2, "return x / 0")]


def test_a_message_that_nobody_took_is_no_message_of_the_next_text(opened):
    world = opened(2)
    world.run("kept = rank")
    with pytest.raises(RankFailed, match="KeyError"):
        world.run(
            "if rank == 0:\n    handle = fabric.isend(torch.full((1,), 99.0), 1)\nelse:\n    raise KeyError('before recv')"
        )
    assert right(world)


@pytest.mark.parametrize("world_size", SIZES)
def test_a_deadlock_is_named_and_frees_all(opened, world_size):
    world = opened(world_size)
    world.run("kept = rank")
    with pytest.raises(Deadlock, match="rank 0 waits for 1"):
        world.run("fabric.recv(torch.ones(3), (rank + 1) % world_size)")
    assert right(world)


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(1000)",
        "while True:\n    pass",
        "fabric.recv(torch.ones(1), 1) if rank == 0 else __import__('time').sleep(1000)",
    ],
)
def test_a_time_limit_frees_all(four, text):
    four.run("kept = rank")
    with pytest.raises(RunTimedOut, match="these ranks of 4 were not done"):
        four.run(text, timeout_s=0.3)
    assert last_run().outcome.killed == () and right(four)


def interrupted(world, text: str, folder, times: int = 1) -> Interrupted:
    """Run `text`, which makes a file by rank in `folder`, and press the stop button once all have."""

    def press() -> None:
        until(lambda: len(list(folder.iterdir())) == world.world_size, LONG_S, "all ranks are at work")
        for _ in range(times):
            _thread.interrupt_main()

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(Interrupted) as told:
        world.run(f"from pathlib import Path\nPath({str(folder)!r}, str(rank)).touch()\n{text}")
    thread.join()
    return told.value


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(1000)",
        "while True:\n    pass",
        "fabric.recv(torch.ones(1), 1) if rank == 0 else __import__('time').sleep(1000)",
        "dist.all_reduce(torch.ones(1)) if rank else __import__('time').sleep(1000)",
        IN_C_UNTIL_IT_SLEEPS,
    ],
)
def test_the_stop_button_frees_all_and_they_keep_what_they_have(four, tmp_path, text):
    four.run("kept = rank")
    told = interrupted(four, text, tmp_path)
    assert "stopped after" in str(told) and last_run().outcome.killed == ()
    assert right(four)


class Presses(Observer):
    """Presses the stop button in the moment in which a text is given to the ranks."""

    def started(self, run: Run) -> None:
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("made_anew", [False, True])
def test_the_stop_button_pressed_before_a_rank_has_begun_frees_it_too(opened, monkeypatch, made_anew):
    world = opened(5)
    world.run("kept = rank")
    monkeypatch.setattr(CELLS, "observers", (Presses(),))
    for _ in range(4):
        if made_anew:
            world._new_groups = "all"
        with pytest.raises(Interrupted):
            world.run("__import__('time').sleep(1000)")
        assert last_run().outcome.killed == ()
    monkeypatch.setattr(CELLS, "observers", ())
    assert right(world)


def test_of_two_texts_at_once_the_second_has_what_the_first_left(opened):
    world = opened(3)
    world.run("kept = rank")
    came = []

    def run(text: str) -> None:
        try:
            came.append(world.run(text).state)
        except RankFailed as error:
            came.append(error.rank)

    texts = ["if rank == 1:\n    raise KeyError\ndist.barrier()", SUM]
    threads = [threading.Thread(target=run, args=(texts[place % 2],)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert sorted(came, key=str) == [1, 1, 1, "done", "done", "done"] and right(world)


def test_a_value_that_cannot_be_made_again_in_the_notebook_is_an_error_of_its_rank(four):
    four.run(
        "kept = rank\nclass Odd:\n    def __reduce__(self):\n        return int, ('x',)\nodd = Odd() if rank == 2 else 0"
    )
    with pytest.raises(
        RankFailed, match="rank 2 of 4 failed first: ValueError: its result cannot be read here: invalid literal"
    ):
        four["odd"]
    assert right(four)


def test_a_rank_that_will_not_come_free_is_killed_and_named(opened, tmp_path, monkeypatch):
    world = opened(3)
    stubborn = "import signal, time\nif rank == 1:\n    signal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1000)"
    interrupted(world, stubborn, tmp_path)
    assert last_run().outcome.killed == (1,)
    assert world["rank"] == [0, None, 2]
    with pytest.raises(
        ValueError, match=r"rank 1 has ended \(killed, because it did not stop\).*ranks 0, 2.*restart"
    ):
        world.run("1")


@pytest.mark.parametrize("how", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("world_size", [2, 4])
def test_a_rank_that_ends_is_named_and_the_others_can_be_read(opened, world_size, how):
    world = opened(world_size)
    world.run("kept = rank")
    ended = "exited with code 3" if "exit" in how else "killed by SIGKILL"
    with pytest.raises(
        RankFailed, match=f"rank 1 of {world_size} .*{ended}(.|\n)*<text [0-9]+>, line 3, in <module>\n *os\\."
    ):
        world.run(f"import os\nif rank == 1:\n    {how}\ndist.all_reduce(torch.ones(1))")
    assert world["kept"] == [rank if rank != 1 else None for rank in range(world_size)]
    assert world.run("print(kept)", [0]).log(0) == "0\n"
    with pytest.raises(ValueError, match=r"run: rank 1 has ended .*world\.restart\(\)"):
        world.run("1")
    world.restart()
    world.run("kept = rank")
    assert right(world)


def test_a_rank_that_leaves_at_once_was_last_seen_on_that_line(opened):
    world = opened(2)
    world.run("kept = rank")
    with pytest.raises(RankFailed, match="rank 1 of 2 exited with code 3"):
        world.run("import os\nif rank == 1:\n    os._exit(3)", file="<left>")
    (failure,) = last_run().outcome.failures
    assert [(frame.file, frame.line) for frame in failure.frames if frame.file == "<left>"] == [("<left>", 3)]


def test_a_rank_that_ends_between_two_texts_is_told_with_the_next(opened):
    world = opened(3)
    pids = world["__import__('os').getpid()"]
    os.kill(pids[2], signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid) for pid in pids if pid == pids[2] and psutil.pid_exists(pid)], LONG_S)
    with pytest.raises(RankFailed, match="rank 2 of 3 was killed by SIGKILL"):
        world.run("1")
    assert world["rank"] == [0, 1, None]


def test_leaving_by_sys_exit_ends_the_text_and_not_the_rank(four):
    four.run("kept = rank")
    with pytest.raises(RankFailed, match="rank 3 of 4 failed first: SystemExit: 5"):
        four.run("import sys\nif rank == 3:\n    sys.exit(5)")
    assert right(four)


def test_a_name_of_the_notebook_that_is_missing_says_how_it_comes_there(four):
    from worldsize.ranks.definitions import along

    text = "print(steps)"
    with pytest.raises(
        RankFailed,
        match=r"NameError: name 'steps' is not defined\n`steps` is in the notebook.*world.push\(steps=steps\)",
    ):
        four.run(text, along=along(text, {"steps": 3}, []))


HEALTHY = "kept = rank\nmodel = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))\n" + (
    "def trained():\n    model(torch.ones(1, 2)).sum().backward()\n    return 'trained'\ntrained()"
)


def test_an_interrupt_of_ranks_that_had_not_communicated_costs_no_group(opened, tmp_path):
    world = opened(2)
    world.run(HEALTHY)
    interrupted(world, "import time\ntime.sleep(1000)", tmp_path)
    assert "their process groups: none of them had communicated" in " ".join(last_run().notes)
    assert world["trained()"] == ["trained"] * 2 and right(world)


@pytest.mark.parametrize("before", ["dist.all_reduce(torch.ones(1))", "fabric.isend(torch.ones(1), 1 - rank)"])
def test_an_interrupt_after_communication_costs_the_groups(opened, tmp_path, before):
    world = opened(2)
    world.run("kept = rank\nown = dist.distributed_c10d._get_default_group()")
    interrupted(world, f"import time\n{before}\ntime.sleep(1000)", tmp_path)
    assert right(world) and world["own is dist.distributed_c10d._get_default_group()"] == [False] * 2


@pytest.mark.parametrize("ends_on", ["True", "rank == 1"])
def test_ranks_whose_script_ended_the_process_group_have_one_in_the_next_cell(opened, ends_on):
    world = opened(2)
    for _ in range(2):
        world.run(f"kept = rank\nif {ends_on}:\n    dist.destroy_process_group()")
    assert right(world)


def test_a_group_that_a_cell_ends_lives_until_the_next_cell(opened):
    """Where a model holds its last reference, PyTorch waits for the group's thread with the interpreter locked: pytorch#75097."""
    world = opened(2)
    world.run(
        "import weakref\ngroup = weakref.ref(dist.group.WORLD)\ndist.destroy_process_group()\nlives = group() is not None"
    )
    assert world["lives"] == [True] * 2
    world.run("x = 1")
    assert world["group() is None"] == [True] * 2


def test_ranks_whose_script_failed_after_its_group_had_ended_have_one_in_the_next_cell(opened):
    world = opened(2)
    with pytest.raises(RankFailed, match="KeyError"):
        world.run("kept = rank\ndist.destroy_process_group()\nraise KeyError")
    assert right(world)


def test_an_answer_that_swallows_the_stop_goes_on_to_its_own_end(opened, tmp_path):
    world = opened(2)
    world.run("kept = rank")
    swallowing = "import time\ntry:\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    saved = rank + 10"
    interrupted(world, swallowing, tmp_path)
    assert world["saved"] == [10, 11] and right(world)


def test_an_engine_that_is_lost_is_said_and_a_restart_opens_new_ranks(opened):
    from worldsize.engines.current_engine import local_engine

    world = opened(2)
    local_engine("torch").abandon()
    assert not world.is_open
    with pytest.raises(ValueError, match="they ended with the process that started them"):
        world.run("1")
    world.restart()
    assert world["rank"] == [0, 1]


@pytest.mark.parametrize("how", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_rank_that_leaves_by_itself_names_its_line(opened, how):
    world = opened(2)
    world.run("import os\ndef leave():\n    x = 1\n    " + how)
    with pytest.raises(RankFailed) as told:
        world.run("y = 2\nif rank == 1:\n    leave()\ndist.barrier()")
    assert [(frame.function, frame.line) for frame in told.value.failure.frames][-2:] == [("<module>", 3), ("leave", 4)]


def test_the_shards_of_a_model_in_fsdp_go_into_a_new_one_after_a_failure(opened):
    world = opened(2)
    world.run(
        "from torch.distributed.fsdp import fully_shard\n"
        "def make():\n"
        "    model = torch.nn.Linear(4, 6)\n"
        "    fully_shard(model)\n"
        "    return model\n"
        "old = make()\n"
        "before = [p.full_tensor() for p in old.parameters()]"
    )
    with pytest.raises(RankFailed) as told:
        world.run("dist.barrier() if rank == 0 else 1 / 0")
    assert any("FSDP models anew (p.to_local() still has a shard)" in note for note in told.value.run.notes)
    world.run(
        "new = make()\n"
        "with torch.no_grad():\n"
        "    for p, q in zip(new.parameters(), old.parameters()):\n"
        "        p.to_local().copy_(q.to_local())\n"
        "new(torch.ones(1, 4)).sum().backward()\n"
        "same = all(torch.equal(p.full_tensor(), q) for p, q in zip(new.parameters(), before))"
    )
    assert world["same"] == [True, True]
