// A click or the Enter key on a heading sorts (headings are buttons), numbers in the order of data-first first. The
// field above a table filters its rows by their first data-cells cells, or by all.
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
      var words = input.value.toLowerCase().split(/\s+/).filter(Boolean), shown = 0;
      rows.forEach(function (row, index) {
        var found = words.every(function (word) { return texts[index].indexOf(word) >= 0; });
        row.hidden = !found || row.classList.contains('little');  // hidden by its flow
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = shown + ' of ' + rows.length + ' rows';
    }
    input.addEventListener('input', apply);
    apply();
  });
})();
