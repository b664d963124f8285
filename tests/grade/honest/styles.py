"""Right answers in one cell, in styles that are odd and honest."""

from tests.grade.honest import BODY, HELPER, RIGHT, TITLE, hand_in, notebook

INNER = BODY.replace("    ", "        ")


def style(name: str, source: str) -> None:
    hand_in(name, notebook(TITLE + source))


style("style_lambda", f"{HELPER}\npass_right = lambda fabric, x: exchange(fabric, x)\n")
style("style_class_with_methods", f"""class Neighbour:
    def __init__(self, fabric):
        self.fabric = fabric
    def exchange(self, fabric, x):
{INNER}
def pass_right(fabric, x):
    return Neighbour(fabric).exchange(fabric, x)
""")
style("style_closure", f"""def make():
    def inner(fabric, x):
{INNER}
    return inner
pass_right = make()
""")
style("style_partial", f"""from functools import partial
def shift(by, fabric, x):
{BODY.replace('rank + 1', 'rank + by').replace('rank - 1', 'rank - by')}
pass_right = partial(shift, 1)
""")
style("style_decorator", f"""import functools
def checked(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs)
    return inner
@checked
def pass_right(fabric, x):
{BODY}""")
style("style_dataclass", f"""from dataclasses import dataclass
@dataclass(frozen=True)
class Place:
    rank: int
    size: int
    def beside(self, by: int) -> int:
        return (self.rank + by) % self.size
def pass_right(fabric, x):
    place = Place(fabric.rank, fabric.world_size)
    assert place.beside(0) == fabric.rank
{BODY}""")
style("style_type_aliases", f"""from __future__ import annotations
from typing import TypeAlias
Tensor: TypeAlias = torch.Tensor
def pass_right(fabric: Fabric, x: Tensor) -> Tensor:
{BODY}""")
style("style_f_string_and_walrus", f"""def pass_right(fabric, x):
    if (n := fabric.world_size) > 1:
        name = f"{{fabric.rank!r:>3}} of {{n}}"
{BODY}""")
style("style_match", """def pass_right(fabric, x):
    match fabric.world_size:
        case 1:
            return x.clone()
        case n:
            out = torch.empty_like(x)
            handle = fabric.isend(x, to=(fabric.rank + 1) % n)
            fabric.recv(out, frm=(fabric.rank - 1) % n)
            handle.wait()
            return out
""")
style("style_star_args", f"{HELPER}\ndef pass_right(*args):\n    return exchange(*args)\n")
style("style_recursion", f"""def pass_right(fabric, x, depth=3):
    if depth:
        return pass_right(fabric, x, depth - 1)
{BODY}""")
style("style_generator", f"""def steps(fabric, x):
    yield 1
    yield exchange(fabric, x)
{HELPER}
def pass_right(fabric, x):
    *_, last = steps(fabric, x)
    return last
""")
style("style_async_def_around", f"""import asyncio
def pass_right(fabric, x):
    async def work():
{INNER}
    return asyncio.run(work())
""")
style("style_unicode_names", RIGHT.removeprefix(TITLE).replace("received", "größe_右"))
style("style_tabs", RIGHT.removeprefix(TITLE).replace("    ", "\t"))
# 1,000 tensors on each of 4 ranks take two slow cores more than a grade's 10 s
style("style_prints_in_loops", f"""def pass_right(fabric, x):
    for k in range(300):
        print("step", k, x[:2])
{BODY}""")
style("style_calls_at_the_end", RIGHT.removeprefix(TITLE) + "\nrun = launch(ring, 4)\nprint(run[0])\n1 / 0\n")
style("style_annotated_assignment", f"{HELPER}\nfrom typing import Callable\npass_right: Callable = exchange\n")
style("style_tuple_assignment", f"{HELPER}\npass_right, unused = exchange, None\n")
style("style_defined_under_if", f"if True:\n    def pass_right(fabric, x):\n{INNER}")
hand_in("style_time_magic", notebook("%%time\n" + RIGHT))
hand_in("style_line_magics", notebook(TITLE + "%matplotlib inline\n!nvidia-smi\n" + RIGHT))
