// The live view of a run: draws what live.py sends. Plain DOM and SVG, nothing fetched.
//
// A message holds all that is known ("whole") or what is new. After a gap in the numbers nothing is believed until the
// next whole one, which is asked for and comes by itself once a second. Left out: what stays when the run has ended.

const MARKS = {
  starting: "○", running: "▶", waiting: "‖", done: "✔", failed: "✘", stopped: "■", ended: "■", interrupted: "■", "not yet": "–",
};
const SHAPES = [
  "M6 1a5 5 0 1 0 .01 0z", "M1.5 1.5h9v9h-9z", "M6 1l5.5 10h-11z", "M6 .5L11.5 6 6 11.5.5 6z",
  "M6 11L.5 1h11z", "M4 1h4v3h3v4H8v3H4V8H1V4h3z", "M3 1l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z",
  "M6 .5l1.6 3.7 4 .4-3 2.7.9 3.9L6 9.2l-3.5 2 .9-3.9-3-2.7 4-.4z",
];
const DASHES = ["", "9 2.5", "4.5 2.5", "1.5 1.5", "9 2.5 1.5 2.5"];
const STALE_MS = 3000;
const SAY_MS = 3000;
const PLOT = { height: 150, left: 44, right: 10, top: 6, bottom: 18 };

const CSS = `
.ws-live {
  --ws-back: var(--jp-layout-color0, #ffffff); --ws-ink: var(--jp-content-font-color0, #1a1a1a);
  --ws-quiet: #595959; --ws-rule: #c8c8c8; --ws-bad: #b3261e; --ws-bad-back: #fdf0ef; --ws-bar: #0072b2;
  --ws-c0: #0072b2; --ws-c1: #d55e00; --ws-c2: #00835f; --ws-c3: #b8538c;
  --ws-c4: #a06a00; --ws-c5: #2a86bd; --ws-c6: #000000; --ws-c7: #767676;
  color: var(--ws-ink); background: var(--ws-back); padding: 4px 2px; line-height: 1.4;
  font-family: var(--jp-ui-font-family, system-ui, sans-serif); font-size: var(--jp-ui-font-size1, 13px);
}
body[data-jp-theme-light="false"] .ws-live, body[data-vscode-theme-kind="vscode-dark"] .ws-live {
  --ws-back: var(--jp-layout-color0, #111111); --ws-ink: var(--jp-content-font-color0, #f0f0f0);
  --ws-quiet: #b8b8b8; --ws-rule: #5c5c5c; --ws-bad: #ff8a80; --ws-bad-back: #3a1512; --ws-bar: #4ba3e3;
  --ws-c0: #4ba3e3; --ws-c1: #ff7f2a; --ws-c2: #2fc28f; --ws-c3: #e59cc5;
  --ws-c4: #e6b422; --ws-c5: #8fd3ff; --ws-c6: #ffffff; --ws-c7: #9a9a9a;
}
.ws-head { display: flex; flex-wrap: wrap; gap: 2px 14px; align-items: baseline; margin-bottom: 4px; }
.ws-head strong { font-weight: 600; }
.ws-quiet, .ws-facts { color: var(--ws-quiet); }
.ws-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.ws-charts { display: flex; flex-wrap: wrap; gap: 8px 16px; }
.ws-chart { flex: 1 1 260px; min-width: 0; margin: 0 0 6px; }
.ws-chart svg { display: block; width: 100%; height: ${PLOT.height}px; overflow: visible; }
.ws-chart text { fill: var(--ws-ink); font-size: 11px; }
.ws-chart .ws-grid { stroke: var(--ws-rule); stroke-width: 1; }
.ws-cards {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--ws-card, 300px)), 1fr)); gap: 6px;
  max-height: 36em; overflow: auto;
}
.ws-host { grid-column: 1 / -1; font-weight: 600; margin-top: 2px; }
.ws-card { border: 1px solid var(--ws-rule); border-radius: 3px; padding: 3px 6px; min-width: 0; }
.ws-card[data-state="failed"] { order: -1; border: 2px solid var(--ws-bad); background: var(--ws-bad-back); }
.ws-name { display: flex; gap: 6px; align-items: baseline; }
.ws-name svg { width: 12px; height: 12px; flex: none; align-self: center; stroke: var(--ws-ink); stroke-width: .6; }
.ws-name strong { flex: none; font-weight: 600; }
.ws-doing { min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ws-card[data-state="failed"] .ws-doing { color: var(--ws-bad); font-weight: 600; white-space: normal; }
.ws-facts { min-height: 1.4em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ws-share { height: 6px; border: 1px solid var(--ws-quiet); margin: 2px 0; }
.ws-share div { height: 100%; background: var(--ws-bar); }
.ws-live pre.ws-tail {
  margin: 2px 0; padding: 0; height: var(--ws-tail); overflow: auto; color: var(--ws-ink); background: transparent;
  font: 12px/1.35 var(--jp-code-font-family, ui-monospace, monospace); white-space: pre-wrap; word-break: break-all;
}
.ws-live :focus-visible { outline: 2px solid var(--ws-bar); outline-offset: -2px; }
`;

