"""Code that never ends, leaves, crashes, or takes all there is: it costs its own points and nothing else.

What sleeps here stays longer than its limit, so that it is the grader who ends it.
"""

import os

from tests.grade.cheats import ALL, RIGHT, TITLE, code

BODY = RIGHT.split("\n", 2)[2]
# with the number of the process that runs the tests: others of this machine may leave theirs at the same time
LEFT_BEHIND = f"time.sleep(4242{os.getpid():07})"


def first(name: str, line: str, points: float, *states: str, reached: str = "") -> None:
    """`line` as the first thing that the function does."""
    code(name, f"{TITLE}import os, sys\ndef pass_right(fabric, x):\n    {line}\n{BODY}", points, *states, reached=reached)


first("loops", "while True: pass", 0, "timeout")
code("loops_in_the_cell", TITLE + RIGHT + "\nwhile True:\n    pass\n", 0, "timeout")
code("swallows_interrupts", TITLE + """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
def pass_right(fabric, x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
""", 0, "timeout")
first("sleeps_for_a_day", "__import__('time').sleep(86400)", 0, "timeout")
first("leaves_at_once", "os._exit(0)", 0, "crashed", reached="exited with code 0")
code("leaves_in_the_cell", TITLE + RIGHT + "\nimport os\nos._exit(0)\n", 0, "crashed", reached="the cell .* code 0")
first("sys_exit", "sys.exit(0)", 0, "crashed", reached="exited with code 0")
code("sys_exit_before_the_function", TITLE + "import sys\nsys.exit()\n" + RIGHT, 0, reached="raised SystemExit")
first("reads_address_zero", "__import__('ctypes').string_at(0)", 0, "crashed", reached="killed by SIGSEGV")
first("aborts", "os.abort()", 0, "crashed", reached="killed by SIG")
first("bombs_with_forks", "[os.fork() for _ in iter(int, 1)]", 0, "crashed", "graded", "timeout")
code("bombs_with_threads", TITLE + """
import threading, time
def pass_right(fabric, x):
    while True:
        threading.Thread(target=time.sleep, args=(60,)).start()
""", 0, "crashed", "graded", "timeout")
code("hoards_memory", TITLE + """
def pass_right(fabric, x):
    kept = []
    while True:
        kept.append(torch.ones(5_000_000))
""", 0, "crashed", "graded", "timeout")
code("hoards_memory_in_children", TITLE + """
import os, time
def pass_right(fabric, x):
    for _ in range(20):
        if os.fork() == 0:
            kept = bytearray(b"x" * 300_000_000)
            time.sleep(60)
            os._exit(0)
    time.sleep(60)
""", 0, "crashed", "graded", "timeout", reached="[Mm]emory|not done|Cannot allocate")
code("fills_the_disk", TITLE + f"""
def pass_right(fabric, x):
    written = 0
    for folder in ("/tmp", "/dev/shm", "/"):
        try:
            with open(folder + "/large", "wb") as file:
                for _ in range(2000):
                    written += file.write(bytes(1_000_000))
        except OSError:
            pass
    assert written
{BODY}""", ALL)
code("opens_everything", TITLE + f"""
def pass_right(fabric, x):
    kept = []
    try:
        while True:
            kept.append(open("/usr/bin/env", "rb"))
    except OSError:
        assert kept
    kept.clear()
{BODY}""", ALL)
code("kills_all_that_it_can", TITLE + f"""
import os, signal
def pass_right(fabric, x):
    for process in (os.getppid(), 1, 2, -1, 0, *range(2, 400)):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
            try:
                if process not in (os.getpid(), 0) or number != signal.SIGSTOP:
                    os.kill(process, number)
            except OSError:
                pass
{BODY}""", ALL)
code("leaves_a_process_behind", TITLE + f"""
import os, sys
def pass_right(fabric, x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import time; {LEFT_BEHIND}"])
        os._exit(0)
{BODY}""", ALL)
first("closes_its_line", "os.closerange(3, 200)", 0, "crashed", reached="no result")
first("returns_100_megabytes", "return torch.zeros(30_000_000)", 0, "graded", "crashed", reached="expected at most|[Mm]emory")
code("returns_a_deep_list", TITLE + """
def pass_right(fabric, x):
    found = []
    for _ in range(900):
        found = [found]
    return found
""", 0, reached="RecursionError")
