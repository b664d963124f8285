// The live view of a run: draws what view.py sends. Plain DOM and SVG, nothing fetched.
//
// A message holds all that is known ("whole") or what is new. After a gap in the numbers nothing is believed until the
// next whole one, which is asked for and comes by itself once a second. Up to 8 ranks have a card each, more a chip each
// and one card, of the rank that is chosen. The view keeps its height while it is there, and its place on the page until
// the picture has come. Left out: that picture, and what the tones are (the design tokens).

const MARKS = {
  starting: "○", running: "▶", waiting: "‖", done: "✔", failed: "✘", stopped: "■", ended: "■", interrupted: "■", "not yet": "–",
};
const STALE_MS = 3000;
const SAY_MS = 3000;
const HOLD_MS = 2000;
const MOST_CARDS = 8;
const MOST_PAST = 300;

const CSS = `
.ws-live {
  color: var(--ws-ink); background: var(--ws-paper); padding: 4px 2px; line-height: 1.4; box-sizing: border-box;
  display: flex; flex-direction: column; overflow: hidden;
  font-family: var(--jp-ui-font-family, system-ui, sans-serif); font-size: var(--jp-ui-font-size1, 13px);
}
.ws-live * { box-sizing: border-box; }
.ws-live [hidden] { display: none !important; }
.ws-head { display: flex; flex-wrap: wrap; gap: 2px 14px; align-items: baseline; margin-bottom: 4px; flex: none; }
.ws-head strong { font-weight: 600; }
.ws-quiet, .ws-facts { color: var(--ws-quiet-ink); }
.ws-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.ws-charts { display: flex; flex-wrap: nowrap; gap: 16px; flex: none; overflow-x: auto; }
.ws-chart { flex: 1 1 200px; min-width: 180px; margin: 0 0 4px; }
.ws-chart svg { display: block; width: 100%; height: ${PLOT.height}px; overflow: visible; }
.ws-chart text { fill: var(--ws-ink); font-size: 11px; }
.ws-chart .ws-grid { stroke: var(--ws-rule); stroke-width: 1; }
.ws-main { flex: 1 1 0; min-height: 0; overflow: auto; }
.ws-cards {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--ws-card, 300px)), 1fr)); gap: 6px;
  grid-auto-rows: minmax(min-content, 1fr); min-height: 100%;
}
.ws-cards.ws-silent { grid-template-columns: 1fr; grid-auto-rows: min-content; gap: 2px; }
.ws-host { grid-column: 1 / -1; font-weight: 600; margin: 2px 0 0; align-self: end; }
.ws-card {
  border: 1px solid var(--ws-rule); border-radius: 4px; padding: 3px 6px; min-width: 0; min-height: 0;
  display: flex; flex-direction: column;
}
.ws-silent .ws-card { display: grid; grid-template-columns: minmax(180px, 34%) 1fr; column-gap: 10px; border: 0; padding: 1px 4px; }
.ws-silent .ws-card > * { grid-column: 1; }
.ws-silent .ws-card .ws-strip { grid-column: 2; grid-row: 1 / span 4; height: 100%; min-height: 18px; max-height: 36px; align-self: center; }
.ws-card[data-state="failed"] { order: -1; border: 2px solid var(--ws-bad); }
.ws-name { display: flex; gap: 6px; align-items: baseline; }
.ws-name svg { width: 12px; height: 12px; flex: none; align-self: center; stroke: var(--ws-ink); stroke-width: .6; }
.ws-name strong { flex: none; font-weight: 600; }
.ws-doing { min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ws-card[data-state="failed"] .ws-doing { color: var(--ws-bad); font-weight: 600; white-space: normal; }
.ws-facts { min-height: 1.4em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; flex: none; }
.ws-strip { display: block; width: 100%; height: 8px; flex: none; border-bottom: 1px solid var(--ws-rule); }
.ws-runs { fill: var(--ws-phase-0); }
.ws-waits { fill: var(--ws-quiet-ink); }
.ws-share { height: 6px; border: 1px solid var(--ws-quiet-ink); margin: 2px 0; flex: none; }
.ws-share div { height: 100%; background: var(--ws-amount); }
.ws-live pre.ws-tail {
  margin: 2px 0; padding: 0; flex: 1 1 0; min-height: 3.9em; overflow: auto; color: var(--ws-ink); background: transparent;
  font: 12px/1.35 var(--jp-code-font-family, ui-monospace, monospace); white-space: pre-wrap; word-break: break-all;
}
.ws-many { display: flex; gap: 10px; height: 100%; }
.ws-chips { flex: 1 1 58%; overflow: auto; align-content: start; padding: 2px; }
.ws-row { display: grid; grid-template-columns: repeat(auto-fill, minmax(88px, 1fr)); gap: 4px; margin-bottom: 4px; }
.ws-chosen { flex: 1 1 42%; min-width: 0; display: flex; }
.ws-chosen .ws-card { flex: 1; }
.ws-narrow .ws-many { flex-direction: column; gap: 4px; }
.ws-narrow .ws-chips { flex: 1 1 45%; min-height: 0; }
.ws-narrow .ws-chosen { flex: 1 1 55%; min-height: 0; }
.ws-live button.ws-chip {
  font: inherit; font-size: 12px; line-height: 1.5; color: var(--ws-ink); background: var(--ws-shade); text-align: left;
  border: 1px solid transparent; border-radius: 4px; padding: 1px 5px; cursor: pointer; min-height: 24px;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
}
.ws-live button.ws-chip[data-state="waiting"] { background: transparent; border: 1px dashed var(--ws-quiet-ink); }
.ws-live button.ws-chip[data-state="failed"] { color: var(--ws-bad); background: transparent; border: 2px solid var(--ws-bad); font-weight: 600; }
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

const called = ({ name, host }) => (host ? `${name} on ${host}` : name);
const words = (rank) => `${MARKS[rank.state] ?? ""} ${rank.doing || rank.state}`;

// ---- one rank ----------------------------------------------------------------------------------------------------

class Card {
  constructor(parent, rank) {
    this.root = element("div", "ws-card", parent, { "data-rank": rank.rank, role: "group", "aria-label": called(rank) });
    const title = element("div", "ws-name", this.root);
    shape(element("svg", "", title, { viewBox: "0 0 12 12", "aria-hidden": "true" }), rank.rank);
    write(element("strong", "", title), called(rank));
    this.doing = element("span", "ws-doing", title);
    this.strip = element("svg", "ws-strip", this.root, {
      viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true",
    });
    this.runs = element("path", "ws-runs", this.strip);
    this.waits = element("path", "ws-waits", this.strip);
    this.share = element("div", "ws-share", this.root, {
      role: "progressbar", "aria-label": `progress of ${called(rank)}`, "aria-valuemin": 0, "aria-valuemax": 100, hidden: "",
    });
    this.bar = element("div", "", this.share);
    this.place = element("div", "ws-facts", this.root);
    this.facts = element("div", "ws-facts", this.root);
    // Lab takes the arrow keys of a focused element for itself unless the element says this
    this.tail = element("pre", "ws-tail", this.root, {
      tabindex: 0, "data-lm-suppress-shortcuts": "true", role: "group", "aria-label": `last lines of ${called(rank)}`, hidden: "",
    });
    this.pinned = true;
    this.tail.addEventListener("scroll", () => {
      this.pinned = this.tail.scrollTop + this.tail.clientHeight >= this.tail.scrollHeight - 20;
    });
  }

  draw(rank) {
    this.rank = rank;
    this.root.dataset.state = rank.state;
    this.root.dataset.lines = rank.lines;
    write(this.doing, words(rank));
    this.doing.title = rank.doing || rank.state;
    this.share.hidden = rank.share === null;
    this.bar.style.width = `${100 * (rank.share ?? 0)}%`;
    this.share.setAttribute("aria-valuenow", Math.round(100 * (rank.share ?? 0)));
    write(this.place, [rank.place, rank.values].filter(Boolean).join(" · "));
    this.place.hidden = !rank.place && !rank.values;
    const lines = rank.lines === 1 ? "1 line" : `${rank.lines.toLocaleString("en")} lines`;
    write(this.facts, [rank.traffic, rank.lines ? lines : ""].filter(Boolean).join(" · "));
    this.facts.hidden = !this.facts.textContent;
    this.tail.hidden = !rank.tail.length;
    write(this.tail, rank.tail.join("\n"));
    if (this.pinned) this.tail.scrollTop = 1e9;
  }

  // When the rank ran (a high bar) and when it waited (a low one), from the run's begin to `now`.
  drawPast(now) {
    const bars = { running: "", waiting: "" };
    this.rank.past.forEach(({ at, state }, index) => {
      if (!(state in bars)) return;
      const [from, to] = [at, this.rank.past[index + 1]?.at ?? now].map((s) => Math.round((1000 * s) / now));
      bars[state] += `M${from} ${state === "running" ? 1 : 7}H${to}V10H${from}z`;
    });
    this.runs.setAttribute("d", bars.running);
    this.waits.setAttribute("d", bars.waiting);
  }
}

// ---- many ranks --------------------------------------------------------------------------------------------------

class Chips {
  constructor(parent) {
    this.root = element("div", "ws-many", parent);
    this.list = element("div", "ws-chips", this.root, {
      role: "group", "aria-label": "ranks; the lines of the chosen one are beside them", "data-lm-suppress-shortcuts": "true",
    });
    this.chosen = element("div", "ws-chosen", this.root);
    this.chips = new Map();
    this.rows = new Map();
    this.list.addEventListener("keydown", (event) => this.key(event));
  }

  draw(ranks) {
    for (const rank of ranks) {
      const chip = this.chips.get(rank.rank) ?? this.add(rank);
      chip.dataset.state = rank.state;
      write(chip, `${MARKS[rank.state] ?? ""} ${rank.rank} ${rank.short || rank.state}`);
      chip.setAttribute("aria-label", `${called(rank)}: ${rank.doing || rank.state}`);
      chip.title = `${called(rank)}: ${rank.doing || rank.state}`;
    }
    const failed = ranks.find((rank) => rank.state === "failed");
    if (!this.byHand) this.choose(failed ?? ranks[0]);
    const shown = ranks.find((rank) => rank.rank === this.number);
    if (shown) this.card.draw(shown);
    this.ranks = ranks;
  }

  add(rank) {
    if (!this.rows.has(rank.host)) {
      if (rank.host) write(element("div", "ws-host", this.list), `on ${rank.host}`);
      const label = rank.host ? { role: "group", "aria-label": `on ${rank.host}` } : {};
      this.rows.set(rank.host, element("div", "ws-row", this.list, label));
    }
    const chip = element("button", "ws-chip", this.rows.get(rank.host), { type: "button", "aria-pressed": "false", tabindex: -1 });
    chip.addEventListener("click", () => this.pick(rank.rank));
    this.chips.set(rank.rank, chip);
    return chip;
  }

  choose(rank) {
    if (rank.rank === this.number) return;
    const before = this.chips.get(this.number);
    before?.setAttribute("aria-pressed", "false");
    before?.setAttribute("tabindex", -1);
    this.number = rank.rank;
    this.chips.get(rank.rank).setAttribute("aria-pressed", "true");
    this.chips.get(rank.rank).setAttribute("tabindex", 0);
    this.chosen.replaceChildren();
    this.card = new Card(this.chosen, rank);
    this.card.draw(rank);
  }

  pick(number) {
    this.byHand = true;
    this.choose(this.ranks.find((rank) => rank.rank === number));
    this.chips.get(number).focus();
  }

  // One chip is in the order of the tab key; arrows go from chip to chip, up and down by rows as they are drawn.
  key(event) {
    const order = [...this.chips.keys()];
    const place = order.indexOf(this.number);
    const top = this.chips.get(order[0]).offsetTop;
    const across = Math.max(1, order.filter((number) => this.chips.get(number).offsetTop === top).length);
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -order.length, End: order.length };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    this.pick(order[Math.min(order.length - 1, Math.max(0, place + moves[event.key]))]);
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
    this.counts = element("span", "ws-quiet", head);
    this.late = element("span", "ws-quiet", head);
    this.said = element("span", "ws-hidden", this.root, { role: "status", "aria-live": "polite" });
    this.chartRow = element("div", "ws-charts", this.root);
    this.main = element("div", "ws-main", this.root);
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
    this.root.dataset.seq = this.known.seq;
    const counts = {};
    for (const rank of ranks) counts[rank.state] = (counts[rank.state] ?? 0) + 1;
    write(this.counts, Object.entries(counts).map(([state, n]) => `${n} of ${ranks.length} ${state}`).join(", "));
    this.tick();
    this.say(ranks);
    if (this.known.state !== "running") hold(this.root);
  }

  // What stands where, once: the height depends on the number of ranks alone.
  layOut(ranks) {
    this.root.classList.toggle("ws-narrow", this.root.clientWidth < 620);
    if (!this.root.style.height) {
      this.root.style.height = `${ranks.length > MOST_CARDS ? 340 : ranks.length > 2 ? 300 : 240}px`;
      if (ranks.length > MOST_CARDS) this.chips = new Chips(this.main);
      else this.cardGrid = element("div", "ws-cards", this.main);
      if (ranks.length === 4) this.cardGrid?.style.setProperty("--ws-card", "380px"); // two and two, not three and one
    }
    if (this.chips) return;

    this.cardGrid.classList.toggle("ws-silent", ranks.every((rank) => !rank.lines));
    for (const rank of ranks) {
      if (this.cards.has(rank.rank)) continue;
      if (rank.host && rank.host !== this.lastHost) write(element("div", "ws-host", this.cardGrid), `on ${rank.host}`);
      this.lastHost = rank.host;
      this.cards.set(rank.rank, new Card(this.cardGrid, rank));
      this.cards.get(rank.rank).draw(rank);
    }
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
    for (const card of this.chips ? [this.chips.card] : this.cards.values()) card?.drawPast(now);
  }

  // For a screen reader: a failure at once, other changes of state every few seconds at most.
  say(ranks) {
    const failed = ranks.filter((rank) => rank.state === "failed").map((rank) => `${rank.name} ${rank.doing}`);
    const said = failed.length ? failed.join("; ") : this.counts.textContent;
    if (said === this.said.textContent || (!failed.length && performance.now() - this.saidAt < SAY_MS)) return;
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
    clearInterval(timer);
    model.off("msg:custom", hear);
  };
}

export default { render };
