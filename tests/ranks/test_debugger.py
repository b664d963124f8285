"""A debugger on ranks that stay: `breakpoint()`, looking back at an error, no limit meanwhile, and none without a user."""

import linecache

import pytest

from worldsize.engines.job import Prompt, Typed
from worldsize.errors import Interrupted, RankFailed, RunTimedOut
from worldsize.launch import last_run
from worldsize.ranks.debugger_prompts import DebuggerPrompts
from worldsize.ranks.open_world import CELLS

STEPPED = """\
total = 0
for k in range(2):
    if rank in STOP:
        breakpoint()
    total += k * (rank + 1)
dist.barrier()
"""


class User:
    """Types these commands, one at each prompt, and keeps what was said."""

    def __init__(self, *commands: str) -> None:
        self.commands = list(commands)
        self.said: list[str] = []

    def type(self, prompt: str) -> str:
        self.said.append(prompt)
        if not self.commands:
            raise AssertionError(f"asked once too often: {self.said}")
        command = self.commands.pop(0)
        if command == "^C":
            raise KeyboardInterrupt
        return command


@pytest.fixture
def user(monkeypatch):
    made = User()
    monkeypatch.setattr(CELLS, "ask", DebuggerPrompts(made.type, made.said.append).ask)
    return made


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_stops_is_looked_at_stepped_and_goes_on(four, user, rank):
    user.commands = ["p rank, k, total", "n", "p total", "total = 100", "c", "c"]
    four.run(STEPPED.replace("STOP", f"[{rank}]"))
    said = "\n".join(user.said)
    assert f"({rank}, 0, 0)" in said and f"[rank {rank}] (Pdb) " in user.said and user.commands == []
    assert four["total"] == [100 + (r + 1) if r == rank else r + 1 for r in range(4)]


def test_two_ranks_wait_and_the_user_goes_from_one_to_the_other(four, user):
    user.commands = ["rank 3", "p rank * 11", "rank 2", "rank 1", "p rank * 11", "c", "c", "c", "c"]
    four.run(STEPPED.replace("STOP", "[1, 3]"))
    said = "\n".join(user.said)
    assert "33" in user.said and "11" in user.said and "rank 2 is not at a prompt" in said
    assert "wait at a prompt too" in said or "waits at a prompt too" in said
    assert four["total"] == [1, 2, 3, 4]


def test_no_limit_runs_while_somebody_looks(four, user, monkeypatch):
    import time

    def slow(prompt: str) -> str:
        time.sleep(0.8)  # a user who thinks for longer than the limit
        return User.type(user, prompt)

    user.commands = ["c", "c"]
    monkeypatch.setattr(CELLS, "ask", DebuggerPrompts(slow, user.said.append).ask)
    four.run(STEPPED.replace("STOP", "[1]"), timeout_s=0.5)
    with pytest.raises(RunTimedOut):
        four.run("__import__('time').sleep(1000)", timeout_s=0.3)


def test_a_user_who_leaves_ends_the_cell_of_that_rank(four, user):
    user.commands = ["q"]
    four.run("kept = rank")
    with pytest.raises(RankFailed, match="rank 1 of 4 failed first: BdbQuit"):
        four.run(STEPPED.replace("STOP", "[1]"))
    assert four["kept"] == [0, 1, 2, 3]


def test_the_stop_button_at_a_prompt_frees_all(four, user):
    user.commands = ["^C"]
    four.run("kept = rank")
    with pytest.raises(Interrupted):
        four.run(STEPPED.replace("STOP", "[2]"))
    assert last_run().outcome.killed == () and four["kept"] == [0, 1, 2, 3]
    four.run("x = torch.ones(1); dist.all_reduce(x)")
    assert four["x.item()"] == [4.0] * 4


def test_after_an_error_the_rank_that_failed_first_can_be_looked_at(four, user):
    with pytest.raises(RankFailed):
        four.run(
            "def inner(depth):\n    secret = rank * 7\n    raise KeyError('loss')\nif rank == 2:\n    inner(3)\ndist.barrier()"
        )
    user.commands = ["p secret + depth", "up", "p rank", "q"]
    four.debug()
    assert "17" in user.said and "2" in user.said
    four.run("x = 1")
    with pytest.raises(ValueError, match="expected a rank that raised in the last run"):
        four.debug()


def test_a_rank_that_raised_nothing_says_so(four, user):
    with pytest.raises(RankFailed, match="rank 0 raised nothing in its last cell"):
        four.run("x = 1")
        four.debug(0)


def test_where_nobody_answers_a_breakpoint_is_refused_with_words(four, monkeypatch):
    monkeypatch.setattr(CELLS, "ask", None)
    with pytest.raises(RankFailed, match=r"breakpoint\(\) opens a debugger, which waits for a person's commands"):
        four.run("breakpoint()")
    with pytest.raises(ValueError, match="debug opens a debugger, which waits for a person's commands"):
        four.debug()


@pytest.mark.quick
def test_a_command_goes_to_the_rank_whose_prompt_was_shown():
    user = User("p x", "c")
    prompts = DebuggerPrompts(user.type, user.said.append)
    waiting = {1: Prompt(1, "> cell(3)", "(Pdb) "), 2: Prompt(2, "", "(Pdb) ")}
    assert prompts.ask(waiting) == Typed(1, "p x")
    assert user.said == ["rank 2 waits at a prompt too: type `rank 2` to go there", "> cell(3)", "[rank 1] (Pdb) "]
    assert prompts.ask({2: waiting[2]}) == Typed(2, "c")


@pytest.mark.quick
def test_a_debugger_calls_a_cell_by_its_title_and_not_by_its_file(monkeypatch):
    file = "/folder/ipykernel_9/17 b.py"
    monkeypatch.setitem(linecache.cache, file, (1, None, ["# Exercise 6.2: a ring\n"], file))
    user = User("c")
    stack = f"  /usr/lib/x.py(7)call()\n-> fn()\n> {file}(3)ring()->None\n-> x = f(2)(3)"
    DebuggerPrompts(user.type, user.said.append).ask({0: Prompt(0, stack, "(Pdb) ")})
    assert user.said[0] == "  /usr/lib/x.py(7)call()\n-> fn()\n> Exercise 6.2(3)ring()->None\n-> x = f(2)(3)"
