"""Whether this machine can give ranks a network of their own, found out without asking the package."""

import functools
import os
import shutil
import subprocess
import sys

_LIMIT_S = 20
_WITH_LOOPBACK = ["unshare", "--user", "--map-root-user", "--net", "ip", "link", "set", "lo", "up"]


@functools.cache
def why_not() -> str:
    """One sentence that says why ranks share the machine's network here; empty if they need not."""
    if not sys.platform.startswith("linux"):
        return "only Linux has network namespaces"
    if any(os.path.exists(device) for device in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")):
        return "this machine has GPUs"
    missing = [program for program in ("ip", "unshare") if shutil.which(program) is None]
    if missing:
        return f"whether namespaces are allowed is not known without the programs {', '.join(missing)}"
    tried = subprocess.run(_WITH_LOOPBACK, capture_output=True, text=True, timeout=_LIMIT_S)
    return f"this machine refuses namespaces: {tried.stderr.strip()}" if tried.returncode else ""
