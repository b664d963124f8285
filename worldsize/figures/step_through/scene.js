// The view of a step-through, for player.js: one step as a picture. A place of the player is a step, 0 before the first. Steps,
// their words and the places of ranks come from Python.

const LONG = 250; // pixels; packets on longer arrows, which may cross, stand further back, where they do not meet
const LEAST_SCALE = 0.95; // of a picture, so that its text of 12 pixels keeps 11
// tiles of 8 by 8 pixels for ranks whose colour an earlier rank has
const HATCHES = [
  "", "M-2 2L2-2M0 8L8 0M6 10L10 6", "M2 2h2v2h-2zM6 6h2v2h-2z", "M0 0L8 8M0 8L8 0", "M-2 6L2 10M0 0L8 8M6-2L10 2",
  "M4 0V8M0 4H8", "M2 4a2 2 0 1 0 4 0a2 2 0 1 0-4 0", "M0 2H8M0 6H8",
];

class View {
  constructor(live, { bar, said }, data) {
    this.data = data;
    this.svg = make("svg", { "aria-hidden": "true" }, make("div", { class: "stage" }, live));
    live.append(bar, said);
    const defs = make("defs", {}, this.svg);
    data.stages[0].at.forEach((_, rank) => hatch(defs, rank));
    const head = { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" };
    make("path", { d: "M0 0L8 4L0 8z", style: "fill: var(--ink)" }, make("marker", head, defs));
    this.layer = make("g", {}, this.svg);
    this.fit(Infinity);
    new ResizeObserver(() => this.fit(live.clientWidth) && this.draw(this.number, false)).observe(live);
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

  // Draw a step, or what comes before the first, and return its words; `moving` lets its packets fly.
  draw(number, moving) {
    const { links, start, steps } = this.data;
    const step = number ? steps[number - 1] : { messages: [], doing: {} };
    this.number = number;
    const active = new Set(step.messages.flatMap(([src, dst]) => [src, dst]));
    const cells = this.cellsAfter(number);
    this.layer.replaceChildren();
    for (const [src, dst] of links) make("path", { class: "link", d: this.way(src, dst).d }, this.layer);
    const ways = step.messages.map(([src, dst]) => this.way(src, dst));
    for (const { d } of ways) make("path", { class: "arrow", d, "marker-end": "url(#head)" }, this.layer);
    for (let rank = 0; rank < this.stage.at.length; rank++) {
      const changed = (step.cells ?? []).filter(([of]) => of === rank).map(([, chunk]) => chunk);
      this.node(rank, active.has(rank) || !number, step.doing[rank] ?? ["", ""], cells[rank] ?? [], changed);
    }
    step.messages.forEach(([src, , label], k) => this.packet(src, label, ways[k], moving));

    const clock = `step ${number} of ${steps.length}`;
    const said = number
      ? `Step ${number} of ${steps.length}, done at ${step.at}: ${step.text}.`
      : `Before step 1 of ${steps.length}: ${start}.`;
    return { clock, said, value: clock };
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
    make("path", { class: "cell", d: rankShape(rank, left + 13, top + 14, 14), fill: `url(#rank${rank})` }, group);
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

  packet(src, label, { from, at, length }, moving) {
    const [x, y] = at(length > LONG ? 0.3 : 0.4);
    const width = 7 * label.length + 30;
    const group = make("g", { class: "packet" }, this.layer);
    if (moving) group.setAttribute("style", `--dx:${from[0] - x}px;--dy:${from[1] - y}px`);
    else group.style.animation = "none";
    make("rect", { x: x - width / 2, y: y - 10, width, height: 20, rx: 3 }, group);
    const mark = { class: "cell", d: rankShape(src, x - width / 2 + 11, y, 12), style: `fill: url(#rank${src})` };
    make("path", mark, group);
    make("text", { x: x + 9, y: y + 4.5, "text-anchor": "middle" }, group, label);
  }

  way(src, dst) {
    const from = this.edge(src, dst);
    return { from, ...curve(from, this.edge(dst, src), this.stage.bend) };
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
  const d = HATCHES[Math.floor(rank / RANK_TONES) % HATCHES.length];
  make("path", { d, stroke: "var(--ws-hatch, #121212)", "stroke-width": 1.4, fill: "none" }, pattern);
}
