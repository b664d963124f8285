"""Faults of ranks that stay, for a seeded campaign: what goes wrong in a cell, and what has to be said of it.

Each takes the campaign, a world, the rank that goes wrong, and what the others do meanwhile; it returns how the rank has ended,
"" where it has not.
"""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import until
from tests.support.processes import LONG_S
from worldsize.errors import Deadlock, Interrupted, RankFailed, RunTimedOut
from worldsize.launch import last_run
from worldsize.launch.run import Observer, Run
from worldsize.ranks import OpenRanks, open_ranks
from worldsize.ranks.open_world import CELLS

FLOOD_BYTES = 3_000_000

# what the other ranks do while one goes wrong: the first three wait for it
WAITING = ["dist.all_reduce(torch.ones(3))", "dist.barrier()", "fabric.recv(torch.ones(3), VICTIM)"]
BUSY = ["__import__('time').sleep(1000)", "while True: pass"]
GOOD = """\
kept[1] += 1
x = torch.ones(2) * (rank + 1)
dist.all_reduce(x)
y = torch.zeros(1)
handle = fabric.isend(torch.ones(1) * rank, (rank + 1) % world_size)
fabric.recv(y, (rank - 1) % world_size)
handle.wait()
"""


class Unloadable:
    """Can be pickled, and not be made again from that."""

    def __reduce__(self) -> tuple:
        return exec, ("raise OSError('made elsewhere')",)


class PressesAtOnce(Observer):
    """Presses the stop button in the moment in which a cell is given to the ranks."""

    def __init__(self) -> None:
        self.pressed_s: float | None = None

    def started(self, run: Run) -> None:
        if self.pressed_s is None:
            self.pressed_s = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)


