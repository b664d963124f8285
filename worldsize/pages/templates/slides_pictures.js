// Makes the text of a slide's pictures readable from the last row: at least LEAST_REM high, 18 pixels at 1280 × 720.
// A picture loses its empty margins; then its small text grows where there is room; then `closer` steps show it piece by piece.
const LEAST_REM = 1.125;
const MOST_GROWTH = 1.4; // of a text: more would cover the marks beside it
const MOST_CLOSER = 2.5;
const MARGIN = 5; // of a drawing, in its own units
const SLACK = 0.02; // of a text's size: what rounding may take
const TIGHT = 0.89; // of the least size is enough for a text that fills a mark: 16 pixels
const HAIR = 4; // pixels; a text may meet a thinner mark, such as a line
const BORDER = 2; // pixels by which a text may reach over its mark

const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);
const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
const inside = (a, b, over = 1) =>
  a.left >= b.left - over && a.right <= b.right + over && a.top >= b.top - over && a.bottom <= b.bottom + over;

// a text's size in its drawing's units; `scale` of the drawing makes pixels of it
const sizeOf = (text) => parseFloat(getComputedStyle(text).fontSize) * Math.hypot(...localScale(text));
function localScale(text) {
  const matrix = text.ownerSVGElement.getScreenCTM().inverse().multiply(text.getScreenCTM());
  return [matrix.a, matrix.b];
}
const scaleOf = (svg) => svg.getScreenCTM().a;

function trim(svg) {
  const view = svg.viewBox.baseVal;
  const drawn = svg.getBBox();
  const [left, top] = [Math.max(view.x, drawn.x - MARGIN), Math.max(view.y, drawn.y - MARGIN)];
  const right = Math.min(view.x + view.width, drawn.x + drawn.width + MARGIN);
  const bottom = Math.min(view.y + view.height, drawn.y + drawn.height + MARGIN);
  svg.setAttribute("viewBox", [left, top, right - left, bottom - top].join(" "));
}

// Enlarge each small text to the least size, or as far as it meets no other text or mark and stays in its own mark, such as a
// bar or its ground. Return the smallest size that is left, as a share of the least.
function enlarge(svg, texts) {
  const least = (LEAST_REM * rem()) / scaleOf(svg);
  const frame = svg.getBoundingClientRect();
  const marks = [...svg.querySelectorAll("path, rect, use")].map((mark) => mark.getBoundingClientRect());
  let smallest = Infinity;
  for (const text of texts) {
    const before = sizeOf(text);
    const own = parseFloat(getComputedStyle(text).fontSize);
    if (before >= least) continue;
    const small = text.getBoundingClientRect();
    const others = texts.filter((other) => other !== text).map((other) => other.getBoundingClientRect());
    const met = others.filter((other) => meet(other, small)).length;
    const bounds = marks.filter((mark) => mark.width < frame.width / 2 && inside(small, mark));
    const free = marks.filter((mark) => Math.min(mark.width, mark.height) > HAIR && !meet(mark, small));
    for (const share of least <= MOST_GROWTH * before ? [1, 0.5, 0] : []) {
      text.style.fontSize = `${own * (1 + share * (least / before - 1))}px`;
      const now = text.getBoundingClientRect();
      const held = bounds.every((mark) => inside(now, mark, BORDER)) && !free.some((mark) => meet(mark, now));
      if (held && inside(now, frame) && others.filter((other) => meet(other, now)).length <= met) break;
    }
    if (bounds.length && sizeOf(text) >= TIGHT * least) text.dataset.tight = "";
    else smallest = Math.min(smallest, sizeOf(text) / least);
  }
  return smallest;
}

// Add steps that show the picture's pieces, `factor` times as large, left to right and top to bottom.
function addCloser(svg, factor) {
  const view = svg.viewBox.baseVal;
  const [width, height] = [svg.clientWidth, svg.clientHeight].map((side) => side / scaleOf(svg) / factor);
  const starts = (from, whole, piece) => {
    const pieces = Math.max(1, Math.ceil(whole / piece - SLACK));
    const first = whole < piece ? from + (whole - piece) / 2 : from;
    return Array.from({ length: pieces }, (_, k) => first + (pieces > 1 ? (k * (whole - piece)) / (pieces - 1) : 0));
  };
  svg.dataset.whole = svg.getAttribute("viewBox");
  for (const top of starts(view.y, view.height, height)) {
    for (const left of starts(view.x, view.width, width)) {
      const step = document.createElement("i");
      step.className = "step closer";
      step.dataset.view = [left, top, width, height].join(" ");
      svg.closest("figure").append(step);
    }
  }
}

function makeReadable(svg) {
  trim(svg);
  const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim());
  const share = enlarge(svg, texts);
  if (share < 1 - SLACK) addCloser(svg, Math.min(MOST_CLOSER, 1 / share));
}

// Show the piece of the last step that was taken, else the whole picture.
function lookCloser(slide) {
  const taken = [...slide.querySelectorAll(".closer.seen")].at(-1);
  const svg = slide.querySelector(".picture > svg[data-whole]");
  svg?.setAttribute("viewBox", taken?.dataset.view ?? svg.dataset.whole);
}

// A player is as large as its slide allows, and its own text is not small.
function fitPlayer(slide) {
  const player = slide.querySelector(".ws-steps, .ws-replay");
  if (!player?.shadowRoot) return;
  const room = player.parentElement;
  const style = player.shadowRoot.querySelector(".on-slides") ?? document.createElement("style");
  style.className = "on-slides";
  player.shadowRoot.append(style);
  for (let zoom = 1.6; zoom > 0.9; zoom -= 0.05) {
    player.style.zoom = zoom * (rem() / 16);
    const small = (LEAST_REM * 16) / zoom;
    style.textContent = `text, .scene text, .track, .note { font-size: ${small}px; }
      .note { line-height: 1.2; } .band { margin-top: 4px; }`;
    if (room.scrollHeight <= room.clientHeight + 1) break;
  }
}
