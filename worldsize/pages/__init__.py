"""HTML from templates: one environment, in which every value is escaped, and one stylesheet.

A page is a file that stands alone (`page.html`): the stylesheet is inside, and its policy forbids scripts and the network,
should an escape be missing after all. A fragment goes into a notebook, which throws a stylesheet away when it cleans what
it shows, and keeps `style` attributes: so it has those, and no colours, and light and dark themes both read.
Left out: what a page says (the rooms that make one).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

MOST_CHARACTERS = 4000
_KEPT = "\n\t\u200c\u200d"  # the last two join letters in names


def render(template: str, **values: object) -> str:
    """The HTML that `worldsize/pages/templates/<template>` makes of `values`.

    Raises jinja2.UndefinedError where the template asks for a value that is not given.
    """
    return _environment().get_template(template).render(values)


def inline_code(text: str) -> str:
    """A text as HTML: escaped, and what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2  # not above: every kernel imports this module, and most never show a page

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__name__, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_readable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(cut=_cut, digest=_digest, number="{:g}".format, share="{:.2f}".format)
    environment.filters["inline_code"] = lambda text: jinja2.utils.markupsafe.Markup(inline_code(text))
    return environment


def _readable(value: object) -> object:
    """A text without the characters that steer a reader's eye or terminal; what is marked as HTML stays as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isprintable():
        return value
    return "".join(c if c in _KEPT or unicodedata.category(c)[0] != "C" else "\ufffd" for c in value)


def _cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """A text that a student may have made as long as they like."""
    return text if len(text) <= most else f"{text[:most]} …"


def _digest(text: str) -> str:
    """The SHA-256 by which a Content-Security-Policy names the one style that it allows (W3C, "CSP Level 3")."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
