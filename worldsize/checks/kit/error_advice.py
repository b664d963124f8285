"""Advice after a library's error whose message tells what happened, but not what to do."""

from collections.abc import Mapping
from dataclasses import replace

from worldsize.checks.arena import ArenaResult

HANG = "after timeout_s"  # also stands for a deadlock in a framework's collectives, proved before the time was over


def with_advice(ended: ArenaResult, advice: Mapping[str, str]) -> ArenaResult:
    """Return the result with advice on its error after the message, if it is an error, a timeout or a deadlock.

    `advice` is {part of a message, or `HANG`: advice}; the first part found in the message decides.
    """
    if ended.state in ("raised", "timeout", "deadlock"):
        proved = ended.state == "deadlock" and not ended.waits
        for part, words in advice.items():
            if part in ended.message or (part == HANG and proved):
                return replace(ended, message=f"{ended.message}\n{words}")
    return ended
