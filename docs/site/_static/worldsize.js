// A lab's page: long code is folded, optional parts are folded, and what answers a question is covered until the reader guesses.
//
// Guesses stay in this browser (localStorage). Without a script all is open. Nothing is fetched. The braces keep names from
// other scripts of the page; it is no module, because a page opened as a file may load none.

{
const MOST_LINES = 3; // of code that is not folded
const SAME = 1e-9;

function make(tag, attributes, parent, text) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

// ---- numbers and how far apart two are, as worldsize/units.py and worldsize/lab/summary.py say them -------------------

function digits(value, count) {
  return String(Number(value.toPrecision(count)));
}

function number(value, unit) {
  const size = Math.abs(value);
  let text = size >= 100 && size < 1e6 ? Math.round(value).toLocaleString("en-US") : digits(value, 3);
  if (size < 1e7 && Number.isInteger(value)) text = value.toLocaleString("en-US");
  return `${text} ${unit}`.trim();
}

function compare(said, was, unit) {
  const [low, high] = [Math.abs(said), Math.abs(was)].sort((a, b) => a - b);
  if (Math.abs(said - was) <= SAME * high) return "exactly";
  const side = said < was ? "too low" : "too high";
  const gap = number(Math.abs(was - said), unit);
  if (said * was <= 0) return `${gap} ${side}`;
  if (high / low <= 1.05) return "within 5 %";
  if (said < 0) return `${gap} ${side}`;
  if (high / low >= 2) return `${number(Number(digits(high / low, 2)), "")} times ${side}`;
  if (unit === "%") return `${gap.replace(/ %$/, "")} percentage points ${side}`;
  return `${Math.round((100 * Math.abs(said - was)) / was)} % ${side}`;
}

// What somebody typed, such as 0.25, 0,25, 1/3 or 2e3, with or without the unit; NaN where it is no number.
function typed(text, unit) {
  const bare = text.trim().replace(/−/g, "-");
  const amount = (unit && bare.endsWith(unit) ? bare.slice(0, -unit.length) : bare).trim();
  const [top, below = "1", ...more] = amount.replace(/(\d),(\d)/g, "$1.$2").split("/");
  return top.trim() && !more.length ? Number(top) / Number(below) : NaN;
}

// ---- what was guessed -------------------------------------------------------------------------------------------------

const KEPT = `worldsize:${document.location.pathname.split("/").pop()}:`;
const guesses = {
  get(text) {
    try { return localStorage.getItem(KEPT + text); } catch { return null; } // no storage: nothing is kept
  },
  set(text, value) {
    try {
      if (value === null) localStorage.removeItem(KEPT + text);
      else localStorage.setItem(KEPT + text, value);
    } catch { /* the same */ }
  },
};

class Question {
  constructor(place) {
    this.place = place;
    this.text = place.querySelector("p").textContent;
    this.unit = place.dataset.unit;
    this.answers = [...document.querySelectorAll(`div.cell.tag_answers-${place.dataset.question}`)];
    this.answered = false;
    this.answers.forEach((cell) => this.sayOnce(cell));
    const form = make("form", { class: "ws-field" }, place);
    const told = { "aria-labelledby": place.querySelector("p").id, inputmode: "text", autocomplete: "off" };
    this.field = make("input", { type: "text", placeholder: "your guess", ...told }, form);
    make("span", {}, form, this.unit);
    make("button", { type: "submit" }, form, "Guess");
    this.other = make("button", { type: "button" }, form);
    this.said = make("span", { role: "status" }, form);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.guess(this.field.value);
    });
    this.other.addEventListener("click", () => (this.answered ? this.again() : this.take("shown")));
  }

  // The run printed the question and its answer too, which the field says already.
  sayOnce(cell) {
    const answer = `\n  it was ${this.place.dataset.measured}\n`;
    for (const printed of cell.querySelectorAll(".output.stream pre")) {
      const [before, ...after] = `${printed.textContent.trimEnd()}\n`.split(answer);
      if (!after.length) continue;
      printed.textContent = before.split("\n").slice(0, -1).concat(after.join(answer)).join("\n");
      if (!printed.textContent.trim()) printed.closest(".output").remove();
    }
  }

  guess(text) {
    const value = typed(text, this.unit);
    if (Number.isFinite(value)) this.take(String(value));
    else this.said.textContent = "Type a number, such as 0.25, 1/3 or 2e3.";
  }

  take(kept) {
    guesses.set(this.text, kept);
    this.show(kept);
  }

  again() {
    guesses.set(this.text, null);
    this.field.value = "";
    this.show(null);
    this.field.focus();
  }

  // `kept` is a number as text, "shown", or null where there is no guess yet.
  show(kept) {
    this.answered = kept !== null;
    this.other.textContent = this.answered ? "Ask me again" : "Show me";
    const parts = [`it was ${this.place.dataset.measured}`];
    const value = Number(kept);
    if (this.answered && Number.isFinite(value)) {
      this.field.value = digits(value, 12);
      parts.unshift(`you said ${number(value, this.unit)}`);
      parts.push(compare(value, Number(this.place.dataset.value), this.unit));
    }
    this.said.textContent = this.answered ? parts.join(" · ") : "";
    coverAll();
  }
}

