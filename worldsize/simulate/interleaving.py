"""A random order of simultaneous events."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Interleaving:
    """A drawn order of simultaneous events, in place of the ranks' numbers; it depends on `seed`.

    Each rank begins up to `late_s` seconds late. The rank with the next turn, and the message received first from anyone, are
    drawn anew each time.
    """

    seed: int
    late_s: float = 1e-4
