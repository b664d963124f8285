"""A person in a folder who types commands, as a document prints them, and sees what they say.

Each command is a shell's, with its own time limit, in a session of its own: whatever it leaves behind keeps its output open, and
so fails at the limit. Nothing of the tests' environment speaks to it.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from nbformat import NotebookNode

from tests.journeys.doors import NOT_TYPED, ROOT, Block, Entered, typed_doors
from tests.support.notebook_rules import text_of

PROGRAMS = Path(sys.executable).parent  # not resolved: the virtual environment's
LIMIT_S = 110.0  # below a test's own limit, which would not show the output
# of a suite that `make` started, of an environment that is activated, of a course that is set
_NOT_A_PERSONS = re.compile(
    r"MAKE.*|MFLAGS|ARGS|PART|LAB|HEADLESS|TORCH|VENV|CONSTRAINTS|PYTEST_.*|VIRTUAL_ENV|PYTHONPATH|WORLDSIZE_.*"
)


def environment(programs: Path = PROGRAMS, **variables: str) -> dict[str, str]:
    """Return the variables of a person's shell, in which the virtual environment's programs come first."""
    mine = {name: value for name, value in os.environ.items() if not _NOT_A_PERSONS.fullmatch(name)}
    return mine | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "PIP_NO_INDEX": "1"} | variables


@contextmanager
def repository_copy(copy: Path) -> Iterator[Path]:
    """Copy what the repository holds to `copy`, with the tests' environment as its `.venv`; at the end the copy goes."""
    made = shutil.ignore_patterns(".git", ".venv", "build", "out", "__pycache__", "*.egg-info", ".*_cache", ".worldsize")
    shutil.copytree(ROOT, copy, ignore=made)
    (copy / ".venv").symlink_to(sys.prefix)
    yield copy
    shutil.rmtree(copy)


@dataclass
class Person:
    """Types commands in a folder; the doors that they go through count as entered."""

    folder: Path
    entered: Entered
    env: dict[str, str] = field(default_factory=environment)

    @contextmanager
    def starts(self, command: str) -> Iterator[subprocess.Popen[str]]:
        """Start `command` beside the next ones; `stdout` has what it prints, errors too. At the end its family is killed."""
        shell = subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.folder, env=self.env, start_new_session=True, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.entered.enter(*typed_doors(command))
        try:
            yield shell
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.communicate()

    def types(self, command: str, exit_code: int = 0, limit_s: float = LIMIT_S, given: str = "") -> str:
        """Run `command` with `given` on its standard input, and return what it printed, errors too."""
        with self.starts(command) as shell:
            try:
                said, _ = shell.communicate(given, timeout=limit_s)
            except subprocess.TimeoutExpired as late:
                raise AssertionError(f"{command}: still at work after {limit_s:g} s\n{_text(late.output)}") from None
        assert shell.returncode == exit_code, f"{command}: expected exit code {exit_code}, got {shell.returncode}\n{said}"
        return said

    def types_block(self, block: Block, names: Mapping[str, str] | None = None, limit_s: float = LIMIT_S) -> dict[str, str]:
        """Type a block's commands one after the other, and return {the command as printed: what it said}.

        Commands of `NOT_TYPED` are left out. `names`: what this person puts in the place of a name that the document invents.
        """
        said = self.types_lines(*block.commands, names=names, limit_s=limit_s)
        self.entered.enter(block.door)
        return said

    def types_lines(self, *commands: str, names: Mapping[str, str] | None = None, limit_s: float = LIMIT_S) -> dict[str, str]:
        """Type lines of a block as `types_block` does."""
        said = {}
        for command in commands:
            if command in NOT_TYPED:
                continue
            typed = command
            for name, value in (names or {}).items():
                typed = typed.replace(name, value)
            said[command] = self.types(typed, limit_s=limit_s)
        return said


def output_of(notebook: NotebookNode) -> str:
    """Return all that an executed notebook's cells put out."""
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return "\n".join(text_of(output) for output in outputs)


def _text(output: bytes | str | None) -> str:
    """Return the output of a command that was ended, which is bytes."""
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