const questions = [];

// What the reader has said of every question so far stands where the lab sums up.
function sumUp() {
  for (const place of document.querySelectorAll(".ws-guesses")) {
    place.replaceChildren();
    const answered = questions.filter((question) => question.answered);
    make("p", {}, place, `You have opened the answers to ${answered.length} of ${questions.length} questions of this page.`);
    const list = make("ul", {}, place);
    for (const { text, said } of answered) make("strong", {}, make("li", {}, list, `${text} `), said.textContent);
    if (!answered.length) list.remove();
  }
}

function coverAll() {
  const open = new Map(questions.flatMap(({ answers }) => answers.map((cell) => [cell, []])));
  for (const question of questions) {
    if (!question.answered) question.answers.forEach((cell) => open.get(cell).push(question));
  }
  for (const [cell, waiting] of open) {
    cell.querySelector(".ws-cover")?.remove();
    cell.classList.toggle("ws-covered", waiting.length > 0);
  }
  const told = new Set(); // the questions whose cover has a button; what follows is opened with it
  for (const [cell, waiting] of open) {
    if (!waiting.length || cell.previousElementSibling?.classList.contains("ws-covered")) continue; // one line covers both
    if (waiting.every((question) => told.has(question))) {
      const later = make("p", { class: "ws-cover ws-later" }, cell, "Shown with ");
      make("a", { href: `#${waiting[0].place.querySelector("p").id}` }, later, "your guess above");
      later.append(".");
      continue;
    }
    const cover = make("p", { class: "ws-cover" }, cell, "What the run showed is covered until you guess. ");
    const show = make("button", { type: "button" }, cover, "Show me");
    show.addEventListener("click", () => waiting.forEach((question) => question.take("shown")));
    waiting.forEach((question) => told.add(question));
  }
  sumUp();
  reach();
}

// ---- knobs, over pictures that were drawn before the page was made -------------------------------------------------------

