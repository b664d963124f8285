// How the live view shares out its room: its height, for good, and within it whole lines alone.
//
// Every part of a card is a number of lines high, and a card's frame with the gap below it is one line more. So wherever
// the cards are scrolled to, a card begins at the top and a line ends at the bottom. It stands between ranks.js and view.js
// in one module. Left out: what stands in a card (ranks.js), and how it looks (view.js).

const MOST_CARDS = 8;
const FRAME = 8; // px: a card's borders and paddings
const NARROW = 620;
const CARD_WIDTH = 200; // at least, so that several stand side by side
const HEAD = 32;
const CHART = PLOT.height + 22;
const CARD_LINES = 5; // the last of what its rank printed
const LEAST_HEIGHT = 240;
const OF_THE_WINDOW = 0.7;

class Room {
  constructor(root, fitted) {
    this.root = root;
    this.fitted = fitted;
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
    const rows = count > MOST_CARDS ? 2 : Math.min(2, Math.ceil(count / this.columns(wide)));
    const heads = wide < NARROW ? HEAD + this.line : HEAD;
    const wanted = heads + CHART + rows * (CARD_LINES + 1) * this.line;
    this.root.style.height = `${Math.round(Math.max(LEAST_HEIGHT, Math.min(wanted, OF_THE_WINDOW * innerHeight)))}px`;
  }

  // Four as two and two, not as three and one.
  columns(wide) {
    const most = Math.max(1, Math.floor(wide / CARD_WIDTH));
    const rows = Math.ceil(this.count / Math.min(most, this.count > 3 ? 4 : 3, this.count));
    return this.count === 4 && most > 1 ? 2 : Math.ceil(this.count / rows);
  }

  // What is to stand in it: the cards with their lines, or chips and the card of one rank.
  holds(ranks, chips, grid) {
    this.chips = chips;
    this.grid = grid;
    this.silent = ranks.every((rank) => !rank.lines);
    const some = (has) => (ranks.some(has) ? 1 : 0);
    this.facts = some((rank) => rank.place || rank.values) + some((rank) => rank.traffic || rank.lines);
    this.share = some((rank) => rank.share !== null);
    this.hosts = new Set(ranks.map((rank) => rank.host).filter(Boolean)).size;
    const asked = [this.silent, this.facts, this.share, this.hosts].join();
    if (asked !== this.asked) this.fit();
    this.asked = asked;
  }

  fit() {
    const wide = this.root.clientWidth;
    this.root.classList.toggle("ws-narrow", wide < NARROW);
    if (!this.line || !wide || !(this.chips || this.grid)) return;
    const lines = Math.floor(this.outer.clientHeight / this.line);
    if (this.chips) this.fitChips(wide < NARROW);
    else this.fitCards(lines, wide);
    this.fitted();
  }

  fitCards(lines, wide) {
    const narrow = wide < NARROW;
    const columns = this.silent ? 1 : this.columns(wide);
    const rows = Math.ceil(this.count / columns);
    this.grid.classList.toggle("ws-silent", this.silent);
    this.grid.style.setProperty("--ws-columns", columns);
    this.main.style.height = `${lines * this.line}px`;
    if (this.silent) {
      const least = Math.max(1 + this.facts + (narrow ? 1 : 0), 1 + this.share);
      const high = Math.max(least, Math.min(least + 1, Math.floor(lines / rows)));
      this.grid.style.setProperty("--ws-lines", high);
      this.grid.style.setProperty("--ws-row", `${high * this.line}px`);
      return;
    }
    const least = 2 + this.facts + 1;
    const free = lines - 2 * this.hosts;
    const each = Math.floor(free / rows) - 1 >= least ? Math.floor(free / rows) : this.fewer(free, least + 1);
    this.grid.style.setProperty("--ws-row", `${(each - 1) * this.line + FRAME}px`);
  }

  // The lines of a row where not all of them have room: as many as have it share it.
  fewer(lines, least) {
    return Math.max(3, Math.floor(lines / Math.max(1, Math.floor(lines / least))));
  }

  fitChips(narrow) {
    const high = this.outer.clientHeight;
    const chip = this.line + 10;
    const chips = Math.max(1, Math.floor(((narrow ? 0.4 : 1) * high) / chip)) * chip;
    const rest = narrow ? high - chips : high;
    const lines = Math.floor((rest - FRAME) / this.line);
    this.main.style.height = `${high}px`;
    this.chips.list.style.height = `${chips}px`;
    this.chips.chosen.style.setProperty("--ws-row", `${lines * this.line + FRAME}px`);
  }
}

