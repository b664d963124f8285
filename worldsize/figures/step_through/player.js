// The moving view of a step-through: draws the data that stepper.py puts behind it. Plain DOM and SVG, nothing fetched.
//
// It lives in a shadow tree, so that several on a page, and the page itself, leave each other alone. The picture stays
// in the page's own tree, for printing. Left out: what a step is, its words, and where ranks stand (Python says).

const WIDTH = 720;
const PLAY_MS = 1400;
const LONG = 250; // arrows that may cross others have their packets further back, where they do not meet
// 8 by 8 pixels; with the colours they tell ranks apart
const HATCHES = [
  "", "M-2 2L2-2M0 8L8 0M6 10L10 6", "M2 2h2v2h-2zM6 6h2v2h-2z", "M0 0L8 8M0 8L8 0", "M-2 6L2 10M0 0L8 8M6-2L10 2",
  "M4 0V8M0 4H8", "M2 4a2 2 0 1 0 4 0a2 2 0 1 0-4 0", "M0 2H8M0 6H8",
];

const CSS = `
:host {
  --ink: var(--jp-content-font-color0, var(--vscode-foreground, #1a1a1a));
  --back: var(--jp-layout-color0, var(--vscode-editor-background, #ffffff));
  display: block; color: var(--ink); background: var(--back); max-width: ${WIDTH + 8}px; padding: 2px 4px 6px;
  font: 14px/1.4 var(--jp-ui-font-family, system-ui, sans-serif);
}
slot { display: none; }
h3, p { margin: 0; font: inherit; color: inherit; }
h3 { font-weight: 600; }
svg { display: block; width: 100%; height: auto; }
text { fill: var(--ink); font-size: 12px; }
.node { fill: var(--back); stroke: var(--ink); stroke-width: 1; stroke-dasharray: 5 3; }
.node.active { stroke-width: 2.2; stroke-dasharray: none; }
.cell { stroke: var(--ink); stroke-width: .6; }
.frame { fill: none; stroke: var(--ink); stroke-width: 2.4; }
.arrow { fill: none; stroke: var(--ink); stroke-width: 1.8; }
.packet rect { fill: var(--back); stroke: var(--ink); stroke-width: 1.2; }
.packet { animation: fly .7s ease-out; }
@keyframes fly { from { transform: translate(var(--dx), var(--dy)); } }
.bar { display: flex; gap: 6px; align-items: center; margin: 4px 0; }
.bar input { flex: 1; min-width: 60px; accent-color: var(--ink); }
button {
  font: inherit; color: inherit; background: var(--back); border: 1px solid var(--ink); border-radius: 4px;
  min-width: 30px; padding: 2px 8px; cursor: pointer;
}
button:disabled { opacity: .5; cursor: default; }
.play { min-width: 76px; }
.count { min-width: 96px; text-align: right; }
:focus-visible { outline: 3px solid var(--ink); outline-offset: 2px; }
.said { min-height: 2.8em; }
.note { font-size: 12px; }
@media (prefers-reduced-motion: reduce) { .packet { animation: none; } }
@media print { .live { display: none; } slot { display: inline; } }
`;

