"""The command line: a file for each group of people who use it. Each command calls one function and shows the answer.

Left out: all logic, and what the modules import: a command imports its module when it runs, so that `--help` answers at
once. The order of the imports below is that of the groups in `--help`.
"""

from __future__ import annotations

from worldsize.cli.common import app

from worldsize.cli import students  # isort: skip
from worldsize.cli import instructors  # isort: skip
from worldsize.cli import authors  # isort: skip

__all__ = ["app", "authors", "instructors", "students"]