function element(tag, className, parent, attributes = {}) {
  const made = tag === "svg" || tag === "path" || tag === "text" || tag === "line"
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  if (className) made.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.append(made);
  return made;
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ---- what is known of the run ------------------------------------------------------------------------------------

class Known {
  constructor() {
    this.seq = -1;
    this.ranks = new Map();
  }

  // Takes a message in. False where it must be dropped, since one before it is missing.
  take(message) {
    if (!message.whole && message.seq !== this.seq + 1) return false;
    if (message.whole && message.seq < this.seq) return true;
    this.seq = message.seq;
    this.at = message.at;
    this.state = message.state;
    this.keep = message.keep_lines;
    for (const news of message.ranks) this.merge(news, message.whole);
    return true;
  }

  merge(news, whole) {
    const before = this.ranks.get(news.rank);
    const rank = { ...news, changed: true };
    rank.tail = whole ? news.tail : [...before.tail, ...news.add].slice(-this.keep);
    rank.curves = whole ? {} : before.curves;
    for (const [name, part] of Object.entries(news.curves)) {
      const curve = (rank.curves[name] ??= { x: [], y: [] });
      for (const axis of ["x", "y"]) {
        curve[axis].length = part.at;
        curve[axis].push(...part[axis]);
      }
    }
    this.ranks.set(news.rank, rank);
  }
}

// ---- one rank ----------------------------------------------------------------------------------------------------

class Card {
  constructor(parent, { rank, name, host }, tailLines) {
    const called = host ? `${name} on ${host}` : name;
    this.root = element("section", "ws-card", parent, { "data-rank": rank, "aria-label": called });
    const title = element("div", "ws-name", this.root);
    shape(element("svg", "", title, { viewBox: "0 0 12 12", "aria-hidden": "true" }), rank);
    write(element("strong", "", title), called);
    this.doing = element("span", "ws-doing", title);
    this.share = element("div", "ws-share", this.root, {
      role: "progressbar", "aria-label": `progress of ${called}`, "aria-valuemin": 0, "aria-valuemax": 100, hidden: "",
    });
    this.bar = element("div", "", this.share);
    this.place = element("div", "ws-facts", this.root);
    this.facts = element("div", "ws-facts", this.root);
    // Lab takes the arrow keys of a focused element for itself unless the element says this
    this.tail = element("pre", "ws-tail", this.root, {
      tabindex: 0, "data-lm-suppress-shortcuts": "true", role: "region", "aria-label": `last lines of ${called}`,
    });
    this.tail.style.setProperty("--ws-tail", `${tailLines * 1.35 * 12}px`);
    this.pinned = true;
    this.tail.addEventListener("scroll", () => {
      this.pinned = this.tail.scrollTop + this.tail.clientHeight >= this.tail.scrollHeight - 20;
    });
  }

  draw(rank) {
    this.root.dataset.state = rank.state;
    this.root.dataset.lines = rank.lines;
    const words = rank.doing || rank.state;
    write(this.doing, `${MARKS[rank.state] ?? ""} ${words}`);
    this.doing.title = words;
    this.share.hidden = rank.share === null;
    this.bar.style.width = `${100 * (rank.share ?? 0)}%`;
    this.share.setAttribute("aria-valuenow", Math.round(100 * (rank.share ?? 0)));
    write(this.place, [rank.place, rank.values].filter(Boolean).join(" · "));
    this.place.hidden = !rank.place && !rank.values;
    const lines = rank.lines === 1 ? "1 line" : `${rank.lines.toLocaleString("en")} lines`;
    write(this.facts, [rank.traffic, lines].filter(Boolean).join(" · "));
    write(this.tail, rank.tail.join("\n"));
    if (this.pinned) this.tail.scrollTop = 1e9;
  }
}

function shape(svg, rank) {
  element("path", "", svg, { d: SHAPES[rank % SHAPES.length], style: `fill: var(--ws-c${rank % SHAPES.length})` });
}

// ---- curves ------------------------------------------------------------------------------------------------------

class Chart {
  constructor(parent, name) {
    this.name = name;
    const figure = element("figure", "ws-chart", parent);
    this.caption = element("figcaption", "", figure);
    this.svg = element("svg", "", figure, { role: "img" });
    this.paths = new Map();
    this.grid = [];
  }

  draw(ranks) {
    const curves = ranks.filter((rank) => rank.curves[this.name]?.x.length);
    if (!curves.length) return;
    write(this.caption, `${this.name}, by ${curves[0].x}`);
    const width = this.svg.clientWidth || 400;
    const [x0, x1] = extent(curves.flatMap((rank) => ends(rank.curves[this.name].x)));
    const [y0, y1] = extent(curves.flatMap((rank) => range(rank.curves[this.name].y)));
    const px = (x) => PLOT.left + ((x - x0) / (x1 - x0)) * (width - PLOT.left - PLOT.right);
    const py = (y) => PLOT.height - PLOT.bottom - ((y - y0) / (y1 - y0)) * (PLOT.height - PLOT.top - PLOT.bottom);
    this.axes(width, px, py, [x0, x1], [y0, y1]);
    curves.forEach((rank, index) => this.line(rank, index, curves.length, px, py));
    const latest = curves.map((rank) => `${rank.name} ${digits(rank.curves[this.name].y.at(-1))}`);
    this.svg.setAttribute("aria-label", `${this.name} by rank, now: ${latest.slice(0, 8).join(", ")}`);
  }

  line(rank, index, count, px, py) {
    let made = this.paths.get(rank.rank);
    if (!made) {
      const colour = `var(--ws-c${rank.rank % SHAPES.length})`;
      const dash = DASHES[rank.rank % DASHES.length];
      made = {
        path: element("path", "ws-line", this.svg, {
          "data-rank": rank.rank, fill: "none", "stroke-width": 1.6, "stroke-dasharray": dash, style: `stroke: ${colour}`,
        }),
        mark: element("path", "", this.svg, {
          d: SHAPES[rank.rank % SHAPES.length], style: `fill: ${colour}; stroke: var(--ws-ink); stroke-width: .6`,
        }),
      };
      this.paths.set(rank.rank, made);
    }
    const { x, y } = rank.curves[this.name];
    let d = "", pen = "M", marked = -1;
    // the ranks' marks stand at different places, so that each is seen where curves coincide
    const wanted = Math.floor((x.length - 1) * (1 - (0.7 * index) / Math.max(1, count)));
    for (let i = 0; i < x.length; i++) {
      if (y[i] === null) pen = "M"; // not a finite number: a gap
      else {
        d += `${pen}${px(x[i]).toFixed(1)} ${py(y[i]).toFixed(1)}`;
        pen = "L";
        if (i <= wanted) marked = i;
      }
    }
    made.path.setAttribute("d", d);
    made.path.dataset.points = x.length;
    if (marked >= 0) made.mark.setAttribute("transform", `translate(${px(x[marked]) - 5} ${py(y[marked]) - 5}) scale(.84)`);
  }

  axes(width, px, py, [x0, x1], [y0, y1]) {
    for (const node of this.grid) node.remove();
    this.grid = [];
    const add = (tag, attributes, text) => {
      const node = element(tag, tag === "line" ? "ws-grid" : "", null, attributes);
      if (text !== undefined) node.textContent = text;
      this.svg.prepend(node);
      this.grid.push(node);
    };
    for (const y of ticks(y0, y1, 3)) {
      add("line", { x1: PLOT.left, x2: width - PLOT.right, y1: py(y), y2: py(y) });
      add("text", { x: PLOT.left - 5, y: py(y) + 4, "text-anchor": "end" }, digits(y));
    }
    for (const x of ticks(x0, x1, 5)) add("text", { x: px(x), y: PLOT.height - 4, "text-anchor": "middle" }, digits(x));
  }
}

const digits = (value) => (value === null ? "not a number" : String(Number(value.toPrecision(3))));
const ends = (values) => [values[0], values.at(-1)];

function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [];
}

