"""A launch over several hosts against its peers: from the call until every rank's value is back.

The hosts are network namespaces of this machine (needs root), so that no figure holds a real network's latency. "warm"
is every launch after the first on open hosts; "first" begins with no agent anywhere: hosts are opened and one launch is
made, beside torchrun's on both hosts, and srun's where this machine has Slurm (apt-dev.txt). The work is an all-reduce
of a small tensor over gloo. Left out: what happens when a host is lost (tests/hosts).

    python bench/hosts.py [--hosts 2] [--ranks 4] [--repeats 20] [--most 64] [--smoke]
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import report
from peers import work as the_work
from peers.work import work

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import namespaces, slurm  # noqa: E402 - they lie beside the benches
from tests.support.namespaces import Network  # noqa: E402
from worldsize import hosts  # noqa: E402
from worldsize.engines.remote.ways.programs import member_command  # noqa: E402
from worldsize.launch import launch  # noqa: E402

_PORT = 29_400  # in the hosts' own networks nobody else has one
_LIMIT_S = 300.0


@contextmanager
def open_on(network: Network) -> Iterator[None]:
    """Agents on every host of the network."""
    commands = {host.name: host.command(member_command(sys.executable, host.address)) for host in network.hosts}
    hosts.open(hosts.Programs(commands))
    try:
        yield
    finally:
        hosts.close()


def seconds(go: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    go()
    return time.perf_counter() - began_s


def ours(ranks: int) -> None:
    """One launch; every value must be right."""
    run = launch(work, ranks)
    expected = ranks * (ranks + 1) / 2
    if run.results != [expected] * ranks or len(set(run.hosts)) < 2:
        raise RuntimeError(f"expected {expected} from ranks on several hosts, got {run.results} on {run.hosts}")


def torchrun(network: Network, ranks: int) -> None:
    """torchrun on every host, with the first one's address as the meeting point."""
    n = len(network.hosts)
    started = []
    for node, host in enumerate(network.hosts):
        command = [
            sys.executable, "-m", "torch.distributed.run", "--nnodes", str(n), "--node-rank", str(node),
            "--nproc-per-node", str(ranks // n), "--master-addr", network[0].address, "--master-port", str(_PORT),
            the_work.__file__,
        ]  # fmt: skip
        started.append(subprocess.Popen(host.command(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    for process in started:
        _, said = process.communicate(timeout=_LIMIT_S)
        if process.returncode:
            raise RuntimeError(said.decode(errors="replace")[-500:])


def srun(running: slurm.Slurm, ranks: int) -> None:
    """srun places the ranks, each of which learns from Slurm who it is."""
    code = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "os.environ.update(RANK=os.environ['SLURM_PROCID'], WORLD_SIZE=os.environ['SLURM_NTASKS'],"
        f" MASTER_ADDR={running.hosts[0].address!r}, MASTER_PORT='{_PORT}')\n"
        "from peers.work import work; work()"
    )
    n = len(running.hosts)
    running.run("srun", f"-N{n}", f"-n{ranks}", sys.executable, "-c", code)


def measure_warm(network: Network, ranks: int, repeats: int) -> list[float]:
    with open_on(network):
        for _ in range(3):
            ours(ranks)
        return [seconds(lambda: ours(ranks)) for _ in range(repeats)]


def first_launch(network: Network, ranks: int) -> None:
    with open_on(network):
        ours(ranks)


def main() -> None:
    parser = report.options(__doc__, repeats=20)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--most", type=int, default=64, help="ranks of the largest launch, on four hosts; 0 for none")
    options = parser.parse_args()
    if reason := namespaces.why_not():
        print(f"bench/hosts.py measures nothing here: {reason}")
        return
    if options.smoke:
        options.repeats, options.most = 2, 0
    ranks = options.hosts * max(1, (4 if len(options.ranks) > 1 else options.ranks[0]) // options.hosts)

    here = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(here)  # a rank imports what its host's environment says
    note = f"{report.machine()}; {options.hosts} namespaces, {ranks} ranks; medians of {options.repeats} warm launches"
    print(note)
    firsts = 1 if options.smoke else 3
    measured: dict[str, list[float]] = {"ours, warm": [], "ours, first": [], "torchrun": [], "srun": []}
    with namespaces.network(options.hosts) as network:
        measured["ours, warm"] = measure_warm(network, ranks, options.repeats)
        for _ in range(firsts):
            measured["ours, first"].append(seconds(lambda: first_launch(network, ranks)))
            measured["torchrun"].append(seconds(lambda: torchrun(network, ranks)))

    if not options.smoke and not slurm.why_not():
        with slurm.cluster(options.hosts) as running:
            measured["srun"] = [seconds(lambda: srun(running, ranks)) for _ in range(firsts)]
    if options.most:
        with namespaces.network(4) as network, open_on(network):
            ours(options.most)
            measured[f"ours, {options.most} ranks on 4 hosts"] = [seconds(lambda: ours(options.most)) for _ in range(3)]

    warm = report.median(measured["ours, warm"])
    rows = []
    for name, values in measured.items():
        middle = report.median(values)
        rows.append([name, middle, report.quotient(middle, warm)])
    report.table("launch over hosts: seconds until every value is back", ["", "median, s", "to ours, warm"], rows)
    report.target(f"ours, warm, {ranks} ranks on {options.hosts} hosts, s", warm, at_most=0.25)
    report.keep(options.out / "hosts.json", {"conditions": note, "measured": measured})
    shown = {name: [report.median(values)] for name, values in measured.items() if values}
    report.bars(options.out / "hosts.png", f"From the call to every rank's value\n{note}", [""], shown, axis="seconds", log=True)


if __name__ == "__main__":
    main()
