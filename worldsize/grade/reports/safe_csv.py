"""CSV without formulas: every field is quoted, and a field that a spreadsheet would evaluate gets an apostrophe.

Students choose their own names (OWASP, "CSV Injection").
"""

import csv
import io
from collections.abc import Collection, Iterable

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def text(lines: Iterable[Iterable[str]], as_they_are: Collection[int] = ()) -> str:
    """Return the lines as safe CSV. Columns `as_they_are` are not escaped: no student chooses how their fields begin."""
    file = io.StringIO()
    writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    for line in lines:
        writer.writerow(field if k in as_they_are else safe(field) for k, field in enumerate(line))
    return file.getvalue()


def safe(field: str) -> str:
    """Escape `field` so that no spreadsheet evaluates it; leave numbers and a lone hyphen alone."""
    field = field.replace("\0", "")
    if not field.lstrip(" ").startswith(_FORMULA):
        return field

    is_number = field.removeprefix("-").replace(".", "", 1).isdecimal()
    return field if is_number or field == "-" else f"'{field}"