function extent(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (!(low <= high)) return [0, 1];
  return low < high ? [low, high] : [low - 0.5, high + 0.5];
}

function ticks(low, high, about) {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n++) found.push(n * step);
  return found;
}

// ---- the view ----------------------------------------------------------------------------------------------------

class View {
  constructor(el) {
    this.known = new Known();
    this.cards = new Map();
    this.charts = new Map();
    this.root = element("div", "ws-live", el, { role: "group", "aria-label": "live view of the run" });
    write(element("style", "", this.root), CSS);
    const head = element("div", "ws-head", this.root);
    this.state = element("strong", "", head);
    this.time = element("span", "ws-time", head);
    this.counts = element("span", "ws-quiet", head);
    this.late = element("span", "ws-quiet", head);
    this.said = element("span", "ws-hidden", this.root, { role: "status", "aria-live": "polite" });
    this.chartRow = element("div", "ws-charts", this.root);
    this.cardGrid = element("div", "ws-cards", this.root);
    this.saidAt = -Infinity;
  }

  // True where the message was taken in; false asks for a whole one.
  take(message) {
    const taken = this.known.take(message);
    this.heard = performance.now();
    if (taken && !this.frame) this.frame = requestAnimationFrame(() => this.draw());
    return taken;
  }

  draw() {
    this.frame = 0;
    const ranks = [...this.known.ranks.values()];
    for (const rank of ranks) {
      if (!rank.changed) continue;
      rank.changed = false;
      if (!this.cards.has(rank.rank)) this.host(rank.host);
      if (!this.cards.has(rank.rank)) this.cards.set(rank.rank, new Card(this.cardGrid, rank, ranks.length > 4 ? 3 : 6));
      this.cards.get(rank.rank).draw(rank);
      for (const name of Object.keys(rank.curves)) {
        if (!this.charts.has(name)) this.charts.set(name, new Chart(this.chartRow, name));
        this.charts.get(name).stale = true;
      }
    }
    if (ranks.length === 4) this.cardGrid.style.setProperty("--ws-card", "380px"); // two and two, not three and one
    for (const chart of this.charts.values()) {
      if (chart.stale) chart.draw(ranks);
      chart.stale = false;
    }
    this.root.dataset.seq = this.known.seq;
    this.tick();
    const counts = {};
    for (const rank of ranks) counts[rank.state] = (counts[rank.state] ?? 0) + 1;
    write(this.counts, Object.entries(counts).map(([state, n]) => `${n} of ${ranks.length} ${state}`).join(", "));
    this.say(ranks);
  }

