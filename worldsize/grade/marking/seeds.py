"""Seeds: all that a grading draws follows from one, so that an appeal can be replayed.

Left out: what is drawn (the checks).
"""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager


def derived(seed: int, *texts: str) -> int:
    """A seed for marking that follows from another seed and from texts, and does not lead back to it."""
    text = "\0".join([str(seed), *texts]).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Everything that a check draws follows from `seed`, in the process that marks, where no student's code runs.

    It is for the process that marks, where no student's code runs.
    """
    import numpy as np

    stream = random.Random(seed)
    before = {name: getattr(secrets, name) for name in ("randbits", "randbelow", "choice")}
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - a check may use the global generator
    secrets.randbits, secrets.randbelow, secrets.choice = stream.getrandbits, stream.randrange, stream.choice
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(secrets, name, value)
