"""The command line as `python -m worldsize`, for where the command itself is not on PATH."""

from worldsize.cli import app

app(prog_name="python -m worldsize")
