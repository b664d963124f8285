// The moving view of a replay: draws the data that player.py appends, in plain DOM and SVG, with dom.js.
//
// A moment is a frame, 0 to `data.frames`; the film stands at `data.opens` until a reader moves it. Sentences about a run come
// from Python.

const SCENE = { width: 230, least: 150, flat: 80, pad: 18 };
const REDUCED_STEPS = 16;
const REDUCED_MS = 900;
const KEY_STEPS = 50;

const CSS = `
:host { max-width: 980px; }
.bar { border-bottom: 1px solid var(--ws-rule, #c8c8c8); padding-bottom: 6px; }
.band { margin-top: 10px; }
.head { display: flex; flex-wrap: wrap; gap: 2px 14px; font-variant-numeric: tabular-nums; }
.row { display: flex; flex-wrap: wrap; gap: 6px 14px; align-items: center; justify-content: center; }
.scene { flex: none; }
.track { flex: 1 1 300px; min-width: 240px; display: grid; grid-template-columns: 18px 1fr; font-size: 11px; }
.track > svg { width: 100%; background: var(--ws-shade, #efefed); }
.ranks { display: grid; grid-auto-rows: 1fr; align-items: center; line-height: 1; }
.ticks { grid-column: 2; position: relative; height: 16px; }
.ticks span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.ticks span:first-child { transform: none; }
.ticks span.late { transform: translateX(-100%); }
.clock { min-width: 130px; text-align: right; font-variant-numeric: tabular-nums; }
.link { fill: none; stroke: var(--ws-rule, #c8c8c8); stroke-width: 1.2; }
.node { fill: var(--back); stroke: var(--ws-quiet-ink, #595959); stroke-width: 1; }
.node.busy { stroke: var(--ink); stroke-width: 2.6; }
.node.works { fill: var(--ink); }
.works + text { fill: var(--back); }
.scene text { font-size: 11px; text-anchor: middle; }
.packet { stroke: var(--ink); stroke-width: 1; }
.lane, .tick { stroke: var(--ws-rule, #c8c8c8); stroke-width: 1; vector-effect: non-scaling-stroke; }
.way { stroke: var(--ink); stroke-width: 1.2; vector-effect: non-scaling-stroke; }
.arrival { stroke: var(--ink); stroke-width: 4.5; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.work { fill: var(--ws-phase-0, #3779cf); opacity: .75; }
.work.other { fill: var(--ws-phase-5, #6a6729); }
.key { display: inline-block; width: 12px; height: 6px; margin-right: 4px; background: var(--ws-phase-0, #3779cf); }
.key.other { background: var(--ws-phase-5, #6a6729); }
.finish { stroke: var(--ink); stroke-width: 4; vector-effect: non-scaling-stroke; }
.finish.open { stroke-dasharray: 4 3; }
.now { stroke: var(--ws-bad, #b3261e); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.state.over { font-weight: 600; }
.said { font-variant-numeric: tabular-nums; }
`;

// ---- a run at a moment, without a page ---------------------------------------------------------------------------

// Return what has arrived, which messages travel and how far, which ranks send, receive or work, and if the run is over.
function stateAt(run, frame) {
  let [, bytes, messages] = [0, 0, 0];
  for (const [at, total, count] of run.arrived) {
    if (at > frame) break;
    [bytes, messages] = [total, count];
  }
  const flying = [];
  const busy = new Set();
  run.messages.forEach(([src, dst, start, end], number) => {
    if (start > frame || frame >= end) return;
    flying.push([number, (frame - start) / (end - start)]);
    busy.add(src).add(dst);
  });
  const works = new Set(run.works.filter(([, start, end]) => start <= frame && frame < end).map(([rank]) => rank));
  return { bytes, messages, flying, busy: [...busy], works: [...works], over: frame >= run.over };
}

function size(bytes) {
  const [factor, unit] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => bytes >= least) ?? [1, "B"];
  const value = bytes / factor;
  return `${value >= 100 ? Math.round(value).toLocaleString("en-US") : Number(value.toPrecision(3))} ${unit}`;
}

function timeText(data, frame) {
  const [longest, digits, unit] = data.time;
  return `${((longest * frame) / data.frames).toFixed(digits)} ${unit}`;
}

function loadText(run, { bytes, messages }) {
  if (!run.count) return "no messages";
  const of = `${run.count.toLocaleString("en-US")} message${run.count === 1 ? "" : "s"}`;
  return `${size(bytes)} of ${size(run.bytes)} arrived, ${messages.toLocaleString("en-US")} of ${of}`;
}

function sentence(run, state) {
  return `${run.name}: ${loadText(run, state)}${state.over ? `, ${run.standing}` : ""}`;
}

// ---- one run -----------------------------------------------------------------------------------------------------

