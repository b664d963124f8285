"""Answers to the debuggers of ranks, typed by the notebook's user, one rank at a time.

Typing `rank 2` switches to the prompt of rank 2. `engines/ranks/rank_debugger.py` is the debugger.
"""

import re
from collections.abc import Callable, Mapping

from worldsize import failures
from worldsize.engines.job import Prompt, Typed

# pdb's line for a location: `> train.py(3)train()`
_PLACE = re.compile(r"^([> ] +)(\S.*)(?=\(\d+\)\S+\()", re.MULTILINE)
_SWITCH = re.compile(r"\s*rank\s+(\d+)\s*")


class DebuggerPrompts:
    """Asks the user for debugger commands: `ask_user` shows a prompt and returns the typed text."""

    def __init__(self, ask_user: Callable[[str], str] = input, say: Callable[[str], None] = print) -> None:
        self._ask_user, self._say = ask_user, say
        self._rank = 0

    def ask(self, prompts: Mapping[int, Prompt]) -> Typed:
        """Return a command for one of the ranks that wait at a prompt."""
        if self._rank not in prompts:
            self._go_to(min(prompts), prompts)
        else:
            self._say_before(prompts[self._rank])

        while True:
            typed = self._ask_user(f"[rank {self._rank}] {prompts[self._rank].prompt}")
            switch = _SWITCH.fullmatch(typed)
            if switch is None:
                return Typed(self._rank, typed)
            self._go_to(int(switch[1]), prompts)

    def _go_to(self, rank: int, prompts: Mapping[int, Prompt]) -> None:
        if rank not in prompts:
            are = "is" if len(prompts) == 1 else "are"
            self._say(f"rank {rank} is not at a prompt; {failures.names(sorted(prompts))} {are}")
            return

        self._rank = rank
        if len(prompts) > 1:
            others = [other for other in sorted(prompts) if other != rank]
            wait = "waits" if len(others) == 1 else "wait"
            self._say(f"{failures.names(others)} {wait} at a prompt too: type `rank {others[0]}` to go there")
        self._say_before(prompts[rank])

    def _say_before(self, prompt: Prompt) -> None:
        """Print the text before the prompt, with cells named by title or number, not by file."""
        if prompt.text:
            self._say(_PLACE.sub(lambda found: found[1] + failures.file_in_words(found[2]), prompt.text))
