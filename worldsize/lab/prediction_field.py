"""The card in which a student types a prediction: the question, a field with its unit, and a line with the saved value.

Enter or leaving the field saves; after the measurement the card shows the prediction's error. An empty field means no
prediction; ipywidgets' FloatText cannot be empty and would turn "no answer" into 0. A saved value has a mark, words and a solid
frame, so that it does not depend on color. `typed_number.py` reads the number, `lab.py` keeps it.
"""

import html
from collections.abc import Callable

from worldsize import pages, units
from worldsize.lab.typed_number import parse_number
from worldsize.pages.fallback import WidgetWithFallback

HOW = "Enter saves, and so does leaving the field."
NOTHING_YET = "○ no prediction yet"
SAVED = "worldsize-saved"
GONE = "○ The kernel was restarted. Run this cell again to predict."

# One grid holds all four, because the label belongs to its input and the unit stands between the input and its status.
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
    ".worldsize-answer{grid-column:1/-1;font-weight:600}"
    ".worldsize-answer [role=status]{display:flex;align-items:center}"  # long words stay beside their strip
    # JupyterLab marks each widget whose kernel is gone with a red broken chain, and leaves its field editable
    ".worldsize-prediction .jupyter-widgets-disconnected::before{display:none!important}"
    ".worldsize-prediction.jupyter-widgets-disconnected input,"
    ".worldsize-prediction.jupyter-widgets-disconnected .widget-html:not(.worldsize-layout){display:none!important}"
    ".worldsize-prediction.jupyter-widgets-disconnected{border-style:dashed}"
    ".worldsize-prediction.jupyter-widgets-disconnected::before{all:unset;order:1;grid-column:1/-1;"
    f"content:'{GONE}'}}"
    "</style>"
)


class PredictionField:
    """The displayed card of one question. `save` gets each new number, or None for an emptied field.

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
        self._card = ipywidgets.VBox([box, ipywidgets.HTML(html.escape(unit)), self._status, self._answered, how, layout])
        self._card.add_class("worldsize-prediction")

        self._show_kept()
        self._shown = WidgetWithFallback(self._card, *_lasting(question, value, unit, ""))
        box.observe(self._on_change, names="value")

    def measured(self) -> None:
        """Show the prediction's error, or clear it."""
        shown, said = self._answer()
        self._answered.value = shown
        self._shown.update(*_lasting(self._question, self._value, self._unit, said))

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

    def _show_kept(self) -> None:
        if self._value is None:
            self._card.remove_class(SAVED)
        else:
            self._card.add_class(SAVED)
        self._status.value = _status(_said(self._value, self._unit))


def _lasting(question: str, value: float | None, unit: str, answer: str) -> tuple[str, str]:
    """Return the remains of the card after its kernel is gone, as HTML and as text."""
    todo = "type one" if value is None else "change it"
    said = f"{answer or _said(value, unit)}; run this cell to {todo}"
    return f"{pages.inline_code(question)} <em>{html.escape(said)}</em>", f"{question.replace('`', '')} {said}"


def _said(value: float | None, unit: str) -> str:
    if value is None:
        return NOTHING_YET
    return f"✓ saved: {units.number(value, unit)}"


def _status(text: str) -> str:
    return f'<span role="status" aria-live="polite">{html.escape(text)}</span>'
