"""What the HTML pages share: one file with its style sheet and script, that opens offline and asks nobody."""

from __future__ import annotations

import html
from pathlib import Path

from blocc._lib.files import write_atomically
from blocc._lib.version import __version__
from blocc.report.plots import PlotError

#: Forbids every request: whatever a name in a network file holds, the page cannot reach out.
SECURITY_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)

STYLE = """
:root {
  --page: #f3f5f7; --card: #ffffff; --ink: #1f2933; --muted: #5b6773; --line: #dfe4e9; --accent: #5a1a82;
  --good: #0b6b45; --good-page: #dff3e8; --warn: #8a5200; --warn-page: #fdf0d5; --bad: #9b1c1c; --bad-page: #fbe3e3;
  color-scheme: light dark;
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main, header > div, footer { max-width: 1180px; margin: 0 auto; padding: 0 24px; }
header { background: var(--card); border-bottom: 1px solid var(--line); padding: 28px 0 24px; margin-bottom: 20px; }
.kicker { margin: 0 0 4px; color: var(--muted); font-size: 13px; }
.headline { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 16px; }
h1 { margin: 0; font-size: 26px; line-height: 1.25; font-weight: 650; letter-spacing: -0.01em;
  overflow-wrap: anywhere; }
h2 { margin: 0 0 4px; font-size: 18px; font-weight: 650; }
.badge { border-radius: 999px; padding: 3px 12px; font-size: 13px; font-weight: 600; white-space: nowrap; }
.badge.good { color: var(--good); background: var(--good-page); }
.badge.warn { color: var(--warn); background: var(--warn-page); }
.badge.bad { color: var(--bad); background: var(--bad-page); }
.message { margin: 8px 0 0; color: var(--muted); max-width: 860px; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(7, 1fr); gap: 0; margin: 22px 0 0; }
.figures div { padding: 0 12px 0 14px; border-left: 1px solid var(--line); }
.figures div:first-child { padding-left: 0; border-left: 0; }
.figures dt { color: var(--muted); font-size: 12.5px; white-space: nowrap; }
.figures dd { margin: 0; font-size: 22px; line-height: 1.3; font-weight: 600; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.figures small { display: block; color: var(--muted); font-size: 12px; font-weight: 400; line-height: 1.35;
  white-space: normal; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 20px 22px;
  margin-bottom: 20px; }
.note { color: var(--muted); margin: 0 0 12px; max-width: 860px; font-size: 14px; }
.chart { width: 100%; overflow: hidden; }
.halo .textpoint text { paint-order: stroke; stroke: #fff; stroke-width: 3px; stroke-linejoin: round; }
.key { display: flex; flex-wrap: wrap; gap: 6px 20px; align-items: center; color: var(--muted); font-size: 13px;
  margin: 8px 0 0; }
.key-title { font-weight: 600; }
.sample { display: inline-flex; align-items: center; gap: 8px; }
.scroll { overflow: auto; max-height: 680px; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 13.5px;
  font-variant-numeric: tabular-nums; }
th, td { padding: 5px 12px; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child > * { border-bottom: 0; }
th.text, td.text, .facts th, .facts td { text-align: left; }
td { white-space: nowrap; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 90px; }
thead th { position: sticky; top: 0; background: var(--page); font-weight: 600; white-space: nowrap; z-index: 1; }
th button { all: unset; cursor: pointer; }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; }
th[aria-sort] button { color: var(--accent); }
th[aria-sort] button::after { content: " \\2193"; }
th[aria-sort="ascending"] button::after { content: " \\2191"; }
#certificate td:nth-child(2), #certificate th:nth-child(2) { text-align: right; }
#certificate td:nth-child(3) { white-space: nowrap; }
.facts th { color: var(--muted); font-weight: 400; width: 40%; overflow-wrap: anywhere; }
.facts td { white-space: normal; overflow-wrap: anywhere; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 20px; align-items: start; }
.pair section { height: 100%; margin-bottom: 0; }
.pair { margin-bottom: 20px; }
.tools { display: flex; gap: 12px; align-items: center; margin: 0 0 10px; color: var(--muted); font-size: 13px; }
input[type="search"] { font: inherit; font-size: 14px; color: var(--ink); background: var(--card); width: 260px;
  border: 1px solid var(--line); border-radius: 6px; padding: 6px 10px; }
footer { color: var(--muted); font-size: 13px; padding-bottom: 32px; }
@media (max-width: 1020px) {
  .figures { grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 16px 0; }
  .figures div, .figures div:first-child { border-left: 0; padding: 0 12px 0 0; }
}
@media (max-width: 760px) {
  main, header > div, footer { padding-left: 12px; padding-right: 12px; }
  section { padding: 16px 14px; }
  .pair { grid-template-columns: minmax(0, 1fr); }
  .figures { grid-template-columns: 1fr 1fr; }
  h1 { font-size: 22px; }
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181d; --card: #1d232a; --ink: #e8ecf0; --muted: #a3aebb; --line: #343d47; --accent: #d9a8f5;
    --good: #8fe0b8; --good-page: #123b2a; --warn: #f5c97a; --warn-page: #42300f; --bad: #f3a6a6; --bad-page: #4a1d1d;
  }
  /* Charts keep their light paper: the colours of links and demand were chosen for it. */
  .chart { background: #f7f8f9; border-radius: 6px; }
}
@media print {
  :root { --page: #fff; --card: #fff; --ink: #000; --muted: #444; --line: #bbb; }
  body { font-size: 11pt; }
  header { padding: 0 0 12px; }
  section { break-inside: avoid; border: 0; padding: 8px 0; }
  section.long { break-inside: auto; }
  .scroll { max-height: none; overflow: visible; border: 0; }
  thead th { position: static; }
  .tools, .modebar-container { display: none !important; }
  .figures { grid-template-columns: repeat(4, 1fr); gap: 10px 0; }
}
"""

