"""Entry point `python -m worldsize.cli`, for systems where the script `worldsize` is not on the PATH."""

from worldsize.cli import app

app()