async function unpacked(letters) {
  const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

class Knobs {
  constructor(host) {
    const { how, knobs, start, pictures } = JSON.parse(host.dataset.knobs);
    this.pictures = pictures;
    this.knobs = knobs;
    this.how = how;
    this.picture = host.firstElementChild;
    this.first = { position: start, html: this.picture.innerHTML };
    this.least = this.picture.querySelector("svg")?.style.getPropertyValue("--ws-least");
    const panel = make("div", { class: "ws-panel", role: "group", "aria-label": "knobs" });
    host.prepend(panel);
    this.sliders = knobs.map(({ name, values }, number) => {
      const label = make("label", {}, panel, name);
      const place = { type: "range", min: 0, max: values.length - 1, value: start.split(",")[number] };
      const slider = make("input", place, label);
      make("output", {}, label);
      slider.addEventListener("input", () => this.turn());
      return slider;
    });
    this.said = make("p", { role: "status" }, panel);
    this.turn();
  }

  async turn() {
    this.sliders.forEach((slider, number) => {
      const value = this.knobs[number].values[slider.value];
      slider.setAttribute("aria-valuetext", value);
      slider.nextElementSibling.textContent = value;
    });
    const position = this.sliders.map((slider) => slider.value).join();
    const known = position === this.first.position || position in this.pictures;
    this.said.textContent = known
      ? `Computed ${this.how}, before this page was made.`
      : "Not computed before this page was made: choose it in JupyterLab.";
    this.latest = position;
    if (!known) return;
    const shown = position === this.first.position ? this.first.html : await unpacked(this.pictures[position]);
    if (this.latest !== position) return; // the slider has moved on
    this.picture.innerHTML = shown;
    if (this.least) this.picture.querySelector("svg")?.style.setProperty("--ws-least", this.least);
    reach();
  }
}

// ---- long code and optional parts --------------------------------------------------------------------------------------

function cut(code) {
  const lines = code.textContent.trimEnd().split("\n").length;
  if (lines <= MOST_LINES) return;
  code.classList.add("ws-cut");
  const words = `The code, ${lines} lines`;
  const more = make("button", { type: "button", class: "ws-more", "aria-expanded": "false" }, code, words);
  more.addEventListener("click", () => {
    const isCut = code.classList.toggle("ws-cut");
    more.textContent = isCut ? words : "Fold the code";
    more.setAttribute("aria-expanded", String(!isCut));
  });
}

function fold(part) {
  const heading = part.querySelector("h2, h3");
  const inside = make("div", { hidden: "until-found" });
  while (heading.nextSibling) inside.append(heading.nextSibling);
  const open = make("button", { type: "button", class: "ws-more", "aria-expanded": "false" }, part, "Show this part");
  part.append(inside);
  const turn = (hidden) => {
    if (hidden) inside.setAttribute("hidden", "until-found");
    else inside.removeAttribute("hidden");
    open.textContent = hidden ? "Show this part" : "Fold this part";
    open.setAttribute("aria-expanded", String(!hidden));
  };
  open.addEventListener("click", () => turn(!inside.hasAttribute("hidden")));
  inside.addEventListener("beforematch", () => turn(false));
  const linked = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && part.contains(target)) {
      turn(false);
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", linked);
  linked();
}

// What scrolls sideways can be scrolled from the keyboard.
function reach() {
  for (const box of document.querySelectorAll(".cell_output .output")) {
    const scrolls = box.scrollWidth > box.clientWidth;
    const told = { tabindex: "0", role: "group", "aria-label": "scrolls sideways" };
    for (const [name, value] of Object.entries(told)) scrolls ? box.setAttribute(name, value) : box.removeAttribute(name);
  }
}

// Sphinx's words for what a search has found. Its scripts are not there where this one is tried alone.
if (typeof Documentation !== "undefined") {
  const pages = ["1 page", "${resultCount} pages"];
  const messages = { "Search finished, found one page matching the search query.": pages, "Search Results": "Found" };
  Documentation.addTranslations({ messages, plural_expr: "n === 1 ? 0 : 1", locale: "en" });
}
for (const arrow of document.querySelectorAll(".bd-links summary")) { // the theme gives it no name
  arrow.setAttribute("aria-label", `pages of ${arrow.closest("li").querySelector("a").textContent}`);
}
document.querySelectorAll("div.cell > div.cell_input").forEach(cut);
for (const part of document.querySelectorAll("article section")) {
  const heading = part.querySelector(":scope > h2, :scope > h3");
  if (heading && /\(optional\)/.test(heading.textContent)) fold(part);
}
questions.push(...[...document.querySelectorAll(".ws-question")].map((place) => new Question(place)));
questions.forEach((question) => question.show(guesses.get(question.text)));
document.querySelectorAll(".ws-knobs").forEach((host) => new Knobs(host));
addEventListener("resize", reach);
if (!questions.length) reach();
}