#: A click or the Enter key on a heading sorts (headings are buttons), numbers in the order of ``data-first`` first; the
#: field above a table filters its rows by their first ``data-cells`` cells, or by all.
TABLES_SCRIPT = """
(function () {
  'use strict';
  function key(row, index, text) {
    var cell = row.cells[index];
    if (text) { return cell.textContent; }
    var value = cell.getAttribute('data-v');
    return value === null || value === '' ? NaN : Number(value);
  }
  function sort(head) {
    var table = head.closest('table'), body = table.tBodies[0], index = head.cellIndex;
    var text = head.classList.contains('text');
    var before = head.getAttribute('aria-sort'), first = text ? 'ascending' : table.dataset.first || 'ascending';
    var order = before ? (before === 'ascending' ? 'descending' : 'ascending') : first;
    var sign = order === 'ascending' ? 1 : -1;
    table.querySelectorAll('th').forEach(function (other) { other.removeAttribute('aria-sort'); });
    head.setAttribute('aria-sort', order);
    var rows = Array.from(body.rows).map(function (row) { return [key(row, index, text), row]; });
    rows.sort(function (a, b) {
      if (text) { return sign * a[0].localeCompare(b[0], undefined, {numeric: true}); }
      if (isNaN(a[0]) || isNaN(b[0])) { return isNaN(a[0]) - isNaN(b[0]); }
      return a[0] === b[0] ? 0 : sign * (a[0] < b[0] ? -1 : 1);
    });
    rows.forEach(function (entry) { body.appendChild(entry[1]); });
  }
  document.querySelectorAll('table.sortable th').forEach(function (head) {
    head.querySelector('button').addEventListener('click', function () { sort(head); });
  });
  document.querySelectorAll('input[data-filters]').forEach(function (input) {
    var rows = Array.from(document.getElementById(input.dataset.filters).tBodies[0].rows);
    var count = document.getElementById(input.dataset.count);
    var texts = rows.map(function (row) {
      var cells = Array.from(row.cells).slice(0, input.dataset.cells || row.cells.length);
      return cells.map(function (cell) { return cell.textContent; }).join(' ').toLowerCase();
    });
    function apply() {
      var words = input.value.toLowerCase().split(/\\s+/).filter(Boolean), shown = 0;
      rows.forEach(function (row, index) {
        row.hidden = !words.every(function (word) { return texts[index].indexOf(word) >= 0; });
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = shown + ' of ' + rows.length + ' rows';
    }
    input.addEventListener('input', apply);
    apply();
  });
})();
"""


def page(title: str, body: str, *, style: str = "", scripts: tuple[str, ...] = ()) -> str:
    """A whole page: ``title`` is plain text, ``body`` is HTML whose words from outside are escaped already."""
    added = "".join(f"\n<script>{script}</script>" for script in (TABLES_SCRIPT, *scripts))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{SECURITY_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="blocc {html.escape(__version__)}">
<title>{html.escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
{body}{added}
</body>
</html>
"""


def write_html(text: str, path: str | Path) -> Path:
    """Write a page and return its path; its folder is made where it is missing."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, text.encode(errors="replace"))
    except OSError as error:
        raise PlotError(f"cannot write {target}: {error.strerror or error}") from error
    return target
