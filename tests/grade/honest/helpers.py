"""Right answers that use what other cells of the student's own define."""

from tests.grade.honest import (
    BODY,
    HELPED,
    HELPER,
    RING,
    TITLE,
    cell,
    hand_in,
    notebook,
    own,
    ring,
    ring_notebook,
)

HALVES = HELPER.partition("    received")
NUMPY = TITLE + """def pass_right(fabric, x):
    n, mine = fabric.world_size, np.asarray(x).copy()
    if n == 1:
        return mine
    out = np.empty_like(mine)
    handle = fabric.isend(mine, (fabric.rank + 1) % n)
    fabric.recv(out, (fabric.rank - 1) % n)
    handle.wait()
    return out
"""
BY_STEP = TITLE + "def pass_right(fabric, x):\n" + BODY.replace("rank + 1", "rank + STEP").replace("rank - 1", "rank - STEP")


def helped(name: str, source: str = HELPED, **cells: str) -> None:
    hand_in(name, notebook(source, **cells))


helped("helper_above", above=HELPER)
helped("helper_below", below=HELPER)
helped("helper_at_the_top", first=HELPER)
helped("helper_with_a_demo_in_its_cell", above=f"{HELPER}\nrun = launch(exchange, 4)\nfor r in run:\n    print(r)")
helped("helper_of_a_helper", above="def exchange(fabric, x):\n    return deeper(fabric, x)",
       first=HELPER.replace("exchange", "deeper"))
helped("helper_as_a_lambda", above="exchange = lambda fabric, x: work(fabric, x)", below=HELPER.replace("exchange", "work"))
helped("helper_class", TITLE + "def pass_right(fabric, x):\n    return Ring(fabric).exchange(fabric, x)\n",
       above="class Ring:\n    def __init__(self, fabric):\n        self.fabric = fabric\n    def exchange(self, fabric, x):\n"
       + BODY.replace("    ", "        "))
helped("helper_dataclass", TITLE + f"def pass_right(fabric, x):\n    assert DEFAULT.step == 1\n{BODY}",
       above="from dataclasses import dataclass\n@dataclass\nclass Settings:\n    step: int = 1\n\nDEFAULT = Settings()")
helped("helper_decorator", TITLE + f"@logged\ndef pass_right(fabric, x):\n{BODY}",
       above="import functools\ndef logged(fn):\n    @functools.wraps(fn)\n"
       "    def inner(*a):\n        return fn(*a)\n    return inner")
helped("helper_default_argument", TITLE + "def pass_right(fabric, x, step=STEP):\n" + BODY, above="STEP = 1")
helped("helper_partial", TITLE + "pass_right = partial(shift, 1)\n",
       above=f"from functools import partial\ndef shift(by, fabric, x):\n{BODY}")
helped("helper_defined_twice", above=HELPER.replace("return received", "return x * 0") + HELPER)
hand_in("helper_mended_above", notebook(HELPED, first=HELPER.replace("return received", "return x * 0"), above=HELPER))
helped("helper_beside_a_magic", above=f"%load_ext autoreload\n!pip install einops\n{HELPER}")
helped("helper_under_time_magic", above=f"%%time\n{HELPER}")
helped("helper_with_a_semicolon", BY_STEP, above="print('hello'); STEP = 1; print(STEP)")
helped("helper_beside_one_that_fails", above=f"from einops_that_is_not_here import rearrange\n{HELPER}")
helped("helper_with_future_annotations",
       above=f"from __future__ import annotations\n{HELPER.replace('(fabric, x)', '(fabric, x: Nowhere)')}")
helped("import_math", TITLE + f"def pass_right(fabric, x):\n    assert math.pi > 3\n{BODY}", above="import math")
helped("import_numpy", NUMPY, first="import numpy as np\nimport matplotlib.pyplot as plt")
helped("import_itertools", TITLE + f"def pass_right(fabric, x):\n    next(it.count())\n{BODY}", above="import itertools as it")
helped("import_in_try", NUMPY, above="try:\n    import numpy as np\nexcept ImportError:\n    np = None")
helped("import_dotted", TITLE + f"def pass_right(fabric, x):\n    os.path.join('a')\n    xml.dom.minidom.Node\n{BODY}",
       above="import os.path\nimport xml.dom.minidom\nimport xml")
helped("constant_number", BY_STEP, first="STEP = 1  # to the right")
helped("constant_expression", BY_STEP, above="K = 3\nSTEP = 2 * K - 5")
helped("constant_below", BY_STEP, below="STEP: int = 1")
helped("constant_dict_and_dtype", TITLE + f"def pass_right(fabric, x):\n    assert KINDS['a'] == torch.float32\n{BODY}",
       above="KINDS = dict(a=torch.float32, b=[torch.float64] * 2)")
helped("constant_link", TITLE + f"def pass_right(fabric, x):\n    assert FAST\n{BODY}",
       above='FAST = Link("1 Gbit/s", "50 us")')
helped("constant_tuple", BY_STEP, above="STEP, OTHER = 1, 2")
helped("constant_and_a_loop_s_own_name", BY_STEP, above="STEP = 1\nfor k in range(3):\n    print(k)")


RIGHT_LEFT = """def right(fabric):
    return (fabric.rank + 1) % fabric.world_size

def left(fabric):
    return (fabric.rank - 1) % fabric.world_size
"""
COUNTED = """CALLS = {}
def counted(fn):
    def inner(*args):
        CALLS[fn.__name__] = 1
        return fn(*args)
    return inner
"""
SHARED = {
    e.id: e.reference.replace("(rank + 1) % n", "right(fabric)", 1).replace("(rank - 1) % n", "left(fabric)")
    for e in ring().exercises
}
hand_in("ring_shared_helper", ring_notebook(SHARED, RIGHT_LEFT), RING)
hand_in("ring_wrappers", ring_notebook(
    {e.id: f"{e.reference}\n{e.id} = counted({e.id})" for e in ring().exercises},
    COUNTED,
), RING)
_both = ring_notebook({})
_first, _second = ring().exercises[2:4]
cell(_both, _first.id)["source"] = f"{_first.reference}\n\n{_second.reference}"
_both["cells"].remove(cell(_both, _second.id))
hand_in("ring_two_exercises_in_one_cell", _both, RING)
_again = ring_notebook({})
_again["cells"].insert(3, own("size = 3\n" + "def probe(n):\n    return split(n, size)"))
_source = ring().exercises[2].reference.replace("chunks = split(", "probe(7)\n    chunks = split(")
cell(_again, "reduce_scatter")["source"] = _source
hand_in("ring_helper_on_set_up", _again, RING)
