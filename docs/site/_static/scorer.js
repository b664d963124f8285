// How the search orders its pages: a lab before the glossary and the API, and pages for teachers last.

const PAGES = [["labs/", 30], ["teaching/", -60], ["grading", -60], ["what-earns-points", -40], ["api/", -20]];

var Scorer = {
  score: ([page, , , , score]) => score + (PAGES.find(([start]) => page.startsWith(start))?.[1] ?? 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// What a result shows of its page: prose alone, and a term with its explanation. A page is listed once, where it fits best.
// Sphinx puts this file behind its script of the search.
Search.htmlToText = (html, anchor) => {
  const main = new DOMParser().parseFromString(html, "text/html").querySelector('[role="main"]');
  if (!main) return "";
  for (const part of main.querySelectorAll(".headerlink, script, style, .cell_input, .cell_output")) part.remove();
  for (const term of main.querySelectorAll("dt")) term.append(": ");
  const found = anchor ? main.querySelector(anchor) : null;
  if (found?.matches("dt")) return `${found.textContent}${found.nextElementSibling?.textContent ?? ""}`;
  return (found ?? main).textContent;
};

const performSearch = Search._performSearch;
Search._performSearch = (...query) => {
  const seen = new Set();
  const once = ([page, , anchor, , , , kind]) => {
    const place = kind === "object" ? page + anchor : page; // each function of a page of the API is a result
    return !seen.has(place) && seen.add(place);
  };
  return performSearch(...query).reverse().filter(once).reverse(); // the best is the last
};
