"""Right answers in odd but honest styles, and wrong ones: each earns what its code is worth, to the point."""

from tests.grade.cheats import ALL, RIGHT, TITLE, code

BODY = RIGHT.split("\n", 2)[2]  # the lines below `def`

code("the_plain_answer", TITLE + RIGHT, ALL)
code("warns_on_stderr", TITLE + f"""
import sys, warnings
warnings.warn("an old habit")
print("a line on stderr", file=sys.stderr)
def pass_right(fabric, x):
    warnings.warn("again", DeprecationWarning)
{BODY}""", ALL)
code("prints_100_megabytes", TITLE + f"""
for _ in range(5):
    print("x" * 20_000_000)
def pass_right(fabric, x):
    print("y" * 30_000_000)
{BODY}""", ALL)
code("magic_of_the_notebook", "%%time\n" + TITLE + "%matplotlib inline\n!ls\n" + RIGHT, ALL)
code("no_title", RIGHT, ALL)
code("windows_lines_and_tabs", (TITLE + RIGHT).replace("    ", "\t").replace("\n", "\r\n"), ALL)
code("a_class_with_call", TITLE + f"""
class PassRight:
    def __call__(self, fabric, x):
        return self.work(fabric, x)
    def work(self, fabric, x):
{BODY.replace('    ', '        ')}
pass_right = PassRight()
""", ALL)
code("annotated_and_decorated", TITLE + f"""
from __future__ import annotations
import functools
from dataclasses import dataclass

def logged(fn):
    @functools.wraps(fn)
    def inner(*args):
        return fn(*args)
    return inner

@dataclass
class Ring:
    rank: int
    size: int
    def next(self) -> int:
        return (self.rank + 1) % self.size

@logged
def pass_right(fabric: Fabric, x: torch.Tensor) -> torch.Tensor:
    assert Ring(fabric.rank, fabric.world_size).next() >= 0
{BODY}""", ALL)
code("numpy_in_and_out", TITLE + """
import numpy as np
def pass_right(fabric, x):
    n, mine = fabric.world_size, x.numpy().copy()
    if n == 1:
        return mine
    out = np.empty_like(mine)
    handle = fabric.isend(mine, (fabric.rank + 1) % n)
    fabric.recv(out, (fabric.rank - 1) % n)
    handle.wait()
    return out
""", ALL)
code("a_thread_sends", TITLE + """
from threading import Thread
def pass_right(fabric, x):
    n = fabric.world_size
    if n == 1:
        return x.clone()
    out = torch.zeros_like(x)
    sender = Thread(target=fabric.send, args=(x, (fabric.rank + 1) % n))
    sender.start()
    fabric.recv(out, (fabric.rank - 1) % n)
    sender.join()
    return out
""", ALL)
code("asyncio_inside", TITLE + f"""
import asyncio
def pass_right(fabric, x):
    async def work():
{BODY.replace('    ', '        ')}
    return asyncio.run(work())
""", ALL)
code("unicode_and_main", TITLE + f"""
größe = "🙂"
if __name__ == "__main__":
    print(größe)
def pass_right(fabric, x):
    '''Sendet x nach rechts. 送信'''
{BODY}""", ALL)
code("takes_its_time", TITLE + f"""
import time
def pass_right(fabric, x):
    time.sleep(0.3)  # as one that works for a while
    fabric.compute(0.1)
{BODY}""", ALL)
code("from_anyone", TITLE + RIGHT.replace("frm=(fabric.rank - 1) % fabric.world_size", "frm=None"), ALL)
code("starts_a_process_of_its_own", TITLE + f"""
import subprocess, sys
def pass_right(fabric, x):
    assert subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True).stdout == b"42\\n"
{BODY}""", ALL)
code("a_later_line_raises", TITLE + RIGHT + "\nraise ValueError('an experiment at the end of the cell')\n", ALL)


code("a_stub", TITLE + "def pass_right(fabric, x):\n    raise NotYet('Exercise 0.1: pass a tensor to the right')\n")
code("its_own_tensor", TITLE + RIGHT.replace("return received", "return x"), 1.0)
code("to_the_left", TITLE + RIGHT.replace("rank + 1", "rank + 9").replace("rank - 1", "rank + 1").replace("rank + 9", "rank - 1"))
code("sends_twice", TITLE + """
def pass_right(fabric, x):
    n = fabric.world_size
    if n == 1:
        return x.clone()
    out = torch.zeros_like(x)
    for _ in range(2):
        handle = fabric.isend(x, (fabric.rank + 1) % n)
        fabric.recv(out, (fabric.rank - 1) % n)
        handle.wait()
    return out
""", 1.0)
code("deadlocks", TITLE + "def pass_right(fabric, x):\n    fabric.send(x, (fabric.rank + 1) % fabric.world_size)\n")
code("raises", TITLE + "def pass_right(fabric, x):\n    return x[100]\n")
code("does_not_parse", TITLE + "def pass_right(fabric, x:\n    return x\n")
code("recurses", TITLE + "def pass_right(fabric, x):\n    return pass_right(fabric, x)\n")
code("is_no_function", TITLE + "pass_right = 5\n")
code("returns_no_tensor", TITLE + RIGHT.replace("return received", "return {'left': received}"), 1.0)
code("an_empty_cell", TITLE)
