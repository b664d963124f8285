"""The card in which a student types a prediction: the question, a field with its unit, and a line with the saved value.

Enter or leaving the field saves, and Enter goes on to the next cell (`prediction_keys.js`). After the measurement the card
shows the prediction's error; without a prediction it keeps the measurement covered until "Show me". An empty field means no
prediction; ipywidgets' FloatText cannot be empty and would turn "no answer" into 0. `typed_number.py` reads the number,
`lab.py` keeps it.
"""

import functools
import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worldsize import pages, units
from worldsize.lab.typed_number import parse_number
from worldsize.pages.fallback import WidgetWithFallback

HOW = "Enter saves and goes on. Leaving the field saves too."
NOTHING_YET = "○ no prediction yet"
SAVED = "worldsize-saved"
SHOW_ME = "Show me"
COVERED = "○ measured: predict it, or let it be shown"
GONE = "○ The kernel was restarted. Run this cell again to predict."

# One grid holds all four, because the label belongs to its input and the unit stands between the input and its status.
LAYOUT = (
    "<style>"
    ".worldsize-prediction{display:grid!important;grid-template-columns:max-content max-content 1fr;gap:4px 8px;"
    "align-items:center;max-width:46em;padding:10px 14px!important;margin:4px 0!important;overflow:visible!important;"
    "border:1px solid var(--jp-border-color2,#c8c8c8);border-left:4px solid var(--jp-border-color1,#949494);"
    "border-radius:6px;color:var(--jp-ui-font-color1,inherit)}"
    ".worldsize-prediction.worldsize-saved{border-left-color:#137a71}"
    ".worldsize-field{display:contents!important}"
    ".worldsize-field .widget-label{grid-column:1/-1;width:auto!important;height:auto!important;max-width:none!important;"
    "white-space:normal;text-align:left;line-height:1.45;font-weight:600;color:inherit}"
    ".worldsize-field input{width:11em!important;flex:none!important}"
    ".worldsize-prediction .widget-html{margin:0;height:auto}"
    ".worldsize-prediction .widget-html-content{line-height:1.45;color:inherit}"
    ".worldsize-how{grid-column:1/-1;display:none}"
    ".worldsize-prediction:focus-within .worldsize-how{display:block}"
    ".worldsize-covered{display:none!important}"
    ".worldsize-show{width:max-content!important;grid-column:1/-1}"
    ".worldsize-answer{grid-column:1/-1;font-weight:600}"
    ".worldsize-answer [role=status]{display:flex;align-items:center}"  # long words stay beside their strip
    # JupyterLab marks each widget whose kernel is gone with a red broken chain, and leaves its field editable
    ".worldsize-prediction .jupyter-widgets-disconnected::before{display:none!important}"
    ".worldsize-prediction.jupyter-widgets-disconnected input,"
    ".worldsize-prediction.jupyter-widgets-disconnected .widget-html:not(.worldsize-layout){display:none!important}"
    ".worldsize-prediction.jupyter-widgets-disconnected::before{all:unset;order:1;grid-column:1/-1;"
    f"content:'{GONE}'}}"
    "</style>"
)


class PredictionField:
    """The displayed card for one prediction. `save` gets each new number, or None for an emptied field.

    `answer` is called after each change and each measurement. It returns the prediction's error as HTML and as text, both empty
    until there is a measurement.
    """

    def __init__(
        self, question: str, unit: str, value: float | None, save: Callable[[float | None], None],
        answer: Callable[[], tuple[str, str]],
    ) -> None:  # fmt: skip
        import ipywidgets

        self._question, self._unit, self._value, self._save, self._answer = question, unit, value, save, answer
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
        self._status, self._answered = ipywidgets.HTML(), ipywidgets.HTML()
        self._answered.add_class("worldsize-answer")
        how = ipywidgets.HTML(html.escape(HOW))
        how.add_class("worldsize-how")
        layout = ipywidgets.HTML(LAYOUT, layout={"display": "none"})
        layout.add_class("worldsize-layout")
        self._show_me = ipywidgets.Button(description=SHOW_ME, tooltip="Show what was measured, without a prediction")
        self._show_me.add_class("worldsize-show")
        self._show_me.add_class("worldsize-covered")
        self._show_me.on_click(self._uncover)
        self._keys = keys_class()(fresh=value is None)
        parts = [box, ipywidgets.HTML(html.escape(unit)), self._status, self._answered, self._show_me, how, layout, self._keys]
        self._card = ipywidgets.VBox(parts)
        self._card.add_class("worldsize-prediction")
        self._uncovered = False

        self._show_kept()
        self._shown = WidgetWithFallback(self._card, *_lasting(question, value, unit, ""))
        box.observe(self._on_change, names="value")

    def measured(self) -> None:
        """Show the prediction's error, or clear it. Without a prediction the measurement waits for "Show me"."""
        shown, said = self._answer()
        covered = bool(shown) and self._value is None and not self._uncovered
        _switch(self._show_me, "worldsize-covered", not covered)
        _switch(self._answered, "worldsize-covered", covered)
        self._answered.value = "" if covered else shown
        if covered:
            self._status.value = _status(COVERED)
        self._shown.update(*_lasting(self._question, self._value, self._unit, "" if covered else said))

    def _uncover(self, button: object) -> None:
        self._uncovered = True
        self._status.value = _status(_said(self._value, self._unit))
        self.measured()

    def _on_change(self, change: dict) -> None:
        try:
            typed = parse_number(change["new"], self._unit)
            self._save(typed)
        except (ValueError, OSError) as error:  # an exception in a callback stays invisible
            self._card.remove_class(SAVED)
            said = f"✘ not saved: {str(error).removesuffix('.')}."
            if self._value is not None:
                said += f" Your saved prediction stays: {units.number(self._value, self._unit)}"
            self._status.value = _status(said)
            return

        self._value = typed
        self._show_kept()
        self.measured()
        self._keys.kept += 1

    def _show_kept(self) -> None:
        if self._value is None:
            self._card.remove_class(SAVED)
        else:
            self._card.add_class(SAVED)
        self._status.value = _status(_said(self._value, self._unit))


@functools.cache
def keys_class() -> type:
    """Return the class of the card's keyboard, made on first use: headless runs need none of its libraries."""
    import anywidget
    import traitlets

    class PredictionKeys(anywidget.AnyWidget):
        _esm = Path(__file__).with_name("prediction_keys.js").read_text(encoding="utf-8")
        fresh = traitlets.Bool().tag(sync=True)  # nothing was predicted yet, so the field takes the focus
        kept = traitlets.Int().tag(sync=True)  # counts the numbers that were kept

    return PredictionKeys


def _switch(widget: Any, name: str, on: bool) -> None:
    (widget.add_class if on else widget.remove_class)(name)


def _lasting(question: str, value: float | None, unit: str, answer: str) -> tuple[str, str]:
    """Return the remains of a prediction's card after its kernel is gone, as HTML and as text."""
    todo = "type one" if value is None else "change it"
    said = f"{answer or _said(value, unit)}; run this cell to {todo}"
    return f"{pages.inline_code(question)} <em>{html.escape(said)}</em>", f"{question.replace('`', '')} {said}"


def _said(value: float | None, unit: str) -> str:
    if value is None:
        return NOTHING_YET
    return f"✓ saved: {units.number(value, unit)}"


def _status(text: str) -> str:
    return f'<span role="status" aria-live="polite">{html.escape(text)}</span>'
