"""What a rank in a sandbox can ask the kernel for: what it needs, and nothing by which another sandbox could be reached or
noticed."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import worldsize.checks
from tests.support import graded_arena
from worldsize.grade.isolation import bubblewrap, libseccomp, seccomp
from worldsize.grade.isolation.bubblewrap import NoSandbox
from worldsize.grade.isolation.limits import Limits
from worldsize.grade.outside.arena import SandboxArena, Submitted
from worldsize.grade.outside.boxes import Sandbox

LIMITS = Limits(case_s=60)  # a bound against a hang

# name: its arguments in C; FILE is a file that all ranks can read, opened
CALLS = {
    "preadv2": "FILE, VECTOR, 1, 0, 0, 8", "fadvise64": "FILE, 0, 0, 4", "readahead": "FILE, 0, 4096",
    "cachestat": "FILE, ROOM, ROOM, 0", "mincore": "TEXT, 4096, ROOM", "sync": "", "syncfs": "FILE",
    "statfs": "NAME, ROOM", "utimensat": "-100, NAME, 0, 0", "utime": "NAME, 0", "flock": "FILE, 6",
    "mq_open": "NAME, 66, 384, 0", "memfd_create": "NAME, 0", "shmget": "7, 4096, 950", "semget": "7, 1, 950",
    "msgget": "7, 950", "keyctl": "0, -3, 0", "add_key": "NAME, NAME, NAME, 1, -3", "io_setup": "8, ROOM",
    "io_uring_setup": "8, ROOM", "socket": "1, 1, 0", "memfd_secret": "0", "mlock": "TEXT, 4096", "tkill": "1, 40",
    "sendmsg": "FILE, ROOM, 0", "timer_create": "0, 0, ROOM", "inotify_init1": "0", "fanotify_init": "0, 0",
    "sysinfo": "ROOM", "getrusage": "0, ROOM", "perf_event_open": "ROOM, 0, -1, -1, 0", "bpf": "0, ROOM, 0",
    "userfaultfd": "1", "unshare": "268435456", "setns": "FILE, 0", "mount": "NAME, NAME, NAME, 0, 0",
    "chroot": "NAME", "ptrace": "0, 0, 0, 0", "process_vm_readv": "1, VECTOR, 1, VECTOR, 1, 0",
    "clone3": "ROOM, 64", "setpriority": "0, 0, 5", "getpriority": "1, 0",
    "ioprio_get": "3, 0", "splice": "FILE, 0, FILE, 0, 1, 0", "sched_setaffinity": "0, 8, ROOM",
    "setrlimit": "7, ROOM", "personality": "8", "remap_file_pages": "TEXT, 4096, 0, 0, 0", "swapon": "NAME, 0",
    "open_by_handle_at": "FILE, ROOM, 0", "name_to_handle_at": "-100, NAME, ROOM, ROOM, 0",
    "statx": "-100, NAME, 0, 4095, ROOM",
    "rt_sigqueueinfo": "1, 10, ROOM", "getitimer": "0, ROOM", "seccomp": "0, 0, 0",
}  # fmt: skip
# with arguments that make them what they must not be; the same call is allowed with others
MORE = {
    "a child in a new user namespace": ("clone", "268435473, 0, 0, 0, 0"),
    "what a child has used": ("wait4", "-1, 0, 1, ROOM"),
    "what a child has used, of another call": ("waitid", "0, 0, 0, 5, ROOM"),
    "the room in a pipe": ("fcntl", "1, 1032, 0"),
    "a lock on a file": ("fcntl", "FILE, 6, ROOM"),
    "a lease on a file": ("fcntl", "FILE, 1024, 0"),
    "waiters moved to another futex": ("futex", "TEXT, 3, 1, 1, ROOM, 0"),
    "waiters moved after a look": ("futex", "TEXT, 4, 1, 1, ROOM, 0"),
    "a futex woken and written": ("futex", "TEXT, 5, 1, 1, ROOM, 0"),
    "a futex with an owner": ("futex", "TEXT, 6, 0, 0, 0, 0"),
    "a futex of 2 clocks": ("futex", "TEXT, 13, 0, 0, 0, 0"),
    "a library paged out": ("madvise", "TEXT, 4096, 21"),
    "pages merged": ("madvise", "TEXT, 4096, 12"),
    "a signal that is counted": ("kill", "1, 40"),
    "a signal that is counted, to a thread": ("tgkill", "1, 1, 40"),
    "a limit set": ("prlimit64", "0, 7, ROOM, 0"),
    "a timer of its processor time": ("setitimer", "1, ROOM, 0"),
    "others' limits": ("prlimit64", "2, 7, 0, ROOM"),
    "dumps of its memory": ("prctl", "4, 1, 0, 0, 0"),
    "a terminal's input": ("ioctl", "1, 21522, ROOM"),
}

TRIES = """
import ctypes, errno, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def tries(calls):
    room = ctypes.create_string_buffer(4096)
    name = ctypes.create_string_buffer(os.__file__.encode())
    text = ctypes.cast(libc.sched_yield, ctypes.c_void_p).value & ~4095
    values = {
        "FILE": os.open(os.__file__, os.O_RDONLY), "ROOM": ctypes.addressof(room), "NAME": ctypes.addressof(name),
        "TEXT": text,
        "VECTOR": ctypes.addressof((ctypes.c_size_t * 2)(ctypes.addressof(room), 16)),
    }
    said = {}
    for what, (number, arguments) in calls.items():
        words = filter(None, arguments.split(", "))
        numbers = [ctypes.c_long(values[word] if word in values else int(word)) for word in words]
        ctypes.set_errno(0)
        answer = libc.syscall(ctypes.c_long(number), *numbers)
        said[what] = "allowed" if answer != -1 else errno.errorcode[ctypes.get_errno()]
    return said
