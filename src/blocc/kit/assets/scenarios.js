// The map of differences: fills the traces of links with more and with less capacity for the two scenarios chosen.
(function () {
  'use strict';
  var holder = document.querySelector('[data-figure="difference-data"]');
  var data = JSON.parse(document.getElementById('capacities-data').textContent);
  var from = document.getElementById('difference-from'), to = document.getElementById('difference-to');
  var count = data.widths.length, traces = 2 * count;
  function figure(value) { return String(Number(value.toPrecision(4))); }
  function draw() {
    var before = data.capacities[from.value], after = data.capacities[to.value];
    var changes = after.map(function (value, link) { return value - before[link]; });
    var largest = Math.max.apply(null, changes.map(Math.abs));
    var top = Math.max(Math.max.apply(null, before), Math.max.apply(null, after));
    var x = [], y = [], numbers = [], more = 0, less = 0;
    for (var k = 0; k < traces; k++) { x.push([]); y.push([]); numbers.push(2 + k); }
    var texts = changes.map(function (change, link) {
      var differs = Math.abs(change) > data.least * top;
      if (differs) {
        var place = Math.ceil(count * Math.abs(change) / largest) - 1 + (change > 0 ? 0 : count);
        x[place].push.apply(x[place], data.x[link].concat([null]));
        y[place].push.apply(y[place], data.y[link].concat([null]));
        if (change > 0) { more += 1; } else { less += 1; }
      }
      var sign = change > 0 ? '+' : '−';
      return '<b>' + data.links[link] + '</b><br>capacity ' + figure(before[link]) + ' → ' + figure(after[link]) +
        (differs ? ' (' + sign + figure(Math.abs(change)) + ')' : ' (the same)');
    });
    Plotly.restyle(holder, {x: x, y: y}, numbers);
    Plotly.restyle(holder, {text: [texts]}, [traces + 2]);
    document.getElementById('difference-words').textContent =
      more + ' links have more capacity, ' + less + ' have less.';
  }
  from.addEventListener('change', draw);
  to.addEventListener('change', draw);
  draw();
})();
