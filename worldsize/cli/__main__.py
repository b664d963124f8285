"""`python -m worldsize.cli`, where the script `worldsize` is not on the PATH."""

from worldsize.cli import app

app()