"""


def arena_of(box: Sandbox, *sources: str) -> SandboxArena:
    return graded_arena.arena_of(box, *sources, limits=LIMITS)


def _number(name: str) -> int:
    return libseccomp.number_of(name)


@pytest.fixture(scope="module", params=["own", pytest.param("fresh", marks=pytest.mark.soak)])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        bubblewrap.best_mode()
    except NoSandbox as refused:
        pytest.skip(str(refused))
    if request.param == "own":  # as the session's is
        yield request.getfixturevalue("sandbox")
        return
    with_limits = Sandbox(request.param, LIMITS)
    yield with_limits
    with_limits.close()


def test_where_bubblewrap_starts_a_program_it_starts_a_sandbox_too() -> None:
    """Elsewhere most tests of the sandbox are skipped, and they would be so after a mistake in its command line."""
    shown = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--ro-bind", "/", "/", "--proc", "/proc"]
    if shutil.which("bwrap") is None or subprocess.run(["bwrap", *shown, "true"], capture_output=True).returncode:
        pytest.skip("bubblewrap starts nothing here")
    try:
        seccomp.program(network=False)
        bubblewrap._expect_same_package()
    except (ImportError, NoSandbox) as refused:
        pytest.skip(str(refused))
    assert bubblewrap.best_mode() in ("own", "fresh")


@pytest.fixture(scope="module")
def said(box) -> dict[str, str]:
    calls = {name: (_number(name), arguments) for name, arguments in CALLS.items() if _number(name) >= 0}
    calls |= {what: (_number(name), arguments) for what, (name, arguments) in MORE.items()}
    calls["what a later kernel brings"] = (900, "0, 0")
    ended = arena_of(box, TRIES).call(Submitted("tries"), calls)
    assert ended.state == "done", ended.message
    return ended.returned[0]


def test_a_rank_may_not_call_what_it_does_not_need(said):
    assert len(said) > len(MORE) + 40
    refused = {what: "ENOSYS" if what in ("clone3", "statx") else "EPERM" for what in said}
    assert {what: answer for what, answer in said.items() if answer != refused[what]} == {}


def test_no_rank_that_root_grades_has_root_s_number(box):
    """The server gives up root before it enters namespaces of a rank's own; where a rank has none, it does so itself."""
    ended = arena_of(box, "import os\ndef user():\n    return os.getuid()\n").call(Submitted("user"))
    assert ended.state == "done", ended.message
    found = {psutil.Process(server.pid).uids().real for server in box._servers} if box.mode == "own" else set(ended.returned)
    assert found == {os.getuid() or 65534}


