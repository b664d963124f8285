// How the live view shares out its room: its height, for good, and within it whole lines alone.
//
// Every part of a card is a number of lines high, the gap between cards is one, and a card's frame is drawn in the gaps. So
// wherever the cards are scrolled to, one begins at the top and a line ends at the bottom. It stands between ranks.js and view.js
// in one module. Left out: what stands in a card (ranks.js), and how it looks (view.js).

const MOST_CARDS = 8;
const FRAME = 4; // px from a card to the outside of its frame
const NARROW = 620;
const CARD_WIDTH = 200; // at least, so that several stand side by side
const WIDE_CARD = 380; // has room for all in one line that a rank says of itself
const FEW_LINES = 3; // of a wide card of many: its name, its strip, and the last line that its rank printed
const HEAD = 36;
const CHART = PLOT.height + 22;
const CARD_LINES = 5; // the last of what its rank printed
const LEAST_HEIGHT = 240;
const OF_THE_WINDOW = 0.7;

class Room {
  constructor(root, fitted, cards) {
    this.root = root;
    this.fitted = fitted;
    this.cards = cards;
    this.outer = element("div", "ws-room", root);
    this.main = element("div", "ws-main", this.outer);
    this.asked = "";
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.outer);
  }

  leave() {
    this.observer.disconnect();
  }

  // The height of the view, once and for good: for two rows of cards and a chart, if the window has so much.
  take(count) {
    this.count = count;
    if (this.root.style.height) return;
    this.line = Math.max(18, Math.ceil(1.35 * parseFloat(getComputedStyle(this.root).fontSize)));
    this.root.style.setProperty("--ws-line", `${this.line}px`);
    const wide = this.root.clientWidth || innerWidth;
    const rows = count > MOST_CARDS ? 2 : Math.ceil(count / this.columns(wide));
    const heads = wide < NARROW ? HEAD + this.line : HEAD;
    const lines = rows > 2 ? Math.max(2 * (CARD_LINES + 1), rows * (FEW_LINES + 1)) : rows * (CARD_LINES + 1);
    const wanted = heads + CHART + lines * this.line;
    this.root.style.height = `${Math.round(Math.max(LEAST_HEIGHT, Math.min(wanted, OF_THE_WINDOW * innerHeight)))}px`;
  }

  // Wide cards if two stand side by side, else narrow ones. Four as two and two, not as three and one.
  columns(wide) {
    const wideOnes = Math.floor(wide / WIDE_CARD);
    const most = wideOnes > 1 ? wideOnes : Math.max(1, Math.floor(wide / CARD_WIDTH));
    if (this.count % 4 === 0 && most > 1) return most < 4 ? 2 : 4;
    const rows = Math.ceil(this.count / Math.min(most, this.count > 3 ? 4 : 3, this.count));
    return Math.ceil(this.count / rows);
  }

  // What is to stand in it: the cards with their lines, or chips and the card of one rank.
  holds(ranks, chips, grid) {
    this.chips = chips;
    this.grid = grid;
    this.hosts = new Map();
    for (const { host } of ranks) this.hosts.set(host, (this.hosts.get(host) ?? 0) + 1);
    this.silent = ranks.every((rank) => !rank.lines);
    const some = (has) => (ranks.some(has) ? 1 : 0);
    this.facts = some((rank) => rank.place || rank.values) + some((rank) => rank.traffic || rank.lines);
    this.share = some((rank) => rank.share !== null);
    const asked = [this.silent, this.facts, this.share].join();
    if (asked !== this.asked) this.fit();
    this.asked = asked;
  }

  fit() {
    const wide = this.root.clientWidth;
    this.root.classList.toggle("ws-narrow", wide < NARROW);
    if (!this.line || !wide || !(this.chips || this.grid)) return;
    const lines = Math.floor((this.outer.clientHeight - FRAME) / this.line);
    if (this.chips) this.fitChips(wide < NARROW);
    else this.fitCards(lines, wide);
    this.fitted();
  }

  fitCards(lines, wide) {
    const columns = this.silent ? 1 : this.columns(wide);
    const rows = [...this.hosts.values()].reduce((sum, count) => sum + Math.ceil(count / columns), 0);
    const heads = [...this.hosts.keys()].filter(Boolean).length;
    this.wide = !this.silent && wide / columns >= WIDE_CARD;
    for (const card of this.cards()) card.widen(this.wide);
    const each = this.silent ? this.silentRow((lines - heads) / rows, wide < NARROW) : this.row((lines - heads) / rows, lines);
    // blank lines below the last row, so that it can be scrolled to where a row begins at the top
    const above = heads ? 1 : Math.max(1, Math.floor(lines / each));
    const blank = rows * each + heads > lines ? lines - above * each : 0;

    this.grid.classList.toggle("ws-silent", this.silent);
    this.grid.classList.toggle("ws-brief", this.wide && each <= FEW_LINES + 1);
    this.grid.style.setProperty("--ws-columns", columns);
    this.grid.style.setProperty("--ws-lines", each);
    this.grid.style.setProperty("--ws-row", `${(this.silent ? each : each - 1) * this.line}px`);
    this.grid.style.setProperty("--ws-below", `${(this.silent ? blank : blank + 1) * this.line}px`);
    this.main.style.height = `${lines * this.line + (this.silent ? 0 : FRAME)}px`;
  }

  // The lines of a row and the gap below it: all rows share what there is, or as many as have room for what they say.
  row(free, lines) {
    const least = this.wide ? FEW_LINES + 1 : 4 + this.facts;
    if (Math.floor(free) >= least) return Math.floor(free);
    return Math.max(4, Math.floor(lines / Math.max(1, Math.floor(lines / least))));
  }

  silentRow(free, narrow) {
    const least = Math.max(1 + this.facts + (narrow ? 1 : 0), 1 + this.share);
    return Math.max(least, Math.min(least + 1, Math.floor(free)));
  }

  fitChips(narrow) {
    const high = this.outer.clientHeight - FRAME;
    const chip = this.line + 10;
    const chips = Math.max(1, Math.floor(((narrow ? 0.4 : 1) * high) / chip)) * chip;
    const rest = narrow ? high - chips : high;
    const lines = Math.floor(rest / this.line);
    this.main.style.height = `${high + FRAME}px`;
    this.chips.list.style.height = `${chips}px`;
    this.chips.chosen.style.setProperty("--ws-row", `${lines * this.line}px`);
  }
}

