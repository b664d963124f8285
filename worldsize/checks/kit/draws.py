"""Drawing a case anew until it tells: until, say, no known mistake gives the right result in it by chance."""

from collections.abc import Callable
from typing import TypeVar

MOST_DRAWS = 1000
Drawn = TypeVar("Drawn")


def drawn_until(tells: Callable[[Drawn], bool], draw: Callable[[], Drawn], what: str, most: int = MOST_DRAWS) -> Drawn:
    """Return the first draw of a case that `tells`. Raises AssertionError, which names `what` was drawn, after `most`."""
    for _ in range(most):
        drawn = draw()
        if tells(drawn):
            return drawn
    raise AssertionError(f"{what}: {most} draws, and none will do")
