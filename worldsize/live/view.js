// The live view of a run: draws what view.py sends. Plain DOM and SVG, nothing fetched.
//
// A message holds all that is known ("whole") or what is new. After a gap in the numbers nothing is believed until the
// next whole one, which is asked for and comes by itself once a second. Up to 8 ranks have a card each, more a chip each
// and one card, of the rank that is chosen. The view keeps its height while it is there, and its place on the page until
// the picture has come. Everything stands on a grid of lines (room.js). Left out: that picture, what the tones are (the
// design tokens), cards and chips (ranks.js), curves (charts.js).

const STALE_MS = 3000;
const SAY_MS = 3000;
const HOLD_MS = 2000;
const MOST_PAST = 300;

const CSS = `
.ws-live {
  --ws-line: 18px;
  color: var(--ws-ink); background: var(--ws-paper); padding: 4px 2px; line-height: var(--ws-line); box-sizing: border-box;
  display: flex; flex-direction: column; overflow: hidden;
  font-family: var(--jp-ui-font-family, system-ui, sans-serif); font-size: var(--jp-ui-font-size1, 13px);
}
.ws-live * { box-sizing: border-box; }
.ws-live [hidden] { display: none !important; }
.ws-head { display: flex; flex-wrap: wrap; gap: 0 14px; align-items: baseline; margin-bottom: 4px; flex: none; }
.ws-head strong { font-weight: 600; }
.ws-quiet, .ws-facts { color: var(--ws-quiet-ink); }
.ws-key { margin-left: auto; }
.ws-narrow .ws-counts { order: 1; }
.ws-narrow .ws-key span { display: none; }
.ws-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.ws-charts { display: flex; flex-wrap: nowrap; gap: 16px; flex: none; overflow-x: auto; overflow-y: hidden; }
.ws-chart { flex: 1 1 200px; min-width: 180px; margin: 0 0 4px; }
.ws-chart svg { display: block; width: 100%; height: ${PLOT.height}px; overflow: visible; }
.ws-chart text { fill: var(--ws-ink); font-size: 11px; }
.ws-chart .ws-line.ws-pale { stroke: var(--ws-rule) !important; stroke-width: 1; stroke-dasharray: none; }
.ws-chart path.ws-pale:not(.ws-line) { display: none; }
.ws-chart .ws-mean { stroke: var(--ws-ink); stroke-width: 2; }
.ws-chart .ws-grid { stroke: var(--ws-rule); stroke-width: 1; }
.ws-room { flex: 1 1 0; min-height: 0; overflow: hidden; }
.ws-main { overflow: auto; scroll-snap-type: y mandatory; padding-top: ${FRAME}px; scroll-padding-top: ${FRAME}px; }
.ws-main:has(.ws-silent) { padding-top: 0; scroll-padding-top: 0; }
.ws-cards {
  display: grid; grid-template-columns: repeat(var(--ws-columns), minmax(0, 1fr)); gap: var(--ws-line) 14px;
  padding: 0 ${FRAME}px var(--ws-below);
}
.ws-cards.ws-silent { gap: 0; padding: 0 0 var(--ws-below); }
.ws-host { grid-column: 1 / -1; font-weight: 600; height: var(--ws-line); margin-bottom: calc(-1 * var(--ws-line)); }
.ws-silent .ws-host { margin: 0; }
.ws-host, .ws-card, .ws-chip { scroll-snap-align: start; }
.ws-card {
  outline: 1px solid var(--ws-rule); outline-offset: ${FRAME - 1}px; border-radius: 1px; min-width: 0; height: var(--ws-row);
  display: flex; flex-direction: column; overflow: hidden;
}
.ws-card > * { flex: none; }
.ws-silent .ws-card {
  display: grid; grid-template-columns: minmax(180px, 34%) 1fr; grid-template-rows: repeat(var(--ws-lines), var(--ws-line));
  column-gap: 10px; outline: 0; padding: 0 4px;
}
.ws-silent .ws-card > * { grid-column: 1; }
.ws-silent .ws-card .ws-strip { grid-column: 2; grid-row: 1 / -1; height: calc(100% - 4px); margin: 0; align-self: start; }
.ws-silent .ws-card .ws-strip:has(+ .ws-share:not([hidden])) { grid-row: 1 / -2; height: 100%; border: 0; }
.ws-silent .ws-card .ws-share { grid-column: 2; grid-row: -2 / -1; }
.ws-narrow .ws-silent .ws-card { display: flex; }
.ws-narrow .ws-silent .ws-card .ws-strip { align-self: auto; height: calc(var(--ws-line) - 4px); margin: 0 0 4px; }
.ws-narrow .ws-silent .ws-card .ws-strip:has(+ .ws-share:not([hidden])) { height: calc(var(--ws-line) - 6px); margin: 0; }
.ws-card[data-state="failed"] { order: -1; outline: 2px solid var(--ws-bad); outline-offset: ${FRAME - 2}px; }
.ws-name { display: flex; gap: 6px; align-items: baseline; }
.ws-name svg { width: 12px; height: 12px; flex: none; align-self: center; stroke: var(--ws-ink); stroke-width: .6; }
.ws-name strong { flex: none; font-weight: 600; }
.ws-doing { min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ws-card[data-state="failed"] .ws-doing { color: var(--ws-bad); font-weight: 600; white-space: normal; }
.ws-name .ws-facts { margin-left: auto; flex: 0 1 auto; min-width: 40%; text-align: right; }
.ws-brief .ws-card > .ws-facts { display: none; }
.ws-facts { height: var(--ws-line); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ws-strip {
  display: block; width: 100%; height: calc(var(--ws-line) - 4px); margin-bottom: 4px; border-bottom: 1px solid var(--ws-rule);
}
.ws-strip:has(+ .ws-share:not([hidden])) { height: calc(var(--ws-line) - 6px); margin: 0; border: 0; }
.ws-runs { fill: var(--ws-quiet-ink); }
.ws-waits { fill: var(--ws-idle); }
.ws-share { height: 6px; border: 1px solid var(--ws-quiet-ink); }
.ws-share div { height: 100%; background: var(--ws-amount); }
.ws-live .ws-card pre.ws-tail {
  margin: 0; padding: 0; flex: 1 1 0; min-height: 0; overflow: hidden auto; scrollbar-width: none; text-overflow: ellipsis;
  color: var(--ws-ink); background: transparent;
  font: 12px/var(--ws-line) var(--jp-code-font-family, ui-monospace, monospace); white-space: pre;
}
.ws-many { display: flex; gap: 10px; }
.ws-chips { flex: 1 1 58%; overflow: auto; position: relative; scroll-snap-type: y mandatory; }
.ws-chips .ws-host { height: calc(var(--ws-line) + 10px); margin: 0; }
.ws-row { display: grid; grid-template-columns: repeat(auto-fill, minmax(112px, 1fr)); gap: 4px; padding-bottom: 4px; }
.ws-chosen { flex: 1 1 42%; min-width: 0; }
.ws-live .ws-chosen .ws-card { outline: 0; border-left: 2px solid var(--ws-rule); border-radius: 0; padding: 0 6px 0 10px; }
.ws-live .ws-chosen .ws-card[data-state="failed"] { border-color: var(--ws-bad); }
.ws-narrow .ws-many { flex-direction: column; gap: 0; }
.ws-narrow .ws-chips, .ws-narrow .ws-chosen { flex: none; }
.ws-live button.ws-chip {
  font: inherit; font-size: 12px; line-height: var(--ws-line); color: var(--ws-ink); background: var(--ws-shade);
  text-align: left;
  border: 1px solid transparent; border-radius: 4px; padding: 2px 5px; cursor: pointer; height: calc(var(--ws-line) + 6px);
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
}
.ws-chip svg { width: 10px; height: 10px; margin-right: 5px; stroke: var(--ws-ink); stroke-width: .6; }
.ws-live button.ws-chip[data-state="waiting"] { background: transparent; border: 1px dashed var(--ws-quiet-ink); }
.ws-live button.ws-chip[data-state="failed"] {
  color: var(--ws-bad); background: transparent; border: 2px solid var(--ws-bad); padding: 1px 4px; font-weight: 600;
}
.ws-live button.ws-chip[aria-pressed="true"] { box-shadow: inset 0 0 0 2px var(--ws-ink); }
.ws-live :focus-visible { outline: 2px solid var(--ws-amount); outline-offset: -2px; }
`;

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
    this.absent = message.absent;
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
    rank.past = before?.past ?? [];
    if (rank.past.at(-1)?.state !== rank.state) rank.past.push({ at: this.at, state: rank.state });
    if (rank.past.length > MOST_PAST) rank.past.shift();
    this.ranks.set(news.rank, rank);
  }
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
    this.counts = element("span", "ws-quiet ws-counts", head);
    this.late = element("span", "ws-quiet", head);
    this.absent = element("strong", "", head);
    const key = element("span", "ws-quiet ws-key", head, { "aria-hidden": "true" });
    write(element("span", "", key), "bars over time: ");
    key.append("▇ runs ▂ waits");
    this.said = element("span", "ws-hidden", this.root, { role: "status", "aria-live": "polite" });
    this.chartRow = element("div", "ws-charts", this.root);
    this.room = new Room(this.root, () => this.fitted(), () => this.cards.values());
    this.main = this.room.main;
    this.saidAt = -Infinity;
  }

  // True where the message was taken in; false asks for a whole one.
  take(message) {
    const taken = this.known.take(message);
    this.heard = performance.now();
    this.room.take(this.known.ranks.size);
    if (taken && !this.frame) this.frame = requestAnimationFrame(() => this.draw());
    return taken;
  }

  draw() {
    this.frame = 0;
    const ranks = [...this.known.ranks.values()];
    const changed = ranks.filter((rank) => rank.changed);
    this.layOut(ranks);
    if (this.chips) this.chips.draw(ranks);
    for (const rank of changed) {
      rank.changed = false;
      this.cards.get(rank.rank)?.draw(rank);
      for (const name of Object.keys(rank.curves)) {
        if (!this.charts.has(name)) this.charts.set(name, new Chart(this.chartRow, name));
        this.charts.get(name).stale = true;
      }
    }
    for (const chart of this.charts.values()) {
      if (chart.stale) chart.draw(ranks);
      chart.stale = false;
    }
    for (const rank of changed) this.cards.get(rank.rank)?.pin(); // what came after a card may have taken room from it
    this.root.dataset.seq = this.known.seq;
    const counts = {};
    for (const rank of ranks) counts[rank.state] = (counts[rank.state] ?? 0) + 1;
    write(this.absent, this.known.state === "running" ? this.known.absent : "");
    write(this.counts, Object.entries(counts).map(([state, n]) => `${n} of ${ranks.length} ${state}`).join(", "));
    this.tick();
    this.say(ranks);
    if (this.known.state !== "running") hold(this.root);
  }

  // What stands where.
  layOut(ranks) {
    if (!this.chips && !this.cardGrid) {
      if (ranks.length > MOST_CARDS) this.chips = new Chips(this.main);
      else this.cardGrid = element("div", "ws-cards", this.main);
    }
    this.room.holds(ranks, this.chips, this.cardGrid);
    if (this.chips) return;

    for (const rank of ranks) {
      if (this.cards.has(rank.rank)) continue;
      if (rank.host && rank.host !== this.lastHost) write(element("div", "ws-host", this.cardGrid), `on ${rank.host}`);
      this.lastHost = rank.host;
      this.cards.set(rank.rank, new Card(this.cardGrid, rank));
      this.cards.get(rank.rank).widen(this.room.wide ?? false);
      this.cards.get(rank.rank).draw(rank);
    }
  }

  // The ranks have another room than before.
  fitted() {
    for (const card of this.shown()) card?.pin();
  }

  shown() {
    return this.chips ? [this.chips.card] : this.cards.values();
  }

  tick() {
    if (!this.known.state) return;
    const silent = performance.now() - this.heard;
    const running = this.known.state === "running";
    const now = this.known.at + (running ? silent / 1000 : 0);
    write(this.state, `${MARKS[this.known.state] ?? ""} ${this.known.state}`);
    write(this.time, `${now.toFixed(1)} s`);
    write(this.late, running && silent > STALE_MS ? `no news for ${Math.round(silent / 1000)} s` : "");
    if (this.pastAt && running && performance.now() - this.pastAt < 400) return;
    this.pastAt = performance.now();
    for (const card of this.shown()) card?.drawPast(now);
  }

  // For a screen reader: a failure at once, other changes of state every few seconds at most.
  say(ranks) {
    const failed = ranks.filter((rank) => rank.state === "failed").map((rank) => `${rank.name} ${rank.doing}`);
    const over = this.known.state !== "running";
    const counted = this.absent.textContent || this.counts.textContent;
    const said = failed.length ? failed.join("; ") : over ? `${this.known.state}: ${counted}` : counted;
    if (said === this.said.textContent || (!failed.length && !over && performance.now() - this.saidAt < SAY_MS)) return;
    this.saidAt = performance.now();
    write(this.said, said);
  }
}

// Keeps the height of the cell's output while the picture takes the view's place, so that the page does not jump.
function hold(root) {
  const area = root.closest(".jp-OutputArea");
  if (!area || area.style.minHeight) return;
  area.style.minHeight = `${area.offsetHeight}px`;
  const until = performance.now() + HOLD_MS;
  const look = () => {
    const there = !root.isConnected && [...area.querySelectorAll("img")].every((image) => image.complete);
    if (there || performance.now() > until) area.style.minHeight = "";
    else requestAnimationFrame(look);
  };
  look();
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
    view.room.leave();
    clearInterval(timer);
    model.off("msg:custom", hear);
  };
}

export default { render };