class Band {
  constructor(parent, data, number) {
    this.data = data;
    this.run = data.runs[number];
    this.ranks = this.run.at.length;
    this.lane = Math.max(13, Math.min(22, 130 / this.ranks));
    const band = make("div", { class: "band", role: "group", "aria-label": this.run.name }, parent);
    const head = make("p", { class: "head" }, band);
    make("b", {}, head, this.run.name);
    this.load = make("span", { class: "load" }, head);
    this.state = make("span", { class: "state" }, head);
    const row = make("div", { class: "row" }, band);
    this.scene(row);
    this.track(row, number);
  }

  scene(row) {
    const flat = new Set(this.run.at.map(([, y]) => y)).size === 1;
    const height = Math.max(flat ? SCENE.flat : SCENE.least, this.ranks * this.lane);
    const look = { class: "scene", width: SCENE.width, height, "aria-hidden": "true" };
    const svg = make("svg", look, row);
    this.radius = this.ranks > 6 ? 10 : 13;
    this.places = this.run.at.map(([x, y]) => [
      SCENE.pad + x * (SCENE.width - 2 * SCENE.pad), SCENE.pad + y * (height - 2 * SCENE.pad),
    ]);
    this.bend = flat ? 0.5 : 0.12;
    for (const [src, dst] of this.run.links) make("path", { class: "link", d: this.way(src, dst).d }, svg);
    this.packets = make("g", {}, svg);
    this.nodes = this.places.map(([x, y], rank) => {
      const node = make("circle", { class: "node", cx: x, cy: y, r: this.radius, "data-rank": rank }, svg);
      make("text", { x, y: y + 4 }, svg, rank);
      return node;
    });
  }

  // Return a message's curve; the two directions between ranks bend apart.
  way(src, dst) {
    const [a, b] = [this.places[src], this.places[dst]];
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    const via = [(a[0] + b[0]) / 2 + this.bend * dy * 2, (a[1] + b[1]) / 2 - this.bend * dx * 2];
    const along = (t, k) => (1 - t) ** 2 * a[k] + 2 * t * (1 - t) * via[k] + t * t * b[k];
    return { d: `M${a}Q${via} ${b}`, at: (t) => [along(t, 0), along(t, 1)] };
  }

  track(row, number) {
    const { frames, ticks } = this.data;
    const height = this.ranks * this.lane;
    const track = make("div", { class: "track", "aria-hidden": "true" }, row);
    const names = make("div", { class: "ranks" }, track);
    for (let rank = 0; rank < this.ranks; rank++) make("span", {}, names, rank);
    const look = { viewBox: `0 0 ${frames * 1.01} ${height}`, height, preserveAspectRatio: "none" };
    const svg = make("svg", look, track);
    const clip = make("clipPath", { id: `past${number}` }, make("defs", {}, svg));
    this.past = make("rect", { x: 0, y: 0, width: 0, height }, clip);

    const y = (rank) => (rank + 0.5) * this.lane;
    for (const [x] of ticks) make("line", { class: "tick", x1: x, x2: x, y1: 0, y2: height }, svg);
    for (let rank = 0; rank < this.ranks; rank++) {
      make("line", { class: "lane", x1: 0, x2: frames, y1: y(rank), y2: y(rank) }, svg);
    }
    const drawn = make("g", { "clip-path": `url(#past${number})` }, svg);
    for (const [rank, start, end, kind] of this.run.works) {
      // the first kind fills the upper half of a lane, all others the lower
      const place = { x: start, width: Math.max(end - start, 20), y: y(rank) + (kind ? 0 : -0.36) * this.lane };
      make("rect", { class: kind ? "work other" : "work", height: 0.36 * this.lane, ...place }, drawn);
    }
    for (const [src, dst, start, end] of this.run.messages) {
      make("line", { class: "way", x1: start, y1: y(src), x2: end, y2: y(dst) }, drawn);
      make("line", { class: "arrival", x1: end, y1: y(dst), x2: end, y2: y(dst) }, drawn);
    }
    const over = { x1: this.run.over, x2: this.run.over, y1: 0, y2: height };
    this.finish = make("line", { class: this.run.whole ? "finish" : "finish open", ...over }, svg);
    this.now = make("line", { class: "now", y1: 0, y2: height }, svg);
    const axis = make("div", { class: "ticks" }, track);
    for (const [x, label] of ticks) {
      const left = (100 * x) / (frames * 1.01);
      make("span", { class: left > 95 ? "late" : "", style: `left: ${left}%` }, axis, label);
    }
  }

