"""Importing this module is the first that a fork server does: no garbage is collected until all else is imported.

Collections take a fifth of the time that torch's import takes, and there is no garbage to find. Left out: when collections
begin again (`late_imports.py`).
"""

from __future__ import annotations

import gc

gc.disable()