class Campaign:
    """The worlds of a campaign, and what every rank of theirs should have."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.worlds: dict[int, OpenRanks] = {}
        self.counted: dict[int, int] = {}  # by world, the good cells since its opening
        self.interrupted_s: list[float] = []
        self.restarts = 0
        self.folder = folder
        self.children = folder / "children"  # a pid a line: of processes that ranks started and left behind
        self._marks = 0

    # ---- a world and its state -------------------------------------------------------------------

    def world(self, size: int) -> OpenRanks:
        if size not in self.worlds:
            self.worlds[size] = open_ranks(size, timeout_s=LONG_S)
            self._begin(size)
        return self.worlds[size]

    def _begin(self, size: int) -> None:
        self.worlds[size].run("kept = [rank, 0]")
        self.counted[size] = 0

    def goes_on(self, size: int) -> None:
        """The state is as it was, and the next cell works in both groups."""
        world = self.worlds[size]
        assert world["kept"] == [[rank, self.counted[size]] for rank in range(size)]
        world.run(GOOD)
        self.counted[size] += 1
        assert world["x.tolist()"] == [[size * (size + 1) / 2] * 2] * size
        assert world["y.item()"] == [(rank - 1) % size for rank in range(size)]
        assert world["kept"] == [[rank, self.counted[size]] for rank in range(size)]

    def has_lost(self, size: int, victim: int, how: str) -> None:
        """The others can be read and used, the next cell is refused with words, and a restart works."""
        world = self.worlds[size]
        assert world["kept"] == [None if rank == victim else [rank, self.counted[size]] for rank in range(size)]
        other = (victim + 1) % size
        assert world.run("print(kept[0])", [other]).log(other) == f"{other}\n"
        with pytest.raises(ValueError, match=rf"run: rank {victim} has ended \({how}\)\. .*world\.restart\(\)"):
            world.run(GOOD)
        world.restart()
        self.restarts += 1
        self._begin(size)

    # ---- cells -----------------------------------------------------------------------------------

    def cell(self, victim: int, text: str, others: str) -> str:
        """A cell in which one rank does `text` and the others do something else."""
        indented = text.replace("\n", "\n    ")
        return (
            f"import os, sys\nif rank == {victim}:\n    {indented}\nelse:\n    {others.replace('VICTIM', str(victim))}"
        )

    def marked(self, text: str) -> tuple[str, Callable[[int], None]]:
        """The text with a mark of each rank before it, and what waits until so many are there."""
        self._marks += 1
        folder = self.folder / f"marks{self._marks}"
        folder.mkdir()

        def wait(size: int) -> None:
            until(lambda: len(list(folder.iterdir())) == size, LONG_S, f"{size} ranks are at work")

        return f"open({str(folder)!r} + f'/{{rank}}', 'w').close()\n{text}", wait

    def pipes(self, size: int) -> list[str]:
        """A named pipe for each rank."""
        self._marks += 1
        made = [str(self.folder / f"pipe{self._marks}.{rank}") for rank in range(size)]
        for pipe in made:
            os.mkfifo(pipe)
        return made

    def interrupt(self, world: OpenRanks, text: str) -> None:
        """Press the stop button while all ranks are at work, and note how long it took."""
        marked, wait = self.marked(text)
        pressed_s = []

        def press() -> None:
            wait(world.world_size)
            pressed_s.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        with pytest.raises(Interrupted, match="stopped after"):
            world.run(marked)
        self.interrupted_s.append(time.monotonic() - pressed_s[0])
        thread.join()
        assert last_run().outcome.killed == () and last_run().state == "interrupted"


Fault = Callable[[Campaign, OpenRanks, int, str], str]


def raises(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    text = campaign.cell(victim, "raise IndexError('chunk 3')", others)
    with pytest.raises(RankFailed, match=f"rank {victim} of {world.world_size} failed first: IndexError: chunk 3"):
        world.run(text)
    assert last_run().outcome.killed == ()
    return ""


def exits(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    with pytest.raises(RankFailed, match=f"rank {victim} of {world.world_size} failed first: SystemExit: 5"):
        world.run(campaign.cell(victim, "sys.exit(5)", others))
    return ""


def leaves(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    child = "__import__('subprocess').Popen(['sleep', '1000']).pid"
    text = f"with open({str(campaign.children)!r}, 'a') as file:\n    print({child}, file=file)\nos._exit(3)"
    with pytest.raises(RankFailed, match=f"rank {victim} of {world.world_size} exited with code 3"):
        world.run(campaign.cell(victim, text, others))
    return "exited with code 3"


def dies(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    with pytest.raises(RankFailed, match=f"rank {victim} of {world.world_size} was killed by SIGKILL"):
        world.run(campaign.cell(victim, "os.kill(os.getpid(), 9)", others))
    return "killed by SIGKILL"


def is_killed(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    pid = world["__import__('os').getpid()"][victim]
    marked, wait = campaign.marked(campaign.cell(victim, "__import__('time').sleep(1000)", others))

    def kill() -> None:
        wait(world.world_size)
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(RankFailed, match=f"rank {victim} of {world.world_size} was killed by SIGKILL"):
        world.run(marked)
    thread.join()
    return "killed by SIGKILL"


def hangs(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    with pytest.raises(RunTimedOut, match=rf"after timeout_s=0.3 s these ranks of {world.world_size} were not done"):
        world.run(campaign.cell(victim, campaign.draw.choice(BUSY), others), timeout_s=0.3)
    assert last_run().outcome.killed == ()
    return ""


def is_interrupted(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    campaign.interrupt(world, campaign.cell(victim, campaign.draw.choice(BUSY), others))
    return ""


def is_interrupted_at_once(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    presses, before = PressesAtOnce(), CELLS.observers
    CELLS.observers = (presses,)
    try:
        with pytest.raises(Interrupted):
            world.run(campaign.cell(victim, campaign.draw.choice(BUSY), others))
    finally:
        CELLS.observers = before
    campaign.interrupted_s.append(time.monotonic() - presses.pressed_s)
    assert last_run().outcome.killed == ()
    return ""


def deadlocks(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    with pytest.raises(Deadlock, match=r"rank \d waits for \d"):
        world.run(f"fabric.recv(torch.ones(3), (rank + {campaign.draw.randint(1, world.world_size - 1)}) % world_size)")
    return ""


def pushes_a_lock(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    with pytest.raises(ValueError, match=r"push: `lock` \(a lock\) cannot be sent to the ranks"):
        world.push(kept=[9, 9], lock=threading.Lock())
    return ""


def pushes_what_cannot_be_loaded(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    with pytest.raises(RankFailed, match="OSError: made elsewhere"):
        world.push(kept=[9, 9], thing=Unloadable())
    return ""


def asks_for_a_lock(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    with pytest.raises(RankFailed, match=r"the result .* cannot be sent back: cannot pickle '_thread.lock' object"):
        world[f"__import__('threading').Lock() if rank == {victim} else kept"]
    return ""


def asks_for_what_cannot_be_loaded(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    world.run(
        "class Unloadable:\n    def __reduce__(self):\n        return exec, ('raise OSError(\"made elsewhere\")',)\n"
        f"odd = Unloadable() if rank == {victim} else kept"
    )
    words = f"rank {victim} of {world.world_size} failed first: OSError: its result cannot be read here: made elsewhere"
    with pytest.raises(RankFailed, match=words):
        world["odd"]
    return ""


def floods(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    line = "x" * 99
    flood = f"for _ in range({FLOOD_BYTES // 100}):\n    print({line!r})\nos.write(2, b'y' * {FLOOD_BYTES})"
    run = world.run(f"{campaign.cell(victim, flood, 'pass')}\ndist.barrier()")
    assert len(run.log(victim)) == 2 * FLOOD_BYTES and run.log((victim + 1) % world.world_size) == ""
    return ""


def floods_and_is_interrupted(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    campaign.interrupt(world, campaign.cell(victim, "while True:\n    print('x' * 1000)", others))
    return ""


def reports_much(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    text = (
        "from worldsize.report import report\nfor k in range(30_000):\n    report(step=k, loss=1 / (k + 1), rate=0.1)"
    )
    run = world.run(f"{campaign.cell(victim, text, 'pass')}\ndist.barrier()")
    assert [len(rows) for rows in run.reports] == [30_000 * (r == victim) for r in range(world.world_size)]
    assert [row["step"] for row in run.reports[victim]] == list(range(30_000))
    return ""


def runs_two_cells(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    _two_cells(campaign, world, "")
    return ""


def runs_two_cells_of_which_the_first_fails(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    _two_cells(
        campaign, world, f"\nif rank == {victim}:\n    raise KeyError('first')\n{others.replace('VICTIM', str(victim))}"
    )
    return ""


def _two_cells(campaign: Campaign, world: OpenRanks, then: str) -> None:
    """Run one cell, which waits at a pipe, and meanwhile another one: they run one after the other, and both do."""
    world.run("order = []")
    pipes = campaign.pipes(world.world_size)
    first, wait = campaign.marked(f"open({pipes!r}[rank]).read()\norder.append('first'){then}")
    came: dict[str, Any] = {}

    def run(name: str, text: str) -> None:
        try:
            came[name] = world.run(text)
        except BaseException as error:
            came[name] = error

    one = threading.Thread(target=run, args=("first", first))
    one.start()
    wait(world.world_size)
    second = "x = torch.ones(1)\ndist.all_reduce(x)\norder.append(int(x.item()))"
    other = threading.Thread(target=run, args=("second", second))
    other.start()
    until(lambda: _waits_in_turn(other), LONG_S, "the second cell waits in turn")
    for pipe in pipes:
        os.close(os.open(pipe, os.O_WRONLY))  # which waits until the rank reads
    one.join(LONG_S)
    other.join(LONG_S)
    assert isinstance(came["first"], RankFailed if then else Run) and isinstance(came["second"], Run), came
    assert world["order"] == [["first", world.world_size]] * world.world_size


def _waits_in_turn(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident)
    return frame is not None and frame.f_code.co_name in ("execute_order", "_do")


# the faults that are drawn, each with what the others may do meanwhile
KINDS: list[tuple[Fault, list[str]]] = [
    (raises, WAITING + BUSY), (exits, WAITING + BUSY), (leaves, WAITING + BUSY), (dies, WAITING + BUSY),
    (is_killed, WAITING + BUSY), (hangs, WAITING + BUSY), (is_interrupted, WAITING + BUSY),
    (is_interrupted_at_once, WAITING + BUSY), (deadlocks, WAITING), (pushes_a_lock, WAITING),
    (pushes_what_cannot_be_loaded, WAITING), (asks_for_a_lock, WAITING), (asks_for_what_cannot_be_loaded, WAITING),
    (floods, WAITING), (floods_and_is_interrupted, WAITING + BUSY), (reports_much, WAITING), (runs_two_cells, WAITING),
    (runs_two_cells_of_which_the_first_fails, WAITING),
]  # fmt: skip
