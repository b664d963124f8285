// The ranks of the live view: a card of one rank, and chips for many ranks with the card of the chosen one beside them.
//
// It stands between charts.js and room.js in one module. Left out: how it looks, and what is known (view.js).

const MARKS = {
  starting: "○", running: "●", waiting: "‖", done: "✔", failed: "✘", stopped: "■", ended: "■", interrupted: "■", "not yet": "–",
};

const called = ({ name, host }) => (host ? `${name} on ${host}` : name);
const words = (rank) => `${MARKS[rank.state] ?? ""} ${rank.doing || rank.state}`;

// ---- one rank ----------------------------------------------------------------------------------------------------

class Card {
  constructor(parent, rank, shown = rank.name) {
    this.root = element("div", "ws-card", parent, { "data-rank": rank.rank, role: "group", "aria-label": called(rank) });
    const title = element("div", "ws-name", this.root);
    shape(element("svg", "", title, { viewBox: "0 0 12 12", "aria-hidden": "true" }), rank.rank);
    write(element("strong", "", title), shown);
    this.doing = element("span", "ws-doing", title);
    this.title = title;
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
    this.isWide = false;
    this.tail.addEventListener("scroll", () => {
      this.pinned = this.tail.scrollTop + this.tail.clientHeight >= this.tail.scrollHeight - 20;
    });
    this.tail.addEventListener("scrollend", () => this.toWholeLines());
  }

  draw(rank) {
    this.rank = rank;
    this.root.dataset.state = rank.state;
    this.root.dataset.lines = rank.lines;
    this.say();
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
    this.pin();
  }

  // A wide card has its rank's place and numbers in the first line, at the right, and its wait in a word or two.
  widen(wide) {
    if (wide === this.isWide) return;
    this.isWide = wide;
    if (wide) this.title.append(this.place);
    else this.facts.before(this.place);
    if (this.rank) this.say();
  }

  say() {
    const waits = this.isWide && this.rank.state === "waiting" && this.rank.short;
    write(this.doing, waits ? `${MARKS.waiting} ${this.rank.short}` : words(this.rank));
  }

  pin() {
    if (this.pinned) this.tail.scrollTop = 1e9;
  }

  toWholeLines() {
    const line = parseFloat(getComputedStyle(this.tail).lineHeight);
    const whole = Math.round(this.tail.scrollTop / line) * line;
    if (Math.abs(whole - this.tail.scrollTop) > 0.5) this.tail.scrollTop = whole;
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
      role: "group", "aria-label": "ranks; the chosen rank's lines are beside them", "data-lm-suppress-shortcuts": "true",
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
      write(chip.lastChild, `${MARKS[rank.state] ?? ""} ${rank.rank} ${rank.short || rank.state}`);
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
    shape(element("svg", "", chip, { viewBox: "0 0 12 12", "aria-hidden": "true" }), rank.rank);
    element("span", "", chip);
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
    this.card = new Card(this.chosen, rank, called(rank));
    this.card.draw(rank);
    this.reveal(this.chips.get(rank.rank));
  }

  // Scrolls the chips, and never the page.
  reveal(chip) {
    const [above, below] = [chip.offsetTop - this.list.scrollTop, chip.offsetTop + chip.offsetHeight - this.list.clientHeight];
    if (above < 0) this.list.scrollTop = chip.offsetTop;
    else if (below > this.list.scrollTop) this.list.scrollTop = below;
  }

  pick(number) {
    this.byHand = true;
    this.choose(this.ranks.find((rank) => rank.rank === number));
    this.chips.get(number).focus({ preventScroll: true });
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
