// The moving view of a step-through: draws the data that player.py appends, in plain DOM and SVG, with dom.js. Steps, their
// words and the places of ranks come from Python.

const PLAY_MS = 1400;
const LONG = 250; // pixels; packets on longer arrows, which may cross, stand further back, where they do not meet
const LEAST_SCALE = 0.95; // of a picture, so that its text of 12 pixels keeps 11
// tiles of 8 by 8 pixels; with the colours, they tell ranks apart
const HATCHES = [
  "", "M-2 2L2-2M0 8L8 0M6 10L10 6", "M2 2h2v2h-2zM6 6h2v2h-2z", "M0 0L8 8M0 8L8 0", "M-2 6L2 10M0 0L8 8M6-2L10 2",
  "M4 0V8M0 4H8", "M2 4a2 2 0 1 0 4 0a2 2 0 1 0-4 0", "M0 2H8M0 6H8",
];

const CSS = `
:host { max-width: 800px; }
.stage { overflow-x: auto; }
svg { width: 100%; height: auto; margin: 0 auto; }
.node { fill: var(--back); stroke: var(--ink); stroke-width: 1; stroke-dasharray: 5 3; }
.node.active { stroke-width: 2.2; stroke-dasharray: none; }
.cell { stroke: var(--ink); stroke-width: .6; }
.frame { fill: none; stroke: var(--ink); stroke-width: 2.4; }
.wrong { text-anchor: middle; font-weight: 700; paint-order: stroke; stroke: var(--back); stroke-width: 3px; }
.link { fill: none; stroke: var(--ws-rule, #c8c8c8); stroke-width: 1.2; }
.arrow { fill: none; stroke: var(--ink); stroke-width: 1.8; }
.packet rect { fill: var(--back); stroke: var(--ink); stroke-width: 1.2; }
.packet { animation: fly .7s ease-out; }
@keyframes fly { from { transform: translate(var(--dx), var(--dy)); } }
.count { min-width: 96px; text-align: right; }
.said { min-height: 2.8em; }
@media (prefers-reduced-motion: reduce) { .packet { animation: none; } }
`;

// ---- one step as a picture ---------------------------------------------------------------------------------------

