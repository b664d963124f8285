// The keyboard of a prediction's card: a new card takes the focus, and Enter, once the number is kept, goes on to the next cell.

const TRIES = 60; // frames until the card is on the page

function render({ model, el }) {
  el.style.display = "none";
  let waiting = false;
  const attach = (left) => {
    const card = el.closest(".worldsize-prediction");
    const field = card?.querySelector("input");
    if (!field) return left && requestAnimationFrame(() => attach(left - 1));
    field.addEventListener("keydown", (event) => {
      waiting = event.key === "Enter";
      if (event.key === "Escape") select(card.closest(".jp-Cell"));
    });
    if (model.get("fresh") && !busyBelow(card)) field.focus({ preventScroll: true });
  };
  attach(TRIES);
  model.on("change:kept", () => {
    const cell = waiting && el.closest(".jp-Cell");
    waiting = false;
    if (cell) select(following(cell));
  });
}

// Return true while a later cell waits for the kernel: in "run all" no card takes the focus.
function busyBelow(card) {
  const own = card.closest(".jp-Cell");
  const prompts = [...(own?.closest(".jp-Notebook")?.querySelectorAll(".jp-InputPrompt") ?? [])];
  return prompts.some((one) => one.textContent.includes("*") && !own.contains(one));
}

function following(cell) {
  for (let next = cell.nextElementSibling; next; next = next.nextElementSibling) {
    if (next.matches(".jp-Cell") && next.offsetHeight) return next;
  }
  return cell;
}

// Select a cell in command mode, as a click on its prompt does.
function select(cell) {
  const prompt = cell?.querySelector(".jp-InputPrompt, .jp-InputArea-prompt");
  if (!prompt) return;
  document.activeElement?.blur();
  for (const type of ["mousedown", "mouseup", "click"]) {
    prompt.dispatchEvent(new MouseEvent(type, { bubbles: true, cancelable: true, button: 0 }));
  }
  cell.closest(".jp-Notebook")?.focus({ preventScroll: true });
  cell.scrollIntoView({ block: "nearest" });
}

export default { render };
