"""JupyterLab for a test: a server of its own, in a folder of its own, which reads and writes nobody's settings.

Left out: the browser (`lab_page`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.kernels import seconds_until

_START_S = 90.0
_STOP_S = 15.0
_SETTINGS = {
    # cells out of sight would not be there to look at
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
}


class LabServer:
    """`with LabServer(folder) as server:` serves `server.work`; `folder` has the settings, the log and the runtime too.

    `without` names JupyterLab's extensions that it leaves out.
    """

    def __init__(self, folder: Path, without: Sequence[str] = ()) -> None:
        self.work = folder / "work"
        self._folder, self._log, self._without = folder, folder / "lab.log", without
        self.token = secrets.token_hex(16)
        self.url = ""

    def __enter__(self) -> LabServer:
        self.work.mkdir()
        for name, values in _SETTINGS.items():
            path = self._folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))
        page = self._folder / "config" / "labconfig" / "page_config.json"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(json.dumps({"disabledExtensions": dict.fromkeys(self._without, True)}))
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
            "--ServerApp.port=0", f"--ServerApp.root_dir={self.work}", "--ServerApp.websocket_ping_interval=0",
            "--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True",
            f"--IdentityProvider.token={self.token}",
        ]  # fmt: skip
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.work
            )
        try:
            seconds_until(self._listens, _START_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def notebook_url(self, name: str) -> str:
        """A page with this notebook alone, whatever was open before."""
        return f"{self.url}/lab/tree/{name}?token={self.token}&reset"

    def notebook_7_url(self, name: str) -> str:
        """The same in Jupyter Notebook 7."""
        return f"{self.url}/notebooks/{name}?token={self.token}"

    def environment(self) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython",
        }  # fmt: skip
        changed = {name: str(self._folder / folder) for name, folder in own.items()}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "WORLDSIZE"))}
        return kept | changed

    def _listens(self) -> bool:
        text = self._log.read_text()
        found = re.search(r"http://127\.0\.0\.1:([1-9]\d*)/lab", text)
        if self._process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended at once:\n{text[-3000:]}")
        self.url = f"http://127.0.0.1:{found[1]}" if found else ""
        return bool(found)

    def _end(self) -> None:
        """End the server, which ends its kernels."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_S)
