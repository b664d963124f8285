"""Faults that measure the tests: drawn from a seed, planted where they were drawn, and gone afterwards."""

import pytest

from tests.support import door_faults
from tests.support.planted_faults import choose, plant, restore

SOURCE = '''"""Rates."""


def share(part, whole, seen):
    """Return the share of `part`, at least 0."""
    if part < whole:
        seen.append(part)
    return part + 2 * whole


def words(part):
    return f"{part + 1} of them"
'''


@pytest.fixture
def checkouts(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name / "worldsize" / "formulas").mkdir(parents=True)
        (tmp_path / name / "worldsize" / "formulas" / "rates.py").write_text(SOURCE)
    return tmp_path / "one", tmp_path / "other"


def test_a_seed_draws_the_same_faults_each_time_and_another_draws_others(checkouts):
    one, again = (choose(*checkouts, seed, 5) for seed in (1, 1))
    assert one == again and len(one) == 1  # a function has one
    assert len({fault for seed in range(40) for fault in choose(*checkouts, seed, 5)}) >= 5


def test_a_fault_is_one_edit_of_a_function_and_never_of_its_words(checkouts):
    root, file = checkouts[0], checkouts[0] / "worldsize/formulas/rates.py"
    for fault in {fault for seed in range(40) for fault in choose(*checkouts, seed, 5)}:
        plant(root, fault)
        changed = [new for old, new in zip(SOURCE.splitlines(), file.read_text().splitlines(), strict=True) if old != new]
        assert fault.name == "share" and len(changed) == 1 and fault.new in changed[0]
        restore(root, {fault.path: SOURCE})
    assert file.read_text() == SOURCE


def test_a_function_that_the_other_checkout_has_changed_gets_no_fault(checkouts):
    (checkouts[1] / "worldsize/formulas/rates.py").write_text(SOURCE.replace("2 * whole", "3 * whole"))
    assert choose(*checkouts, 1, 5) == []


def test_a_function_whose_docstring_alone_differs_gets_the_same_fault_in_both(checkouts):
    other = checkouts[1] / "worldsize/formulas/rates.py"
    other.write_text(SOURCE.replace("Return the share", "The share of a part.\n\n    It is"))
    (fault,) = choose(*checkouts, 1, 5)
    for root in checkouts:
        before = (root / fault.path).read_text()
        plant(root, fault)
        assert (root / fault.path).read_text().count(fault.new) > before.count(fault.new)


def test_a_line_that_no_test_executes_gets_no_fault(checkouts):
    faults = [fault for seed in range(20) for fault in choose(*checkouts, seed, 5, {"worldsize/formulas/rates.py": {6}})]
    assert faults and {fault.at for fault in faults} == {6}


JOINS = '''"""Hands on."""

from typing_extensions import override

from worldsize.engines import base

NAMES = ["first", "second", "third"]


class Server(base.Server):
    @override
    def label(self):
        return "a server"

    @override
    def start(self, limits):
        row = {"op": limits.op, "memory_bytes": limits.memory_bytes}
        environment = {"OMP_NUM_THREADS": "1"}
        return base.begin(row["op"], limits=limits, env=environment)
'''


@pytest.fixture
def joined(tmp_path):
    (tmp_path / "worldsize" / "engines").mkdir(parents=True)
    (tmp_path / "worldsize" / "engines" / "join.py").write_text(JOINS)
    return tmp_path


def test_a_seed_draws_the_same_faults_of_every_kind_where_rooms_join(joined):
    one, again = (door_faults.choose(joined, 1, 6) for _ in range(2))
    assert one == again and {fault.kind for fault in one} == {"override", "list of names", "argument", "environment", "format"}
    assert len({fault for seed in range(30) for fault in door_faults.choose(joined, seed, 6)}) >= 8


def test_a_fault_where_rooms_join_is_one_edit_of_one_line(joined):
    file = joined / "worldsize/engines/join.py"
    for fault in {fault for seed in range(30) for fault in door_faults.choose(joined, seed, 6)}:
        plant(joined, fault)
        changed = [new for old, new in zip(JOINS.splitlines(), file.read_text().splitlines(), strict=True) if old != new]
        assert len(changed) == 1 and fault.new in changed[0] and fault.room == "engines", fault
        restore(joined, {fault.path: JOINS})
