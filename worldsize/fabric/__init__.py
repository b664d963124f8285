"""What a rank needs to write any collective by hand: `send`, `isend`, `recv`, over whatever moves the bytes.

Importing this face brings no torch. Beside it: `watched` (sees whose numbers are where), `collectives` (given ones),
`background` (an all-reduce while the rank computes). `over_group` makes a fabric of a process group that is there already.
Left out: how ranks come to be (`engines`).
"""

from __future__ import annotations

from worldsize.fabric.interface import MAX_TAG, SMALL_BYTES, Fabric, Handle
from worldsize.fabric.process_group import over_group

__all__ = ["MAX_TAG", "SMALL_BYTES", "Fabric", "Handle", "over_group"]
