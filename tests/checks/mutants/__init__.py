"""Solutions known to be wrong, each with words that its verdict must say, and right ones in odd but honest styles.

One module an exercise. `@wrong("words", …)` and `@right` fill that module's lists; the functions are what a student
might hand in, so they are plain and need nothing but torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Words = str | tuple[str, ...]  # a verdict says it, or one of these

IN_FLOAT32 = tuple(range(2, 9))  # world sizes at which a mistake with dtypes is harmless, where all inputs are float32


def says(mismatch: str, words: Words) -> bool:
    """Whether a verdict's text holds the words."""
    either = (words,) if isinstance(words, str) else words
    return any(one in mismatch for one in either)


@dataclass
class Answers:
    """An exercise's answers. `wrong` holds (function, words that name the mistake, world sizes where it is harmless)."""

    exercise: str
    wrong: list[tuple[Callable, tuple[Words, ...], tuple[int, ...]]] = field(default_factory=list)
    right: list[Callable] = field(default_factory=list)
    chance: set[Callable] = field(default_factory=set)

    def is_wrong(
        self, *words: Words, harmless_at: tuple[int, ...] = (), chance: bool = False
    ) -> Callable[[Callable], Callable]:
        """`chance`: what it does differs from run to run, and so do the numbers in its verdict."""

        def note(fn: Callable) -> Callable:
            self.wrong.append((fn, words, harmless_at))
            if chance:
                self.chance.add(fn)
            return fn

        return note

    def is_right(self, fn: Callable) -> Callable:
        self.right.append(fn)
        return fn
