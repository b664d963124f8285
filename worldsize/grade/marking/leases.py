"""Leases on rows: lock files that let several gradings share a folder, on network file systems too."""

from pathlib import Path

from filelock import SoftFileLease, Timeout

LEASE_S = 60.0  # a lease expires after this long without renewal


def lease(out: Path, row_name: str) -> SoftFileLease:
    """Return the lease of a row in the folder of grades `out`; to acquire a held one raises filelock's Timeout at once."""
    return SoftFileLease(out / "leases" / f"{row_name}.lease", lease_duration=LEASE_S, timeout=0, thread_local=False)


def holders(out: Path) -> list[str]:
    """Return the machines and processes that hold a row of this folder now."""
    found = set()
    for path in (out / "leases").glob("*.lease"):
        held = lease(out, path.name.removesuffix(".lease"))
        try:
            held.acquire()
        except Timeout:
            if owner := held.owner:
                found.add(f"process {owner.pid} on {owner.hostname}")
        else:
            held.release()
    return sorted(found)
