"""A function as it would be handed in, and the namespace that the cells that count make by themselves."""

from types import SimpleNamespace

import pytest

from worldsize.lab import handed_in
from worldsize.lab.handed_in import as_handed_in, missing_names, rebuild
from worldsize.titles import title_of

pytestmark = pytest.mark.quick

SETUP = "# Set-up\nimport math"
FIRST = "# Exercise 6.1: a server\ndef server(x):\n    return math.floor(x)"
SECOND = "# Exercise 6.2: a ring\ndef ring(x):\n    return server(x) + helper(x)"


def test_the_rebuilt_namespace_has_what_the_cells_define_and_no_more():
    namespace = rebuild([SETUP, FIRST])
    assert namespace["server"](2.7) == 2
    assert namespace.keys() - {"__builtins__"} == {"__name__", "math", "server"}


def test_a_cell_that_fails_does_not_stop_the_others():
    assert "ring" in rebuild(["# Exercise 6.1: broken\n1 / 0", SECOND])


def test_missing_names_are_found_through_the_functions_that_a_function_calls():
    caller = "# Exercise 6.3: calls\ndef caller(x):\n    return [ring(y) for y in x]"
    namespace = rebuild([SETUP, FIRST, SECOND, caller])
    assert missing_names(namespace["caller"], namespace) == ["helper"]


def test_builtins_attributes_and_locals_are_not_missing():
    source = "# Exercise 6.1: fine\ndef fine(x):\n    total = sum(x)\n    return math.pi, total.real, [y for y in x]"
    namespace = rebuild([SETUP, source])
    assert missing_names(namespace["fine"], namespace) == []


def test_two_constants_on_one_line_go_along_both(monkeypatch):
    answer = "# Exercise 6.1: a sum\ndef total(x):\n    return A + B + x"
    shell = SimpleNamespace(user_ns={"In": ["", "A = 1; B = 2", answer]})
    monkeypatch.setattr(handed_in, "notebook_shell", lambda: shell)
    ran = rebuild([answer])["total"]
    assert as_handed_in(ran, "total", {"total": title_of(answer)})(0) == 3
