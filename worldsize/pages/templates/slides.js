// Goes through the slides: arrows, space, Home and End, a presenter's PageDown and PageUp; N opens the speaker notes.
// A slide's `step`s wait until the speaker goes on. Without this script all slides stand below each other.
const slides = [...document.querySelectorAll("section")];
const FORWARD = ["ArrowRight", "ArrowDown", "PageDown", "Enter", " "];
const BACK = ["ArrowLeft", "ArrowUp", "PageUp", "Backspace"];
let at = 0;
let notes = null;

const stepsOf = (slide) => [...slide.querySelectorAll(".step")];

function show(place, allSeen) {
  at = Math.max(0, Math.min(slides.length - 1, place));
  slides.forEach((slide, number) => slide.classList.toggle("now", number === at));
  stepsOf(slides[at]).forEach((step) => step.classList.toggle("seen", allSeen));
  fitPlayer(slides[at]);
  lookCloser(slides[at]);
  history.replaceState(null, "", `#${at + 1}`);
  write();
}

function forward() {
  const next = stepsOf(slides[at]).find((step) => !step.classList.contains("seen"));
  if (!next) {
    if (at < slides.length - 1) show(at + 1, false);
    return;
  }
  next.classList.add("seen");
  lookCloser(slides[at]);
}

function back() {
  const last = stepsOf(slides[at]).findLast((step) => step.classList.contains("seen"));
  if (!last) {
    if (at > 0) show(at - 1, true);
    return;
  }
  last.classList.remove("seen");
  lookCloser(slides[at]);
}

// the notes stand in a window of their own, for the speaker's screen; where none may open, below the slide
function openNotes() {
  if (notes && !notes.closed) return notes.close();
  notes = window.open("", "", "width=700,height=800");
  if (!notes) return document.documentElement.classList.toggle("noted");
  notes.document.title = "Speaker notes";
  notes.document.body.style.cssText = "font: 18px/1.5 system-ui, sans-serif; margin: 1.5em; max-width: 44em";
  notes.addEventListener("keydown", press);
  write();
}

function write() {
  if (!notes || notes.closed) return;
  const next = slides[at + 1]?.querySelector("h1, h2").textContent;
  notes.document.body.innerHTML = slides[at].querySelector(".notes").innerHTML;
  const above = notes.document.createElement("h1");
  above.style.fontSize = "1.2em";
  above.textContent = `${at + 1} / ${slides.length} ${slides[at].querySelector("h1, h2").textContent}`;
  notes.document.body.prepend(above);
  notes.document.body.append(next ? `Next: ${next}` : "");
}

function press(event) {
  const onPlayer = event.composedPath().some((element) => element.matches?.("input, select, .ws-steps, .ws-replay"));
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || onPlayer) return;
  if (BACK.includes(event.key) || (event.key === " " && event.shiftKey)) back();
  else if (FORWARD.includes(event.key)) forward();
  else if (event.key === "Home") show(0, false);
  else if (event.key === "End") show(slides.length - 1, false);
  else if (event.key.toLowerCase() === "n") openNotes();
  else return;
  event.preventDefault();
}

document.querySelectorAll(".picture > svg").forEach(makeReadable); // while all slides have a layout
document.documentElement.classList.add("playing");
addEventListener("keydown", press);
addEventListener("load", () => show(at, false)); // players have drawn themselves
addEventListener("resize", () => fitPlayer(slides[at]));
addEventListener("beforeprint", () => document.querySelectorAll(".picture > svg[data-whole]").forEach((svg) => {
  svg.setAttribute("viewBox", svg.dataset.whole);
}));
addEventListener("afterprint", () => lookCloser(slides[at]));
addEventListener("hashchange", () => show(Number(location.hash.slice(1)) - 1 || 0, false));
addEventListener("click", (event) => {
  if (!event.target.closest("a, button, input, .ws-steps, .ws-replay, .notes")) forward();
});
show(Number(location.hash.slice(1)) - 1 || 0, false);
