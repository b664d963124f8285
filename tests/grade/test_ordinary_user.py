"""An ordinary user who grades: a submission has the same number of a user as the grader, and can harm itself alone."""

from collections.abc import Iterator

import pytest

from tests.support import other_user

GRADES = """
import sys
from tests.support.graded_arena import arena_of
from worldsize.grade.outside.arena import Submitted
from worldsize.grade.outside.boxes import Sandbox, SandboxLost
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.isolation.limits import Limits

try:
    best_mode()
except NoSandbox as refused:
    sys.exit(print("refused", refused))
box = Sandbox(sys.argv[1], Limits(case_s=20))
try:
    for _ in range(2):  # a server that was killed has no second one
        ended = arena_of(box, sys.argv[2]).call(Submitted("tries"))
        print(ended.state, ended.returned)
except SandboxLost as lost:
    print("lost", lost)
finally:
    box.close()
"""
KILLS = """
import contextlib, os
def tries():
    tried = 0
    for process in (-1, os.getppid(), 2, 3, 4):
        with contextlib.suppress(OSError):
            os.kill(process, 9)
        tried += 1
    return tried
"""


SAVES = """
import sys
import numpy as np
from tests.support.graded_arena import arena_of
from worldsize.checks.resilience.save_atomically import NAME, save, scenario
from worldsize.grade.outside.arena import Submitted
from worldsize.grade.outside.boxes import Sandbox
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode

try:
    best_mode()
except NoSandbox as refused:
    sys.exit(print("refused", refused))
data = np.arange(9, dtype="uint8")
box = Sandbox(sys.argv[1])
try:
    tried = [scenario({}, save(data)), scenario({}, save(data, dies=["byte", 4]))]
    ended = arena_of(box, sys.argv[2]).saves(Submitted("saves"), tried)
    print([(row["ended"][0]["how"], row["ended"][0]["touched"], sorted(row["files"])) for row in ended.returned[0]])
finally:
    box.close()
"""
SAVED = """
import os
def saves(path, data):
    with open(f"{path}.tmp", "wb") as file:
        file.write(data)
    os.replace(f"{path}.tmp", path)
"""


@pytest.fixture(scope="module")
def theirs() -> Iterator[tuple[str, str]]:
    """A folder of that user's, and a Python there."""
    if why_not := other_user.why_not():
        pytest.skip(why_not)
    with other_user.home() as folder:
        python = other_user.own_python(folder)
        if not python:
            pytest.skip("no Python here that another user may use without its variables")
        yield folder, python


@pytest.mark.parametrize("mode", ["own", pytest.param("fresh", marks=pytest.mark.soak)])
def test_a_rank_cannot_end_the_server_that_it_came_from(theirs, mode):
    folder, python = theirs
    said = other_user.run_as(python, GRADES, mode, KILLS, home=folder)
    if said.startswith("refused"):
        pytest.skip(said)
    assert said == 2 * "done (5,)\n"


@pytest.mark.parametrize("mode", ["own", pytest.param("fresh", marks=pytest.mark.soak)])
def test_a_writer_is_watched_and_killed(theirs, mode):
    folder, python = theirs
    said = other_user.run_as(python, SAVES, mode, SAVED, home=folder)
    if said.startswith("refused"):
        pytest.skip(said)
    assert said == "[('returned', '', ['state.rank1']), ('killed', '', ['state.rank1.tmp'])]\n"
