"""The replay of a page, as a reader uses it. It stands in a shadow tree, which Playwright's selectors look into."""

from playwright.sync_api import Locator, Page

STANDS = "(host) => host.shadowRoot.querySelector('.play').getAttribute('aria-label') === 'Play'"


class ReplayView:
    """The `index`-th replay that came alive."""

    def __init__(self, page: Page, index: int = 0) -> None:
        self.host: Locator = page.locator(".ws-replay").nth(index)
        self.slider = self.host.get_by_role("slider")
        self.speed = self.host.get_by_role("combobox")
        self._page = page

    def focus(self) -> None:
        self.slider.scroll_into_view_if_needed()
        self.slider.focus()

    def press(self, key: str) -> str:
        """Press a key, wherever the focus is; returns the text that is read out when the film stands."""
        self._page.keyboard.press(key)
        return self.said()

    def said(self) -> str:
        return self.host.locator(".said").inner_text()

    def title(self) -> str:
        return self.host.locator("h3").inner_text()

    def frame(self) -> int:
        return int(self.slider.input_value())

    def last(self) -> int:
        return int(self.slider.get_attribute("max") or 0)

    def arrived_bytes(self) -> list[int]:
        """Of each run, what has arrived."""
        return [int(text.get_attribute("data-bytes") or 0) for text in self.host.locator(".load").all()]

    def packets(self) -> int:
        return self.host.locator("circle.packet").count()

    def play_to_the_end(self) -> None:
        self.speed.select_option(index=3)
        self.host.get_by_role("button", name="Play").click()
        self._page.wait_for_function(
            "(host) => { const s = host.shadowRoot.querySelector('input'); return s.value === s.max; }",
            arg=self.host.element_handle(),
        )
        self._page.wait_for_function(STANDS, arg=self.host.element_handle())
