"""The wire over gloo, where a message's size decides how it travels: with its header, or after it and asked for early."""

import numpy as np
import pytest
import torch

from worldsize.fabric.gloo import SMALL_BYTES
from worldsize.launch import launch

LARGE = SMALL_BYTES // 4 + 1000  # float32 elements


def exchange(fabric, given, into, tag):
    """Rank 0 sends `given` in turn; rank 1 says whether each arrived in a tensor like `into`, or what it was told."""
    if fabric.rank == 0:
        return [fabric.isend(x, 1, tag=tag) is not None for x in given]
    said = []
    for x, out in zip(given, into, strict=True):
        try:
            fabric.recv(out, 0, tag=tag)
            said.append(bool(torch.equal(out, x)))
        except ValueError as error:
            return str(error)
    return said


def received(given, into=None, tag=0):
    into = into or [torch.empty(x.shape, dtype=x.dtype) for x in given]
    return launch(exchange, 2, args=(given, into, tag), timeout_s=30)[1]


def test_a_message_arrives_unchanged_on_both_sides_of_the_limit():
    sizes = (SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, 3_000_001)
    assert received([(torch.arange(size_bytes) % 251).to(torch.uint8) for size_bytes in sizes]) == [True] * 4


IN_SOAK = [pytest.param(length, marks=pytest.mark.soak) for length in (LARGE - 1, 2 * LARGE)]


@pytest.mark.parametrize("length", [LARGE + 1, 10, *IN_SOAK])
def test_a_large_message_of_another_size_is_a_value_error_on_the_receiver(length):
    said = received([torch.zeros(length)], [torch.zeros(LARGE)])
    assert f"expected float32[{LARGE}]" in said and f"got float32[{length}]" in said


def test_a_large_message_of_another_dtype_and_the_same_size_is_a_value_error():
    said = received([torch.zeros(LARGE)], [torch.zeros(LARGE, dtype=torch.int32)])
    assert f"expected int32[{LARGE}]" in said and f"got float32[{LARGE}]" in said


def test_sizes_that_share_a_tag_of_gloo_keep_their_order():
    sizes = [SMALL_BYTES + 1 + 65521 * k for k in (0, 2, 1, 0)]
    assert received([torch.full((n,), k, dtype=torch.uint8) for k, n in enumerate(sizes)]) == [True] * 4


@pytest.mark.parametrize("tag", [2**15 - 1, np.int8(100)])
def test_a_message_of_any_size_travels_under_a_large_tag(tag):
    assert received([torch.ones(3), torch.ones(LARGE)], tag=tag) == [True, True]


def test_a_conjugated_view_travels_as_its_values():
    assert received([torch.full((length,), 1 + 2j).conj() for length in (4, LARGE)]) == [True, True]


def test_an_empty_message_of_numpys_memory_travels():
    assert received([torch.from_numpy(np.zeros(0)), torch.ones(3, dtype=torch.float64)]) == [True, True]


def test_a_large_message_is_received_from_anyone():
    def gather(fabric):
        if fabric.rank:
            fabric.send(torch.full((LARGE,), float(fabric.rank)), 0)
            return None
        out = torch.empty(LARGE)
        return all(float(fabric.recv(out)) == out[0] == out[-1] for _ in range(2))

    assert launch(gather, 3, timeout_s=30)[0] is True