  draw(frame) {
    const state = stateAt(this.run, frame);
    this.load.textContent = loadText(this.run, state);
    this.load.dataset.bytes = state.bytes;
    this.state.textContent = state.over ? this.run.standing : "";
    this.state.classList.toggle("over", state.over);
    this.past.setAttribute("width", Math.min(frame, this.run.over) + (state.over ? this.data.frames / 200 : 0));
    for (const end of ["x1", "x2"]) this.now.setAttribute(end, frame);
    this.finish.style.visibility = state.over ? "visible" : "hidden";
    this.nodes.forEach((node, rank) => {
      node.classList.toggle("busy", state.busy.includes(rank));
      node.classList.toggle("works", state.works.includes(rank));
    });
    this.packets.replaceChildren();
    for (const [number, share] of state.flying) {
      const [src, dst, , , radius] = this.run.messages[number];
      const [x, y] = this.way(src, dst).at(share);
      const look = { class: "packet", cx: x, cy: y, r: radius, style: `fill: ${rankColour(src)}` };
      make("circle", look, this.packets);
    }
    return state;
  }
}

// ---- the controls ------------------------------------------------------------------------------------------------

class Player {
  constructor(host, data) {
    this.data = data;
    this.timer = 0;
    const live = frame(host, data.question, CSS);
    this.title = live.querySelector("h3");
    this.controls(live);
    this.bands = data.runs.map((_, number) => new Band(live, data, number));
    this.said = make("p", { class: "said note", "aria-live": "polite" }, live);
    this.legend(live);
    make("p", { class: "note" }, live, data.notes.join(" "));
    live.addEventListener("keydown", (event) => this.key(event));
    this.go(data.opens);
    this.untouched = true; // until the first move: Play then starts from the beginning
  }

  controls(live) {
    const bar = make("div", { class: "bar" }, live);
    this.play = button(bar, "play", "", () => this.toggle());
    button(bar, "restart", "|◀ Restart", () => this.restart());
    this.slider = make("input", { type: "range", min: 0, max: this.data.frames, value: 0, "aria-label": "time" }, bar);
    this.slider.addEventListener("input", () => this.halt(Number(this.slider.value)));
    this.clock = make("span", { class: "clock", "aria-hidden": "true" }, bar);
    this.speed = make("select", { "aria-label": "speed" }, bar);
    this.data.speeds.forEach(([rate, words]) => make("option", { value: rate }, this.speed, words));
    this.speed.selectedIndex = this.data.speeds.length - 2;
  }

  legend(live) {
    const note = make("p", { class: "note" }, live, "Thick ring: a rank sends or receives. ");
    if (this.data.kinds.length) note.append("Filled: it works. ");
    this.data.kinds.forEach((kind, number) => {
      make("span", { class: number ? "key other" : "key" }, note);
      note.append(`${kind}: ${number ? "lower" : "upper"} half of a lane. `);
    });
  }

  go(to) {
    this.untouched = false;
    this.frame = Math.max(0, Math.min(this.data.frames, to));
    const states = this.bands.map((band) => band.draw(this.frame));
    const now = timeText(this.data, this.frame);
    this.title.textContent = states.every(({ over }) => over) ? this.data.finding : this.data.question;
    this.slider.value = Math.round(this.frame);
    this.clock.textContent = `${now} of ${timeText(this.data, this.data.frames)}`;
    if (this.frame === this.data.frames) this.stop();
    this.play.textContent = this.timer ? "❚❚ Pause" : "► Play";
    this.play.setAttribute("aria-label", this.timer ? "Pause" : "Play");
    const told = states.map((state, number) => sentence(this.data.runs[number], state));
    this.said.setAttribute("aria-live", this.timer ? "off" : "polite"); // a screen reader speaks only while the film stands
    this.said.textContent = `At ${now}: ${told.join("; ")}.`;
    if (!this.timer) this.slider.setAttribute("aria-valuetext", this.said.textContent);
  }

  halt(to) {
    this.stop();
    this.go(to);
  }

  stop() {
    cancelAnimationFrame(this.timer);
    clearInterval(this.steps);
    this.timer = 0;
  }

  restart() {
    this.halt(0);
    this.toggle();
  }

  toggle() {
    if (this.timer) return this.halt(this.frame);
    if (this.untouched || this.frame === this.data.frames) this.frame = 0;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.inSteps();
    let before = performance.now();
    const tick = (now) => {
      const to = this.frame + (Number(this.speed.value) * (now - before)) / 1000;
      before = now;
      this.timer = requestAnimationFrame(tick);
      this.go(to);
    };
    this.timer = requestAnimationFrame(tick);
    this.go(this.frame);
  }

  inSteps() {
    this.timer = -1;
    this.steps = setInterval(() => this.go(this.frame + this.data.frames / REDUCED_STEPS), REDUCED_MS);
    this.go(this.frame);
  }

  key(event) {
    const step = this.data.frames / KEY_STEPS;
    const moves = {
      ArrowRight: this.frame + step, ArrowUp: this.frame + step, ArrowLeft: this.frame - step,
      ArrowDown: this.frame - step, Home: 0, End: this.data.frames,
    };
    const modified = event.ctrlKey || event.altKey || event.metaKey;
    if (modified || event.target === this.speed) return;
    if (event.key in moves) this.halt(moves[event.key]);
    else if (event.key === " " && event.target === this.slider) this.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
