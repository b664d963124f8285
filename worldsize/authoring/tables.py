"""The minutes of labs in two documents: a lab's row in the README's table, and the sum of a day for instructors.

Left out: titles, points and the order of labs, which people write.
"""

import re
from collections.abc import Mapping
from pathlib import Path

_LAB = re.compile(r"^(\| ([0-9]{2}) \| \[.+?\]\(.+?\) \| )[0-9]+(?= \|)", re.MULTILINE)
_DAYS = re.compile(r"^\| day \|.*\n\| ---.*\n(?:\|.*\n?)*", re.MULTILINE)
_DAY = re.compile(r"^(\| [0-9]+ \| ([^|\n]+) \| )[0-9]+(?= \|)", re.MULTILINE)
_NUMBER = re.compile(r"\b[0-9]{2}\b")


def with_true_minutes(root: Path, minutes: Mapping[str, int]) -> dict[Path, str]:
    """Return {document: its text with these labs' minutes in tables} for those under `root` in which they are different now."""
    documents = {root / "README.md": of_labs, root / "docs" / "instructors.md": of_days}
    changed = {}
    for path, corrected in documents.items():
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        true_text = corrected(text, minutes)
        if true_text != text:
            changed[path] = true_text
    return changed


def of_labs(text: str, minutes: Mapping[str, int]) -> str:
    """Return the table's text with the minutes of each lab in its row; a row of a lab without minutes stays as it is."""
    return _LAB.sub(lambda row: f"{row[1]}{minutes[row[2]]}" if row[2] in minutes else row[0], text)


def of_days(text: str, minutes: Mapping[str, int]) -> str:
    """Return the text with the sum of its labs' minutes in each row of the table of days."""

    def summed(row: re.Match[str]) -> str:
        labs = _NUMBER.findall(row[2])
        return f"{row[1]}{sum(minutes[lab] for lab in labs)}" if minutes.keys() >= set(labs) else row[0]

    return _DAYS.sub(lambda table: _DAY.sub(summed, table[0]), text)
