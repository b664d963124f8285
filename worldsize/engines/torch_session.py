"""The start of torch ranks: devices and backend, and the environment that torchrun would set on every host.

`session.py` listens to the ranks, `torch_rank.py` runs in them.
"""

from dataclasses import dataclass

from typing_extensions import override

from worldsize import units
from worldsize.engines import session
from worldsize.engines.host import place
from worldsize.engines.job import Setup


@dataclass(eq=False)
class TorchSession(session.Session):
    """A job of torch: one GPU for each rank over NCCL if there are enough, else gloo."""

    tells_early = True  # a process with torch needs 10 ms and more to end

    @override
    def _choose(self) -> Setup:
        self.facts = tuple(host.facts(with_gpus=self.job.device != "cpu") for host in self.hosts)
        cards = [len(facts.gpus) for facts in self.facts]
        gpus = sum(cards)
        if self.job.device == "cuda" and not gpus:
            raise ValueError('launch: expected device="cpu" or "auto", got device="cuda" on a machine with no GPU')

        own_gpu = gpus >= self.job.world_size and all(facts.nccl for facts in self.facts if facts.gpus)
        on_gpus = own_gpu or self.job.device == "cuda"
        self.ranks = place(self.job.world_size, cards if on_gpus else [facts.cores for facts in self.facts])

        threads = sorted({self._threads(node) for node, ranks in enumerate(self.ranks) if ranks})
        each = f"{threads[0]} to {threads[-1]} threads each"
        if len(threads) == 1:
            each = f"{units.count(threads[0], 'thread')} each"
        return self._setup_with([units.count(self.job.world_size, "rank"), self._where(own_gpu, gpus), each], on_gpus)

    def _where(self, own_gpu: bool, gpus: int) -> str:
        if own_gpu:
            names: dict[str, None] = {}  # each once, in order
            for facts in self.facts:
                names.update(dict.fromkeys(facts.gpus))
            return f"nccl, one GPU each ({', '.join(names)})"
        if self.job.device == "cuda":
            return f"gloo, {self.job.world_size} ranks share {units.count(gpus, 'GPU')}"
        return "gloo on CPU"

    @override
    def _start(self) -> None:
        port = self.host_of(0).open_store()
        for node, ranks in enumerate(self.ranks):
            env = self._environment(node, port)
            for rank in ranks:
                own = {"LOCAL_RANK": str(rank - ranks.start)}
                self.hosts[node].start(rank, {**env, **own}, self._threads(node))

    def _environment(self, node: int, port: int) -> dict[str, str]:
        """Return the variables that torchrun would set on this host, so that `dist.init_process_group()` just works."""
        n = str(self.job.world_size)
        env = {
            "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": str(len(self.ranks[node])), "ROLE_WORLD_SIZE": n,
            "GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(len(self._used_hosts())),
            "MASTER_ADDR": self.facts[self._node_of(0)].address, "MASTER_PORT": str(port),
            # ranks join the store that already listens: no race for a port
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_RUN_ID": self.job.dir.name,
            "OMP_NUM_THREADS": str(self._threads(node)),
        }  # fmt: skip

        if not self.setup.on_gpus:
            env["CUDA_VISIBLE_DEVICES"] = ""  # ranks on the CPU see no GPU

        interface = self.facts[node].interface
        # a network of the ranks' own may lack the interface that the job's environment names
        if interface and (self.network == "own" or "GLOO_SOCKET_IFNAME" not in self.job.env):
            env["GLOO_SOCKET_IFNAME"] = interface
        return env
