"""A hundred seeded faults on ranks that stay: each is told in the right words, the state is kept, and nothing is left.

The worlds have two to five ranks and stay open from one fault to the next, until a rank of theirs has ended.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.daemons import until
from tests.support.processes import LONG_S, agents, ranks_alive
from worldsize.errors import Deadlock, Interrupted, RankFailed, RunTimedOut
from worldsize.launch import last_run
from worldsize.launch.run import Observer, Run
from worldsize.ranks import OpenRanks, open_ranks
from worldsize.ranks.open_world import CELLS

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

SEED = 20_261_125
FAULTS = 100
SIZES = (2, 3, 4, 5)
INTERRUPTED_S = 0.5  # the median that is aimed at, from the button to the error
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

    def __init__(self, folder: Path) -> None:
        self.draw = random.Random(SEED)
        self.worlds: dict[int, OpenRanks] = {}
        self.counted: dict[int, int] = {}  # by world, the good cells since its opening
        self.interrupted_s: list[float] = []
        self.restarts = 0
        self.folder = folder
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
    text = "__import__('subprocess').Popen(['sleep', '1000'])\nos._exit(3)"
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
    with pytest.raises(RunTimedOut, match=rf"after timeout_s=0.3 s these of {world.world_size} ranks were not done"):
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
    with pytest.raises(ValueError, match=r"push: `lock` \(a lock\) cannot travel to the ranks"):
        world.push(kept=[9, 9], lock=threading.Lock())
    return ""


def pushes_what_cannot_be_loaded(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    with pytest.raises(RankFailed, match="OSError: made elsewhere"):
        world.push(kept=[9, 9], thing=Unloadable())
    return ""


def asks_for_a_lock(campaign: Campaign, world: OpenRanks, victim: int, others: str) -> str:
    with pytest.raises(RankFailed, match=r"failed first: TypeError: cannot pickle '_thread.lock' object"):
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


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Campaign]:
    monkeypatch.chdir(tmp_path)
    made = Campaign(tmp_path)
    yield made
    for world in made.worlds.values():
        world.close()


def drawn(draw: random.Random) -> list[tuple[Fault, list[str]]]:
    """A hundred faults, each kind as often as any other, in an order of the seed's."""
    kinds = [KINDS[place % len(KINDS)] for place in range(FAULTS)]
    draw.shuffle(kinds)
    return kinds


def test_a_hundred_faults_are_told_and_leave_the_ranks_as_they_were(campaign, capsys):
    open_ranks(1).close()  # what a first use brings stays: the agent, and its threads
    threads, agent = threading.active_count(), agents()[0]
    held, held_by_agent = psutil.Process().num_fds(), agent.num_fds()
    began_s = time.monotonic()
    kinds: Counter[str] = Counter()
    for number, (fault, waiting) in enumerate(drawn(campaign.draw)):
        size, others = campaign.draw.choice(SIZES), campaign.draw.choice(waiting)
        victim = campaign.draw.randrange(size)
        words = f"seed {SEED}, fault {number}: {fault.__name__}, rank {victim} of {size}, others {others!r}"
        kinds[fault.__name__] += 1
        world = campaign.world(size)
        try:
            how = fault(campaign, world, victim, others)
            if how:
                campaign.has_lost(size, victim, how)
            campaign.goes_on(size)
        except BaseException as error:
            error.add_note(words)
            raise

    took_s = time.monotonic() - began_s
    median_s, most_s = statistics.median(campaign.interrupted_s), max(campaign.interrupted_s)
    with capsys.disabled():
        print(
            f"\nseed {SEED}: {FAULTS} faults in {took_s:.0f} s, {campaign.restarts} restarts; from the stop button to "
            f"Interrupted: median {median_s:.2f} s, at most {most_s:.2f} s of {len(campaign.interrupted_s)}; {dict(kinds)}"
        )
    for world in campaign.worlds.values():
        world.close()
    assert ranks_alive() == [] and agents() == [agent] and psutil.Process(agent.pid).children() == agent.children()
    assert _named("sleep", "1000") == []
    assert sorted(path.name for path in campaign.folder.iterdir() if not path.name.startswith(("marks", "pipe"))) == []
    _left_in_the_engine(last_run().dir.parent)
    assert threading.active_count() <= threads + 1  # the sweeper
    assert psutil.Process().num_fds() <= held + 5 and agent.num_fds() <= held_by_agent + 5
    assert median_s <= INTERRUPTED_S


def _named(*command: str) -> list[psutil.Process]:
    """The processes below the agents that run a command."""
    return [p for agent in agents() for p in agent.children(recursive=True) if p.cmdline() == [*command]]


def _left_in_the_engine(folder: Path) -> None:
    """The runs that nobody holds any more go, with their files; those of the last ones stay, and the agent's folder."""

    def few() -> bool:
        gc.collect()
        return len(list(folder.glob("run*"))) <= 4

    until(few, LONG_S, "the folders of runs have gone")
    assert {path.name.rstrip("0123456789") for path in folder.iterdir()} <= {"run", "a"}
