"""How well text and pictures can be read on their ground: of a moving view, and of a whole page."""

from typing import Any

from playwright.sync_api import Locator, Page

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


# WCAG 2: 4.5 for text (1.4.3), 3 for what a picture is drawn with (1.4.11). A ground is what lies under it, layer by layer.
_TOO_LOW = """() => {
  const parse = (colour) => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = (top, under) => [0, 1, 2].map((k) => top[k] * top[3] + under[k] * (1 - top[3])).concat(1);
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const above = (element) => element.parentElement ?? element.getRootNode().host;
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = above(at)) layers.unshift(parse(getComputedStyle(at).backgroundColor));
    return layers.reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const low = [];
  const look = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) look(element.shadowRoot);
      if (!element.checkVisibility({ opacityProperty: true })) continue;
      if (element.matches("style, script, option, button:disabled")) continue;
      const svg = element.closest("svg"), style = getComputedStyle(element);
      const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      const paint = svg ? style.fill : style.color;
      if (says && paint !== "none") {
        const disc = element.previousElementSibling;  // of a rank that works, on which its number stands
        let under = ground(svg ?? element);
        if (svg && disc?.matches("circle.works")) under = over(parse(getComputedStyle(disc).fill), under);
        const found = contrast(over(parse(paint), under), under);
        if (found < 4.5) low.push(["text", element.textContent.trim().slice(0, 40), found]);
      }
      if (!element.matches(".worldsize-picture, .ws-steps, .ws-replay")) continue;
      for (const rule of DRAWN) {
        const value = style.getPropertyValue(`--ws-${rule}`).trim();
        if (!value) continue;
        const tone = [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16));
        const found = contrast(tone, ground(element));
        if (found < 3) low.push(["tone", rule, found]);
      }
    }
  };
  const DRAWN = ["ink", "quiet-ink", "good", "bad", "note"];
  for (const palette of ["rank", "phase", "algorithm"]) {
    for (let number = 0; number < 6; number++) DRAWN.push(`${palette}-${number}`);
  }
  look(document.querySelector("main"));
  return low;
}"""


def too_low(page: Page) -> list[Any]:
    """Each text under 4.5, and each tone of a picture under 3, with its contrast with what lies under it."""
    return page.evaluate(_TOO_LOW)
