"""Ranks that stay, for tests: four that a module shares, and as many of a test's own as it likes."""

from collections.abc import Callable, Iterator

import pytest

from worldsize.ranks import OpenRanks, open_ranks


@pytest.fixture(scope="module")
def four() -> Iterator[OpenRanks]:
    """Four ranks that the tests of a module share: a test that ends one takes ranks of its own."""
    with open_ranks(4) as world:
        yield world


@pytest.fixture
def opened() -> Iterator[Callable[..., OpenRanks]]:
    """Opens ranks of the test's own, which are closed after it."""
    worlds: list[OpenRanks] = []

    def open_more(*args, **kwargs) -> OpenRanks:
        worlds.append(open_ranks(*args, **kwargs))
        return worlds[-1]

    yield open_more
    for world in worlds:
        world.close()
