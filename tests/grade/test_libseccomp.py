"""libseccomp by its C functions: names of calls, rules, the program; what the filters refuse is tried in `test_isolation`."""

import struct

import pytest

from worldsize.grade.isolation.libseccomp import ALLOW, EQ, Condition, SyscallFilter, errno, number_of

pytestmark = pytest.mark.quick


def actions(program: bytes) -> set[int]:
    """What the rows that return can return."""
    rows = struct.iter_unpack("@HBBI", program)
    return {value for code, _, _, value in rows if code == 0x06}


def test_a_call_has_its_number_and_an_unknown_one_none():
    assert number_of("no_such_call") is None
    assert number_of("getpid") != number_of("read") and number_of("getpid") >= 0


def test_a_program_holds_the_actions_of_its_rules_and_the_one_for_every_other_call():
    rules = SyscallFilter(errno(1))
    rules.add_rule(ALLOW, number_of("read"), ())
    rules.add_rule(errno(38), number_of("write"), [Condition(0, EQ, 7)])
    program = rules.program()
    assert len(program) % 8 == 0
    assert {ALLOW, errno(1), errno(38)} <= actions(program)


def test_what_libseccomp_refuses_is_an_error_with_its_reason():
    rules = SyscallFilter(errno(1))
    with pytest.raises(OSError, match="libseccomp: "):
        rules.add_rule(errno(1), number_of("read"), ())  # the same as for every other call
