"""The network between simulated ranks: one link for all, or nodes with a link inside and network cards between them.

`links.LinkClock` times the messages, for real and for simulated ranks.
"""

from dataclasses import dataclass

from typing_extensions import override

from worldsize.links import Link, LinkClock


@dataclass(frozen=True)
class Nodes:
    """A topology of machines of `ranks` ranks each: rank r is on node r // ranks.

    `inside` is each rank's own link to the ranks of its node. `between` is a network card to other nodes. A node has `cards`,
    usually one: neighboring ranks share a card, which carries one message at a time each way.
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


class Clocks:
    """The link clocks of all simulated ranks."""

    def __init__(self, world_size: int, link: Link | None, nodes: Nodes | None) -> None:
        self.node_ranks, self._card_ranks = 0, 1
        if nodes is not None:
            self.node_ranks, self._card_ranks, link = nodes.ranks, nodes.ranks // nodes.cards, nodes.inside
            self._cards = [LinkClock(nodes.between) for _ in range(-(-world_size // self._card_ranks))]

        self.own = [LinkClock(link) for _ in range(world_size)]

    def shared(self, src: int, dst: int) -> bool:
        """Return True if a message between these ranks uses network cards, for which other ranks queue up too."""
        size = self.node_ranks
        return bool(size) and src // size != dst // size

    def card(self, rank: int) -> LinkClock:
        """Return the topology's network card that `rank` uses."""
        return self._cards[rank // self._card_ranks]
