"""The next step after an error of a library whose words tell what happened, and not what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from worldsize.checks.arena import ArenaResult


def with_advice(ended: ArenaResult, advice: Mapping[str, str]) -> ArenaResult:
    """The result with words behind its error, or behind those of a time limit.

    They are the first of `advice`, {part of the error: words}, whose part is in it.
    """
    if ended.state in ("raised", "timeout"):
        for part, words in advice.items():
            if part in ended.message:
                return replace(ended, message=f"{ended.message}\n{words}")
    return ended
