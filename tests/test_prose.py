"""Plain English where a program can check it: docstrings of the package, and the documents. docs/style.md has the rules."""

from functools import cache
from pathlib import Path

import pytest

from tests.support.prose import RULES, Rule, Sentence, complaints, of_docstrings, of_document, sentences

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "worldsize").rglob("*.py"))
GENERATED = {"what-earns-points.md", "THIRD_PARTY_NOTICES.md"}
DOCUMENTS = [
    path
    for folder in (".", "docs", "docs/site", "docs/site/labs", "bench", "datasets")
    for path in sorted((ROOT / folder).glob("*.md"))
    if path.name not in GENERATED
]
NAMES = {rule: rule.name.split(":")[0] for rule in RULES}
EVERY_RULE = pytest.mark.parametrize("rule", RULES, ids=list(NAMES.values()))
OF_ANY_SENTENCE = pytest.mark.parametrize(
    "rule", [rule for rule in RULES if not rule.of], ids=[name for rule, name in NAMES.items() if not rule.of]
)
# of these each rule must be silent
GOOD = """\
Return the bytes that each rank sends. Raises ValueError where no rank is left.

A lease expires after this long without renewal; one of its owners can renew it. What is a bucket? Who trusts whom:
a table. Ranks need not wait: they do not have to. Where a rank fails, the others end. It sends no more than 3 messages.
"""


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _docstrings() -> list[Sentence]:
    return [said for module in MODULES for said in of_docstrings(module, _name(module))]


@cache
def _documents() -> list[Sentence]:
    return [said for path in DOCUMENTS for said in of_document(path.read_text(encoding="utf-8"), _name(path))]


@EVERY_RULE
def test_docstrings_keep_the_rule(rule: Rule) -> None:
    found = complaints(rule, _docstrings())
    assert not found, "\n".join(found)


@OF_ANY_SENTENCE
def test_documents_keep_the_rule(rule: Rule) -> None:
    found = complaints(rule, _documents())
    assert not found, "\n".join(found)


def test_a_package_and_its_documents_were_read() -> None:
    assert len(_docstrings()) > 4000 and len(_documents()) > 1000
    assert {"README.md", "CONTRIBUTING.md", "docs/faq.md", "docs/style.md"} <= {said.file for said in _documents()}


@EVERY_RULE
def test_a_rule_finds_its_own_example_in_a_planted_docstring_and_takes_the_better_one(rule: Rule, tmp_path: Path) -> None:
    first = "" if rule.of else "Draw it.\n\n    "
    for text, count in ((rule.before, 1), (rule.after, 0)):
        module = tmp_path / "planted.py"
        module.write_text(f'"""A module."""\n\n\ndef planted():\n    """{first}{text}"""\n', encoding="utf-8")
        found = complaints(rule, of_docstrings(module, "planted.py"))
        assert len(found) == count, found
        for one in found:
            assert one.startswith(f"planted.py:{5 if rule.of else 7}: {rule.name}")
            assert f"got: {text}" in one and f"but: {rule.after}" in one


@OF_ANY_SENTENCE
def test_a_rule_finds_its_own_example_in_a_planted_paragraph_item_and_table(rule: Rule) -> None:
    page = f"# A page\n\nFine.\n{rule.before}\n\n- **{rule.before}**\n\n| a | b |\n| --- | --- |\n| x | {rule.before} |\n"
    assert [said.line for said in of_document(page, "page.md") if rule.finds(said)] == [4, 6, 10]


@EVERY_RULE
def test_a_rule_is_silent_on_good_sentences(rule: Rule) -> None:
    assert complaints(rule, [*sentences(GOOD, "good", of="function"), *of_document(GOOD, "good")]) == []


def test_code_headings_and_the_column_before_are_no_prose() -> None:
    page = "## What is by whom\n\n```sh\n# that of\n```\n\n| before | after |\n| --- | --- |\n| that of it | its own |\n\nEnd.\n"
    assert [(said.line, said.text) for said in of_document(page, "page.md")][-2:] == [(9, "its own"), (11, "End.")]
    assert [said for said in of_document(page, "page.md") if any(rule.finds(said) for rule in RULES)] == []
