"""`launch(fn, world_size)`: run a function on real ranks, in fresh processes, and return everything that they did.

Import from here: the calls are in `launch_function`, a job's execution in `execute`, its result in `run`.
"""

from worldsize.launch.launch_function import last_run, launch, quiet_launch, warm
from worldsize.launch.run import Run, unobserved

__all__ = ["Run", "last_run", "launch", "quiet_launch", "unobserved", "warm"]
