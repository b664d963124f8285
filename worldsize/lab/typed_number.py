"""A number as a student types it in a prediction's field: `3,5`, `1/3`, `2e3`, `20 ms`, `4 GB`, in the question's unit.

Ambiguous input (`1,234`, `2 Mb`) is rejected with a question, never guessed. Sums and powers are not read. Sizes are decimal, as
everywhere in the course (1 kB is 1000 bytes); KiB, MiB and GiB are powers of 1024.
"""

import re
from fractions import Fraction

EXAMPLES = "0.25, 1/3 or 2e3"

_TIMES = {"ns": "1e-9", "us": "1e-6", "ms": "1e-3", "s": "1", "min": "60", "h": "3600"}
_SIZES = {
    "B": "1", "kB": "1e3", "MB": "1e6", "GB": "1e9", "TB": "1e12", "KiB": "1024", "MiB": "1048576", "GiB": "1073741824",
    "bit": "1/8", "kbit": "125", "Mbit": "125e3", "Gbit": "125e6",
}  # fmt: skip
_RATES = {f"{unit}/s": factor for unit, factor in _SIZES.items()}
_FAMILIES = tuple({unit: Fraction(factor) for unit, factor in one.items()} for one in (_TIMES, _SIZES, _RATES))

_SPELLED = {
    "µs": "us", "μs": "us", "sec": "s", "second": "s", "minute": "min", "hour": "h", "byte": "B", "KB": "kB",
    "millisecond": "ms", "microsecond": "us", "nanosecond": "ns", "x": "times", "×": "times", "percent": "%",
}  # fmt: skip
# as letters they may be bits or bytes
_EITHER = {"b": ("bit", "B"), "kb": ("kbit", "kB"), "mb": ("Mbit", "MB"), "gb": ("Gbit", "GB")}

_DIGITS = r"\d[\d.,_ \u00a0\u2009\u202f']*|\.\d+"
_TYPED = re.compile(
    rf"(?P<sign>[+-]?)\s*(?P<top>{_DIGITS})(?P<power>[eE][+-]?\d{{1,3}})?\s*(?:/\s*(?P<below>{_DIGITS}))?(?P<unit>.*)"
)
_SPACES = re.compile("[_ '\u00a0\u2009\u202f]")


def parse_number(text: str, unit: str = "") -> float | None:
    """Return the number in `text`, in `unit`; None for empty text, or for the unit alone.

    A unit in the text is converted if it measures the same quantity. Raises ValueError, which says what to type.
    """
    bare = text.strip().replace("−", "-")
    if bare in ("", unit):
        return None

    typed = _TYPED.fullmatch(bare)
    if typed is None:
        raise ValueError(_no_number(text))

    value = _plain(typed["top"], text)
    if typed["power"]:
        value *= Fraction(f"1{typed['power']}")
    if typed["below"]:
        below = _plain(typed["below"], text)
        if below == 0:
            raise ValueError(f"“{text.strip()}” divides by zero: type a number such as {EXAMPLES}")
        value /= below
    if typed["sign"] == "-":
        value = -value

    try:
        return float(value * _factor(typed["unit"].strip(), unit, text))
    except OverflowError:
        raise ValueError(_no_number(text)) from None


def _plain(digits: str, text: str) -> Fraction:
    """Read digits with points, commas and spaces; the last kind of mark is the decimal mark, unless it occurs again."""
    digits = digits.strip()
    if _SPACES.search(digits):
        if not re.fullmatch(rf"\d{{1,3}}(?:{_SPACES.pattern}\d{{3}})+(?:[.,]\d*)?", digits):
            raise ValueError(_no_number(text))
        digits = _SPACES.sub("", digits)

    if re.fullmatch(r"[1-9]\d{0,2},\d{3}", digits):
        decimal, whole = digits.replace(",", "."), digits.replace(",", "")
        raise ValueError(f"“{text.strip()}” can be read in two ways: type {decimal} or {whole}")

    if re.fullmatch(r"(?!0)\d{1,3}(,\d{3})+(\.\d*)?", digits):
        digits = digits.replace(",", "")
    elif re.fullmatch(r"[1-9]\d{0,2}((\.\d{3})+,\d*|(\.\d{3}){2,})", digits):
        digits = digits.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"\d+,\d+", digits):
        digits = digits.replace(",", ".")

    if not re.fullmatch(r"\d+\.?\d*|\.\d+", digits):
        raise ValueError(_no_number(text))
    return Fraction(digits.rstrip("."))


def _factor(typed: str, asked: str, text: str) -> Fraction:
    """Return the factor that converts a number in the unit `typed` to the unit `asked`. Raises ValueError if there is none."""
    singular = typed.removesuffix("s")
    known = _SPELLED.get(typed, _SPELLED.get(singular, typed))
    measured_in = _SPELLED.get(asked.removesuffix("s"), asked)
    one_of_many = asked.endswith("s") and len(asked) > 2 and typed == asked.removesuffix("s")
    if typed in ("", asked) or known == measured_in or one_of_many:
        return Fraction(1)

    for family in _FAMILIES:
        if measured_in in family and known in family:
            return family[known] / family[measured_in]

    stem, slash, rest = typed.partition("/")
    if stem.lower() in _EITHER and stem not in _SIZES:
        bits, its_bytes = (f"{name}{slash}{rest}" for name in _EITHER[stem.lower()])
        raise ValueError(f"“{text.strip()}” can mean bits or bytes: write {bits} or {its_bytes}")
    if not re.match(r"[^\W\d_]|[%×]", typed):
        raise ValueError(_no_number(text))

    wanted = f"a number of {asked}" if asked else "a number without a unit"
    raise ValueError(
        f"“{text.strip()}” ends in “{typed}”, which is not a unit of this question: type {wanted}, such as {EXAMPLES}"
    )


def _no_number(text: str) -> str:
    return f"“{text.strip()}” is not a number: type one such as {EXAMPLES}"
