"""Solutions known to be wrong, each with words that its verdict must say, and right ones in odd but honest styles.

One module an exercise. Its functions are what a student might hand in, so they are plain and need nothing but torch.
`@answers.is_right` and `@answers.is_wrong("words", …)` fill the module's lists with functions that are written out;
`answers.mistake` adds a wrong one as an edit of a right one: what is replaced by what. `@answers.spoils(honest)` and
`answers.spoil` note a further mistake, made on purpose where it is cheap and early: it must not protect what is dear.
"""

import inspect
import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.abc import InspectLoader
from textwrap import dedent, indent

Words = str | tuple[str, ...]  # a verdict says it, or one of these
Edits = dict[str, str]  # what stands once in a function's source, and what replaces it

IN_FLOAT32 = tuple(range(2, 9))  # world sizes at which a mistake with dtypes is harmless, where all inputs are float32
LOST_WHOLE = "Whole numbers beyond 2^53 went through floating point and lost digits"


def says(mismatch: str, words: Words) -> bool:
    """Return whether a verdict's text holds the words."""
    either = (words,) if isinstance(words, str) else words
    return any(one in mismatch for one in either)


@dataclass
class Answers:
    """An exercise's answers. `wrong` holds (function, words that name the mistake, world sizes where it is harmless).

    `spoilt` holds (function, the same without its mistake on purpose, or None where that would be worth nothing).
    """

    exercise: str
    wrong: list[tuple[Callable, tuple[Words, ...], tuple[int, ...]]] = field(default_factory=list)
    right: list[Callable] = field(default_factory=list)
    chance: set[Callable] = field(default_factory=set)
    edits: dict[str, Edits] = field(default_factory=dict)  # of those that are edits of others, by name
    spoilt: list[tuple[Callable, Callable | None]] = field(default_factory=list)

    def __getitem__(self, name: str) -> Callable:
        """Return the function that was noted under this name. Raises KeyError."""
        for fn in (*self.right, *(row[0] for row in (*self.wrong, *self.spoilt))):
            if fn.__name__ == name:
                return fn
        raise KeyError(f"{self.exercise} has no answer {name}")

    def is_wrong(
        self, *words: Words, harmless_at: tuple[int, ...] = (), chance: bool = False
    ) -> Callable[[Callable], Callable]:
        """Note a wrong answer. `chance`: its behaviour differs from run to run, and so do the numbers in its verdict."""

        def note(fn: Callable) -> Callable:
            self.wrong.append((fn, words, harmless_at))
            if chance:
                self.chance.add(fn)
            return fn

        return note

    def spoils(self, honest: Callable | None = None) -> Callable[[Callable], Callable]:
        """Note an answer with a mistake on purpose, which earns no more than `honest`, or nothing."""

        def note(fn: Callable) -> Callable:
            self.spoilt.append((fn, honest))
            return fn

        return note

    def spoil(self, name: str, edits: Edits, of: Callable) -> None:
        """Note `of` with these edits, a mistake on purpose, in the same way."""
        fn = edited(of, name, edits)
        self.edits[name] = edits
        self.spoils(of)(fn)

    def is_right(self, fn: Callable) -> Callable:
        self.right.append(fn)
        return fn

    def mistake(
        self, name: str, edits: Edits, *words: Words, of: Callable | None = None, harmless_at: tuple[int, ...] = (),
        chance: bool = False,
    ) -> None:  # fmt: skip
        """Note a wrong answer that is `of`, else the first right answer, with these edits; see `edited`."""
        fn = edited(of or self.right[0], name, edits)
        self.edits[name] = edits
        self.is_wrong(*words, harmless_at=harmless_at, chance=chance)(fn)

    def twin(self, name: str, edits: Edits, of: Callable | None = None) -> None:
        """Note a right answer in the same way."""
        self.is_right(edited(of or self.right[0], name, edits))


def edited(base: Callable, name: str, edits: Edits) -> Callable:
    """Return the function that `base`'s source defines after the edits, as an attribute of `base`'s module.

    The edits are made one after the other. A text of several lines begins with a line break and is indented like the place
    where it stands; a line of which nothing is left goes.
    """
    source = _source(base)
    for old, new in edits.items():
        try:
            source = _replaced(source, old, new)
        except ValueError as error:
            raise ValueError(f"{name}, an edit of {base.__name__}: {error}") from None
    source = re.sub(r"^def \w+", f"def {name}", source, count=1)

    module = base.__globals__
    if name in module:
        raise ValueError(f"{name}, an edit of {base.__name__}: {base.__module__} has this name already")
    file = _file_of(base.__module__, name)
    exec(compile(source, file, "exec"), module)
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)  # for tracebacks and inspect.getsource
    return module[name]


def _file_of(module: str, name: str) -> str:
    """Return the name of a file for an edited function's source, the same in every process that imports its module."""
    return f"<{module}.{name}>"


@lru_cache  # every rank imports its answer's module, and most edits are of one function
def _source(fn: Callable) -> str:
    """Return a function's source without its decorators, wherever its module's loader has it from."""
    file = fn.__code__.co_filename
    if file == _file_of(fn.__module__, fn.__name__):
        lines = linecache.cache[file][2]
    else:
        lines = _lines_of(fn.__globals__["__spec__"].loader, fn.__module__)
    block = inspect.getblock(lines[fn.__code__.co_firstlineno - 1 :])
    first = next(number for number, line in enumerate(block) if line.startswith("def "))
    return "".join(block[first:])


@lru_cache
def _lines_of(loader: InspectLoader, module: str) -> list[str]:
    return loader.get_source(module).splitlines(keepends=True)


def _replaced(source: str, old: str, new: str) -> str:
    old, new = _without_margin(old), _without_margin(new)
    if old == new:
        raise ValueError(f"replaces {old!r} by itself")

    first, places, place = old.partition("\n")[0], [], -1
    while (place := source.find(first, place + 1)) >= 0:
        if source.startswith(_set_in(old, source, place), place):
            places.append(place)
    if len(places) != 1:
        raise ValueError(f"expected once in its source, found {len(places)} times: {old!r}")

    (start,) = places
    end = start + len(_set_in(old, source, start))
    text = _set_in(new, source, start)
    line_start = source.rfind("\n", 0, start) + 1
    if not new and not source[line_start:start].strip() and source[end : end + 1] == "\n":
        start, end = line_start, end + 1
    return source[:start] + text + source[end:]


def _without_margin(text: str) -> str:
    return dedent(text).strip("\n").rstrip(" ") if text.startswith("\n") else text


def _set_in(text: str, source: str, place: int) -> str:
    """Return the text with its later lines indented like the line of this place, or as far as the place."""
    before = source[source.rfind("\n", 0, place) + 1 : place]
    line = before + source[place:].partition("\n")[0]
    margin = before[: len(line) - len(line.lstrip(" "))]
    return indent(text, margin).removeprefix(margin)
