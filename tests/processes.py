"""The processes below this one, of which some may end while they are looked at: notebooks run beside the tests."""

from __future__ import annotations

import psutil


def below(words: str, recursive: bool = False) -> list[psutil.Process]:
    """This process's children, or all below them, that live and whose command line holds `words`."""
    return [p for p in psutil.Process().children(recursive) if words in " ".join(_command(p))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # gone, or about to be
        return []
