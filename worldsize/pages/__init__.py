"""HTML from templates: one environment, which escapes every value, and one stylesheet.

A page is a standalone file (`page.html`): the stylesheet is inside, and its policy forbids scripts and the network, in case an
escape is missing. A fragment goes into a notebook, which drops stylesheets when it cleans its output but keeps `style`
attributes; fragments therefore use these, without colors, so that light and dark themes both work.
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
    """Return the HTML of `worldsize/pages/templates/<template>` with `values`.

    Raises jinja2.UndefinedError if the template needs a value that is not given.
    """
    return _environment().get_template(template).render(values)


def inline_code(text: str) -> str:
    """Return a page's text as escaped HTML, with text between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2  # not at the top: every kernel imports this module, and most never show a page

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
    """Replace control and direction characters in a page's text; leave marked HTML as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isprintable():
        return value
    return "".join(c if c in _KEPT or unicodedata.category(c)[0] != "C" else "\ufffd" for c in value)


def _cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """Shorten a text on a page, since a student's may have any length."""
    return text if len(text) <= most else f"{text[:most]} …"


def _digest(text: str) -> str:
    """Return the SHA-256 with which a Content-Security-Policy allows the page's one style (W3C, "CSP Level 3")."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
