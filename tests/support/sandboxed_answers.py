"""An answer of `tests.checks.mutants` as the cells of a submission: a sandbox has no tests to import."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.answers import FOLDER
from worldsize.grade.host.arena import Cells

# The package `mutants`, made of its sources, in a sandbox that has no tests to import.
MUTANTS = "tests.checks.mutants"
PACKAGES = ("tests", "tests.checks", MUTANTS)
TEXTS = {name: "" for name in PACKAGES}
TEXTS |= {f"{MUTANTS}.{path.stem}".removesuffix(".__init__"): path.read_text() for path in FOLDER.glob("*.py")}
PACKAGE = f"""
import sys
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
SOURCES, PACKAGES = {TEXTS!r}, {PACKAGES!r}

class Sources(MetaPathFinder, InspectLoader):
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=name in PACKAGES) if name in SOURCES else None
    def get_source(self, name):
        return SOURCES[name]
    def is_package(self, name):
        return name in PACKAGES

sys.meta_path.insert(0, Sources())
"""
PICK = """
from importlib import import_module
answers = import_module("tests.checks.mutants.{module}").answers
answer = [fn for fn in (*answers.right, *(row[0] for row in answers.wrong)) if fn.__name__ == "{name}"][0]
"""


def cells_of(answer: Callable) -> Cells:
    """Return the cells that make this answer, under the name `answer`."""
    module = answer.__module__.rpartition(".")[2]
    return [["Set-up 1", PACKAGE], ["Exercise 1.1", PICK.format(module=module, name=answer.__name__)]]
