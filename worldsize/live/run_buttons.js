// The line of buttons below a run: asks the kernel for a file or a text, and saves or copies it. Nothing is fetched.

const BUTTONS = [
  ["perfetto", "open in Perfetto", "download the trace, for ui.perfetto.dev"],
  ["page", "save as a page", "download this run as one HTML file that needs no network"],
  ["text", "copy as text", "copy what this run did, in words"],
];
const PATIENCE_MS = 8000;
const GONE = "The kernel no longer has this run: run this cell again.";

function save(message) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([message.data], { type: message.type }));
  link.download = message.file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

async function take(message) {
  if (!message.data) return message.said;
  if (message.copy) {
    try {
      await navigator.clipboard.writeText(message.data);
      return message.said;
    } catch {
      save(message); // a page that is not secure may not copy
      return `This browser blocks copying: ${message.file} is in your downloads.`;
    }
  }
  save(message);
  return message.said;
}

function render({ model, el }) {
  const row = document.createElement("div");
  row.className = "ws-run-buttons";
  row.style.cssText = "display:flex;flex-wrap:wrap;gap:2px 14px;align-items:baseline;font-size:12px;margin:4px 0 2px";
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", "this run");
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  let late = 0;

  for (const [ask, name, title] of BUTTONS) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.title = title;
    button.dataset.ask = ask;
    button.style.cssText =
      "font:inherit;color:inherit;background:none;border:0;padding:1px 0;opacity:.75;cursor:pointer;" +
      "text-decoration:underline;text-underline-offset:3px;text-decoration-thickness:1px";
    button.addEventListener("click", () => {
      said.textContent = "…";
      clearTimeout(late);
      late = setTimeout(() => (said.textContent = GONE), PATIENCE_MS);
      model.send({ ask });
    });
    row.append(button);
  }
  row.append(said);
  el.append(row);

  model.on("msg:custom", async (message) => {
    clearTimeout(late);
    said.textContent = await take(message);
  });
}

export default { render };
