"""Design tokens: colours that everybody can tell apart, on a light ground and on a dark one."""

from itertools import combinations

import pytest
from coloraide import Color

from tests.support.sights import APART, SIGHTS, as_seen
from worldsize.figures import tokens
from worldsize.figures.tokens import Tone

PALETTES = {"ranks": tokens.RANKS, "phases": tokens.PHASES, "algorithms": tokens.ALGORITHMS}
THEMES = ["light", "dark"]
TEXT = [tokens.INK, tokens.QUIET_INK, tokens.GOOD, tokens.BAD, tokens.NOTE, tokens.SYNCHRONOUS_NAME]

pytestmark = pytest.mark.quick


def seen(tone: Tone, theme: str, sight: tuple[str, str] | None) -> Color:
    return as_seen(Color(getattr(tone, theme)), sight)


def contrast(tone: Tone, theme: str) -> float:
    return Color(getattr(tone, theme)).contrast(Color(getattr(tokens.PAPER, theme)), method="wcag21")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SIGHTS, ids=str)
@pytest.mark.parametrize("palette", PALETTES)
def test_any_two_of_a_palette_are_told_apart(palette: str, sight: tuple[str, str] | None, theme: str) -> None:
    colours = [seen(tone, theme, sight) for tone in PALETTES[palette]]
    assert len(colours) >= 6
    assert min(one.delta_e(other, method="2000") for one, other in combinations(colours, 2)) >= APART


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("palette", PALETTES)
def test_a_palette_stands_out_from_its_ground(palette: str, theme: str) -> None:
    assert min(contrast(tone, theme) for tone in PALETTES[palette]) >= 3


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("palette", PALETTES)
def test_a_hatch_is_seen_on_every_tone(palette: str, theme: str) -> None:
    lines = Color(getattr(tokens.HATCH, theme))
    assert min(lines.contrast(Color(getattr(tone, theme)), method="wcag21") for tone in PALETTES[palette]) >= 2


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("tone", TEXT, ids=lambda tone: tone.name)
def test_text_is_read_on_its_ground(tone: Tone, theme: str) -> None:
    assert contrast(tone, theme) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_no_two_tones_are_one_colour(theme: str) -> None:
    values = [getattr(tone, theme).lower() for tone in tokens.ALL]
    assert len(set(values)) == len(values)
    assert len({tone.name for tone in tokens.ALL}) == len(tokens.ALL)


def test_beyond_six_a_rank_has_another_marker_hatch_or_dash() -> None:
    count = 24
    looks = {
        (rank % 6, tokens.HATCHES[rank % len(tokens.HATCHES)], tokens.MARKERS[rank % len(tokens.MARKERS)])
        for rank in range(count)
    }
    arrows = {(rank % 6, tokens.DASHES[rank // 6 % len(tokens.DASHES)]) for rank in range(count)}
    assert len(looks) == len(arrows) == count
