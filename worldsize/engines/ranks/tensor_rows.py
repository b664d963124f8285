"""A rank's rows for the tensors in a value: name, shape, dtype, device, norm, and a digest of every byte.

A value is a tensor, a module, an optimizer, or lists and dicts of them. A sharded tensor (`DTensor`) counts by this
rank's shard. `ranks/tensor_table.py` compares ranks.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from worldsize.engines.ranks.cell_work import Value

if TYPE_CHECKING:  # the notebook makes these objects without importing torch
    import torch

    from worldsize.engines.ranks.open_rank import OpenRank

MOST_ROWS = 2_000


@dataclass(frozen=True)
class TensorRow:
    """A tensor on one rank. `norm` is the Euclidean norm of its elements, `digest` a hash of its bytes; `sharding`
    describes the whole tensor of which this is a shard, "" for an unsharded one; `is_part`: other ranks have other rows of it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    norm: float
    digest: bytes
    sharding: str = ""
    is_part: bool = False


@dataclass(frozen=True)
class TensorRows:
    """Returns the rows of the tensors in an expression's value, and the number of tensors less `MOST_ROWS`."""

    expression: str

    def do(self, rank: OpenRank) -> tuple[list[tuple], int]:
        value = Value(self.expression).do(rank)
        tensors = list(tensors_in(value, ""))
        if not tensors and not may_hold_tensors(value):
            got = type(value).__name__
            raise ValueError(f"{self.expression}: expected tensors, or a value that contains tensors, got {got}")

        rows = [_row(named(name, self.expression), tensor) for name, tensor in tensors[:MOST_ROWS]]
        return [astuple(row) for row in rows], len(tensors) - MOST_ROWS  # plain values, which travel from any host


@dataclass(frozen=True)
class TensorPart:
    """Returns a tensor of an expression's value, by the name in its row."""

    expression: str
    name: str

    def do(self, rank: OpenRank) -> torch.Tensor:
        for name, tensor in tensors_in(Value(self.expression).do(rank), ""):
            if named(name, self.expression) == self.name:
                return _local(tensor).cpu()
        raise ValueError(f"{self.expression}: this rank has no tensor {self.name}")


def named(name: str, expression: str) -> str:
    """Return a tensor's name for a person: the elements of `[x, y]` are x and y, not 0 and 1."""
    if not name:
        return expression
    shown = ast.parse(expression.strip(), mode="eval").body
    if not isinstance(shown, (ast.List, ast.Tuple)):
        return name

    elements = [ast.unparse(element) for element in shown.elts]
    if len(set(elements)) < len(elements) or any(isinstance(element, ast.Starred) for element in shown.elts):
        return name
    place, dot, rest = name.partition(".")
    return f"{elements[int(place)]}{dot}{rest}"


def may_hold_tensors(value: Any) -> bool:
    """Return whether a value without tensors may have some: a module, or an optimizer, whose state begins with its first step."""
    import torch

    if isinstance(value, Mapping):
        return value.keys() == {"state", "param_groups"}
    return isinstance(value, (torch.optim.Optimizer, torch.nn.Module))


def tensors_in(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, tensor) for the tensors in a value; names join attributes, keys and indices by dots."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        yield from tensors_in(value.state_dict(), name)
    elif isinstance(value, torch.optim.Optimizer):
        yield from tensors_in(value.state_dict()["state"], name)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from tensors_in(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            yield from tensors_in(part, f"{name}.{place}" if name else str(place))


def _local(tensor: torch.Tensor) -> torch.Tensor:
    from torch.distributed.tensor import DTensor

    own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return own.detach()


def _row(name: str, tensor: torch.Tensor) -> TensorRow:
    import torch
    from torch.distributed.tensor import DTensor

    own = _local(tensor)
    sharding, is_part = "", False
    if isinstance(tensor, DTensor):
        is_part = not all(placement.is_replicate() for placement in tensor.placements)
        sharding = f"of {tuple(tensor.shape)}, {', '.join(map(str, tensor.placements))}"

    wide = own.to(torch.complex128 if own.is_complex() else torch.float64)
    norm = torch.linalg.vector_norm(wide).item()

    plain = own.cpu().contiguous().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
    digest = hashlib.blake2b(plain.numpy().tobytes(), digest_size=16).digest()

    dtype = str(own.dtype).removeprefix("torch.")
    return TensorRow(name, tuple(own.shape), dtype, str(own.device), norm, digest, sharding, is_part)
