"""A CSV in which no field is a formula: every field is quoted, and one that a spreadsheet would run has an apostrophe.

Students choose their own names (OWASP, "CSV Injection").
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def text(lines: Iterable[Iterable[str]]) -> str:
    """The lines of a sheet as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    for line in lines:
        writer.writerow(map(safe, line))
    return file.getvalue()


def safe(field: str) -> str:
    """`field` as no spreadsheet takes it for a formula; a number stays one."""
    field = field.replace("\0", "")

    if not field.lstrip(" ").startswith(_FORMULA) or _is_number(field):
        return field
    return f"'{field}"


def _is_number(field: str) -> bool:
    return field.removeprefix("-").replace(".", "", 1).isdecimal()