function make(tag, attributes, parent, text) {
  const inPicture = /^(svg|g|rect|path|text|defs|pattern|marker)$/.test(tag);
  const made = inPicture ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// ---- one step as a picture ---------------------------------------------------------------------------------------

class Scene {
  constructor(parent, data) {
    this.data = data;
    const look = { viewBox: `0 0 ${WIDTH} ${data.height}`, "aria-hidden": "true" };
    this.svg = make("svg", look, parent);
    const defs = make("defs", {}, this.svg);
    data.colours.forEach((colour, rank) => hatch(defs, rank, colour));
    const head = { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" };
    make("path", { d: "M0 0L8 4L0 8z", style: "fill: var(--ink)" }, make("marker", head, defs));
    this.layer = make("g", {}, this.svg);
  }

  draw(number, moving) {
    const { steps, at } = this.data;
    const step = number ? steps[number - 1] : { messages: [], doing: {} };
    const active = new Set(step.messages.flatMap(([src, dst]) => [src, dst]));
    const cells = this.cellsAfter(number);
    this.layer.replaceChildren();
    const paths = step.messages.map(([src, dst]) => this.path(src, dst));
    for (const { d } of paths) make("path", { class: "arrow", d, "marker-end": "url(#head)" }, this.layer);
    for (let rank = 0; rank < at.length; rank++) {
      const changed = (step.cells ?? []).filter(([of]) => of === rank).map(([, chunk]) => chunk);
      this.node(rank, active.has(rank) || !number, step.doing[rank] ?? ["", ""], cells[rank] ?? [], changed);
    }
    step.messages.forEach(([src, , label], k) => this.packet(src, label, paths[k], moving));
  }

  cellsAfter(number) {
    const cells = this.data.cells.map((row) => [...row]);
    for (const step of this.data.steps.slice(0, number)) {
      for (const [rank, chunk, code] of step.cells ?? []) cells[rank][chunk] = code;
    }
    return cells;
  }

  node(rank, active, [word, words], cells, changed) {
    const [w, h] = this.data.box;
    const [left, top] = [this.data.at[rank][0] - w / 2, this.data.at[rank][1] - h / 2];
    const wide = w > 60;
    const group = make("g", { "data-rank": rank, "data-doing": words }, this.layer);
    make("rect", { class: active ? "node active" : "node", x: left, y: top, width: w, height: h, rx: 6 }, group);
    make("rect", { class: "cell", x: left + 6, y: top + 7, width: 14, height: 14, fill: `url(#rank${rank})` }, group);
    make("text", { x: left + 25, y: top + 18.5 }, group, wide ? `rank ${rank}` : rank);
    const below = { x: left + w / 2, y: top + h + 13, "text-anchor": "middle", style: "font-size: 11px" };
    if (words) make("text", below, group, wide ? words : word);
    cells.forEach((code, chunk) => this.column(group, left, top + 26, chunk, code, changed.includes(chunk), cells.length));
  }

  // One chunk: a row for each rank, filled where that rank's number is in the chunk.
  column(group, left, top, chunk, code, changed, chunks) {
    const [cw, ch] = this.data.cell;
    const n = this.data.at.length;
    const x = left + this.data.box[0] / 2 + (chunk - chunks / 2) * cw;
    for (let rank = 0; rank < n; rank++) {
      const fill = code[rank] > 0 ? `url(#rank${rank})` : "var(--back)";
      make("rect", { class: "cell", x, y: top + rank * ch, width: cw, height: ch, fill }, group);
      if (code[rank] > 1) make("text", { x: x + 2, y: top + rank * ch + ch - 1, style: "font-size: 9px" }, group, code[rank]);
    }
    if (code === "?") make("text", { x: x + cw / 2, y: top + (n * ch) / 2 + 4, "text-anchor": "middle" }, group, "?");
    if (changed) make("rect", { class: "frame", x, y: top, width: cw, height: n * ch }, group);
  }

  packet(src, label, { x, y, from }, moving) {
    const width = 7 * label.length + 30;
    const group = make("g", { class: "packet" }, this.layer);
    if (moving) group.setAttribute("style", `--dx:${from[0] - x}px;--dy:${from[1] - y}px`);
    else group.style.animation = "none";
    make("rect", { x: x - width / 2, y: y - 10, width, height: 20, rx: 3 }, group);
    const swatch = { class: "cell", x: x - width / 2 + 4, y: y - 6, width: 12, height: 12, style: `fill: url(#rank${src})` };
    make("rect", swatch, group);
    make("text", { x: x + 9, y: y + 4.5, "text-anchor": "middle" }, group, label);
  }

  path(src, dst) {
    const [a, b] = [this.edge(src, dst), this.edge(dst, src)];
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    const aside = 2 * Math.min(this.data.bend[0], this.data.bend[1] / Math.max(1, Math.hypot(dx, dy)));
    const via = [(a[0] + b[0]) / 2 + aside * dy, (a[1] + b[1]) / 2 - aside * dx];
    const t = Math.hypot(dx, dy) > LONG ? 0.3 : 0.4;
    const on = (k) => (1 - t) ** 2 * a[k] + 2 * t * (1 - t) * via[k] + t * t * b[k];
    return { d: `M${a}Q${via} ${b}`, x: on(0), y: on(1), from: a };
  }

  // Where the line between two ranks leaves the first one's box.
  edge(rank, towards) {
    const [x, y] = this.data.at[rank];
    const [dx, dy] = [this.data.at[towards][0] - x, this.data.at[towards][1] - y];
    const [w, h] = this.data.box;
    const share = Math.min((w / 2 + 3) / Math.abs(dx), (h / 2 + 3) / Math.abs(dy));
    return [Math.round(x + share * dx), Math.round(y + share * dy)];
  }
}

function hatch(defs, rank, colour) {
  const pattern = make("pattern", { id: `rank${rank}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" }, defs);
  make("rect", { width: 8, height: 8, fill: colour }, pattern);
  const channels = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
  const bright = 0.3 * channels[0] + 0.59 * channels[1] + 0.11 * channels[2] > 110;
  const d = HATCHES[rank % HATCHES.length];
  make("path", { d, stroke: bright ? "#000000" : "#ffffff", "stroke-width": 1.4, fill: "none" }, pattern);
}

// ---- the controls ------------------------------------------------------------------------------------------------

class Player {
  constructor(host, data) {
    this.data = data;
    this.last = data.steps.length;
    const root = host.attachShadow({ mode: "open" });
    make("style", {}, root, CSS);
    const live = make("div", { class: "live", role: "group", "aria-label": data.title }, root);
    make("slot", {}, root);
    make("h3", {}, live, data.title);
    this.scene = new Scene(live, data);
    this.said = make("p", { class: "said", "aria-live": "polite" });
    this.controls(live);
    live.append(this.said);
    make("p", { class: "note" }, live, data.notes.join(" "));
    live.addEventListener("keydown", (event) => this.key(event));
    this.go(0);
  }

  controls(live) {
    const bar = make("div", { class: "bar" }, live);
    const button = (name, text, act) => {
      const made = make("button", { type: "button", class: name, "aria-label": name }, bar, text);
      made.addEventListener("click", act);
      return made;
    };
    this.play = button("play", "", () => this.toggle());
    this.back = button("step back", "◀", () => this.halt(this.number - 1));
    this.on = button("step on", "▶", () => this.halt(this.number + 1));
    this.slider = make("input", { type: "range", min: 0, max: this.last, value: 0, "aria-label": "step" }, bar);
    this.slider.addEventListener("input", () => this.halt(Number(this.slider.value)));
    this.count = make("span", { class: "count", "aria-hidden": "true" }, bar);
  }

  go(number) {
    const moving = number === this.number + 1;
    this.number = Math.max(0, Math.min(this.last, number));
    this.scene.draw(this.number, moving);
    const step = this.data.steps[this.number - 1];
    this.said.textContent = step
      ? `Step ${this.number} of ${this.last}, done at ${step.at}: ${step.text}.`
      : `Before step 1 of ${this.last}: ${this.data.start}.`;
    this.count.textContent = `step ${this.number} of ${this.last}`;
    this.slider.value = this.number;
    this.slider.setAttribute("aria-valuetext", this.count.textContent);
    this.back.disabled = this.number === 0;
    this.on.disabled = this.number === this.last;
    if (this.number === this.last) this.stop();
    this.play.textContent = this.timer ? "❚❚ Pause" : "► Play";
    this.play.setAttribute("aria-label", this.timer ? "Pause" : "Play");
  }

  halt(number) {
    this.stop();
    this.go(number);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = 0;
  }

  toggle() {
    if (this.timer) return this.halt(this.number);
    this.timer = setInterval(() => this.go(this.number + 1), PLAY_MS);
    this.go(this.number === this.last ? 0 : this.number + 1);
  }

  key(event) {
    const moves = {
      ArrowRight: this.number + 1, ArrowUp: this.number + 1, ArrowLeft: this.number - 1, ArrowDown: this.number - 1,
      Home: 0, End: this.last,
    };
    const modified = event.ctrlKey || event.altKey || event.metaKey;
    if (!modified && event.key in moves) this.halt(moves[event.key]);
    else if (event.key === " " && event.target === this.slider) this.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function showAll(name, data) {
  for (const host of document.querySelectorAll(`[data-steps="${name}"]`)) if (!host.shadowRoot) new Player(host, data);
}
