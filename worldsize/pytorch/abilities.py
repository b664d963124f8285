"""Abilities that one PyTorch has and another lacks: newer names, and names of its own that it may change.

Everything that a version from 2.9 on may lack is asked for here, by name and never by a version's number. Each value is None,
empty or False where it is missing; its user says what goes without it.
"""

import functools
import importlib.util
from collections.abc import Callable

import torch
import torch.distributed as dist

# the Flight Recorder's entries as JSON, and pickled, which takes half the time
dump_recorder: Callable | None = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json", None)
pickle_recorder: Callable | None = getattr(torch._C._distributed_c10d, "_dump_fr_trace", None)

# reads TORCH_LOGS anew, which torch reads when it is imported
read_log_settings: Callable | None = getattr(torch._logging._internal, "_init_logs", None)

FAKE_GROUP = "torch.testing._internal.distributed.fake_pg"  # a backend whose collectives return at once, with nobody else

# PyTorch 2.13 has the names on the left, and keeps the older ones
_OLDER_NAMES = {"all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor"}


def name_here(operation: str) -> str:
    """Return the name that this PyTorch has for a collective of `torch.distributed`."""
    return operation if hasattr(dist, operation) else _OLDER_NAMES.get(operation, operation)


def has_fake_group() -> bool:
    try:
        return importlib.util.find_spec(FAKE_GROUP) is not None
    except ModuleNotFoundError:
        return False


@functools.cache
def newer_types() -> frozenset[torch.dtype]:
    """Return the types of tensors that torch's plain pickle does not read back; none where torch does not tell."""
    return frozenset(getattr(torch.storage, "_new_dtypes", set)())
