"""World Size: a course on distributed training that launches real ranks and shows every message they send.

This module holds only the version, and importing it has no side effect, because ranks and agents import it too. Notebooks use
`from worldsize.notebook import *`; other code imports the module that it needs.
"""

__version__ = "0.2.0"
