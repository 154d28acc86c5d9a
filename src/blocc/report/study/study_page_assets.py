"""What the page of studies adds to the style sheet of all pages."""

from __future__ import annotations

STUDY_STYLE = """
nav ul { display: flex; flex-wrap: wrap; gap: 6px 10px; margin: 18px 0 0; padding: 0; list-style: none; }
nav a { display: block; border: 1px solid var(--line); border-radius: 999px; padding: 3px 12px; font-size: 13px;
  color: var(--ink); text-decoration: none; overflow-wrap: anywhere; }
nav a:hover { border-color: var(--accent); color: var(--accent); }
nav a:focus-visible, input:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.figures { grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); }
h2 .badge { margin-left: 10px; vertical-align: 2px; }
h3 { margin: 20px 0 6px; font-size: 15px; font-weight: 650; overflow-wrap: anywhere; }
h2 { overflow-wrap: anywhere; }
figure { margin: 6px 0 16px; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
figcaption { color: var(--muted); font-size: 13px; margin-top: 4px; }
td.text { white-space: nowrap; min-width: 0; }
td.long { white-space: normal; min-width: 400px; max-width: 560px; }
td.no { color: var(--bad); font-weight: 600; }
.scroll + .note { margin-top: 10px; }
section thead th { white-space: normal; vertical-align: bottom; }
.observations { list-style: none; margin: 12px 0; padding: 0; }
.observations li { display: grid; grid-template-columns: 128px 1fr; gap: 2px 12px; padding: 8px 0;
  border-top: 1px solid var(--line); }
.observations .badge { justify-self: start; align-self: start; }
.observations small { grid-column: 2; color: var(--muted); font-size: 13px; overflow-wrap: anywhere; }
.bar { display: flex; height: 6px; border-radius: 3px; overflow: hidden; background: var(--line); margin: 10px 0 14px; }
.bar span { display: block; }
.bar .done { background: #009e73; }
.bar .failed { background: #c8102e; }
details { margin: 14px 0 0; }
summary { cursor: pointer; font-size: 15px; font-weight: 650; padding: 2px 0 6px; }
summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font: 12px/1.45 ui-monospace, Consolas, monospace; }
tr[hidden] { display: none; }
@media (max-width: 760px) {
  .observations li { grid-template-columns: 1fr; }
  .observations small { grid-column: 1; }
}
@media print { nav { display: none; } }
"""
