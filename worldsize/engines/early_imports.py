"""The first module that a fork server imports: it disables garbage collection until all else is imported.

Collections would take a fifth of torch's import time, with no garbage to find. `late_imports.py` enables them again.
"""

import gc

gc.disable()
