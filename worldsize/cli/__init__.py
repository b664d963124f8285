"""The command line: a file for each group of users. Each command calls one function and prints its result.

A command imports its module only when it runs, so that `--help` answers at once. The imports below are in the order in
which `--help` lists the groups.
"""

from worldsize.cli.common import app

from worldsize.cli import students  # isort: skip
from worldsize.cli import instructors  # isort: skip
from worldsize.cli import authors  # isort: skip

__all__ = ["app", "authors", "instructors", "students"]
