"""The cells that the students of `bench/hub.py` run."""

SET_UP = """
import json, os, socket, time
from worldsize.notebook import *
import torch, torch.distributed as dist
def pass_right(fabric):
    sent = fabric.isend(torch.full((1000,), float(fabric.rank)), (fabric.rank + 1) % fabric.world_size)
    fabric.recv(torch.empty(1000), (fabric.rank - 1) % fabric.world_size)
    sent.wait()
"""

LAUNCH = """
began_s = time.monotonic()
run = launch(pass_right, 4)
print("took", time.monotonic() - began_s)
"""

END_SOON = """
os.environ["WORLDSIZE_IDLE_MINUTES"] = "{minutes}"
run = launch(pass_right, 4)
"""

SHOW_RANKS = """
import psutil
from worldsize.ranks import open_ranks
world = open_ranks(2)
kernel = psutil.Process()
below = kernel.children(recursive=True)
def ports(pid):
    lines = open(f"/proc/{pid}/net/tcp").read().splitlines()[1:]
    return sorted({int(line.split()[1].split(":")[1], 16) for line in lines if line.split()[3] == "0A"})
agent = next(p for p in below if "worldsize.engines.agent" in " ".join(p.cmdline()))
ranks = [p.pid for p in below if os.getsid(p.pid) == p.pid and p.pid != agent.pid]
from worldsize.engines.current_engine import local_engine
print(json.dumps({
    "network": run.network, "why": run.why_shared, "dir": str(run.dir),
    "sockets": [str(p) for p in run.dir.parent.glob("*/agent.sock")],
    "home": os.path.expanduser("~"), "ranks": ranks, "agent": agent.pid, "kernel": kernel.pid, "ports": ports(ranks[0]),
    "connection": __import__("ipykernel").connect.get_connection_file(),
}))
"""

TRY_TO_REACH = """
import json, os, pathlib, socket
facts = {facts}
def tried(what):
    try:
        return "REACHED " + str(what())[:40]
    except Exception as error:
        return type(error).__name__
def tcp(port):
    with socket.create_connection(("127.0.0.1", port), 2):
        return "connected"
def unix(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        return "connected"
print(json.dumps({{
    "list the files of a run": tried(lambda: os.listdir(facts["dir"])),
    "connect to the agent's socket": tried(lambda: unix(facts["sockets"][0])),
    "connect to a port that the ranks listen on": tried(lambda: tcp(facts["ports"][0])),
    "signal a rank": tried(lambda: os.kill(facts["ranks"][0], 0)),
    "read a rank's memory": tried(lambda: open(f"/proc/{{facts['ranks'][0]}}/mem", "rb").close()),
    "read a rank's environment": tried(lambda: len(open(f"/proc/{{facts['ranks'][0]}}/environ").read())),
    "enter the ranks' network": tried(lambda: os.open(f"/proc/{{facts['ranks'][0]}}/ns/net", os.O_RDONLY)),
    "read the key of the kernel": tried(lambda: len(pathlib.Path(facts["connection"]).read_text())),
    "list the home": tried(lambda: os.listdir(facts["home"])),
}}))
"""

FORKS = """
import os, time
made, why = [], ""
for _ in range(2000):
    try:
        pid = os.fork()
    except OSError as error:
        why = error.strerror
        break
    if not pid:
        time.sleep(25)
        os._exit(0)
    made.append(pid)
time.sleep(8)
for pid in made:
    os.kill(pid, 9); os.waitpid(pid, 0)
print(f"{len(made)} processes, then: {why}")
"""

SPINS = """
import os, time
made = []
for _ in range(4):
    pid = os.fork()
    if not pid:
        end = time.monotonic() + 12
        while time.monotonic() < end:
            pass
        os._exit(0)
    made.append(pid)
for pid in made:
    os.waitpid(pid, 0)
print("4 processes that computed for 12 s")
"""

FILLS = """
held = []
for _ in range(60):
    held.append(bytearray(b"x" * 100_000_000))
print("6 GB held")
"""