class Scene {
  constructor(parent, data) {
    this.data = data;
    this.svg = make("svg", { "aria-hidden": "true" }, parent);
    const defs = make("defs", {}, this.svg);
    data.stages[0].at.forEach((_, rank) => hatch(defs, rank));
    const head = { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" };
    make("path", { d: "M0 0L8 4L0 8z", style: "fill: var(--ink)" }, make("marker", head, defs));
    this.layer = make("g", {}, this.svg);
    this.fit(Infinity);
  }

  // Choose the stage for this many pixels, so that text keeps its size. Return true where the stage changes.
  fit(room) {
    const { stages } = this.data; // the widest first
    const stage = stages.find(({ width }) => room >= LEAST_SCALE * width) ?? stages.at(-1);
    if (stage === this.stage) return false;
    this.stage = stage;
    this.svg.setAttribute("viewBox", `0 0 ${stage.width} ${stage.height}`);
    this.svg.setAttribute("style", `min-width: ${Math.ceil(LEAST_SCALE * stage.width)}px; max-width: ${1.1 * stage.width}px`);
    return true;
  }

  draw(number, moving) {
    const { steps, links } = this.data;
    const step = number ? steps[number - 1] : { messages: [], doing: {} };
    const active = new Set(step.messages.flatMap(([src, dst]) => [src, dst]));
    const cells = this.cellsAfter(number);
    this.layer.replaceChildren();
    for (const [src, dst] of links) make("path", { class: "link", d: this.path(src, dst).d }, this.layer);
    const paths = step.messages.map(([src, dst]) => this.path(src, dst));
    for (const { d } of paths) make("path", { class: "arrow", d, "marker-end": "url(#head)" }, this.layer);
    for (let rank = 0; rank < this.stage.at.length; rank++) {
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
    const [w, h] = this.stage.box;
    const [left, top] = [this.stage.at[rank][0] - w / 2, this.stage.at[rank][1] - h / 2];
    const wide = w > 60;
    const group = make("g", { "data-rank": rank, "data-doing": words }, this.layer);
    make("rect", { class: active ? "node active" : "node", x: left, y: top, width: w, height: h, rx: 6 }, group);
    make("rect", { class: "cell", x: left + 6, y: top + 7, width: 14, height: 14, fill: `url(#rank${rank})` }, group);
    make("text", { x: left + 25, y: top + 18.5 }, group, wide ? `rank ${rank}` : rank);
    const below = { x: left + w / 2, y: top + h + 13, "text-anchor": "middle" };
    if (words) make("text", below, group, this.stage === this.data.stages[0] && wide ? words : word);
    cells.forEach((code, chunk) => this.column(group, left, top + 26, chunk, code, changed.includes(chunk), cells.length));
  }

  // Draw one chunk: a row for each rank, filled where that rank's number is in the chunk.
  column(group, left, top, chunk, code, changed, chunks) {
    const [cw, ch] = this.stage.cell;
    const n = this.stage.at.length;
    const x = left + this.stage.box[0] / 2 + (chunk - chunks / 2) * cw;
    for (let rank = 0; rank < n; rank++) {
      const fill = code[rank] > 0 ? `url(#rank${rank})` : "var(--back)";
      make("rect", { class: "cell", x, y: top + rank * ch, width: cw, height: ch, fill }, group);
    }
    const most = Math.max(...code);
    const wrong = code === "?" ? "?" : most > 1 ? `${most}×` : "";
    if (wrong) make("text", { class: "wrong", x: x + cw / 2, y: top + (n * ch) / 2 + 4 }, group, wrong);
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
    const aside = 2 * Math.min(this.stage.bend[0], this.stage.bend[1] / Math.max(1, Math.hypot(dx, dy)));
    const via = [(a[0] + b[0]) / 2 + aside * dy, (a[1] + b[1]) / 2 - aside * dx];
    const t = Math.hypot(dx, dy) > LONG ? 0.3 : 0.4;
    const on = (k) => (1 - t) ** 2 * a[k] + 2 * t * (1 - t) * via[k] + t * t * b[k];
    return { d: `M${a}Q${via} ${b}`, x: on(0), y: on(1), from: a };
  }

  // Return the point at which the line between two ranks leaves the first rank's box.
  edge(rank, towards) {
    const [x, y] = this.stage.at[rank];
    const [dx, dy] = [this.stage.at[towards][0] - x, this.stage.at[towards][1] - y];
    const [w, h] = this.stage.box;
    const share = Math.min((w / 2 + 3) / Math.abs(dx), (h / 2 + 3) / Math.abs(dy));
    return [Math.round(x + share * dx), Math.round(y + share * dy)];
  }
}

function hatch(defs, rank) {
  const pattern = make("pattern", { id: `rank${rank}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" }, defs);
  make("rect", { width: 8, height: 8, style: `fill: ${rankColour(rank)}` }, pattern);
  const d = HATCHES[rank % HATCHES.length];
  make("path", { d, stroke: "var(--ws-hatch, #121212)", "stroke-width": 1.4, fill: "none" }, pattern);
}

// ---- the controls ------------------------------------------------------------------------------------------------

class Player {
  constructor(host, data) {
    this.data = data;
    this.last = data.steps.length;
    this.number = data.cells.length ? 0 : 1; // without chunks, nothing shows before the first step
    const live = frame(host, data.title, CSS);
    const stage = make("div", { class: "stage" }, live);
    this.scene = new Scene(stage, data);
    this.said = make("p", { class: "said", "aria-live": "polite" });
    this.controls(live);
    live.append(this.said);
    make("p", { class: "note" }, live, data.notes.join(" "));
    live.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.scene.fit(live.clientWidth) && this.scene.draw(this.number, false)).observe(live);
    this.go(this.number);
    this.untouched = true; // until the first move: Play then starts from the beginning
  }

  controls(live) {
    const bar = make("div", { class: "bar" }, live);
    this.play = button(bar, "play", "", () => this.toggle());
    this.back = button(bar, "step back", "◀", () => this.halt(this.number - 1));
    this.on = button(bar, "step on", "▶", () => this.halt(this.number + 1));
    this.slider = make("input", { type: "range", min: 0, max: this.last, value: 0, "aria-label": "step" }, bar);
    this.slider.addEventListener("input", () => this.halt(Number(this.slider.value)));
    this.count = make("span", { class: "count", "aria-hidden": "true" }, bar);
  }

  go(number) {
    const moving = number === this.number + 1;
    this.untouched = false;
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
    if (this.untouched) this.number = 0;
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
