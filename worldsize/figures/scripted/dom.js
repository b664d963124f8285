// Code that the moving views share: making elements, the look of controls, and finding a view's place in the page.
//
// A view lives in a shadow tree, so that its styles and ids do not affect the page or other views. The picture stays in
// the page's own tree, for printing. Nothing is fetched.

const SHARED_CSS = `
:host {
  --ink: var(--ws-ink, #1a1a1a); --back: var(--ws-paper, #ffffff);
  display: block; color: var(--ink); background: var(--back); padding: 2px 4px 6px;
  font: 14px/1.4 var(--jp-ui-font-family, system-ui, sans-serif);
}
slot { display: none; }
h3, p { margin: 0; font: inherit; color: inherit; }
h3 { font-weight: 600; }
svg { display: block; }
text { fill: var(--ink); font-size: 12px; }
.bar { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; margin: 4px 0; }
.bar input { flex: 1; min-width: 120px; accent-color: var(--ink); }
button, select {
  font: inherit; color: inherit; background: var(--back); border: 1px solid var(--ink); border-radius: 4px;
  min-width: 30px; padding: 2px 8px; cursor: pointer;
}
button:disabled { opacity: .5; cursor: default; }
.play { min-width: 76px; }
:focus-visible { outline: 2px solid var(--ink); outline-offset: 1px; border-radius: 4px; }
.note { font-size: 12px; }
@media print { .live { display: none; } slot { display: inline; } }
`;

const RANK_TONES = 6; // then tones repeat, with another hatch

function rankColour(rank) {
  return `var(--ws-rank-${rank % RANK_TONES})`;
}

const SVG_TAGS = new Set(["svg", "g", "rect", "path", "text", "defs", "pattern", "marker", "circle", "line", "clipPath"]);

function make(tag, attributes, parent, text) {
  const inPicture = SVG_TAGS.has(tag);
  const made = inPicture ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// Make the frame of a moving view in its host: a named group, in a shadow tree.
function frame(host, name, css) {
  const root = host.attachShadow({ mode: "open" });
  make("style", {}, root, SHARED_CSS + css);
  const live = make("div", { class: "live", role: "group", "aria-label": name }, root);
  make("slot", {}, root);
  make("h3", {}, live, name);
  return live;
}

function button(bar, look, text, act) {
  const made = make("button", { type: "button", class: look, "aria-label": look }, bar, text);
  made.addEventListener("click", act);
  return made;
}

function showAll(kind, name, data) {
  for (const host of document.querySelectorAll(`[data-${kind}="${name}"]`)) if (!host.shadowRoot) new Player(host, data);
}
