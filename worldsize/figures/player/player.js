// The player of every moving view: its place in the page, controls, keys, speed and words, and what views draw with. output.py
// puts CSS and the ranks' SHAPES before this script, and a view's script, with its class `View`, and its data behind it.
//
// A player stands at a place from 0 to `data.last`, at `data.opens` until a reader moves it. `data.speeds` are rates at which it
// plays smoothly; without them, or with motion reduced, it plays in steps: `data.beat` is their time and length. `View` puts the
// bar and the words among its drawings, and `draw` returns the words for a place.

const RANK_TONES = 6; // then tones repeat, with another hatch
const SVG_TAGS = new Set(["svg", "g", "rect", "path", "text", "defs", "pattern", "marker", "circle", "line", "clipPath"]);

function rankColour(rank) {
  return `var(--ws-rank-${rank % RANK_TONES})`;
}

// Return the path of a rank's marker, as all pictures draw it, about (x, y).
function rankShape(rank, x, y, size) {
  let count = 0;
  const placed = (number) => ((count++ % 2 ? y : x) + size * Number(number)).toFixed(1);
  return SHAPES[rank % SHAPES.length].replace(/-?\d[\d.e-]*/g, placed);
}

function make(tag, attributes, parent, text) {
  const inPicture = SVG_TAGS.has(tag);
  const made = inPicture ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// Return a message's curve from `a` to `b`; the two directions between ranks bend apart. Its middle lies `share` of its length
// beside the straight line, at most `most` pixels.
function curve(a, b, [share, most]) {
  const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
  const aside = 2 * Math.min(share, most / Math.max(1, Math.hypot(dx, dy)));
  const via = [(a[0] + b[0]) / 2 + aside * dy, (a[1] + b[1]) / 2 - aside * dx];
  const along = (t, k) => (1 - t) ** 2 * a[k] + 2 * t * (1 - t) * via[k] + t * t * b[k];
  return { d: `M${a}Q${via} ${b}`, at: (t) => [along(t, 0), along(t, 1)], length: Math.hypot(dx, dy) };
}

class Player {
  constructor(host, data) {
    this.data = data;
    const root = host.attachShadow({ mode: "open" }); // so that its styles and ids do not affect the page or other views
    make("style", {}, root, CSS);
    const live = make("div", { class: "live", role: "group", "aria-label": data.title }, root);
    make("slot", {}, root); // the picture, for printing
    this.title = make("h3", {}, live, data.title);
    this.said = make("p", { class: "said", "aria-live": "polite" });
    this.view = new View(live, { bar: this.controls(), said: this.said }, data);
    make("p", { class: "note" }, live, data.notes.join(" "));
    live.addEventListener("keydown", (event) => this.key(event));
    this.go(data.opens);
    this.untouched = true; // until the first move: Play then starts from the beginning
  }

  controls() {
    const { last, slider, speeds } = this.data;
    const bar = make("div", { class: "bar" });
    const button = (name, text, act) => {
      const made = make("button", { type: "button", class: name, "aria-label": name }, bar, text);
      made.addEventListener("click", act);
      return made;
    };
    this.play = button("play", "", () => this.toggle());
    if (speeds) {
      button("restart", "|◀ Restart", () => { this.halt(0); this.toggle(); });
    } else {
      this.back = button("step back", "◀", () => this.halt(this.at - 1));
      this.on = button("step on", "▶", () => this.halt(this.at + 1));
    }
    this.slider = make("input", { type: "range", min: 0, max: last, value: 0, "aria-label": slider }, bar);
    this.slider.addEventListener("input", () => this.halt(Number(this.slider.value)));
    this.clock = make("span", { class: "clock", "aria-hidden": "true" }, bar);
    if (speeds) {
      this.speed = make("select", { "aria-label": "speed" }, bar);
      speeds.forEach(([rate, words]) => make("option", { value: rate }, this.speed, words));
      this.speed.selectedIndex = speeds.length - 2;
    }
    return bar;
  }

  go(to) {
    const { last, speeds, title } = this.data;
    const next = to === this.at + 1;
    this.untouched = false;
    this.at = Math.max(0, Math.min(last, to));
    const shown = this.view.draw(this.at, next);
    if (this.at === last) this.stop();
    this.title.textContent = shown.title ?? title;
    this.slider.value = Math.round(this.at);
    this.clock.textContent = shown.clock;
    this.play.textContent = this.playing ? "❚❚ Pause" : "► Play";
    this.play.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    if (!speeds) [this.back.disabled, this.on.disabled] = [this.at === 0, this.at === last];
    const quiet = this.playing && speeds; // a screen reader has no time for the words of a film that plays
    this.said.setAttribute("aria-live", quiet ? "off" : "polite");
    this.said.textContent = shown.said;
    if (!quiet) this.slider.setAttribute("aria-valuetext", shown.value);
  }

  halt(to) {
    this.stop();
    this.go(to);
  }

  stop() {
    cancelAnimationFrame(this.frame);
    clearInterval(this.steps);
    this.playing = false;
  }

  toggle() {
    if (this.playing) return this.halt(this.at);
    const { beat: [ms, step], last, speeds } = this.data;
    if (this.untouched) this.at = 0;
    this.playing = true;
    if (speeds && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.film();
    else this.steps = setInterval(() => this.go(this.at + step), ms);
    if (this.at === last) this.go(0);
    else this.go(speeds ? this.at : this.at + step);
  }

  film() {
    let before = performance.now();
    const tick = (now) => {
      const to = this.at + (Number(this.speed.value) * (now - before)) / 1000;
      before = now;
      this.frame = requestAnimationFrame(tick);
      this.go(to);
    };
    this.frame = requestAnimationFrame(tick);
  }

  key(event) {
    const { last, stride } = this.data;
    const moves = {
      ArrowRight: this.at + stride, ArrowUp: this.at + stride, ArrowLeft: this.at - stride, ArrowDown: this.at - stride,
      Home: 0, End: last,
    };
    if (event.ctrlKey || event.altKey || event.metaKey || event.target === this.speed) return;
    if (event.key in moves) this.halt(moves[event.key]);
    else if (event.key === " " && event.target === this.slider) this.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function showAll(kind, name, data) {
  for (const host of document.querySelectorAll(`[data-${kind}="${name}"]`)) if (!host.shadowRoot) new Player(host, data);
}