  // Ranks on several hosts stand under the name of theirs; those of one machine need none.
  host(name) {
    if (name && name !== this.lastHost) write(element("div", "ws-host", this.cardGrid), `on ${name}`);
    this.lastHost = name;
  }

  tick() {
    if (!this.known.state) return;
    const silent = performance.now() - this.heard;
    write(this.state, `${MARKS[this.known.state] ?? ""} ${this.known.state}`);
    write(this.time, `${(this.known.at + silent / 1000).toFixed(1)} s`);
    write(this.late, silent > STALE_MS ? `no news for ${Math.round(silent / 1000)} s` : "");
  }

  // For a screen reader: a failure at once, other changes of state every few seconds at most.
  say(ranks) {
    const failed = ranks.filter((rank) => rank.state === "failed").map((rank) => `${rank.name} ${rank.doing}`);
    const words = failed.length ? failed.join("; ") : this.counts.textContent;
    if (words === this.said.textContent || (!failed.length && performance.now() - this.saidAt < SAY_MS)) return;
    this.saidAt = performance.now();
    write(this.said, words);
  }
}

function render({ model, el }) {
  const view = new View(el);
  let asked = false;
  const hear = (message) => {
    const taken = view.take(message);
    if (!taken && !asked) model.send({ want: "whole" });
    asked = !taken;
  };
  view.take(model.get("first"));
  model.on("msg:custom", hear);
  const timer = setInterval(() => view.tick(), 500);
  return () => {
    clearInterval(timer);
    model.off("msg:custom", hear);
  };
}

export default { render };
