"""The parts of the long campaigns, `make soak PART=…`: one table from a test's folder to its part."""

from pathlib import PurePosixPath

# the longest path that a test's file begins with decides
PARTS: dict[str, tuple[str, ...]] = {
    "answers": ("tests/checks",),
    "draws": ("tests/checks/test_seeds.py", "tests/checks/test_pasted_answers.py", "tests/checks/test_large_batches.py"),
    "words": ("tests/checks/test_drawn_words.py",),
    "labs": ("tests/labs", "tests/lab", "tests/authoring", "tests/journeys/test_ci.py", "tests/journeys/test_jupyter.py"),
    "engines": (
        "tests/engines", "tests/fabric", "tests/launch", "tests/pytorch", "tests/ranks", "tests/simulate", "tests/tf",
        "tests/gpu",
        "tests/formulas", "tests/soak/test_launch_soak.py", "tests/soak/test_tensorflow_soak.py", "tests/test_bench.py",
        "tests/journeys/test_own_script.py", "tests/checks/test_in_a_notebook.py",
    ),
    "hosts": ("tests/hosts", "tests/journeys/test_engineer.py"),
    "grading": (
        "tests/cells", "tests/grade", "tests/test_instructors.py",
        "tests/journeys/test_instructor.py", "tests/journeys/test_messy_class.py",
    ),
    "browser": ("tests/browser", "tests/live", "tests/labs/test_labs_in_jupyter.py"),
    "site": (
        "tests/labs/test_site.py", "tests/labs/test_site_pages.py", "tests/figures", "tests/pages",
        "tests/test_architecture.py", "tests/soak/test_fresh_environment.py", "tests",
    ),
}  # fmt: skip


def part_of(file: str) -> str:
    """Return the part that the tests of `file` belong to; `file` is a path below the repository's root."""
    path = PurePosixPath(file)
    rows = [(start, part) for part, starts in PARTS.items() for start in starts if path.is_relative_to(start)]
    return max(rows, key=lambda row: len(row[0]))[1]
