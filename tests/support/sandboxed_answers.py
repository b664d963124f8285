"""An answer of `tests.checks.mutants` as the cells of a submission: a sandbox has no tests to import."""

import re
from collections.abc import Callable

from tests.support.answers import FOLDER
from worldsize.grade.outside.arena import Cells

# The package `mutants`, made of its sources, in a sandbox that has no tests to import.
MUTANTS = "tests.checks.mutants"
PACKAGES = ("tests", "tests.checks", MUTANTS)
SOURCES = {path.stem: path.read_text() for path in FOLDER.glob("*.py")}
IMPORTED = re.compile(rf"^from {re.escape(MUTANTS)}(?:\.(\w+))? import (.*)", re.MULTILINE)
PACKAGE = """
import sys
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
SOURCES, PACKAGES = {texts!r}, {packages!r}

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
answer = import_module("tests.checks.mutants.{module}").answers["{name}"]
"""


def cells_of(answer: Callable) -> Cells:
    """Return the cells that make this answer, under the name `answer`."""
    module = answer.__module__.rpartition(".")[2]
    texts = {name: "" for name in PACKAGES} | {MUTANTS: SOURCES["__init__"]}
    texts |= {f"{MUTANTS}.{name}": SOURCES[name] for name in _with_imported(module)}
    pick = PICK.format(module=module, name=answer.__name__)
    return [["Set-up 1", PACKAGE.format(texts=texts, packages=PACKAGES)], ["Exercise 1.1", pick]]


def _with_imported(module: str) -> set[str]:
    """Return the names of this module and of those that it takes from, for a rank reads no more than its answer needs."""
    found, ahead = set(), {module}
    while ahead:
        found |= ahead
        rows = [row for name in ahead for row in IMPORTED.findall(SOURCES[name])]
        named = {name for taken, names in rows for name in ([taken] if taken else re.findall(r"\w+", names))}
        ahead = {name for name in named if name in SOURCES} - found
    return found
