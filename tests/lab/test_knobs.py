"""Knobs: the picture is drawn anew with what was chosen, and what goes wrong is said beside the controls."""

from types import SimpleNamespace

import pytest

from worldsize.figures.base import notice
from worldsize.lab.knobs import Panel, knobs
from worldsize.launch import launch
from worldsize.launch.run import Observer, observe, unobserved

pytestmark = pytest.mark.quick


@pytest.fixture
def shown(monkeypatch):
    """What was put on display, in order, with later updates taken in."""
    bundles = []

    def display(bundle, raw=False, display_id=False):
        bundles.append(bundle)
        return SimpleNamespace(update=lambda later, raw: bundle.update(later))

    monkeypatch.setattr("IPython.display.display", display)
    return bundles


@pytest.fixture
def panel(shown):
    """Of `race`, with its default values, on display."""
    made = Panel(race, {"ranks": [2, 4], "link": ["slow", "quick"]}, {"ranks": 2, "link": "slow"})
    made.show(race())
    return made


def race(ranks=2, link="slow"):
    if (ranks, link) == (4, "quick"):
        raise ValueError("four are too many\nand more words")
    return notice(f"{ranks} ranks over {link} links")


def test_headless_the_picture_is_all(shown, monkeypatch):
    monkeypatch.setenv("WORLDSIZE_HEADLESS", "1")
    knobs(race, ranks=[2, 4])
    assert [picture.alt for picture in shown] == ["2 ranks over slow links"]


def test_in_a_live_kernel_one_widget_holds_controls_and_picture_and_the_picture_stays_behind_it(shown, monkeypatch):
    monkeypatch.delenv("WORLDSIZE_HEADLESS", raising=False)
    knobs(race, ranks=[2, 4])
    assert ["application/vnd.jupyter.widget-view+json" in bundle for bundle in shown] == [True, False]
    assert shown[-1]["text/plain"].startswith("2 ranks over slow links")


def test_a_chosen_value_draws_the_picture_anew(panel):
    panel.fields["ranks"].value = 4
    assert 'alt="4 ranks over slow links"' in panel.picture.value
    assert "drawn with ranks = 4, link = slow" in panel.status.value


def test_a_page_that_takes_no_updates_of_outputs_has_the_new_picture_in_the_widget(monkeypatch):
    monkeypatch.setattr("IPython.display.display", lambda *a, **k: SimpleNamespace(update=lambda *a, **k: None))
    panel = Panel(race, {"ranks": [2, 4]}, {"ranks": 2})
    panel.show(race())
    panel.fields["ranks"].value = 4
    assert 'alt="4 ranks over slow links"' in panel.picture.value


def test_the_button_draws_again_with_the_same_values(panel):
    panel.picture.value = ""
    panel.again.click()
    assert 'alt="2 ranks over slow links"' in panel.picture.value


def test_without_a_kernel_the_last_picture_stays_with_the_values_that_were_chosen(panel, shown):
    panel.fields["link"].value = "quick"
    assert shown[-1]["text/plain"] == (
        "2 ranks over quick links\nwith ranks = 2, link = quick; run this cell for the controls"
    )
    assert 'alt="2 ranks over quick links"' in shown[-1]["text/html"]


def test_what_goes_wrong_is_said_beside_the_controls_and_in_the_picture(panel):
    panel.fields["link"].value = "quick"
    panel.fields["ranks"].value = 4
    assert "failed: four are too many" in panel.status.value and "more words" not in panel.status.value
    assert 'alt="ValueError: four are too many"' in panel.picture.value


def test_after_a_failure_the_next_value_draws(panel):
    panel.fields["link"].value = "quick"
    panel.fields["ranks"].value = 4
    panel.fields["link"].value = "slow"
    assert 'alt="4 ranks over slow links"' in panel.picture.value


def test_what_cannot_be_drawn_is_said_too(shown):
    panel = Panel(lambda ranks=2: None, {"ranks": [2]}, {"ranks": 2})
    panel.show(notice("first"))
    panel.again.click()
    assert "failed: " in panel.status.value and "object has no attribute" in panel.status.value


def test_a_stop_is_said_and_the_kernel_goes_on(shown):
    def stopped(ranks=2):
        raise KeyboardInterrupt

    panel = Panel(stopped, {"ranks": [2]}, {"ranks": 2})
    panel.show(notice("first"))
    panel.again.click()
    assert "stopped" in panel.status.value


def test_a_launch_for_a_picture_that_is_drawn_anew_is_shown_to_nobody(shown):
    told = []

    class Noting(Observer):
        def ended(self, run):
            told.append(run.state)

    def draw(ranks=1):
        return notice(f"rank {launch(lambda: 7, ranks)[0]}")

    with unobserved():
        observe(Noting())
        panel = Panel(draw, {"ranks": [1]}, {"ranks": 1})
        panel.show(draw())
        panel.again.click()
        assert told == ["done"]
        assert 'alt="rank 7"' in panel.picture.value

        launch(lambda: 8, 1)
        assert told == ["done", "done"]


def test_a_name_that_the_function_does_not_take_is_refused():
    with pytest.raises(ValueError, match="race takes no 'rank'; expected some of ranks, link"):
        knobs(race, rank=[2, 4])


def test_a_default_that_is_not_among_the_choices_is_refused():
    with pytest.raises(ValueError, match=r"one of \[4, 8\] as default for 'ranks', got the default 2"):
        knobs(race, ranks=[4, 8])


def test_a_missing_default_is_refused():
    with pytest.raises(ValueError, match="got no default"):
        knobs(lambda ranks: None, ranks=[2])
