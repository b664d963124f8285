"""Writer of `THIRD_PARTY_NOTICES.md`: `python -m worldsize.authoring.notices`.

The file lists the license of each package in `pyproject.toml`, from the installed package's own metadata, and others' work in
this repository. A package that is not installed, or not in the version of constraints.txt, keeps its line. Left out: these
packages' own dependencies (`pip-audit` and `pip list` show them), and license texts, which each package includes.
"""

import re
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from worldsize.files import write_whole

FILE = "THIRD_PARTY_NOTICES.md"
_NAME = re.compile(r"[\w.-]+")
_ROW = re.compile(r"^\| \[?([\w.-]+)[^|]*\|", re.MULTILINE)
_LONGEST = 60  # some metadata has the whole text where the older field asks for a name
# Packages whose metadata says nothing, looked up in their own LICENSE files.
_BY_FILE = {"axe-playwright-python": "MIT", "text2qti": "BSD-3-Clause"}

TEXT = """\
# Third-party notices

World Size itself is under the MIT licence ([LICENSE](LICENSE)). `python -m worldsize.authoring.notices` writes this file; a
test fails if it disagrees with the installed packages.

## Others' work in this repository

| what | whose | licence |
| --- | --- | --- |
| `datasets/fashion-mnist.npz` | Zalando SE, 2017 | MIT, in [datasets/fashion-mnist.LICENSE](datasets/fashion-mnist.LICENSE) |
| `datasets/vtrain-*.csv` | VIA Research Group at KAIST, 2024 | MIT, in [datasets/vtrain.LICENSE](datasets/vtrain.LICENSE) |

Published numbers in `datasets/bandwidths.json` are quoted with their sources. Code, scripts, style sheets and pictures in
`worldsize/` and `labs/` are this project's own; no library is copied into them.

## Packages installed with it

The packages in `pyproject.toml`, with their purpose. Each comes from its own publisher under its own licence, whose
text comes with it. PyTorch for CUDA also installs NVIDIA's libraries, under NVIDIA's own terms.

| package | for | licence |
| --- | --- | --- |
{rows}
"""


def notices(root: Path) -> str:
    """Return the text of the notices' file. Raises ValueError for a package that is neither installed nor in the file yet."""
    before = (root / FILE).read_text() if (root / FILE).exists() else ""
    kept = {found[1]: line for line in before.splitlines() if (found := _ROW.match(line))}

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    used_for: dict[str, list[str]] = {}
    for what, texts in {"the course": project["dependencies"], **project["optional-dependencies"]}.items():
        for text in texts:
            used_for.setdefault(_NAME.match(text)[0], []).append(what)
    used_for.pop("worldsize", None)
    constraints = root / "constraints.txt"
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", constraints.read_text() if constraints.exists() else "", re.MULTILINE))

    rows, missing = [], []
    for name in sorted(used_for, key=str.lower):
        try:
            package = distribution(name)
        except PackageNotFoundError:
            package = None
        if name in kept and (package is None or package.version.partition("+")[0] != pins.get(name, package.version)):
            rows.append(kept[name])
            continue
        if package is None:
            missing.append(name)
            continue
        home = _home(package)
        shown = f"[{name}]({home})" if home else name
        rows.append(f"| {shown} | {', '.join(used_for[name])} | {_licence(name, package)} |")

    if missing:
        raise ValueError(f"notices: expected {', '.join(missing)} installed, to read the licence. Install the extra first.")
    return TEXT.format(rows="\n".join(rows))


def _licence(name: str, distribution: Distribution) -> str:
    """Return the license's name for a package's notice: SPDX if the metadata has it, else its free text, else its classifiers."""
    metadata = distribution.metadata
    classifiers = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    if expression := metadata.get_all("License-Expression", []):
        return expression[0]

    words = " ".join(" ".join(metadata.get_all("License", [])).split())
    if words not in ("", "UNKNOWN") and len(words) <= _LONGEST:
        return words
    return ", ".join(classifiers) or _BY_FILE.get(name, "not stated in its metadata")


def _home(distribution: Distribution) -> str:
    """Return the home page for a package's notice: the clearest of the addresses in its metadata."""
    urls: dict[str, str] = {}
    metadata = distribution.metadata
    homes = [f"homepage, {home}" for home in metadata.get_all("Home-page", [])]
    for line in (*homes, *metadata.get_all("Project-URL", [])):
        label, _, url = line.partition(",")
        if url.strip():
            urls.setdefault(label.strip().lower(), url.strip())
    order = ("homepage", "source", "source code", "repository", "github", "documentation")
    return next(filter(None, map(urls.get, order)), "")


if __name__ == "__main__":
    here = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    write_whole(here / FILE, notices(here).encode())
