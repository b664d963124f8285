"""The answers of every exercise, wrong and right: one module of `tests.checks.mutants` each."""

from importlib import import_module
from pathlib import Path

from tests.checks.mutants import Answers

FOLDER = Path(__file__).resolve().parents[1] / "checks" / "mutants"
ANSWERS: list[Answers] = [
    import_module(f"tests.checks.mutants.{path.stem}").answers for path in sorted(FOLDER.glob("[a-z]*.py"))
]
