"""How well the text of a moving view can be read on its ground."""

from __future__ import annotations

from playwright.sync_api import Locator

_LEAST = """(host) => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = light(getComputedStyle(host).backgroundColor);
  const texts = [...host.shadowRoot.querySelectorAll("h3, p, button:not(:disabled), span, select, svg text")];
  return Math.min(...texts.filter((text) => !text.previousSibling?.classList?.contains("works")).map((text) => {
    const style = getComputedStyle(text);
    const [low, high] = [back, light(text.tagName === "text" ? style.fill : style.color)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }));
}"""


def least_contrast(host: Locator) -> float:
    """The smallest contrast of a text with the background of the view (WCAG 2), but for the numbers of ranks that work."""
    return host.evaluate(_LEAST)
