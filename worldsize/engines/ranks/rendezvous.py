"""The rendezvous of `torch.distributed` in a rank: all ranks of a launch meet at the launch's own store.

Scripts written for one machine choose an address and a port, as in `setup(rank, world_size)` of PyTorch's tutorials. Under
torchrun's environment every rank then asks there as a client, and nobody answers. Here a group of all ranks meets at the
launch's store, whatever the script chose; a group of other ranks gets a store of its rank 0's at the chosen place. A group made
after another has keys of its own, or its ranks would find the earlier group's addresses.
"""

import importlib
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from torch.distributed import PrefixStore

_OURS = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE")
_AGENTS_STORE = "TORCHELASTIC_USE_AGENT_STORE"

Handler = Callable[..., Iterator[Any]]


def meet_at_own_store(world_size: int) -> None:
    """Make later rendezvous of this process use the store that the environment now names."""
    module = importlib.import_module("torch.distributed.rendezvous")  # a function has the same name
    handlers = getattr(module, "_rendezvous_handlers", {})  # torch's own, private: without it a script's choice counts
    own = {name: os.environ[name] for name in _OURS}
    numbers = itertools.count()
    for scheme in ("env", "tcp"):
        if scheme in handlers:
            handlers[scheme] = _redirected(handlers[scheme], world_size, own, numbers)


def _redirected(original: Handler, world_size: int, own: dict[str, str], numbers: Iterator[int]) -> Handler:
    def handler(url: str, *args: Any, **kwargs: Any) -> Iterator[Any]:
        parts = urlsplit(url)
        wanted = parse_qs(parts.query).get("world_size", [os.environ.get("WORLD_SIZE", "")])[0]
        at_own_place = not parts.netloc and all(os.environ.get(name) == own[name] for name in ("MASTER_ADDR", "MASTER_PORT"))
        if wanted != str(world_size):
            environment: dict[str, str | None] = {} if at_own_place else {_AGENTS_STORE: None}
        else:
            environment = dict(own)
            if parts.netloc:
                url = parts._replace(netloc=f"{own['MASTER_ADDR']}:{own['MASTER_PORT']}").geturl()

        with _environment(environment):
            meetings = original(url, *args, **kwargs)
            store, *place = next(meetings)
        number = next(numbers) if wanted == str(world_size) else 0
        yield PrefixStore(f"meeting {number}", store) if number else store, *place
        yield from meetings

    return handler


@contextmanager
def _environment(values: dict[str, str | None]) -> Iterator[None]:
    """Set the rendezvous' variables, or delete those that are None, for the length of the block."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
