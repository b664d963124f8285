"""A hundred seeded faults on ranks that stay: each is told in the right words, the state is kept, and nothing is left.

The worlds have two to five ranks and stay open from one fault to the next, until a rank of theirs has ended.
"""

import gc
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.ranks.seeded_faults import KINDS, Campaign, Fault
from tests.support.daemons import until
from tests.support.kernels import pid_gone
from tests.support.processes import LONG_S, agents, ranks_alive
from worldsize.launch import last_run
from worldsize.ranks import open_ranks

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

SEED = 20_261_125
FAULTS = 100
SIZES = (2, 3, 4, 5)
INTERRUPTED_S = 0.5  # the median that is aimed at, from the button to the error


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Campaign]:
    monkeypatch.chdir(tmp_path)
    made = Campaign(tmp_path, SEED)
    yield made
    for world in made.worlds.values():
        world.close()


def drawn(draw: random.Random) -> list[tuple[Fault, list[str]]]:
    """A hundred faults, each kind as often as any other, in an order of the seed's."""
    kinds = [KINDS[place % len(KINDS)] for place in range(FAULTS)]
    draw.shuffle(kinds)
    return kinds


def test_a_hundred_faults_are_told_and_leave_the_ranks_as_they_were(campaign, capsys):
    with open_ranks(1) as first:  # what a first use brings stays: the agent, its fork server, and its threads
        first.run("pass")
    threads, agent = threading.active_count(), agents()[0]
    held, held_by_agent = psutil.Process().num_fds(), agent.num_fds()
    below_agent = agent.children(recursive=True)
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
    assert ranks_alive() == [] and agents() == [agent] and agent.children(recursive=True) == below_agent
    children = [int(pid) for pid in campaign.children.read_text().split()]
    assert children and all(map(pid_gone, children))
    assert {path.name.rstrip("0123456789.") for path in campaign.folder.iterdir()} == {"children", "marks", "pipe"}
    _left_in_the_engine(last_run().dir.parent)
    assert threading.active_count() <= threads + 1  # the sweeper
    assert psutil.Process().num_fds() <= held + 5 and agent.num_fds() <= held_by_agent + 5
    assert median_s <= INTERRUPTED_S


def _left_in_the_engine(folder: Path) -> None:
    """The runs that nobody holds any more go, with their files; those of the last ones stay, and the agent's folder."""

    def few() -> bool:
        gc.collect()
        return len(list(folder.glob("run*"))) <= 4

    until(few, LONG_S, "the folders of runs have gone")
    assert {path.name.rstrip("0123456789") for path in folder.iterdir()} <= {"run", "a"}
