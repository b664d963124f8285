"""JupyterLab on a lab of a laid course, from this Python's installation, without JupyterLab's prompts about its news.

JupyterLab is the package's extra `lab`: where another program shows the notebooks, it may be missing. The settings of
JUPYTER_CONFIG count for this start alone: nothing is written into the environment. `make lab` opens its checkout by
`python -m worldsize.course.opening NOTEBOOK`.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

JUPYTER_CONFIG = Path(__file__).resolve().with_name("jupyter")
# JupyterLab's layout at the first start: the notebook, and its table of contents beside it
FIRST_LAYOUT = JUPYTER_CONFIG / "workspaces" / "default-37a8.jupyterlab-workspace"


def command(folder: Path, notebook: Path) -> list[str]:
    """Return the command that opens JupyterLab on `notebook`, with all of the course's `folder` in its list of files."""
    # Jupyter refuses to start as root, the user of many containers, without this option
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [sys.executable, "-m", "jupyterlab", *as_root, f"--ServerApp.root_dir={folder}", os.fspath(notebook)]


def need_jupyterlab() -> None:
    """Check, before any work, that this Python has JupyterLab. Raises ValueError."""
    if find_spec("jupyterlab") is None:
        raise ValueError(
            "start: expected JupyterLab in this Python, got none. Type `pip install 'worldsize[lab]'` and the same command "
            "again, or add --no-open to read the labs in another program."
        )


def layouts(folder: Path) -> Path:
    """Return where JupyterLab keeps the layout of the course in `folder`; the first start finds the contents open there."""
    place = folder / ".worldsize" / "workspaces"
    if not place.is_dir():
        place.mkdir(parents=True)
        shutil.copyfile(FIRST_LAYOUT, place / FIRST_LAYOUT.name)
    return place


def environment(given: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return JupyterLab's environment: quiet settings, the layout of the course in `folder`, this Python's programs first."""
    configs = [os.fspath(JUPYTER_CONFIG), given.get("JUPYTER_CONFIG_PATH", "")]
    programs = [os.fspath(Path(sys.executable).parent), given.get("PATH", os.defpath)]
    return {
        "JUPYTERLAB_WORKSPACES_DIR": os.fspath(layouts(folder)),
        **given,
        "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, configs)),
        "PATH": os.pathsep.join(programs),
    }


def open_lab(folder: Path, notebook: Path, more: Sequence[str] = ()) -> None:
    """Become JupyterLab in the course's `folder`, open on `notebook`, with `more` of its options; this never returns."""
    os.chdir(folder)
    words = [*command(folder, notebook), *more]
    os.execve(words[0], words, environment(os.environ, folder))


if __name__ == "__main__":
    open_lab(Path.cwd(), Path(sys.argv[1]), sys.argv[2:])
