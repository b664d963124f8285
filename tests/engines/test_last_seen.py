"""Where a rank's main thread is, as another of its threads sees it: the rows, and that looking does no harm."""

import gc
import subprocess
import sys
import threading
import traceback

import pytest

from worldsize.engines.ranks.last_seen import LastSeen, last_seen

QUICK = pytest.mark.quick


@pytest.fixture
def place(tmp_path):
    return LastSeen(tmp_path / "rank0.last_seen.pkl", (__file__, "below"))


def asked(place):
    """What another thread sees of this one, which waits for it."""
    found = []
    thread = threading.Thread(target=lambda: (found.append(place.seen()), place.note()))
    thread.start()
    thread.join()
    return found[0]


def below(work):
    return work()


@QUICK
def test_the_rows_are_those_of_the_function_outermost_first(place):
    def inner():
        return asked(place)

    def outer():
        return inner()

    rows = below(outer)
    assert [name for _, _, name in rows][:3] == ["outer", "inner", "asked"]
    first = outer.__code__.co_firstlineno
    assert rows[0] == (__file__, first + 1, "outer")


@QUICK
def test_outside_of_the_function_there_are_no_rows(place):
    assert asked(place) == ()


@QUICK
@pytest.mark.parametrize("name", ["/zoë/ring.py", "/数据/α β.py", "/a😀\\b.py"])
def test_a_file_keeps_its_name_in_any_script(place, name):
    space = {"asked": asked, "place": place}
    exec(compile("def work():\n    return asked(place)", name, "exec"), space)
    assert below(space["work"])[0] == (name, 2, "work")


@QUICK
def test_of_a_deep_recursion_both_ends_are_told(place):
    def down(depth):
        return down(depth - 1) if depth else asked(place)

    def first():
        return down(500)

    names = [name for _, _, name in below(first)]
    assert names[:2] == ["first", "down"] and "asked" in names[-10:] and len(names) <= 100


@QUICK
@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_while_it_looks_and_the_collector_stays_as_it_was(place, enabled):
    collected, before = [], gc.get_threshold()
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(1, 1, 1)
    gc.callbacks.append(lambda *_: collected.append([name for _, _, name, _ in traceback.extract_stack()]))
    try:
        below(lambda: [asked(place) for _ in range(20)])
        assert gc.isenabled() == enabled
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*before)
        gc.enable()
    assert not [stack for stack in collected if "_callers" in stack]


@QUICK
def test_what_was_noted_outlives_the_writer(place, tmp_path):
    below(lambda: asked(place))
    assert [frame.function for frame in last_seen(tmp_path / "rank0.last_seen.pkl")][:2] == ["<lambda>", "asked"]


# garbage whose finalizer lets other threads run (it sleeps for 0 s), and a main thread that never stays where it is
RESTLESS = """\
class Slow:
    def __init__(self):
        self.itself = self
    def __del__(self):
        time.sleep(0)

def step(depth=20):
    Slow()
    return step(depth - 1) if depth else 1

gc.set_threshold(20)
"""
SHARDED = """\
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

def step():
    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])
    for layer in net:
        fully_shard(layer)
    model = fully_shard(net)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        model(torch.rand(4, 8)).sum().backward()
        optimizer.step()
"""
WATCHED = """\
import gc, os, sys, threading, time
from pathlib import Path
from worldsize.engines.ranks.last_seen import LastSeen
{work}
place = LastSeen(Path(sys.argv[1]), (__file__, "main"))
looks, odd = [0], []

def main():
    end_s = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end_s:
        had = looks[0]
        for _ in range(10):
            step()
        while looks[0] == had:  # a main thread that takes Python's lock back at once may starve the other for minutes
            time.sleep(1e-4)

def watch():
    while True:
        looks[0] += 1
        odd.extend(file for file, _, _ in place.seen() if not os.path.exists(file) and not file.startswith("<"))

sys.setswitchinterval(1e-5)
threading.Thread(target=watch, daemon=True).start()
main()
print(looks[0], odd[:1], flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        pytest.param(RESTLESS, 120, id="garbage"),
        pytest.param(SHARDED, 240, id="FSDP"),
    ],
)
@pytest.mark.soak
@pytest.mark.timeout(400)
def test_looking_all_the_time_does_no_harm(tmp_path, work, seconds):
    script = tmp_path / "watched.py"
    script.write_text(WATCHED.format(work=work))
    command = [sys.executable, str(script), str(tmp_path / "rank0.last_seen.pkl"), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    assert done.returncode == 0, done.stderr[-2000:]
    looks, odd = done.stdout.split(maxsplit=1)
    assert int(looks) and odd.strip() == "[]"
