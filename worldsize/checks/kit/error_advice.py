"""Advice after a library's error whose message tells what happened, but not what to do."""

from collections.abc import Mapping
from dataclasses import replace

from worldsize.checks.arena import ArenaResult


def with_advice(ended: ArenaResult, advice: Mapping[str, str]) -> ArenaResult:
    """Return the result with advice after its message, if it is an error or a timeout.

    `advice` is {part of a message: advice}; the first part found in the message decides.
    """
    if ended.state in ("raised", "timeout"):
        for part, words in advice.items():
            if part in ended.message:
                return replace(ended, message=f"{ended.message}\n{words}")
    return ended
