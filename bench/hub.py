"""A class on one JupyterHub: what each student takes of memory, how long launches take, and what reaches another student.

Real users of this machine (`useradd`), a real hub with a single-user server and a kernel a student, driven over the
hub's own addresses. Each student is held by control groups (memory, processes), as a hub's administrator would set them.
Left out: JupyterLab in a browser, which runs on the student's own machine, and homes on a network.

    sudo python bench/hub.py --hub-python HUB/bin/python --proxy configurable-http-proxy [--students 12]

`--hub-python` has jupyterhub and this course; everybody must be able to read it. Needs root, and nobody else's hub.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
import zipfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import report
from class_on_hub import cells

tornado = importlib.import_module("tornado.websocket")  # JupyterLab's and the hub's server bring it
MOST_S = 570.0  # for all of it, besides the idle minutes and labs that all students run at once
LABS_AT_ONCE_S = 1500.0
CELL_S = 240.0
PREFIX = "wsclass"
STEPS = (1, 2, 4, 8, 12, 16, 24)
ROUNDS = 3
CONFIG = Path(__file__).resolve().parent / "class_on_hub" / "config.py"


class Class:
    """A hub with its students, in a folder that goes with it."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.names = [f"{PREFIX}{number}" for number in range(1, options.students + 1)]
        self.token = secrets.token_hex(16)
        with socket.socket() as one, socket.socket() as two, socket.socket() as three:
            ports = []
            for each in (one, two, three):
                each.bind(("127.0.0.1", 0))
                ports.append(each.getsockname()[1])
        self.url = f"http://127.0.0.1:{ports[0]}"
        self.ports = ports
        self.hub: subprocess.Popen | None = None

    def __enter__(self) -> Class:
        os.chmod(self.folder, 0o755)
        for name in self.names:
            home = ["--create-home", "--home-dir", str(self.folder / name), "--key", "HOME_MODE=0700"]
            subprocess.run(["useradd", *home, "--shell", "/bin/bash", name], check=True)
            self._give_bundle(name)
        env = {
            **os.environ, "HUB_TOKEN": self.token, "HUB_PORTS": ",".join(map(str, self.ports)), "HUB_FOLDER": str(self.folder),
            "HUB_PROXY": self.options.proxy, "HUB_PYTHON": self.options.hub_python,
            "HUB_MEM": str(self.options.mem_bytes), "HUB_PIDS": str(self.options.pids),
            "HUB_CULL_S": str(60 * self.options.cull_minutes),
            "CONFIGPROXY_AUTH_TOKEN": secrets.token_hex(16), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        with (self.folder / "hub.log").open("w") as log:
            command = [self.options.hub_python, "-m", "jupyterhub", "-f", str(CONFIG)]
            self.hub = subprocess.Popen(
                command, env=env, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        return self

    def _give_bundle(self, name: str) -> None:
        user = pwd.getpwnam(name)
        home = Path(user.pw_dir)
        with zipfile.ZipFile(self.options.bundle) as bundle:
            bundle.extractall(home)
        for path in (home, *home.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid)

    def __exit__(self, *exception: object) -> None:
        """End the hub, then what is left of each student's, then the students."""
        uids = {pwd.getpwnam(name).pw_uid for name in self.names if _is_user(name)}
        family = [self.hub.pid, *(p.pid for p in psutil.Process(self.hub.pid).children(recursive=True))] if self.hub else []
        if self.hub:
            self.hub.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.hub.wait(15)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while left := [p for p in psutil.process_iter() if _uid(p) in uids and p.status() != psutil.STATUS_ZOMBIE]:
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, 3)
        for name in self.names:
            if _is_user(name):
                subprocess.run(["userdel", "--remove", name], check=False, capture_output=True)
            for kind in ("memory", "pids", ""):
                with suppress(OSError):
                    os.rmdir(Path("/sys/fs/cgroup") / kind / f"worldsize-{name}")

    # ---- the hub's own addresses -----------------------------------------------------------------

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def open(self, name: str, limit_s: float = 120.0) -> None:
        """Start a student's server, and return when it serves."""
        until_s = time.monotonic() + limit_s
        while True:
            try:
                with suppress(urllib.request.HTTPError):  # 409: the user is there
                    self.ask("POST", f"/hub/api/users/{name}")
                with suppress(urllib.request.HTTPError):
                    self.ask("POST", f"/hub/api/users/{name}/server")
                if self.ask("GET", f"/hub/api/users/{name}")["servers"].get("", {}).get("ready"):
                    return
            except OSError:
                pass
            if time.monotonic() > until_s:
                raise TimeoutError((self.folder / "hub.log").read_text()[-3000:])
            time.sleep(0.3)

    def kernel(self, name: str) -> Kernel:
        made = self.ask("POST", f"/user/{name}/api/kernels", {"name": "python3", "path": "worldsize/labs"})
        return Kernel(self, name, made["id"])

    def memory(self, name: str) -> dict[str, int]:
        """PSS in bytes of a student's processes by what they are."""
        return self.use(name)[0]

    def use(self, name: str) -> tuple[dict[str, int], int]:
        """PSS in bytes of a student's processes by what they are, and their threads, which a limit of tasks counts."""
        uid, threads = pwd.getpwnam(name).pw_uid, 0
        found: dict[str, int] = defaultdict(int)
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.uids().real == uid:
                    threads += process.num_threads()
                    found[_kind(process)] += _pss_bytes(process)
        return dict(found), threads


class Kernel:
    """A student's kernel, behind hub and proxy."""

    def __init__(self, of: Class, name: str, identity: str) -> None:
        self.of, self.name, self.identity = of, name, identity
        self.socket: Any = None

    async def run(self, code: str, limit_s: float = CELL_S) -> tuple[str, float]:
        """What a cell printed, and the seconds that it took. A cell that raises is raised here with its error."""
        if self.socket is None:
            url = f"{self.of.url.replace('http', 'ws')}/user/{self.name}/api/kernels/{self.identity}/channels"
            headers = {"Authorization": f"token {self.of.token}"}
            request = tornado.httpclient.HTTPRequest(url, headers=headers, connect_timeout=CELL_S, request_timeout=CELL_S)
            self.socket = await tornado.websocket_connect(request, max_message_size=2**28)
        identity = uuid.uuid4().hex
        header = {
            "msg_id": identity, "username": "", "session": identity, "msg_type": "execute_request", "version": "5.3", "date": "",
        }  # fmt: skip
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        began_s = time.monotonic()
        message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
        await self.socket.write_message(json.dumps(message))
        said: list[str] = []
        while True:
            left_s = began_s + limit_s - time.monotonic()
            text = await asyncio.wait_for(self.socket.read_message(), max(0.1, left_s))
            if text is None:
                raise ConnectionError(f"{self.name}'s kernel hung up")
            if isinstance(text, bytes):
                continue
            told = json.loads(text)
            if told["msg_type"] == "status" and told["content"]["execution_state"] in ("dead", "restarting"):
                raise ConnectionError(f"{self.name}'s kernel ended")
            if told["parent_header"].get("msg_id") != identity:
                continue
            if told["msg_type"] == "stream":
                said.append(told["content"]["text"])
            elif told["msg_type"] == "error":
                raise RuntimeError(f"{told['content']['ename']}: {told['content']['evalue']}")
            elif told["msg_type"] == "status" and told["content"]["execution_state"] == "idle":
                return "".join(said), time.monotonic() - began_s


def _is_user(name: str) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


def _uid(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return process.uids().real
    return -1


def _kind(process: psutil.Process) -> str:
    words = " ".join(process.cmdline())
    if "jupyterhub.singleuser" in words:
        return "server"
    if "ipykernel" in words and os.getsid(process.pid) == process.pid:
        return "kernel"
    return "helpers"


def _pss_bytes(process: psutil.Process) -> int:
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return 1024 * int(line.split()[1])
    return 0


def _cells_of(notebook: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


async def whole_lab(of: Class, kernel: Kernel, number: str) -> dict[str, Any]:
    """Run every cell of a lab as shipped. Returns its seconds, the most memory and tasks of its student, and cells' errors."""
    (lab,) = (of.folder / kernel.name / "worldsize" / "labs").glob(f"{number}_*.ipynb")
    most, tasks = {"sum": 0}, 0
    done = asyncio.Event()

    async def look() -> None:
        nonlocal tasks
        while not done.is_set():
            memory, threads = of.use(kernel.name)
            tasks = max(tasks, threads)
            if sum(memory.values()) > most["sum"]:
                most.clear()
                most.update(memory, sum=sum(memory.values()))
            await asyncio.sleep(0.5)

    looking = asyncio.create_task(look())
    began_s = time.monotonic()
    errors = []
    for cell in _cells_of(lab):
        try:
            await kernel.run(cell)
        except RuntimeError as error:
            errors.append(str(error))
    done.set()
    await looking
    return {"most_bytes": dict(most), "most_tasks": tasks, "seconds": time.monotonic() - began_s, "errors": errors}


async def labs_at_once(of: Class, note: Callable[[str, object], None]) -> None:
    """Every other student runs all of lab 06, the others all of lab 07, at once; nobody has opened anything before."""
    for name in of.names:
        of.open(name)
    kernels = [of.kernel(name) for name in of.names]
    working = {"06": kernels[::2], "07": kernels[1::2]}
    began_s = time.monotonic()
    ended = iter(await asyncio.gather(*(whole_lab(of, kernel, lab) for lab, own in working.items() for kernel in own)))
    note("labs at once, s", time.monotonic() - began_s)
    for lab, own in working.items():
        note(f"lab {lab} of {len(own)} students at once", [next(ended) for _ in own])


async def launches(kernels: list[Kernel], found: dict[str, Any]) -> None:
    """Everybody launches 4 ranks at once, and again two seconds after it came back."""
    seconds: list[float] = []

    async def student(kernel: Kernel) -> None:
        for _ in range(ROUNDS):
            text, _ = await kernel.run(cells.LAUNCH)
            seconds.append(float(text.split("took")[1].split()[0]))
            await asyncio.sleep(2.0)

    began, load = psutil.cpu_times(), os.getloadavg()[0]
    await asyncio.gather(*map(student, kernels))
    seconds.sort()
    busy = psutil.cpu_times().idle - began.idle
    found["launches"].append({
        "students": len(kernels), "p50_s": statistics.median(seconds), "p95_s": seconds[int(0.95 * (len(seconds) - 1))],
        "load": load, "idle_cpu_s": busy, "count": len(seconds),
    })  # fmt: skip
    print(f"  {found['launches'][-1]}", flush=True)


async def measure(of: Class, found: dict[str, Any]) -> None:
    kernels: list[Kernel] = []
    began_s = time.monotonic()

    def note(what: str, value: object) -> None:
        found[what] = value
        print(f"{time.monotonic() - began_s:6.0f} s  {what}: {value}", flush=True)

    if of.options.labs_at_once:
        await labs_at_once(of, note)
        return
    found["launches"] = []
    first = of.names[0]
    of.open(first)
    note("server alone", of.memory(first))
    kernels.append(of.kernel(first))
    await kernels[0].run("pass")
    note("bare kernel", of.memory(first))
    await begin(kernels[0])
    if of.options.only_runaway:
        kernels.append(await come(of, of.names[1]))
        await runaway(*kernels, note)
        return
    if of.options.cull_minutes:
        kernels += await asyncio.gather(*(come(of, name) for name in of.names[1:]))
        note("warm, each of all", [of.memory(name) for name in of.names])
        await asyncio.sleep(60 * of.options.cull_minutes + 15)
        note("kernels ended, each of all", [of.memory(name) for name in of.names])
        return
    await asyncio.sleep(3)
    note("warm, one student", of.memory(first))
    await launches(kernels, found)
    if of.options.whole_labs:
        note("lab 06", await whole_lab(of, kernels[0], "06"))
        tensorflow = of.kernel(first)
        note("lab 07", await whole_lab(of, tensorflow, "07"))
        note("two notebooks, torch and TensorFlow", of.memory(first))
        of.ask("DELETE", f"/user/{first}/api/kernels/{tensorflow.identity}")

    for students in [*(step for step in STEPS if 1 < step < len(of.names)), len(of.names)]:
        coming = of.names[len(kernels) : students]
        kernels += await asyncio.gather(*(come(of, name) for name in coming))
        await launches(kernels, found)
    await asyncio.sleep(3)
    note("warm, each of all", [of.memory(name) for name in of.names])

    note("who reaches whom", await reach(kernels[0], kernels[-1]))

    idle_min = of.options.idle_minutes
    ends_in = [kernel.run(cells.END_SOON.format(minutes=idle_min)) for kernel in kernels[:-1]]
    await asyncio.gather(*ends_in)
    await asyncio.sleep(idle_min * 60 + 6)
    note("idle, each of all", [of.memory(name) for name in of.names[:-1]])
    text, seconds = await kernels[0].run(cells.LAUNCH)
    note("first launch after idle", {"seconds": seconds, "said": text})
    await runaway(kernels[0], kernels[-1], note)


async def come(of: Class, name: str) -> Kernel:
    """A student who logs in, opens a notebook and launches once."""
    await asyncio.to_thread(of.open, name)
    kernel = await asyncio.to_thread(of.kernel, name)
    await begin(kernel)
    return kernel


async def begin(kernel: Kernel) -> None:
    await kernel.run(cells.SET_UP)
    await kernel.run(cells.LAUNCH)


async def reach(victim: Kernel, other: Kernel) -> dict[str, str]:
    """What another student reaches of one who has ranks at work."""
    told, _ = await victim.run(cells.SHOW_RANKS)
    facts = json.loads(told.strip().splitlines()[-1])
    text, _ = await other.run(cells.TRY_TO_REACH.format(facts=facts))
    found = json.loads(text.strip().splitlines()[-1])
    own, _ = await victim.run(cells.TRY_TO_REACH.format(facts=facts))
    await victim.run("world.close()")
    return {what: f"{how}; its owner: {json.loads(own.strip().splitlines()[-1])[what]}" for what, how in found.items()}


async def runaway(victim: Kernel, other: Kernel, note: Callable[[str, object], None]) -> None:
    """Launches of one student while another forks without end, fills memory, or keeps every core busy."""
    for what, cell in (("forks", cells.FORKS), ("spins", cells.SPINS), ("fills memory", cells.FILLS)):
        running = asyncio.create_task(_survived(other, cell))
        await asyncio.sleep(2)
        seconds = []
        for _ in range(3):
            text, _ = await victim.run(cells.LAUNCH)
            seconds.append(float(text.split("took")[1].split()[0]))
        note(f"while another {what}", {"launches_s": seconds, "what became of it": await running})


async def _survived(kernel: Kernel, cell: str) -> str:
    try:
        return (await kernel.run(cell, limit_s=40))[0].strip()
    except (RuntimeError, ConnectionError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"


def _why_not(options: argparse.Namespace) -> str:
    """One sentence that says what is missing for a hub; empty where nothing is."""
    if os.geteuid():
        return "only root can add users and start their servers"
    if subprocess.run([options.hub_python, "-c", "import jupyterhub"], capture_output=True).returncode:
        return f"{options.hub_python} has no jupyterhub (--hub-python)"
    if not options.bundle.is_file():
        return f"{options.bundle} is not there: worldsize release {options.bundle}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hub-python", default=sys.executable)
    parser.add_argument("--proxy", default=shutil.which("configurable-http-proxy") or "configurable-http-proxy")
    parser.add_argument("--students", type=int, default=12)
    parser.add_argument("--bundle", type=Path, default=Path("worldsize.zip"), help="what `worldsize release` wrote")
    parser.add_argument("--whole-labs", action="store_true", help="first one student runs all of labs 06 and 07")
    parser.add_argument("--labs-at-once", action="store_true", help="only this: half of them run lab 06, half lab 07")
    parser.add_argument("--only-runaway", action="store_true", help="two students, of whom one runs what should be held")
    parser.add_argument("--cull-minutes", type=float, default=0.0, help="servers end idle kernels: what is left of a student?")
    parser.add_argument("--idle-minutes", type=float, default=0.3)
    parser.add_argument("--mem-bytes", type=int, default=2_500_000_000)
    parser.add_argument("--pids", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "out")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench/hub.py: ended"))  # users and servers go with it
    if why := _why_not(options):
        print(f"bench/hub.py: left out, {why}")
        return

    limit_s = MOST_S + 60 * (options.cull_minutes + options.idle_minutes) + LABS_AT_ONCE_S * options.labs_at_once
    found: dict[str, Any] = {"conditions": report.machine(), "students": options.students}
    with tempfile.TemporaryDirectory(prefix="wshub-", ignore_cleanup_errors=True) as folder:
        try:
            with Class(options, Path(folder)) as students:
                asyncio.run(asyncio.wait_for(measure(students, found), limit_s))
        finally:
            report.keep(options.out / "hub.json", found)
            with suppress(OSError):
                shutil.copy(Path(folder) / "hub.log", options.out / "hub.log")


if __name__ == "__main__":
    main()
