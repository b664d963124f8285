"""What a student's run of a lab takes of a machine's memory: the table in docs/instructors.md.

    python -m tests.support.lab_memory 00 06      # runs their solutions; without numbers, all of them

The largest sum over all processes of a run, twice a second, of their proportional set sizes (PSS): a page that n processes
share counts a n-th for each, so that the sum is what the machine gives. Left out: JupyterLab's own server.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
_LOOK_S, _MOST_S = 0.5, 3600.0


def pss_bytes(process: psutil.Process) -> int:
    """Of one process, 0 where it has ended."""
    with suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process.pid}/smaps_rollup").read_text(), re.MULTILINE)
        return 1024 * int(found[1]) if found else 0
    return 0


def measured(source: Path) -> tuple[int, int, float]:
    """Bytes and processes at most, and seconds, of a run of a solution's notebook in a folder of its own."""
    began_s = time.monotonic()
    most_bytes = most_processes = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shutil.copy(source, folder)
        command = [sys.executable, "-m", "worldsize.cli", "run", str(Path(folder) / source.name)]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        run = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            while run.poll() is None and time.monotonic() < began_s + _MOST_S:
                with suppress(psutil.NoSuchProcess):
                    own = psutil.Process(run.pid)
                    tree = [own, *own.children(recursive=True)]
                    most_bytes = max(most_bytes, sum(map(pss_bytes, tree)))
                    most_processes = max(most_processes, len(tree))
                time.sleep(_LOOK_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    return most_bytes, most_processes, time.monotonic() - began_s


def main(numbers: list[str]) -> None:
    for source in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.ipynb")):
        if not numbers or source.stem[:2] in numbers:
            most_bytes, processes, seconds = measured(source)
            sys.stdout.write(f"| {source.stem[:2]} | {most_bytes / 1e9:.1f} | {processes} | {seconds:.0f} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
