"""Each bench in its smallest form: it runs to its end, prints its ratios and draws its picture. No time is judged.

The usual suite runs one of them, the soak all.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import namespaces
from worldsize.formulas import measured_clusters

SOAK = pytest.mark.soak
IN_SUITE = "ring"
ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"[0-9.e+-]+"
RATIOS = {
    "grading": rf"nbgrader / ours: {NUMBER}$",
    "launch": rf"ours / notebook_launcher, 2 ranks at most 2: {NUMBER}, ",
    "strategies": rf"by hand / ours: Mirrored, 4 devices at least 2: {NUMBER}, ",
    "ring": rf"2 ranks, 1 MB +{NUMBER} +{NUMBER} +{NUMBER}$",
    "pipeline": rf"ranks / player, interleaved, 2 stages at most 1.1: {NUMBER}, ",
    "simulated": rf"simulated / real, median error at most 0.1: {NUMBER}, ",
    "fabric": rf"recorded / bare at 1 MB at most 1.03: {NUMBER}, (?s:.*)measured / alpha-beta at .*: {NUMBER}, ",
    "stay": rf"all-reduce cell less the same in a launch, 2 ranks, ms at most 5: {NUMBER}, (?s:.*)memory / a launch's, 2 ranks",
    "hosts": rf"ours, warm, 4 ranks on 2 hosts, s at most 0.25: {NUMBER}, ",
}


@pytest.mark.parametrize("name", [name if name == IN_SUITE else pytest.param(name, marks=SOAK) for name in RATIOS])
def test_a_bench_prints_its_ratios_and_draws_them(name: str, tmp_path: Path) -> None:
    if name == "hosts" and (reason := namespaces.why_not()):
        pytest.skip(reason)
    command = [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--smoke", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert re.search(RATIOS[name], done.stdout, re.MULTILINE), done.stdout
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@SOAK
def test_the_bench_of_grading_says_whether_its_cost_grows(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "grading.py"), "--smoke", "--flat", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"cost of the most / of the fewest at most 1.1: {NUMBER}, ", done.stdout), done.stdout


@SOAK
def test_the_bench_of_launch_compares_with_another_checkout(tmp_path: Path) -> None:
    words = ["--only", "worldsize", "--against", str(ROOT), "--smoke", "--out", str(tmp_path)]
    command = [sys.executable, str(ROOT / "bench" / "launch.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"this checkout / the other, 2 ranks, upper end at most 1.05: {NUMBER}, ", done.stdout), done.stdout


@SOAK
def test_the_table_of_the_fit_to_measured_clusters_has_a_line_for_every_term() -> None:
    command = [sys.executable, str(ROOT / "bench" / "clusters.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert all(f"\n{term} " in done.stdout for term in measured_clusters.TERMS)
    assert "these rows drawn anew" in done.stdout and "of all 109 at random" in done.stdout


def test_every_bench_that_needs_no_browser_and_no_hub_has_its_smallest_form_tested() -> None:
    benches = {path.stem for path in (ROOT / "bench").glob("*.py")}
    assert benches - {"report", "live", "clusters", "hub"} == set(RATIOS)