HIDDEN = """
import importlib, worldsize.checks
def hidden(names):
    seen = []
    for name in names:
        try:
            importlib.import_module(name)
            seen.append(name)
        except ModuleNotFoundError:
            pass
    return seen
"""


def test_a_rank_sees_no_check_whose_reference_it_could_call(box):
    folder = Path(worldsize.checks.__file__).parent
    names = [".".join(path.relative_to(folder.parents[1]).with_suffix("").parts) for path in folder.rglob("*.py")]
    ended = arena_of(box, HIDDEN).call(Submitted("hidden"), names)
    assert ended.state == "done", ended.message
    plays = ("arena", "in_one_process", "in_rank", "index", "noted_calls", "plain_call", "verdict")
    beside = [f"worldsize.checks.{name}" for name in plays]
    seen = {name.removesuffix(".__init__") for name in ended.returned[0]}
    assert sorted(name for name in seen if "drivers" not in name) == ["worldsize.checks", *beside]


STEPS = """
import importlib
from worldsize import data

def steps(name):
    found = []
    try:
        found.append(importlib.import_module(name).__name__)
    except ModuleNotFoundError:
        pass
    try:
        found.append(len(data.measured_iterations("multi")))
    except FileNotFoundError:
        pass
    from worldsize.formulas import robust_fit, training_step
    return found, len(data.measured_iterations("single"))
"""


def test_a_rank_sees_neither_the_steps_that_it_is_asked_for_nor_the_model_of_them(box):
    ended = arena_of(box, STEPS).call(Submitted("steps"), "worldsize.formulas.measured_clusters")
    assert ended.state == "done", ended.message
    assert ended.returned[0] == ((), 1440)


FUTEX = """
import ctypes, mmap, os, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def futex(number):
    text = ctypes.cast(libc.sched_yield, ctypes.c_void_p).value & ~4095
    value = ctypes.c_uint.from_address(text).value
    wait = lambda: libc.syscall(number, ctypes.c_void_p(text), 0, value, 0, 0, 0)
    answers = [wait(), ctypes.get_errno()]
    waiters = [threading.Thread(target=wait, daemon=True) for _ in range(5)]
    for waiter in waiters:
        waiter.start()
    woken = [libc.syscall(number, ctypes.c_void_p(text), what, 100, 0, 0, 0xFFFFFFFF) for what in (1, 10) for _ in range(1000)]
    for waiter in waiters:
        waiter.join(10)
    return answers, sum(woken), [waiter.is_alive() for waiter in waiters]
"""


def test_nobody_waits_or_is_woken_at_a_futex_that_others_map_too(box):
    ended = arena_of(box, FUTEX).call(Submitted("futex"), _number("futex"))
    assert ended.state == "done", ended.message
    assert ended.returned[0] == ((-1, errno.EAGAIN), 0, (False,) * 5)


JOINS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
WORK = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

def joins(many):
    done = []
    def work(_):
        time.sleep(0.002)  # it runs still when somebody begins to wait for its end
        done.append(1)
    work = WORK(work)
    for _ in range(many):
        thread = ctypes.c_ulong()
        assert libc.pthread_create(ctypes.byref(thread), None, work, None) == 0
        assert libc.pthread_join(thread, None) == 0
    return len(done)
"""


def test_a_thread_of_the_c_library_is_joined(box):
    ended = arena_of(box, "import time" + JOINS).call(Submitted("joins"), 50)
    assert (ended.state, ended.returned) == ("done", (50,)), ended.message


FILE_SIZE = """
import resource
def lowers():
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard + 1))
    except (ValueError, OSError):
        return resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return "it was raised"
