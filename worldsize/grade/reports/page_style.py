"""How a page of feedback looks: light and dark, on paper, on a narrow screen. Left out: what it says (`feedback_page`)."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --quiet: #555; --paper: #fff; --card: #f6f6f4; --line: #cfcfca;
  --good: #00664a; --bad: #a33e00; --link: #00539b; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --quiet: #b4b4b4; --paper: #16181b; --card: #212429;
  --line: #454a52; --good: #5fd3ac; --bad: #ffa569; --link: #8cc4ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif;
  overflow-wrap: anywhere; }
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.35rem; margin: 2.4rem 0 .6rem; }
h3 { font-size: 1.1rem; margin: 0 0 .4rem; }
h4 { font-size: 1rem; margin: 1.1rem 0 .3rem; }
p, ul, ol { max-width: 46rem; margin: .5rem 0; }
ul, ol { padding-left: 1.4rem; }
a { color: var(--link); }
a:focus-visible, [tabindex]:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.quiet { color: var(--quiet); }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .3rem .6rem; }
.score { font-size: 1.25rem; margin: .9rem 0 .2rem; }
.score strong { font-size: 2rem; }
meter { width: min(24rem, 100%); height: 1.2rem; }
.note { border-left: .35rem solid var(--bad); background: var(--card); padding: .6rem .9rem; margin: 1rem 0; }
table { border-collapse: collapse; margin: .6rem 0; max-width: 100%; }
caption { text-align: left; color: var(--quiet); padding-bottom: .2rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word; }
thead th { color: var(--quiet); font-weight: 600; }
tbody th { font-weight: 400; }
td.quiet, .number { white-space: nowrap; }
.number { text-align: right; }
.good { color: var(--good); font-weight: 600; white-space: nowrap; }
.bad { color: var(--bad); font-weight: 600; white-space: nowrap; }
.exercise { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem 1.2rem;
  margin: 1rem 0; }
pre { background: var(--paper); border: 1px solid var(--line); border-radius: .3rem; padding: .6rem .8rem; margin: .3rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; font: .9rem/1.45 ui-monospace, monospace; }
code { font: .92em ui-monospace, monospace; overflow-wrap: anywhere; }
.pair { display: grid; gap: 1rem; margin: .6rem 0; }
@media (min-width: 60rem) { .pair { grid-template-columns: 1fr 1fr; } }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; margin-bottom: .3rem; }
figure img { width: 100%; max-width: 46rem; height: auto; display: block; background: #fff; border-radius: .3rem;
  border: 1px solid var(--line); }
footer { color: var(--quiet); padding-top: 2rem; padding-bottom: 2.5rem; }
@media (max-width: 30rem) { header, main, footer { padding-left: .8rem;
  padding-right: .8rem; } .exercise { padding: .8rem; }
  th, td { padding-right: .6rem; } }
@media print { .exercise { break-inside: avoid; } .skip { display: none; } }
"""
