"""A Sphinx extension: formulas as MathML, which browsers render by themselves, docstrings as plain text, and a search in prose.

Left out: macros and numbered equations, which no lab has.
"""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

_OUTSIDE_CODE = re.compile(r"(`[^`]*`)")


def setup(app: Sphinx) -> dict[str, Any]:
    """Set up the extension; Sphinx calls this."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    app.connect("autodoc-process-docstring", _plain)
    app.connect("doctree-read", _search_in_prose)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(self: Any, node: nodes.Element) -> None:
    self.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.Element) -> None:
    # a long formula scrolls by itself, also from the keyboard
    formula = convert(node.astext(), display="block")
    self.body.append(f'<div class="formula" tabindex="0" role="group" aria-label="formula">{formula}</div>')
    raise nodes.SkipNode


def _search_in_prose(app: Sphinx, page: nodes.document) -> None:
    """Keep what a lab's page has as code or output out of the index: a reader who searches looks for an explanation."""
    for cell in page.findall(nodes.container):
        if {"cell_input", "cell_output"} & set(cell["classes"]):
            cell["classes"].append("no-search")


def _plain(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape Sphinx's markup (RST) except backticks, since our docstrings use no other: a star or a bar is literal."""
    for number, line in enumerate(lines):
        parts = _OUTSIDE_CODE.split(line)
        parts[::2] = [re.sub(r"([*|_\\])", r"\\\1", part) for part in parts[::2]]
        lines[number] = "".join(parts)
