"""The doors: every command, every make target and every block of code that a document prints, and every lab.

The list is read from the command line and the documents. A journey's module declares its doors as `DOORS`, and `Entered` holds
the doors that its commands went through. Left out: the table of doors that no test can enter (`test_every_door`).
"""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
import typer

from worldsize import cli
from worldsize.lab.lab import LABS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", *(f"docs/{path.name}" for path in sorted(ROOT.glob("docs/*.md"))))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WORDS = 50  # characters of a block's first line in its name

# lines of documents that a journey does not type, with the reason
NOT_TYPED = {
    "make setup": "installs for minutes: a student's journey types it in the unpacked zip",
    "worldsize grade submitted/ --out grades/ --slurm nodes=40,cpus_per_task=8,partition=cpu,timeout_min=60":
        "40 nodes: `tests/hosts/test_grading_on_slurm.py` grades on a Slurm of two",
    "sudo apt-get install -y bubblewrap libseccomp2": "installs Debian packages: the machine of the tests has them",
    ". .venv/bin/activate": "a journey's commands have the virtual environment's programs already",
    "pip install -c constraints.txt -e '.[instructor]'": "downloads: the environment of the tests has them",
}


@dataclass(frozen=True)
class Block:
    """A block of code of a document; `number` counts the document's blocks from 1."""

    document: str
    number: int
    language: str
    text: str

    @property
    def door(self) -> str:
        first = textwrap.shorten(self.text.partition("\n")[0], _WORDS, placeholder=" …")
        return f"{self.document}, block {self.number}: {first}"

    @property
    def commands(self) -> list[str]:
        """The lines of a block for a shell, without comments."""
        lines = (line.partition(" #")[0].rstrip() for line in self.text.splitlines())
        return [line for line in lines if line and not line.startswith("#")]


@cache
def blocks(document: str) -> tuple[Block, ...]:
    """Return a document's blocks of code, in order."""
    found = _BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))
    return tuple(Block(document, number, *parts) for number, parts in enumerate(found, start=1))


def block(document: str, begins: str) -> Block:
    """Return the only block of a document whose text begins so."""
    (found,) = (one for one in blocks(document) if one.text.startswith(begins))
    return found


def doors_of(blocks: Iterable[Block]) -> list[str]:
    """Return the doors of these blocks: the blocks themselves, and every command in them that a person types."""
    found = []
    for one in blocks:
        found.append(one.door)
        for command in one.commands if one.language == "sh" else ():
            if command not in NOT_TYPED:
                found += typed_doors(command)
    return found


def commands() -> list[str]:
    """Return the doors of the command line, such as "worldsize run"."""
    return [f"worldsize {name}" for name in typer.main.get_command(cli.app).commands]


def targets() -> list[str]:
    """Return the make targets that a document names in its code, such as "make lab"."""
    texts = [(ROOT / document).read_text(encoding="utf-8") for document in DOCUMENTS]
    code = "\n".join(part for text in texts for part in re.findall(r"^```.*?^```|`[^`\n]+`", text, re.MULTILINE | re.DOTALL))
    return sorted(set(re.findall(r"(?:(?<=^)|(?<=`)|(?<=\d )|(?<=&& ))(make [a-z]+)", code, re.MULTILINE)))


def run_of(lab: str) -> str:
    """Return the door of a lab that is run from top to bottom; `lab` is its number."""
    return f"lab {lab}, run"


def grading_of(lab: str) -> str:
    """Return the door of a lab that is handed in and graded; `lab` is its number."""
    return f"lab {lab}, graded"


def every_door() -> list[str]:
    """Return all doors."""
    labs = [door(number) for number in LABS for door in (run_of, grading_of)]
    return [*commands(), *targets(), *(one.door for document in DOCUMENTS for one in blocks(document)), *labs]


def typed_doors(command: str) -> list[str]:
    """Return the doors that a typed command goes through: commands, make targets, and labs that it runs."""
    known = {*commands(), *targets()}
    words = [f"worldsize {name}" for name in re.findall(r"\bworldsize ([a-z][a-z-]*)", command)]
    # options and variables may stand before a target
    words += [f"make {name}" for name in re.findall(r"\bmake (?:-\w \S+ |\w+=\S+ )*([a-z]+)", command)]
    found = [door for door in words if door in known]
    labs = re.findall(r"\bworldsize run (?:\S*/)?(\d\d)(?=[\s_]|$)|\bmake (?=.*\blab\b)(?=.*HEADLESS=1).*LAB=(\d\d)", command)
    return [*found, *(run_of(number) for pair in labs for number in pair if number in LABS)]


@dataclass
class Entered:
    """The doors that a journey declares, and those it has gone through."""

    declared: frozenset[str]
    doors: set[str] = field(default_factory=set)
    closed: dict[str, str] = field(default_factory=dict)

    def enter(self, *doors: str) -> None:
        """Note doors that were gone through."""
        assert set(doors) <= set(every_door()), f"no such doors: {set(doors) - set(every_door())}"
        self.doors.update(doors)

    def skip(self, doors: Iterable[str], reason: str) -> None:
        """Note doors that this machine does not have, and skip the test that would go through them."""
        self.closed |= dict.fromkeys(doors, reason)
        pytest.skip(reason)

    def check(self) -> None:
        """Fail for a declared door that was not entered; skip where this machine does not have it."""
        missing = self.declared - self.doors
        assert missing <= set(self.closed), f"declared and not entered: {sorted(missing - set(self.closed))}"
        if missing:
            pytest.skip("; ".join(sorted({self.closed[door] for door in missing})))
