"""What a submission has replaced of the course's package is named, and what it only uses is not."""

import pytest

from tests.support.graded_arena import arena_of
from worldsize.grade.outside.arena import Submitted

CHANGES = {
    "worldsize.fabric.interface.Fabric.isend": "from worldsize.fabric import Fabric\nFabric.isend = lambda *given: None",
    "worldsize.fabric.collectives.all_reduce": "import worldsize.fabric.collectives as c\nc.all_reduce = lambda *_: None",
    "worldsize.links.Link.added": "from worldsize.links import Link\nLink.added = lambda self: 1",
    "worldsize.checks.drivers.on_ranks.answers": "from worldsize.checks.drivers import on_ranks\non_ranks.answers = lambda *_: 1",
    "worldsize.units.count": "import worldsize.units as u\nu.count.__code__ = (lambda number, name: name).__code__",
}
PLAIN = """
from worldsize.fabric import Fabric
from worldsize.fabric.background import Background
from worldsize.checks.drivers import on_ranks

class Own(Fabric):
    def send(self, *given): pass

kept = [Own, Background, on_ranks]
"""
FUNCTION = "\ndef plain(x):\n    return x\n"


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_replaced_is_named(sandbox, name):
    arena = arena_of(sandbox, CHANGES[name] + FUNCTION)
    assert arena.call(Submitted("plain"), 1.0).returned == (1.0,)
    assert arena.changed == {name}


def test_what_hides_a_method_of_an_object_is_named(sandbox):
    arena = arena_of(sandbox, "\nkept = []\ndef hides(fabric, x):\n    fabric.isend = None\n    kept.append(fabric)")
    arena.ranks(Submitted("hides"), [1.0])
    assert arena.changed == {"worldsize.fabric.interface.Fabric.isend"}


def test_subclasses_and_later_imports_are_no_change(sandbox):
    arena = arena_of(sandbox, PLAIN + FUNCTION)
    arena.call(Submitted("plain"), 1.0)
    assert arena.changed == set()
