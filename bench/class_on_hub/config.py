"""The hub that `bench/hub.py` starts: local users, a control group for each, and a token for the bench.

Control groups of version 1 or 2, whichever this machine has. A hub on a machine with systemd takes SystemdSpawner in place
of this spawner. Left out: who may log in, since nobody does.
"""

import os
from pathlib import Path

from jupyterhub.spawner import LocalProcessSpawner

PROXY_PORT, HUB_PORT, API_PORT = os.environ["HUB_PORTS"].split(",")
FOLDER, GROUPS = os.environ["HUB_FOLDER"], Path("/sys/fs/cgroup")


def limited(name: str) -> list[Path]:
    """Make a student's control groups; returns the files into which the number of a process is written."""
    unified = (GROUPS / "cgroup.controllers").is_file()
    wanted = {
        ("" if unified else "memory", "memory.max" if unified else "memory.limit_in_bytes"): os.environ["HUB_MEM"],
        ("" if unified else "pids", "pids.max"): os.environ["HUB_PIDS"],
    }
    for (kind, file), value in wanted.items():
        group = GROUPS / kind / f"worldsize-{name}"
        group.mkdir(exist_ok=True)
        (group / file).write_text(value)
    return [GROUPS / kind / f"worldsize-{name}" / "cgroup.procs" for kind, _ in wanted]


class LimitedSpawner(LocalProcessSpawner):
    """A local user's server, which is in its control groups before it is that user's."""

    def make_preexec_fn(self, name):
        become = super().make_preexec_fn(name)
        files = limited(name)

        def enter() -> None:
            for file in files:
                file.write_text(str(os.getpid()))
            become()

        return enter


c = get_config()  # noqa: F821 - JupyterHub's
c.JupyterHub.bind_url = f"http://127.0.0.1:{PROXY_PORT}"
c.JupyterHub.hub_port = int(HUB_PORT)
c.JupyterHub.db_url = f"sqlite:///{FOLDER}/hub.sqlite"
c.JupyterHub.cookie_secret_file = f"{FOLDER}/cookie_secret"
c.ConfigurableHTTPProxy.command = os.environ["HUB_PROXY"].split()
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{API_PORT}"
c.ConfigurableHTTPProxy.pid_file = f"{FOLDER}/proxy.pid"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = LimitedSpawner
c.Spawner.cmd = [os.environ["HUB_PYTHON"], "-m", "jupyterhub.singleuser"]
if float(os.environ["HUB_CULL_S"]):
    c.Spawner.args = [
        f"--MappingKernelManager.cull_idle_timeout={float(os.environ['HUB_CULL_S']):.0f}",
        "--MappingKernelManager.cull_interval=5", "--MappingKernelManager.cull_connected=True",
    ]  # fmt: skip
c.Spawner.env_keep = ["PATH", "LANG"]
c.Spawner.environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
c.Spawner.notebook_dir = "~"
c.Spawner.http_timeout = c.Spawner.start_timeout = 120
c.JupyterHub.concurrent_spawn_limit = 4
c.JupyterHub.services = [{"name": "bench", "api_token": os.environ["HUB_TOKEN"]}]
c.JupyterHub.load_roles = [
    {"name": "bench", "services": ["bench"], "scopes": ["admin:users", "admin:servers", "access:servers"]}
]
