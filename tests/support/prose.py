"""Rules of plain English that a machine can hold, for docstrings of the package and for documents: see docs/style.md.

`sentences` cuts a text, `Rule.finds` judges one sentence. A rule is here only if it gives no false alarm on the whole package.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MOST_WORDS = 40  # in a sentence, as commas leave it: a colon or a semicolon ends it too
_END = re.compile(r"(?<=[.?!:;])[*_)]*\s+|\n\s*\n|\n(?=\s*(?:[-*>]|\d+\.)\s)|\s*\|\s*")
_MARKS = re.compile(r"^(?:[-*>#_\s]|\d+\.\s)+")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_QUOTED = re.compile(r'"[^"]*"')  # what a program prints, or a word that is spoken of
_SET_OFF = re.compile(r"(?<=\n) {4,}\S.*")  # a formula, a table or a command in a docstring
_FENCE = re.compile(r"^ *(`{3,})[^\n]*\n.*?^ *\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
_BEFORE = re.compile(r"^(\| before \| after \|\n.*?)(?=^(?!\|)|\Z)", re.MULTILINE | re.DOTALL)


class Sentence(NamedTuple):
    """A sentence of `file`, from `line` on; `judged` is its text without quotations.

    `of` says whose docstring the sentence begins, "" if it begins none.
    """

    file: str
    line: int
    text: str
    judged: str
    of: str = ""


class Rule(NamedTuple):
    """A pattern that no sentence may hold, with an example from our own history.

    With `of`, the rule is about the first sentence of a docstring: of a "function", or of "any" definition.
    """

    name: str
    pattern: re.Pattern[str]
    before: str
    after: str
    of: str = ""

    def finds(self, sentence: Sentence) -> bool:
        """Return whether the sentence breaks the rule."""
        if self.of and (not sentence.of or self.of not in ("any", sentence.of)):
            return False
        return self.pattern.search(sentence.judged) is not None

    def complaint(self, sentence: Sentence) -> str:
        """Return the failure's text: file, line, rule, sentence, and a better one."""
        return (
            f"{sentence.file}:{sentence.line}: {self.name}\n    got: {sentence.text}\n"
            f"    not: {self.before}\n    but: {self.after}"
        )


RULES = (
    Rule(
        "a docstring begins with a verb or a noun, not with a question word",
        re.compile(r"^(What|How|Whether|Words|That|Those|Who|Whom|Whose|Whoever|Where|Which|Why|When|One|Nobody)\b"),
        "Whether a host has the same Python.", "Return whether a host has the same Python.", "any",
    ),
    Rule(
        "a function's docstring begins with a verb",
        re.compile(r"^(The|A|An|Of|For|In|By|From|To|As|Each|Every|All(?!-)|Its|Without|With)\b"),
        "The lease's age in seconds.", "Return the lease's age in seconds.", "function",
    ),
    Rule(
        "a noun clause is no subject: name the subject",
        re.compile(r"^(What|Whatever|Whether|How|Who|Whoever|Whom|That which)\b(?!.*[?:]\W*$)"),
        "What only that process can see has 0 points.", "Anything observable only there earns nothing.",
    ),
    Rule(
        'no "that of", no "those of": repeat the noun, or use a genitive',
        re.compile(r"\b(that|those) of\b", re.IGNORECASE),
        "The rule is that of torch's DDP.", "The rule is torch DDP's.",
    ),
    Rule(
        'no "one that" without its noun',
        re.compile(r"^One (that|who|whose|which)\b|\b(of|as|from|like|to|by|with|than|after|before) one (that|who|whose)\b"),
        "What has become of one that was lost.", "The fate of a lost rank.",
    ),
    Rule(
        'no "nobody knows": say what is unknown',
        re.compile(r"\b(nobody|no one) (knows|saw|sees|has heard)\b", re.IGNORECASE),
        "What has become of it, nobody knows.", "If its exit was not observed, its fate is unknown.",
    ),
    Rule(
        'no "is by": use a verb, or "per"',
        re.compile(r"\b(is|are|was|were) by\b(?! default)"),
        "The errors are by title.", "`errors[title]` is a cell's error.",
    ),
    Rule(
        'no "whoever": name the person',
        re.compile(r"\bwhoever\b", re.IGNORECASE),
        "Whoever reaches a port takes part in the run.", "Any process that reaches a port can join the run.",
    ),
    Rule(
        '"no longer", or what is left, instead of "no more" at the end',
        re.compile(r"\bno more(?=[.,;:)]|$)"),
        "Who has not been heard of for so long holds a row no more.", "A lease expires after this long without renewal.",
    ),
    Rule(
        '"must" instead of "has to"',
        re.compile(r"(?<!\bnot )(?<!would )(?<!\bwill )(?<!\bmay )\b(has|have) to\b(?! do with\b)"),
        "Every rank of the group has to call this.", "Every rank of the group must call this.",
    ),
    Rule(
        f"a sentence has at most {MOST_WORDS} words between its stops",
        re.compile(rf"^(?:\S+\s+){{{MOST_WORDS}}}\S"),
        " ".join(["A rank that waits for another rank"] * 6) + ".", "Each rank waits for the next.",
    ),
)  # fmt: skip


def sentences(text: str, file: str, first_line: int = 1, of: str = "") -> Iterator[Sentence]:
    """Yield the sentences of a text, table cells among them, without Markdown's marks; `of` marks the first one."""
    start = 0
    for end in [*_END.finditer(text), None]:
        said = _LINK.sub(r"\1", " ".join(_MARKS.sub("", text[start : end.start() if end else None]).split()))
        if said:
            began = start + len(text[start:]) - len(text[start:].lstrip())
            yield Sentence(file, first_line + text.count("\n", 0, began), said, _QUOTED.sub('""', said), of)
            of = ""
        start = end.end() if end else start


def of_docstrings(path: Path, file: str) -> Iterator[Sentence]:
    """Yield the sentences of a module's docstrings."""
    for node in _definitions(ast.parse(path.read_text(encoding="utf-8"))):
        docstring = ast.get_docstring(node)
        if docstring:
            docstring = _SET_OFF.sub("", docstring)
            yield from sentences(docstring, file, node.body[0].lineno, _kind(node))


def of_document(text: str, file: str) -> Iterator[Sentence]:
    """Yield a document's sentences, without code, headings, and the left column of a table of sentences before and after."""
    for hidden in (_FENCE, _HEADING):
        text = hidden.sub(lambda found: "\n" * found[0].count("\n"), text)
    text = _BEFORE.sub(lambda table: re.sub(r"^\|[^|]*\|", "| |", table[1], flags=re.MULTILINE), text)
    return sentences(text, file)


def _definitions(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Walk statements only: most of a tree is expressions, which hold no docstring."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, name, ())


def _kind(node: ast.AST) -> str:
    """Return "function", or "noun" for modules, classes and properties, which a noun describes."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return "noun"
    decorators = [getattr(one, "attr", getattr(one, "id", "")) for one in node.decorator_list]
    return "noun" if any("property" in name for name in decorators) else "function"


def complaints(rule: Rule, said: Iterable[Sentence]) -> list[str]:
    """Return a text for each sentence that breaks the rule."""
    return [rule.complaint(sentence) for sentence in said if rule.finds(sentence)]
