// The curves of the live view: one chart a name, one line a rank. Plain SVG.
//
// Up to four ranks are told apart by colour, dashes and marker. Of more ranks the lines are pale, and their mean, the lowest
// and the highest have their name at their end, as in the picture of the run's result (figures/report_curves.py).
// It stands before view.js in one module, and has what both use. Left out: where the numbers come from (view.js).

const TONES = 6; // of the ranks' palette; beyond them the tones come again, with another shape and other dashes
const SHAPES = [
  "M6 1a5 5 0 1 0 .01 0z", "M1.5 1.5h9v9h-9z", "M6 1l5.5 10h-11z", "M6 .5L11.5 6 6 11.5.5 6z",
  "M6 11L.5 1h11z", "M4 1h4v3h3v4H8v3H4V8H1V4h3z", "M3 1l3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3-3-3z",
  "M6 .5l1.6 3.7 4 .4-3 2.7.9 3.9L6 9.2l-3.5 2 .9-3.9-3-2.7 4-.4z",
];
const DASHES = ["", "9 2.5", "4.5 2.5", "1.5 1.5", "9 2.5 1.5 2.5"];
const PLOT = { height: 124, left: 44, right: 10, top: 6, bottom: 18 };
const MOST_OWN = 4; // ranks whose lines all stand out
const NAMES = 52; // px right of the lines of more ranks, for names
const NAME_HEIGHT = 13;
const WHOLE = ["step", "epoch"]; // axes of whole numbers

function element(tag, className, parent, attributes = {}) {
  const made = ["svg", "g", "path", "text", "line"].includes(tag)
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

function shape(svg, rank) {
  element("path", "", svg, { d: SHAPES[rank % SHAPES.length], style: `fill: var(--ws-rank-${rank % TONES})` });
}

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
    const many = curves.length > MOST_OWN;
    const right = many ? NAMES : PLOT.right;
    this.counts = WHOLE.includes(curves[0].x);
    const [x0, x1] = extent(curves.flatMap((rank) => ends(rank.curves[this.name].x)), this.counts);
    const [y0, y1] = extent(curves.flatMap((rank) => range(rank.curves[this.name].y)));
    const px = (x) => PLOT.left + ((x - x0) / (x1 - x0)) * (width - PLOT.left - right);
    const py = (y) => PLOT.height - PLOT.bottom - ((y - y0) / (y1 - y0)) * (PLOT.height - PLOT.top - PLOT.bottom);
    this.axes(width - right, px, py, [x0, x1], [y0, y1]);
    const named = many ? this.extremes(curves) : curves;
    curves.forEach((rank, index) => this.line(rank, index, curves.length, px, py, named.includes(rank)));
    if (many) this.names(curves, named, width - right, px, py);
    const latest = curves.map((rank) => `${rank.name} ${digits(rank.curves[this.name].y.at(-1))}`);
    this.svg.setAttribute("aria-label", `${this.name} by rank, now: ${latest.slice(0, 8).join(", ")}`);
  }

  // The ranks whose latest numbers are lowest and highest.
  extremes(curves) {
    const latest = ({ curves: of }) => of[this.name].y.findLast((y) => y !== null) ?? NaN;
    const sorted = curves.filter((rank) => !Number.isNaN(latest(rank))).sort((one, other) => latest(one) - latest(other));
    return sorted.length ? [sorted[0], sorted.at(-1)] : [];
  }

  // The mean of all ranks, and the names of the lines that stand out, moved apart where they would overlap.
  names(curves, named, right, px, py) {
    this.mean ??= element("path", "ws-mean", this.svg, { fill: "none" });
    this.labels ??= element("g", "", this.svg);
    const sums = new Map();
    for (const { curves: of } of curves) {
      const { x, y } = of[this.name];
      x.forEach((at, i) => {
        if (y[i] === null || (i && x[i - 1] === at)) return;
        const [sum, count] = sums.get(at) ?? [0, 0];
        sums.set(at, [sum + y[i], count + 1]);
      });
    }
    const mean = [...sums].filter(([, [, count]]) => count === curves.length).sort(([one], [other]) => one - other);
    const points = mean.map(([at, [sum, count]]) => [px(at), py(sum / count)]);
    const corners = points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`);
    this.mean.setAttribute("d", corners.length > 1 ? `M${corners.join("L")}` : "");

    const wanted = named.map((rank) => [rank.name, py(rank.curves[this.name].y.findLast((y) => y !== null))]);
    if (points.length > 1) wanted.push(["mean", points.at(-1)[1]]);
    this.labels.replaceChildren();
    let highest = Infinity;
    const places = wanted.sort(([, one], [, other]) => other - one).map(([name, y]) => {
      highest = Math.min(y, highest - NAME_HEIGHT);
      return [name, highest];
    });
    const above = Math.max(0, PLOT.top - highest); // names that stand on each other may rise over the chart
    for (const [name, y] of places) write(element("text", "", this.labels, { x: right + 8, y: y + above + 4 }), name);
  }

  line(rank, index, count, px, py, stands) {
    let made = this.paths.get(rank.rank);
    if (!made) {
      const colour = `var(--ws-rank-${rank.rank % TONES})`;
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
    made.path.classList.toggle("ws-pale", !stands);
    made.mark.classList.toggle("ws-pale", !stands);
    const { x, y } = rank.curves[this.name];
    let d = "", pen = "M", marked = -1;
    // the ranks' marks stand at different places, so that each is seen where curves coincide
    const wanted = count > MOST_OWN ? x.length : Math.floor((x.length - 1) * (1 - (0.7 * index) / Math.max(1, count)));
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

  axes(right, px, py, [x0, x1], [y0, y1]) {
    for (const node of this.grid) node.remove();
    this.grid = [];
    const add = (tag, attributes, text) => {
      const node = element(tag, tag === "line" ? "ws-grid" : "", null, attributes);
      if (text !== undefined) node.textContent = text;
      this.svg.prepend(node);
      this.grid.push(node);
    };
    for (const y of ticks(y0, y1, 3)) {
      add("line", { x1: PLOT.left, x2: right, y1: py(y), y2: py(y) });
      add("text", { x: PLOT.left - 5, y: py(y) + 4, "text-anchor": "end" }, digits(y));
    }
    for (const x of ticks(x0, x1, 5, this.counts ? 1 : 0)) add("text", { x: px(x), y: PLOT.height - 4, "text-anchor": "middle" }, digits(x));
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

function extent(values, counts = false) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (!(low <= high)) return [0, 1];
  if (counts && low === high) return [low, low + 1];
  return low < high ? [low, high] : [low - 0.5, high + 0.5];
}

function ticks(low, high, about, least = 0) {
  const rough = Math.max(least, (high - low) / about);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n++) found.push(n * step);
  return found;
}
