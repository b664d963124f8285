"""The report of a machine with GPUs, to hand in with an issue: `python -m tests.support.gpu_report`.

It prints this machine's sheet, how its GPUs are connected, and what `tests/gpu` measured and found, as one block of text. The
tests themselves are `tests/gpu/test_gpu.py`. Left out: the labs; run those that interest you by `worldsize run`.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

import worldsize

ROOT = Path(__file__).resolve().parents[2]
TESTS = "tests/gpu/test_gpu.py"
LIMIT_S = 1800.0
_LAST = 12  # lines of a failed test's text
_WAY = re.compile(r"NCCL INFO Channel .*? via (\S+)")

NO_GPU = (
    "This machine has no GPU that CUDA can use (PyTorch {torch}), so there is nothing to report. On Kaggle choose the "
    "accelerator GPU T4 x2 in the notebook's settings, on Colab a runtime with a GPU; then run this cell again."
)


def ways_of_nccl(log: str) -> list[str]:
    """Return the ways by which NCCL says that its channels go, such as "SHM/direct/direct" or "P2P/IPC"."""
    return sorted(set(_WAY.findall(log)))


def printed_by(*command: str) -> str:
    """Return what a command prints, or why it printed nothing."""
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not here"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    return (done.stdout or done.stderr).strip()


def rows_of(report: str) -> list[str]:
    """Return the lines of pytest's JUnit report: each test with its outcome, what it printed, and a failure's last lines."""
    lines = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        found = {name: case.find(name) for name in ("failure", "error", "skipped", "system-out")}
        bad = found["failure"] if found["failure"] is not None else found["error"]
        outcome = "FAILED" if bad is not None else "skipped" if found["skipped"] is not None else "passed"
        lines.append(f"{outcome:8}{float(case.get('time', 0)):6.1f} s  {case.get('name')}")
        if found["skipped"] is not None:
            lines.append(f"        {found['skipped'].get('message')}")
        figures = (found["system-out"].text or "").splitlines() if found["system-out"] is not None else []
        lines += [f"        {line}" for line in figures if line.strip() and not line.startswith("---")]
        if bad is not None:
            lines += [f"        {line}" for line in (bad.text or "").splitlines()[-_LAST:]]
    return lines


def tests_report() -> str:
    """Run the GPU tests and return their lines. Raises RuntimeError if pytest itself cannot run."""
    with tempfile.TemporaryDirectory(prefix="worldsize-gpu-") as folder:
        file = Path(folder) / "report.xml"
        words = ("-q", "-p", "no:cacheprovider", f"--junitxml={file}", "-o", "junit_logging=system-out", TESTS)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words], capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT
        )
        if not file.exists():
            raise RuntimeError(f"expected pytest to run {TESTS}, got:\n{(done.stdout + done.stderr)[-2000:]}")
        return "\n".join([*rows_of(file.read_text()), done.stdout.strip().splitlines()[-1]])


def report(tests: str) -> str:
    """Return the whole report, given the lines of the tests."""
    from worldsize.doctor import examine

    commit = printed_by("git", "rev-parse", "--short", "HEAD")
    head = f"World Size {worldsize.__version__} ({commit}), {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.cuda.is_available() else "–"
    versions = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, NCCL {nccl}"
    between = printed_by("nvidia-smi", "topo", "-m")
    return "\n\n".join([head, versions, str(examine()), between, tests])


def main(words: Sequence[str]) -> int:
    """Print the report; returns 1 where there is no GPU."""
    if not torch.cuda.is_available():
        print(NO_GPU.format(torch=torch.__version__))
        return 1
    print("Some minutes: the tests of tests/gpu run now, then follows the report.", flush=True)
    text = report(tests_report())
    print(f"\nCopy all that follows into an issue, with the first and the last line:\n\n```text\n{text}\n```")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
