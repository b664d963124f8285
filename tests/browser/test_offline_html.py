"""The run lab as nbconvert's HTML, opened from the disk with no network: every figure shows, and can be stepped through."""

from __future__ import annotations

import pytest
from lab_page import Tab
from step_through import StepThrough, cells_that_show_nothing, live_hosts, missing_pictures

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture
def tab(plain_tab: Tab, exported) -> Tab:
    plain_tab.page.route("http*://**", lambda route: route.abort())
    plain_tab.page.goto(f"file://{exported[0]}")
    return plain_tab


def test_nbconvert_finds_alternative_text_everywhere(exported):
    assert "Alternative text is missing" not in exported[1]


def test_every_figure_shows_offline(tab):
    assert missing_pictures(tab.page, ".jp-OutputArea-output") == []


def test_no_output_is_empty_offline(tab):
    assert cells_that_show_nothing(tab.page) == []


def test_the_step_throughs_work_offline(tab):
    assert live_hosts(tab.page) == [True, True]
    ring = StepThrough(tab.page, 1)
    ring.focus()
    assert ring.press("End").startswith("Step 6 of 6")
    tab.screenshot("offline")


def test_without_scripts_the_pictures_show(browser, exported):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{exported[0]}")
    assert all(box is not None and box["height"] > 100 for box in (
        page.locator(".ws-steps img").nth(index).bounding_box() for index in range(2)
    ))  # fmt: skip
    context.close()
