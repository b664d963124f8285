"""What is left of a real hang: who waited for whom, in the record, in the table and over the picture."""

import pytest
import torch
import torch.distributed as dist

from worldsize import figures
from worldsize.errors import Deadlock
from worldsize.launch import launch
from worldsize.live import result


def test_a_collective_that_never_ended_is_in_the_record_and_in_what_its_ranks_are_said_to_do():
    def one_takes_another_branch(fabric):
        dist.init_process_group("gloo")
        if fabric.rank == 2:
            fabric.recv(torch.zeros(3), frm=0)
        dist.barrier()

    with pytest.raises(Deadlock) as caught:
        launch(one_takes_another_branch, 3, timeout_s=30)
    run = caught.value.run
    assert [(c.rank, c.op, c.ended) for c in sorted(run.trace.collectives, key=lambda c: c.rank)] == [
        (0, "barrier", False), (1, "barrier", False),
    ]  # fmt: skip
    assert [end.reason for end in result.ends(run)] == ["waits in barrier", "waits in barrier", "waits in recv from rank 0"]
    assert "rank 2 waited in recv from rank 0; ranks 0 and 1 waited in barrier" in figures.timeline(run).alt
    assert result.pictures(run)[0].alt.startswith("Deadlock: rank 0 and rank 2 wait for each other.")
