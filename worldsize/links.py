"""Links: the speed of one rank's network card, in the units that vendors print; and nodes, with two kinds of links.

A link is full duplex and belongs to a rank: everything the rank sends leaves through one egress, and everything it receives
enters through one ingress. Switches are left out: every pair of ranks is one hop apart.
"""

import math
import re
from dataclasses import dataclass, field

from typing_extensions import override

_NUMBER = r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*"
_BANDWIDTH = re.compile(_NUMBER + r"([kKMGT]?)(i?)(bit|b|B|byte|bytes)\s*(?:/\s*s|ps)\s*$")
_LATENCY = re.compile(_NUMBER + r"(s|ms|us|µs|μs|ns)\s*$")
_PREFIX = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


def bandwidth_bytes_per_s(text: str | float) -> float:
    """Parse a `Link`'s bandwidth: "1 Gbit/s", "20 MB/s", "3 GiB/s", or a number of bytes per second."""
    if _is_number(text):
        value = float(text)
    else:
        found = _BANDWIDTH.match(text) if isinstance(text, str) else None
        if not found:
            raise _wrong("bandwidth", text, '"1 Gbit/s", "20 MB/s", "3 GiB/s" or a number of bytes a second')
        number, prefix, binary, unit = found.groups()
        value = float(number) * (1024 if binary else 1000) ** _PREFIX[prefix]
        if unit in ("bit", "b"):
            value /= 8

    if not 0 < value < math.inf:
        raise _wrong("bandwidth", text, "a number above zero")
    return value


def latency_s(text: str | float) -> float:
    """Parse a `Link`'s latency: "50 us", "1 ms", "0.2 s", or a number of seconds."""
    if _is_number(text):
        value = float(text)
    else:
        found = _LATENCY.match(text) if isinstance(text, str) else None
        if not found:
            raise _wrong("latency", text, '"50 us", "1 ms", "0.2 s" or a number of seconds')
        value = float(found[1]) * _SECONDS[found[2]]

    if not 0 <= value < math.inf:
        raise _wrong("latency", text, "zero or more")
    return value


def _is_number(text: object) -> bool:
    return isinstance(text, (int, float)) and not isinstance(text, bool)


def _wrong(what: str, got: object, expected: str) -> ValueError:
    return ValueError(f'Link: the {what} is {got!r}; expected {expected}. Write for example Link("1 Gbit/s", "50 us").')


def _written(given: str | float, scale: float, unit: str) -> str:
    """Return a link's text as given, with its blanks normalized and "µs" for "us"; a number with its `unit`."""
    if _is_number(given):
        return f"{given * scale:g} {unit}"
    return re.sub(r"(us|μs)$", "µs", " ".join(given.split()))


@dataclass(frozen=True, init=False)
class Link:
    """A rank's network card: bandwidth each way, and the latency of one message.

    `Link("1 Gbit/s", "50 us")`; numbers are bytes per second and seconds.
    Raises ValueError for text that is no bandwidth or no latency.
    """

    bandwidth_bytes_per_s: float
    latency_s: float
    written: str = field(compare=False, repr=False)  # in the caller's units

    def __init__(self, bandwidth: str | float, latency: str | float = 0.0) -> None:
        object.__setattr__(self, "bandwidth_bytes_per_s", bandwidth_bytes_per_s(bandwidth))
        object.__setattr__(self, "latency_s", latency_s(latency))
        object.__setattr__(self, "written", f"{_written(bandwidth, 1e-6, 'MB/s')}, {_written(latency, 1e6, 'µs')}")

    def seconds(self, size_bytes: float) -> float:
        """Return the seconds from the first byte's departure to the last byte's arrival: alpha + n / beta."""
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s

    @override
    def __str__(self) -> str:
        return self.written


@dataclass(frozen=True)
class Nodes:
    """A topology of machines of `ranks` ranks each: rank r is on node r // ranks.

    `inside` is each rank's own link to the ranks of its node. `between` is a network card to other nodes. A node has `cards`,
    usually one: neighboring ranks share a card, which carries one message at a time each way. Real ranks share none.
    """

    ranks: int
    inside: Link
    between: Link
    cards: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.ranks, int) or isinstance(self.ranks, bool) or self.ranks < 1:
            raise ValueError(f"Nodes: expected ranks as a whole number of 1 or more, got {self.ranks!r}")
        if not isinstance(self.cards, int) or isinstance(self.cards, bool) or self.cards < 1 or self.ranks % self.cards:
            raise ValueError(
                f"Nodes: expected cards as a whole number that divides the {self.ranks} ranks of a node, got {self.cards!r}"
            )
        for name in ("inside", "between"):
            if not isinstance(getattr(self, name), Link):
                raise ValueError(f'Nodes: expected {name}=Link("100 GB/s", "2 us"), got {getattr(self, name)!r}')

    @override
    def __str__(self) -> str:
        each = f" on each of {self.cards} cards" if self.cards > 1 else ""
        return f"nodes of {self.ranks}: {self.inside} inside, {self.between} between{each}"


class LinkClock:
    """The passage of messages over one rank's `link`: its egress and its ingress carry one message at a time, in turn.

    Moments are seconds on any one clock: the shaper's, the broker's or a simulated one. A message leaves when it is posted, even
    if its receiver is not ready, and is cut through, so a single message takes alpha + n / beta (R. Hockney, 1994, doi
    10.1016/S0167-8191(06)80021-9). Without a link, messages take no time.
    """

    def __init__(self, link: Link | None) -> None:
        self.latency_s = link.latency_s if link else 0.0
        self._s_per_byte = 1 / link.bandwidth_bytes_per_s if link else 0.0
        self._egress_free_s = self._ingress_free_s = -math.inf

    def leave(self, size_bytes: int, posted_s: float) -> tuple[float, float]:
        """Return (when the first byte leaves this rank, when the last has left) for a message posted at `posted_s`."""
        first_s = max(posted_s, self._egress_free_s)
        self._egress_free_s = first_s + size_bytes * self._s_per_byte
        return first_s, self._egress_free_s

    def arrive(self, size_bytes: int, left_s: float) -> float:
        """Return the arrival of the last byte of a message whose first byte left its sender at `left_s`."""
        enters_s = max(left_s + self.latency_s, self._ingress_free_s)
        self._ingress_free_s = enters_s + size_bytes * self._s_per_byte
        return self._ingress_free_s
