"""A fabric over an existing process group: under torchrun, Slurm, a debugger, or another project's test.

    dist.init_process_group("gloo")
    fabric = over_group()

The messages travel through a separate gloo group of the same ranks, whatever the given group's backend. NCCL could not carry
them: it ignores tags, cannot receive from anyone, and two ranks that each begin with an ungrouped send wait forever
(pytorch/pytorch #94819, NVIDIA/nccl #2057). Recording, links and deadlock detection are `launch`'s; here the group's time limit
ends a wait.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from worldsize.fabric.interface import Fabric

if TYPE_CHECKING:  # importing this package must not import torch
    import torch.distributed as dist

    from worldsize.fabric.gloo import GlooWire


def over_group(group: dist.ProcessGroup | None = None, timeout: timedelta | None = None) -> Fabric:
    """Return a fabric over `group`, or over the default process group. Every rank of the group must call this.

    `fabric.rank` is the rank in that group. Tensors on a GPU travel too: each message is copied to this machine's memory and, on
    the other side, from there to its tensor's device. (Untested over an NCCL group.)

    Keep the fabric until its last message was taken: messages end with the fabric, as they do with the process.
    `timeout` bounds each wait; None takes the group's. Raises ValueError if no process group is initialized or this rank is not
    in it. A wait that takes longer raises PeerSilent.
    """
    return Fabric(wire_over(group, timeout))


def wire_over(group: dist.ProcessGroup | None = None, timeout: timedelta | None = None) -> GlooWire:
    """Return the wire over a process group below `over_group`'s fabric, with the same arguments and errors."""
    import torch.distributed as dist

    from worldsize.fabric.gloo import GlooWire, gloo_group

    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            "over_group: expected a process group, got none: this process has not initialised one. Call "
            'dist.init_process_group("gloo") first; torchrun and launch set the environment variables that it reads.'
        )
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"over_group: rank {dist.get_rank()} is not in that group. Call it on the group's ranks only.")

    if group is None:
        group = dist.group.WORLD
    if not timeout:
        # the limit of the group's own calls, which torch keeps with each backend under no public name
        timeout = max(group._get_backend(device).options._timeout for device in group._device_types)

    rank, store = group.rank(), group.get_group_store()
    times = store.add(f"over_group/{rank}", 1)  # a second fabric over the same group is another connection
    own = gloo_group(dist.PrefixStore(f"over_group/{times}", store), rank, group.size(), timeout)
    return GlooWire(own)
