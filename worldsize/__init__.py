"""World Size: a course on distributed training that launches real ranks and shows every message they send.

This module holds the version and nothing else, and importing it has no side effect: ranks and agents import it
too. A notebook imports its front, `from worldsize.notebook import *`; other code imports the module that it needs.
"""

__version__ = "0.2.0"
