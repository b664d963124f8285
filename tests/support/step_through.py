"""The step-through of a page, as a reader uses it. It stands in a shadow tree, which Playwright's selectors look into."""

import re

from playwright.sync_api import Locator, Page

from tests.support.contrast import least_contrast


class StepThrough:
    """The `index`-th step-through that came alive."""

    def __init__(self, page: Page, index: int) -> None:
        self.host: Locator = page.locator(".ws-steps").nth(index)
        self.slider = self.host.get_by_role("slider")
        self._page = page

    def focus(self) -> None:
        self.slider.scroll_into_view_if_needed()
        self.slider.click()

    def press(self, key: str) -> str:
        """Press a key, wherever the focus is; returns the text that is read out then."""
        self._page.keyboard.press(key)
        return self.said()

    def said(self) -> str:
        return self.host.locator("[aria-live=polite]").inner_text()

    def number(self) -> int:
        """The step that is shown, 0 before the first."""
        return int(self.slider.input_value())

    def last(self) -> int:
        return int(self.slider.get_attribute("max") or 0)

    def arrows(self) -> int:
        return self.host.locator("path.arrow").count()

    def filled_cells(self) -> int:
        fills = self.host.locator("g[data-rank] > rect.cell[width]").evaluate_all(
            "(cells) => cells.map((cell) => cell.getAttribute('fill'))"
        )
        return sum(bool(re.match(r"url\(#rank", fill or "")) for fill in fills)

    def least_contrast(self) -> float:
        return least_contrast(self.host)


def live_hosts(page: Page) -> list[bool]:
    """For every step-through of the page: whether its script ran."""
    return page.locator(".ws-steps").evaluate_all("(hosts) => hosts.map((host) => host.shadowRoot !== null)")


def missing_pictures(page: Page, among: str) -> list[str]:
    """The alt text of every image not to be seen, unless a moving view, its SVG or a living widget has its place."""
    return page.locator(f"{among} img").evaluate_all(
        """(images) => images
          .filter((image) => !image.closest(".ws-steps, .ws-replay")?.shadowRoot && !image.closest("details:not([open])"))
          .filter((image) => !(image.complete && image.naturalWidth > 0 && image.clientWidth > 0))
          .filter((image) => !image.closest(".worldsize-picture")?.querySelector("svg")?.getBoundingClientRect().width)
          .filter((image) => !image.closest(".jp-OutputArea-child:has(.ws-instead)")
            ?.previousElementSibling?.querySelector(".jupyter-widgets")?.clientWidth)
          .map((image) => image.alt || image.src.slice(0, 80))"""
    )


def cells_that_show_nothing(page: Page) -> list[str]:
    """The outputs of each cell that has some, but none that takes any room, but for a cell whose line has gone."""
    return page.locator(".jp-OutputArea").evaluate_all(
        """(areas) => areas
          .filter((area) => area.querySelector(".jp-OutputArea-output") && area.clientHeight < 5)
          .filter((area) => !area.querySelector(".jp-OutputArea-output > span[hidden]"))
          .map((area) => area.outerHTML.slice(0, 300))"""
    )
