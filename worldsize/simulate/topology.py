"""The network between simulated ranks: one link for all, or nodes with a link inside and network cards between them.

`links.LinkClock` times the messages, for real and for simulated ranks.
"""

from worldsize.links import Link, LinkClock, Nodes


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
