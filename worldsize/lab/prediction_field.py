"""The card in which a student types a prediction: the question, a field with its unit, and a line that says what is saved.

Enter or leaving the field saves. An empty field means no prediction, which is why this isn't ipywidgets' FloatText: that
one can't be empty and would turn "no answer" into 0. What is saved has a mark, words and a whole frame, so that colour
is not needed. Left out: how a typed number is read (`typed_number`), and keeping it (`lab`).
"""

from __future__ import annotations

import html
from collections.abc import Callable

from worldsize import pages, units
from worldsize.lab.fallback import WidgetWithFallback
from worldsize.lab.typed_number import parse_number

HOW = "Enter saves, and so does leaving the field."
NOTHING_YET = "○ no prediction yet"
SAVED = "worldsize-saved"

# The label belongs to its input, and the unit stands between the input and what is said of it: one grid of all four.
LAYOUT = (
    "<style>"
    ".worldsize-prediction{display:grid!important;grid-template-columns:max-content max-content 1fr;gap:4px 8px;"
    "align-items:center;max-width:46em;padding:10px 14px!important;margin:4px 0!important;overflow:visible!important;"
    "border:1px dashed currentColor;border-left:4px dotted currentColor;border-radius:6px;"
    "color:var(--jp-ui-font-color1,inherit)}"
    ".worldsize-prediction.worldsize-saved{border-style:solid}"
    ".worldsize-field{display:contents!important}"
    ".worldsize-field .widget-label{grid-column:1/-1;width:auto!important;height:auto!important;max-width:none!important;"
    "white-space:normal;text-align:left;line-height:1.45;font-weight:600;color:inherit}"
    ".worldsize-field input{width:11em!important;flex:none!important}"
    ".worldsize-prediction .widget-html{margin:0;height:auto}"
    ".worldsize-prediction .widget-html-content{line-height:1.45;color:inherit}"
    ".worldsize-how{grid-column:1/-1;opacity:.8}"
    "</style>"
)


def show_field(question: str, unit: str, value: float | None, save: Callable[[float | None], None]) -> None:
    """Show the card in which a student predicts.

    Display the card, its field filled with `value`; `save` gets each new number, or None for an emptied field.
    """
    import ipywidgets

    box = ipywidgets.Text(
        value="" if value is None else f"{value:.12g}",
        description=pages.inline_code(question),
        description_allow_html=True,
        placeholder="your prediction",
        tooltip=f"{unit}. {HOW}".removeprefix(". "),
        continuous_update=False,
        style={"description_width": "initial"},
    )
    box.add_class("worldsize-field")
    status = ipywidgets.HTML()
    how = ipywidgets.HTML(html.escape(HOW))
    how.add_class("worldsize-how")
    layout = ipywidgets.HTML(LAYOUT, layout={"display": "none"})
    card = ipywidgets.VBox([box, ipywidgets.HTML(html.escape(unit)), status, how, layout])
    card.add_class("worldsize-prediction")

    def show_kept() -> None:
        if value is None:
            card.remove_class(SAVED)
        else:
            card.add_class(SAVED)
        status.value = _status(_said(value, unit))

    def on_change(change: dict) -> None:
        nonlocal value
        try:
            typed = parse_number(change["new"], unit)
            save(typed)
        except (ValueError, OSError) as error:  # an exception in a callback is shown to nobody
            card.remove_class(SAVED)
            status.value = _status(f"✘ not saved: {str(error).removesuffix('.')}. {_kept_before(value, unit)}".strip())
            return

        value = typed
        show_kept()
        shown.update(*_lasting(question, value, unit))

    show_kept()
    shown = WidgetWithFallback(card, *_lasting(question, value, unit))
    box.observe(on_change, names="value")


def _lasting(question: str, value: float | None, unit: str) -> tuple[str, str]:
    """What is left of the card when its kernel is gone, as HTML and as text."""
    todo = "type one" if value is None else "change it"
    said = f"{_said(value, unit)}; run this cell to {todo}"
    return f"{pages.inline_code(question)} <em>{html.escape(said)}</em>", f"{question.replace('`', '')} {said}"


def _said(value: float | None, unit: str) -> str:
    if value is None:
        return NOTHING_YET
    return f"✓ saved: {units.number(value, unit)}"


def _kept_before(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"What you saved before stays: {units.number(value, unit)}"


def _status(text: str) -> str:
    return f'<span role="status" aria-live="polite">{html.escape(text)}</span>'
