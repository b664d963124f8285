"""Right answers in cells that IPython accepts and Python does not, and in the newer syntax of Python's own.

`FORMS` has the exercise's cell of each; `tests/cells/test_as_python.py` runs them in a notebook's shell too.
"""

import sys

from tests.grade.honest import BODY, HELPED, HELPER, RIGHT, TITLE, hand_in, notebook

FUNCTION = "def pass_right(fabric, x):\n" + BODY
FIRST = "def pass_right(fabric, x):\n"
# a rank's number is as it was, and is wrong where a constant of the cell is
SHIFTED = FUNCTION.replace("fabric.rank + 1", "fabric.rank + SHIFT")
PROMPTED = "\n".join((">>> " if line[:1].strip() else "... ") + line for line in RIGHT.rstrip().split("\n"))

BELOW = {
    "help_below": "pass_right?",
    "help_source_below": "pass_right??",
    "help_before_the_name": "?pass_right",
    "help_of_an_attribute": "torch.empty_like?",
    "help_of_a_pattern": "pass_r*?",
    "help_of_a_magic": "%time?",
    "shell": "!true",
    "shell_continued": "!echo a \\\n  b",
    "shell_twice": "!!true",
    "shell_in_a_block": "if True:\n    !true",
    "shell_into_a_name": "files = !ls",
    "magic": "%pwd",
    "magic_into_a_name": "here = %pwd",
    "magic_continued": "%time sum( \\\n  [1])",
    "magic_in_a_block": "for k in range(2):\n    %time k",
    "timed_into_a_name": "t = %timeit -n1 -r1 -q -o sum([1])",
    "timed_expression_into_a_name": "total = %time sum([1])",
    "call_without_brackets": "/len 'ab'",
    "call_with_quotes": ",print a b",
    "await": "import asyncio\nawait asyncio.sleep(0)",
    "await_beside_a_magic": "import asyncio\n%pwd\nawait asyncio.sleep(0)",
}
FORMS = {name: f"{RIGHT}\n{text}\n" for name, text in BELOW.items()} | {
    "remainder_on_a_line_of_its_own": TITLE + FUNCTION.replace("(fabric.rank + 1) % f", "(fabric.rank + 1)\n% f", 1) + "\n%pwd",
    "remainder_after_a_backslash": TITLE + FUNCTION.replace("(fabric.rank + 1) % f", "(fabric.rank + 1) \\\n% f", 1) + "\n!true",
    "magics_in_a_text": f'{RIGHT}\nHELP = """\n%time\n!ls\nwhat?\n"""\npass_right?',
    "timed_constant": f"{TITLE}%time SHIFT = 1\n{SHIFTED}",
    "timed_function": f"{TITLE}%time import itertools\n{FUNCTION}",
    "timed_cell": f"%%time\n{RIGHT}",
    "timed_cell_below_blank_lines": f"\n\n%%time\n{RIGHT}",
    "captured_cell": f"%%capture said\n{RIGHT}\nprint(1)",
    "timed_and_captured_cell": f"%%time\n%%capture\n{RIGHT}\n!true",
    "shell_in_a_function": TITLE + FIRST + "    !true\n" + BODY,
    "decorator": f"{TITLE}import functools\n%pwd\n@functools.lru_cache\ndef size(n):\n    return n\n{FUNCTION}",
    "decorator_with_arguments": f"""{TITLE}def named(name):
    def mark(fn):
        fn.name = name
        return fn
    return mark
@named("right?")
{FUNCTION}
pass_right?
""",
    "async_constant": f"{TITLE}async def one():\n    return 1\nSHIFT = await one()\n{SHIFTED}",
    "async_for_and_with": f"""{TITLE}import contextlib
@contextlib.asynccontextmanager
async def opened():
    yield 1
async def numbers():
    yield 1
async with opened() as SHIFT:
    pass
async for number in numbers():
    SHIFT = number
{SHIFTED}""",
    "async_comprehension": f"{TITLE}async def ones():\n    yield 1\nSHIFT, = [one async for one in ones()]\n{SHIFTED}",
    "walrus": f"{TITLE}print(SHIFT := 1)\n{SHIFTED}\npass_right?",
    "match": f"""{TITLE}%pwd
{FIRST}    match fabric.world_size, x:
        case (1, alone):
            return alone.clone()
        case _:
            pass
{BODY}""",
    "prompts_of_python": PROMPTED,
    "prompt_of_ipython": "In [3]: " + RIGHT.replace("\n", "\n   ...: "),
    "indented_cell": "\n".join(f"    {line}" if line else line for line in f"{RIGHT}\n!true".split("\n")),
    "blank_lines_above": f"\n\n\n{RIGHT}\nx = !ls",
    "magic_of_nobody": f"{RIGHT}\nif False:\n    %no_such_magic 1",
}  # fmt: skip
if sys.version_info >= (3, 12):
    FORMS["type_alias"] = f"{TITLE}type Tensor = torch.Tensor\n%pwd\n{FUNCTION.replace('fabric, x', 'fabric, x: Tensor')}"

for name, source in FORMS.items():
    hand_in(f"ipython_{name}", notebook(source))
hand_in("ipython_shell_in_a_helper_s_cell", notebook(HELPED, above=f"files = !ls\n{HELPER}\nexchange?"))
hand_in("ipython_timed_helper_s_cell", notebook(HELPED, above=f"%%time\n%time HERE = 1\n{HELPER}\n!true"))
