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
