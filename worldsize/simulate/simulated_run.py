"""The result of a simulation: a `Run` whose seconds are the simulated clock's.

`simulate_function.py` makes it.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from typing_extensions import override

from worldsize.launch.run import Run
from worldsize.simulate.columns import MessageColumns
from worldsize.trace import Span, Trace
from worldsize.units import count


@dataclass(eq=False)
class SimulatedRun(Run):
    """A simulation's result as a `Run`: `results`, `log`, `reports` and `trace` belong to simulated ranks.

    `simulated_s`: when the last rank ended, on the simulated clock; `ended_s` [ranks]: when each did. `wall_s` is the
    simulation's real time. `columns`: every message in columns, without a `Transfer` for each. In a run by symmetry there are no
    results; `recorded_ranks` are the ranks whose messages are recorded, which stand for the others (() in any other run), and
    `asked_ranks` is the number of ranks asked to do the same.
    """

    simulated_s: float = 0.0
    ended_s: np.ndarray = field(default_factory=lambda: np.zeros(0))
    columns: MessageColumns = field(default_factory=MessageColumns)
    spans: list[Span] = field(default_factory=list)
    recorded_ranks: tuple[int, ...] = ()
    asked_ranks: int = 0
    evidence: tuple[str, ...] = ()

    @cached_property
    @override
    def trace(self) -> Trace:
        """The transfers and spans of all ranks on the simulated clock; in a run by symmetry, of `recorded_ranks`."""
        return self.columns.trace(self.world_size, self.spans)

    @property
    def messages(self) -> int:
        """The number of messages simulated one by one."""
        return len(self.columns)

    @override
    def show(self) -> None:
        """Print this run's result in a line; draw pictures as of any run, with `figures.messages(run)`."""
        print(self)

    @override
    def why_no_result(self, rank: int) -> str:
        if self.recorded_ranks:
            return (
                f"run[{rank}]: a run by symmetry has times but no values: of {self.world_size:,} ranks only "
                f"{len(self.recorded_ranks)} were simulated. For values, simulate fewer ranks."
            )
        return super().why_no_result(rank)

    @override
    def __repr__(self) -> str:
        if self.state == "not yet":
            return super().__repr__()

        ranks, state = count(self.world_size, "rank"), self.state
        if self.recorded_ranks:
            asked = "all" if self.asked_ranks == self.world_size else f"{self.asked_ranks:,} of {self.world_size:,}"
            state += f" by symmetry, {asked} ranks asked"
        return f"SimulatedRun({ranks}, {state}: {self.simulated_s:.6g} simulated s in {self.wall_s:.2f} s)"
