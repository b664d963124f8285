"""The memory of a worker: no submission makes it large, what ranks hold is apart, and one that stays full marks no more."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.grade.cheats import LAB, RIGHT, ROOT, TITLE, with_cell
from tests.support.graded_arena import SEED
from tests.support.processes import below
from worldsize.grade.isolation.bubblewrap import NoSandbox, best_mode
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.marking import worker_process, worker_supervisor
from worldsize.grade.marking.grade_folder import grade
from worldsize.grade.marking.mark_submission import MarkingOrder, MarkingTask
from worldsize.grade.marking.rows import GradeRow

pytestmark = pytest.mark.timeout(300)

LIMITS = Limits(case_s=5, wall_s=60, memory_bytes=1_500_000_000)
GOOD = TITLE + RIGHT
TASK = MarkingTask("eve_1", LAB, "nowhere.ipynb", "eve.ipynb", sound=True)

HUGE = {
    "returns_much": TITLE + "def pass_right(fabric, x):\n    return [torch.ones(4_000_000) for _ in range(200)]\n",
    "says_one_array_many_times": TITLE + """
def pass_right(fabric, x):
    line = fabric._wire._channel
    much = ["l", *[["a", "<f8", [2_500_000], 0]] * 2000]
    line.tell({"op": "done", "returned": much, "input": None}, bytes(20_000_000))
    return x
""",
    "returns_as_much_as_a_frame_holds": TITLE + "def pass_right(fabric, x):\n    return torch.ones(7_900_000)\n",
    "returns_very_many_lists": TITLE + """
def pass_right(fabric, x):
    fabric._wire._channel.tell({"op": "done", "returned": ["l", *[["l"]] * 500_000], "input": None})
    return x
""",
    "sends_much_that_nobody_takes": TITLE + """
def pass_right(fabric, x):
    for _ in range(300):
        fabric.isend(torch.ones(4_000_000), to=(fabric.rank + 1) % max(2, fabric.world_size))
    return x
""",
    "tells_of_cells_without_end": TITLE + """
import sys
frame = sys._getframe()
while frame is not None:
    line = frame.f_locals.get("channel")
    if line is not None and hasattr(line, "tell"):
        while True:
            line.tell({"op": "cell", "number": 1, "more": "x" * 7_000_000}, bytes(60_000_000))
    frame = frame.f_back
""",
}  # fmt: skip


KEPT = f"kept = fabric.rank == 0 and torch.ones({worker_process.ROOM_BYTES // 3})"  # of four bytes each
MUCH = GOOD.replace("def pass_right(fabric, x):", f"def pass_right(fabric, x):\n    {KEPT}")


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, GradeRow], dict[str, int]]:
    """{student: row} of one worker that marks `HUGE` and two who are right after them, and how many bytes it had by then."""
    try:
        best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))
    place = tmp_path_factory.mktemp("crowded")
    largest: dict[str, int] = {}

    def look(done: int, total: int, row: GradeRow) -> None:
        for process in below("worldsize.grade.marking.worker_process"):
            words = (Path("/proc") / str(process.pid) / "status").read_text().split()
            largest[row.student] = 1024 * int(words[words.index("VmHWM:") + 1])

    for student, source in {**HUGE, "yves": MUCH, "zoe": GOOD}.items():
        (place / "submitted" / student).mkdir(parents=True)
        (place / "submitted" / student / f"{LAB}.ipynb").write_text(json.dumps(with_cell(source)))
    rows = grade(place / "submitted", place / "out", 1, root=ROOT, limits=LIMITS, seed=SEED, progress=look).rows
    return {row.student: row for row in rows}, largest


@pytest.mark.soak
def test_no_submission_makes_a_worker_large(crowded):
    rows, largest = crowded
    assert largest.keys() == rows.keys() and max(largest.values()) < 512_000_000, largest
    assert {student: rows[student].points for student in HUGE} == dict.fromkeys(HUGE, 0)
    assert "lost" not in {row.state for row in rows.values()}, rows


@pytest.mark.soak
def test_an_honest_submission_after_them_earns_its_points(crowded):
    assert crowded[0]["zoe"].points == 4


@pytest.mark.soak
def test_a_rank_may_hold_more_than_its_worker(crowded):
    assert crowded[0]["yves"].points == 4


def test_a_worker_has_no_more_memory_than_its_limit(tmp_path):
    limited = "from worldsize.grade.marking import worker_process\nworker_process.limit_memory(50_000_000)"
    program = f"{limited}\nx = bytearray(60_000_000)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip().endswith("MemoryError")


# in a process with a worker's real limit: what an answer of 600 MB comes to, and the limit of the server that ran it
SERVED = """
import json
from pathlib import Path
from worldsize.grade.outside.arena import SandboxArena, Submitted
from worldsize.grade.outside.boxes import Sandbox
from worldsize.grade.isolation.bubblewrap import best_mode
from worldsize.grade.isolation.limits import Limits, Meter
from worldsize.grade.marking import worker_process

SOURCE = "def fills(*given):\\n    held = bytearray(600_000_000)\\n    return len(held)\\n"
LIMITS = Limits()

def server_limit(framework):
    (server,) = [server for server in sandbox._servers if server.framework == framework]
    rows = (Path("/proc") / str(server.pid) / "limits").read_text().splitlines()
    (row,) = [row for row in rows if row.startswith("Max data size")]
    return row.split()[3]

sandbox = Sandbox(best_mode(), LIMITS, worker_process.start_server)
worker_process.limit_memory()
seen = {}
for name, framework in (("first", "torch"), ("renewed", "torch"), ("TensorFlow's", "tensorflow")):
    arena = SandboxArena(sandbox, Meter(LIMITS), [["Exercise 1.1", SOURCE]], seed=1)
    if framework == "torch":
        ended = arena.call(Submitted("fills"))
    else:
        ended = arena.tensorflow(Submitted("fills"), [0])
    seen[name] = [ended.state, ended.message, *ended.returned, server_limit(framework)]
    if name == "first":
        sandbox.renew()
try:
    bytearray(600_000_000)
    seen["worker"] = "unlimited"
except MemoryError:
    seen["worker"] = "limited"
sandbox.close()
print(json.dumps(seen))
"""


@pytest.mark.usefixtures("_sandboxed")
def test_every_server_of_a_limited_worker_has_the_limit_that_a_submission_is_promised():
    """The first one, one that was renewed, and TensorFlow's, which starts late; the worker's own limit stays."""
    done = subprocess.run([sys.executable, "-c", SERVED], capture_output=True, text=True, timeout=250, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    own = dict.fromkeys(("first", "renewed", "TensorFlow's"), ["done", "", 600_000_000, "unlimited"])
    assert json.loads(done.stdout) == {**own, "worker": "limited"}


@pytest.mark.quick
def test_a_worker_that_says_that_it_is_full_marks_no_more(monkeypatch):
    marked = []

    def mark(self: worker_supervisor.Worker, task: MarkingTask) -> GradeRow:
        marked.append(id(self))
        self.is_full = len(marked) == 2
        return task.row("graded", "", 7, unsafe=False)

    monkeypatch.setattr(worker_supervisor.Worker, "mark", mark)
    place = worker_supervisor.WorkerSupervisor(MarkingOrder(course=str(ROOT), mode="own", seed=7, limits=LIMITS))
    try:
        kept = [place.mark(TASK) and place._worker for _ in range(4)]
    finally:
        place.close()
    assert kept[0] is not None and kept[1] is None and kept[2] is kept[3] is not kept[0]
