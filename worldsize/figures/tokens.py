"""Design tokens: the colours, light and dark, sizes and widths of all pictures, of the live view and of the step-through.

A colour means one thing: ranks, phases of a rank's time, and algorithms have a palette each. Any two of a palette's six
tones differ by ΔE2000 ≥ 10 (CIE 142-2001; about 1 is visible side by side, 10 at a glance and from a legend), with normal
sight and with each kind of dichromacy, after G. Machado, M. Oliveira and L. Fernandes (IEEE TVCG 15, 2009), whose model is
poor for tritanopia, and after H. Brettel, F. Viénot and J. Mollon (J. Opt. Soc. Am. A 14, 1997). Each tone has a contrast
of at least 3:1 against its ground (WCAG 2.1, 1.4.11). Beyond six, tones repeat with another marker, hatch or dash.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tone:
    """A design token, a colour by its meaning, as #rrggbb on a light and on a dark ground. No two tones share a `light`."""

    name: str
    light: str
    dark: str


def _palette(name: str, light: str, dark: str) -> tuple[Tone, ...]:
    """Return a palette of design tokens; `light` and `dark` hold as many values each, separated by spaces."""
    pairs = zip(light.split(), dark.split(), strict=True)
    return tuple(Tone(f"{name}-{number}", *pair) for number, pair in enumerate(pairs))


PAPER = Tone("paper", "#ffffff", "#111111")
INK = Tone("ink", "#1a1a1a", "#ececec")
QUIET_INK = Tone("quiet-ink", "#595959", "#b4b4b4")  # contrast against `PAPER`: 7:1 and 9:1
RULE = Tone("rule", "#c8c8c8", "#4a4a4a")
HATCH = Tone("hatch", "#121212", "#0d0d0d")  # on an area in a colour: dark in both themes
SHADE = Tone("shade", "#efefed", "#26282c")  # a neutral area: a track, a card
IDLE = Tone("idle", "#dcdcdb", "#33363a")  # a rank that waits; contrast of what it does against it: 3:1


GOOD = Tone("good", "#00664a", "#5fd3ac")
BAD = Tone("bad", "#b3261e", "#ff8a80")
NOTE = Tone("note", "#8a5a00", "#f0b95a")


AMOUNT = Tone("amount", "#0b5cad", "#3f86cf")


RANKS = _palette(
    "rank",
    "#056899 #d05408 #039f75 #e661c7 #6e572e #504f50",
    "#129aee #ea762a #42cb91 #de95c6 #ffe631 #a1a19f",
)
PHASES = _palette(
    "phase",
    "#3779cf #787a73 #d06e00 #51a198 #a15399 #593888",
    "#2286ee #7e7f7e #ea9011 #35b6a6 #ba68ac #c5b3ea",
)
ALGORITHMS = _palette(
    "algorithm",
    "#704bbf #931b08 #137a71 #b8365a #5a8b29 #394967",
    "#c295fa #f77410 #1eca9d #fda7e0 #a6d86b #969eaa",
)
# an ordered number, from little to much
STEPS = _palette("step", "#5d94da #3576c6 #155aa7 #04407e #012854", "#0065b0 #2985d7 #64a6e9 #96c7fb #d1e7ff")
# an actor has one colour in the whole course: what its names look like, the first that fits
YOURS, SERVER, LIBRARY = ALGORITHMS[0], ALGORITHMS[1], ALGORITHMS[2]
SYNCHRONOUS = ALGORITHMS[4]
SYNCHRONOUS_NAME = Tone("synchronous-name", "#49751a", "#a9da70")  # that green, strong enough for words
ACTORS = (
    (r"\byours?\b|^ring\b", YOURS),
    (r"\bserver\b|^star\b|\bcentral", SERVER),
    (r"PyTorch|TensorFlow|Keras|framework|\bNCCL\b|\bgloo\b|\bDDP\b|\bthe library", LIBRARY),
    (r"^synchronous", SYNCHRONOUS),
)
OTHERS = tuple(ALGORITHMS[k] for k in (5, 3, 4, 2, 1, 0))  # names that are no actor's, from the first that is free
COMPUTE, WAIT, SEND, RECV, COLLECTIVE, BACKWARD = PHASES
PARTS = (COMPUTE, SEND, COLLECTIVE, RECV, BACKWARD, WAIT)  # of memory or traffic, by what it is

ALL = (
    PAPER, INK, QUIET_INK, RULE, HATCH, SHADE, IDLE, GOOD, BAD, NOTE, AMOUNT,
    *RANKS, *PHASES, *ALGORITHMS, SYNCHRONOUS_NAME, *STEPS,
)  # fmt: skip

# what each tone stands for, as the site's page of the visual language says it
MEANINGS = {
    "the ground, text, quiet text, a line of an axis, a hatch on a colour, a card, a rank that waits": ALL[:7],
    "holds, fails, a note": (GOOD, BAD, NOTE),
    "how much: stronger for more": (AMOUNT,),
    "an ordered number, such as 1, 2, 4, 8 and 16 workers": STEPS,
    "ranks 0 to 5; later ranks repeat them with another marker, dash or hatch": RANKS,
    "what takes time or memory: compute, waiting, sending, receiving, a collective, the backward pass": PHASES,
    "your answer": (YOURS,),
    "one server, a star": (SERVER,),
    "a library's own": (LIBRARY,),
    "synchronous updates, and that curve's name": (SYNCHRONOUS, SYNCHRONOUS_NAME),
    "any other algorithm or curve": tuple(tone for tone in ALGORITHMS if tone not in (YOURS, SERVER, LIBRARY, SYNCHRONOUS)),
}

# beside the colour, which is never the only carrier; by number of the rank, algorithm or curve
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h", "d", "H", "8", "$+$")
HATCHES = ("", "///", "...", "xx", "\\\\\\", "++", "oo", "---")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


FONTS = '"DejaVu Sans", Verdana, system-ui, sans-serif'
TITLE_PT, HEAD_PT, QUESTION_PT, LABEL_PT, SMALL_PT, TINY_PT = 11, 10, 9.5, 9, 8, 7


WIDTH_IN = 7.6
HAIR_PT, THIN_PT, LINE_PT, STRONG_PT = 0.5, 0.8, 1.2, 1.8


# dark themes of JupyterLab and Notebook 7 (with nbconvert), of VS Code, and of Sphinx
_DARK = ("[data-jp-theme-light=false] ", ".vscode-dark ", "[data-theme=dark] ")
_LAB_PAPER = "--jp-layout-color0"


def variable(tone: Tone) -> str:
    """Return a tone as CSS: its custom property, or its light value where no style sets one."""
    return f"var(--ws-{tone.name},{tone.light})"


def css(selector: str, tones: Iterable[Tone] = ALL) -> str:
    """Return style rules that give elements matching `selector` their `tones` as `--ws-…`, in the theme of the page."""
    tones = tuple(tones)
    dark = ",".join(part + selector for part in _DARK)
    return "{}{{{}}}{}{{{}}}".format(
        selector, ";".join(_value(tone, tone.light) for tone in tones),
        dark, ";".join(_value(tone, tone.dark) for tone in tones),
    )  # fmt: skip


def _value(tone: Tone, value: str) -> str:
    if tone is PAPER:
        value = f"var({_LAB_PAPER},{value})"
    return f"--ws-{tone.name}:{value}"
