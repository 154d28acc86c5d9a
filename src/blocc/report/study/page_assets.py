"""What the page of studies adds to the style sheet of the transport page, and its own script for tables."""

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

#: A click or the Enter key on a heading sorts (headings are buttons); the field above a table filters all its cells.
STUDY_SCRIPT = """
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
    var order = head.getAttribute('aria-sort') === 'ascending' ? 'descending' : 'ascending';
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
      return Array.from(row.cells).map(function (cell) { return cell.textContent; }).join(' ').toLowerCase();
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