"""


def test_a_rank_may_make_its_own_files_smaller_and_never_larger(box):
    ended = arena_of(box, FILE_SIZE).call(Submitted("lowers"))
    assert (ended.state, ended.returned) == ("done", (10,)), ended.message


NEEDS = """
import asyncio, concurrent.futures, functools, threading
import array, bisect, bz2, collections, csv, ctypes, datetime, decimal, fractions, hashlib, heapq, itertools, json, lzma
import math, mmap, operator, os, pathlib, pickle, queue, random, re, statistics, string, struct, tempfile, time, uuid, zlib
import cProfile, select, typing, unicodedata
import subprocess, sys
import numpy as np

async def later(x):
    await asyncio.sleep(0.001)
    return x + 1

def needs(size):
    assert asyncio.run(later(1)) == 2
    assert subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True).stdout == b"42\\n"
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        sums = list(pool.map(lambda k: float(np.ones((size, size)).dot(np.ones((size, size))).sum()) + k, range(6)))
    for _ in range(20):
        thread = threading.Thread(target=time.sleep, args=(0.001,))
        thread.start()
        thread.join()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "x.npz"
        np.savez(path, a=np.arange(3))
        loaded = np.load(path)["a"].tolist()
        torch.save({"w": torch.ones(3)}, path.with_suffix(".pt"))
        loaded += torch.load(path.with_suffix(".pt"))["w"].tolist()
    grown = bytearray()
    for _ in range(40):
        grown += bytes(1_000_000)
    y = torch.nn.Linear(size, size)(torch.ones(size, size)).sum()
    y.backward()
    fft = np.fft.rfft(np.ones(8)).real.tolist()
    noise = np.random.default_rng(1).normal(size=3)
    digest = hashlib.sha256(b"x").hexdigest()[:4]
    return len(sums), loaded, len(grown), fft[0], digest, os.listdir("/proc"), sorted(os.listdir("/dev"))
"""


def test_a_rank_can_do_what_exercises_need(box):
    ended = arena_of(box, NEEDS).call(Submitted("needs"), 300)
    assert ended.state == "done", ended.message
    count, loaded, grown, fft, digest, processes, devices = ended.returned[0]
    assert (count, loaded, grown, fft, digest) == (6, (0, 1, 2, 1.0, 1.0, 1.0), 40_000_000, 8.0, "2d71")
    assert processes == () and devices == ("full", "null", "random", "shm", "urandom", "zero")


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.soak), 2, pytest.param(3, marks=pytest.mark.soak)])
def test_ranks_of_a_process_group_have_a_network_and_nothing_else_more(box, size):
    group = """
import torch.distributed as dist
def group(x):
    dist.all_reduce(x)
    refused = 0
    for attempt in (socket.socketpair, lambda: socket.socket(socket.AF_UNIX), lambda: os.memfd_create("a")):
        try:
            attempt()
        except PermissionError:
            refused += 1
    return x, refused
"""
    inputs = [np.arange(3.0) + rank for rank in range(size)]
    ended = arena_of(box, "import os, socket", group).group(Submitted("group"), inputs)
    assert ended.state == "done", ended.message
    for got, refused in ended.returned:
        assert np.array_equal(got, sum(inputs)) and refused == 3


@pytest.mark.parametrize("together", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_rank_holds_nothing_but_its_line(box, together):
    """Its standard streams go nowhere; of the grader it has two pipes, which carry no descriptors."""
    held = """
import os, stat
def held(*_):
    kinds = []
    for number in range(256):
        try:
            kinds.append(stat.S_IFMT(os.fstat(number).st_mode))
        except OSError:
            pass
    return sorted(kinds)
"""
    arena = arena_of(box, held)
    if together:
        ended = arena.tensorflow(Submitted("held"), [np.zeros(1)])
    else:
        ended = arena.ranks(Submitted("held"), [np.zeros(1)])
    assert ended.state == "done", ended.message
    kinds = list(ended.returned[0])
    assert kinds.count(0o010000) == 2 and set(kinds) <= {0o010000, 0o020000}
