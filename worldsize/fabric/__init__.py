"""The fabric: all that a rank needs to write any collective by hand, `send`, `isend`, `recv`, over any transport.

Importing this package does not import torch. Modules: `watched` (shows whose numbers are where), `collectives` (ready-made),
`background` (an all-reduce while the rank computes). `over_group` makes a fabric from an existing process group,
`among` one from some ranks of another.
"""

from worldsize.fabric.interface import MAX_TAG, Fabric, Handle
from worldsize.fabric.part import among
from worldsize.fabric.process_group import over_group
from worldsize.fabric.wire import SMALL_BYTES

__all__ = ["MAX_TAG", "SMALL_BYTES", "Fabric", "Handle", "among", "over_group"]
