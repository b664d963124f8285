// The view of a replay, for player.js: each run a band, with a scene of ranks and packets, and a track of lanes that fills.
//
// A place of the player is a frame, 0 to `data.last`. Sentences about a run come from Python.

const SCENE = { width: 230, least: 150, flat: 80, pad: 18 };

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
  const [factor, unit] = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => bytes >= least) ?? [1, "B"];
  const value = bytes / factor;
  return `${value >= 100 ? Math.round(value).toLocaleString("en-US") : Number(value.toPrecision(3))} ${unit}`;
}

function timeText(data, frame) {
  const [longest, digits, unit] = data.time;
  return `${((longest * frame) / data.last).toFixed(digits)} ${unit}`;
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
    this.bend = [flat ? 0.5 : 0.12, Infinity];
    for (const [src, dst] of this.run.links) make("path", { class: "link", d: this.way(src, dst).d }, svg);
    this.packets = make("g", {}, svg);
    this.nodes = this.places.map(([x, y], rank) => {
      const look = { cx: x, cy: y, r: this.radius, style: `stroke: ${rankColour(rank)}` };
      const node = make("circle", { class: "node", "data-rank": rank, ...look }, svg);
      make("text", { x, y: y + 4 }, svg, rank);
      return node;
    });
  }

  way(src, dst) {
    return curve(this.places[src], this.places[dst], this.bend);
  }

  track(row, number) {
    const { last, ticks } = this.data;
    const height = this.ranks * this.lane;
    const track = make("div", { class: "track", "aria-hidden": "true" }, row);
    const names = make("div", { class: "ranks" }, track);
    for (let rank = 0; rank < this.ranks; rank++) make("span", {}, names, rank);
    const look = { viewBox: `0 0 ${last * 1.01} ${height}`, height, preserveAspectRatio: "none" };
    const svg = make("svg", look, track);
    const clip = make("clipPath", { id: `past${number}` }, make("defs", {}, svg));
    this.past = make("rect", { x: 0, y: 0, width: 0, height }, clip);

    const y = (rank) => (rank + 0.5) * this.lane;
    for (const [x] of ticks) make("line", { class: "tick", x1: x, x2: x, y1: 0, y2: height }, svg);
    for (let rank = 0; rank < this.ranks; rank++) {
      make("line", { class: "lane", x1: 0, x2: last, y1: y(rank), y2: y(rank) }, svg);
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
      const left = (100 * x) / (last * 1.01);
      make("span", { class: left > 95 ? "late" : "", style: `left: ${left}%` }, axis, label);
    }
  }

  draw(frame) {
    const state = stateAt(this.run, frame);
    this.load.textContent = loadText(this.run, state);
    this.load.dataset.bytes = state.bytes;
    this.state.textContent = state.over ? this.run.standing : "";
    this.state.classList.toggle("over", state.over);
    this.past.setAttribute("width", Math.min(frame, this.run.over) + (state.over ? this.data.last / 200 : 0));
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

// ---- all runs ----------------------------------------------------------------------------------------------------

class View {
  constructor(live, { bar, said }, data) {
    this.data = data;
    live.append(bar);
    this.bands = data.runs.map((_, number) => new Band(live, data, number));
    said.classList.add("unseen"); // the heads of the bands show the same
    live.append(said);
    const note = make("p", { class: "note" }, live, "Thick ring: a rank sends or receives. ");
    if (data.kinds.length) note.append("Filled: it works. ");
    data.kinds.forEach((kind, number) => {
      make("span", { class: number ? "key other" : "key" }, note);
      note.append(`${kind}: ${number ? "lower" : "upper"} half of a lane. `);
    });
  }

  draw(frame) {
    const { last, runs, finding, first, title } = this.data;
    const states = this.bands.map((band) => band.draw(frame));
    const now = timeText(this.data, frame);
    const told = states.map((state, number) => sentence(runs[number], state));
    const said = `At ${now}: ${told.join("; ")}.`;
    const clock = `${now} of ${timeText(this.data, last)}`;
    // the question is answered as soon as the first run is done, and in full when all are
    const whole = runs.filter((run, number) => run.whole && states[number].over);
    const known = states.every(({ over }) => over) ? finding : whole.length && first ? first : title;
    return { title: known, clock, said, value: said };
  }
}
