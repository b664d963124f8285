"""The buttons of a lab's page: get its notebook, and open it on services where this repository is known.

A repository on GitHub opens in Colab and in Codespaces. `docs/platforms.md` covers Kaggle and Binder.
"""

import html
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode

FOLDER = "notebooks"  # of the site, with the students' notebooks

_OWNER_AND_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_ON_GITHUB = re.compile(r"(?:https://github\.com/|git@github\.com:|ssh://git@github\.com/)([\w.-]+/[\w.-]+?)(?:\.git)?/?")


def repository(root: Path, environment: Mapping[str, str]) -> str | None:
    """Return owner and name of the repository `root` on GitHub, from GitHub's build variables or the remote; else None."""
    named = environment.get("GITHUB_REPOSITORY", "")
    if _OWNER_AND_NAME.fullmatch(named):
        return named
    asked = subprocess.run(["git", "-C", str(root), "remote", "get-url", "origin"], capture_output=True, text=True)
    found = _ON_GITHUB.fullmatch(asked.stdout.strip())
    return found[1] if found else None


def buttons(stem: str, repository: str | None) -> NotebookNode:
    """Return the cell with the buttons of the lab `stem`; without a `repository`, the notebook's button alone."""
    links = [f'<a href="../{FOLDER}/{stem}.ipynb" download>Get the notebook</a>']
    note = '<a href="../platforms.html">What it needs</a>'

    if repository:
        where = html.escape(repository)
        links += [
            f'<a href="https://colab.research.google.com/github/{where}/blob/main/labs/{stem}.ipynb">Open in Colab</a>',
            f'<a href="https://codespaces.new/{where}">Open in Codespaces</a>',
        ]
        note += ', and <a href="../platforms.html#google-colab">the cell that Colab needs first</a>'

    return nbformat.v4.new_markdown_cell(f'<p class="ws-ways">{" ".join(links)} <span>{note}</span></p>')
