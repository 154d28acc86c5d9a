// Who travels where. A market (a row of its table) shows its ways on the map, a link (on the map or a row) the markets
// that use it. Rows take the arrow keys and Enter, Escape clears. A field hides links with less flow than it says, on
// the map and in the tables.
(function () {
  'use strict';
  var source = document.getElementById('flows-data'), map = document.querySelector('[data-figure="map-data"]');
  if (!source || !map || !map.data) { return; }
  var flows = JSON.parse(source.textContent), panel = document.getElementById('selection'), from = null;
  var lines = [], wayTraces = [], points, nodes, pointsOf = [], listed = {};
  map.data.forEach(function (trace, index) {
    if (trace.meta === 'way') { wayTraces.push(index); }
    else if (trace.meta === 'links') { points = {index: index, x: trace.x, y: trace.y, link: trace.customdata}; }
    else if (trace.meta === 'nodes') { nodes = trace; }
    else if (trace.meta) { lines.push({index: index, pieces: pieces(trace)}); }
  });
  points.link.forEach(function (link, k) { (pointsOf[link] = pointsOf[link] || []).push(k); });
  flows.markets.forEach(function (market, k) { listed[market.ends.join(' ')] = k; });
  var colours = wayTraces.map(function (index) { return map.data[index].line.color; });

  function pieces(trace) {  // a trace draws many links, with a gap after each
    var found = [], start = 0;
    trace.x.forEach(function (value, k) {
      if (value !== null) { return; }
      found.push({link: trace.meta[found.length], x: trace.x.slice(start, k + 1), y: trace.y.slice(start, k + 1)});
      start = k + 1;
    });
    return found;
  }
  function text(value) {
    if (value === null || value === undefined) { return '–'; }
    if (value !== 0 && Math.abs(value) < 1e-3) { return value.toExponential(1); }
    return value.toLocaleString('en-US', {maximumSignificantDigits: 4});
  }
  function percent(part) { return (100 * part).toFixed(1) + ' %'; }
  function sum(links, column) { return links.reduce(function (total, a) { return total + flows[column][a]; }, 0); }
  function names(ends) { return ends.map(function (node) { return flows.nodes[node]; }).join(' → '); }
  function through(links) {
    return names([flows.tail[links[0]]].concat(links.map(function (a) { return flows.head[a]; })));
  }

  // --- the map
  function curve(links) {
    var x = [], y = [];
    function node(n) { x.push(nodes.x[n]); y.push(nodes.y[n]); }
    links.forEach(function (a) {
      node(flows.tail[a]);
      (pointsOf[a] || []).forEach(function (k) { x.push(points.x[k]); y.push(points.y[k]); });
      node(flows.head[a]);
    });
    x.push(null);
    y.push(null);
    return {x: x, y: y};
  }
  function draw(drawn) {  // of each: its curves, its width, its colour
    var change = {x: [], y: [], 'line.width': [], 'line.color': []};
    wayTraces.forEach(function (_, k) {
      var curves = drawn[k] ? drawn[k].curves : [];
      ['x', 'y'].forEach(function (axis) {
        change[axis].push([].concat.apply([], curves.map(function (one) { return one[axis]; })));
      });
      change['line.width'].push(drawn[k] ? drawn[k].width * (map.clientWidth < 640 ? 0.6 : 1) : 1);
      change['line.color'].push(drawn[k] ? drawn[k].colour : colours[k]);
    });
    Plotly.restyle(map, change, wayTraces);
    if (lines.length) {
      Plotly.restyle(map, {opacity: drawn.length ? 0.25 : 1}, lines.map(function (line) { return line.index; }));
    }
  }

  // --- what is chosen
  function element(tag, words, kind) {
    var made = document.createElement(tag);
    made.textContent = words;
    if (kind) { made.className = kind; }
    return made;
  }
  function show(title, note, headings, rows) {
    panel.querySelector('h3').textContent = title;
    panel.querySelector('.note').textContent = note;
    var head = panel.querySelector('thead tr'), body = panel.querySelector('tbody');
    head.textContent = body.textContent = '';
    headings.forEach(function (heading, k) {
      var cell = head.appendChild(element('th', heading, rows.length && rows[0].words > k ? 'text' : ''));
      cell.scope = 'col';
    });
    rows.forEach(function (row) {
      var made = body.insertRow();
      row.cells.forEach(function (words, k) {
        var cell = made.appendChild(element('td', words, k < row.words ? 'text' : ''));
        if (k === 0 && row.colour) {
          var mark = element('span', '', 'mark');
          mark.style.background = row.colour;
          cell.prepend(mark);
        }
      });
      if (row.choose) { pick(made, row.choose); }
    });
    panel.querySelector('.scroll').hidden = !rows.length;
    panel.hidden = false;
    renew();
  }
  function chooseMarket(k) {
    var market = flows.markets[k], count = market.ways.length;
    var travel = text(market.served) + ' of ' + text(market.demand) + ' travel on the new network';
    var note = count ? travel + ', on ' + (count === 1 ? 'one way' : count + ' ways') + '.' : 'Nobody travels on the new network.';
    if (market.alternative !== null) { note += ' The existing network takes ' + text(market.alternative) + '.'; }
    show('Market: ' + names(market.ends), note, ['Way', 'Passengers', 'Time', 'Prices of its links', 'Time with prices'],
      market.ways.map(function (way, n) {
        var time = sum(way[1], 'time'), price = sum(way[1], 'price');
        return {words: 1, colour: colours[Math.min(n, colours.length - 1)],
          cells: [through(way[1]), text(way[0]), text(time), text(price), text(time + price)]};
      }));
    // The widest way below, so that all can be seen where they share a link.
    var drawn = market.ways.slice(0, colours.length).map(function (way, n) {
      return {curves: [curve(way[1])], width: Math.max(9 - 1.5 * n, 2), colour: colours[n]};
    });
    market.ways.slice(colours.length).forEach(function (way) { drawn[colours.length - 1].curves.push(curve(way[1])); });
    draw(drawn);
  }
  function chooseLink(a) {
    var beside = {}, flow = flows.flow[a], rest = flow;
    flows.markets.forEach(function (market) {
      market.ways.forEach(function (way) {
        if (way[1].indexOf(a) >= 0) { way[1].forEach(function (other) { beside[other] = true; }); }
      });
    });
    var rows = (flows.users[a] || []).map(function (user) {
      var k = listed[user[0] + ' ' + user[1]];
      rest -= user[2];
      return {words: 2, choose: k === undefined ? null : chooseMarket.bind(null, k),
        cells: [flows.nodes[user[0]], flows.nodes[user[1]], text(user[2]), percent(user[2] / flow)]};
    });
    if (rest > 0.002 * flow && flow > 0 && flows.capacity[a] > 0) {
      rows.push({words: 2, cells: ['all others', '', text(rest), percent(rest / flow)]});
    }
    var figures = flows.capacity[a] > 0 ? 'Flow ' + text(flow) + ', capacity ' + text(flows.capacity[a]) : 'Not built';
    show('Link ' + flows.link[a] + ': ' + names([flows.tail[a], flows.head[a]]),
      figures + ', price ' + text(flows.price[a]) + ', time ' + text(flows.time[a]) + '.',
      ['Origin', 'Destination', 'Passengers', 'Part of the flow'], rows);
    delete beside[a];
    var others = Object.keys(beside).map(function (other) { return curve([Number(other)]); });
    draw([{curves: others, width: 4, colour: colours[1]}, {curves: [curve([a])], width: 9, colour: colours[0]}]);
  }
  function clear() {
    if (panel.hidden) { return; }
    panel.hidden = true;
    draw([]);
    mark(null);
    if (from) { from.focus(); }
    from = null;
  }

  // --- rows that can be chosen: one of each table is in the order of the Tab key, arrows go on from it
  function mark(row) {
    document.querySelectorAll('tr[aria-current]').forEach(function (other) { other.removeAttribute('aria-current'); });
    if (row) { row.setAttribute('aria-current', 'true'); }
  }
  function pick(row, choose) {
    row.className = 'pick';
    row.tabIndex = -1;
    function chosen() {
      choose();
      if (document.contains(row)) {  // not one of the panel's own, which are replaced
        from = row;
        mark(row);
      }
      panel.querySelector('h3').focus({preventScroll: true});
      map.scrollIntoView({block: 'start'});
    }
    row.addEventListener('click', chosen);
    row.addEventListener('keydown', function (event) {
      var next = row, way = event.key === 'ArrowDown' ? 'nextElementSibling' : 'previousElementSibling';
      if (event.key === 'Enter') { chosen(); }
      else if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
        do { next = next[way]; } while (next && (next.hidden || !next.classList.contains('pick')));
        if (next) { next.focus(); }
      } else { return; }
      event.preventDefault();
    });
  }
  function renew() {
    document.querySelectorAll('tbody').forEach(function (body) {
      var rows = Array.from(body.querySelectorAll('tr.pick'));
      rows.forEach(function (row) { row.tabIndex = -1; });
      var first = rows.find(function (row) { return !row.hidden; });
      if (first) { first.tabIndex = 0; }
    });
  }
  Object.keys(flows.rows).forEach(function (name) {
    var table = document.getElementById(name);
    if (!table) { return; }
    Array.from(table.tBodies[0].rows).forEach(function (row, k) {
      row.dataset.link = flows.rows[name][k];
      pick(row, chooseLink.bind(null, flows.rows[name][k]));
    });
  });
  Array.from(document.getElementById('markets').tBodies[0].rows).forEach(function (row, k) {
    pick(row, chooseMarket.bind(null, k));
  });
  document.addEventListener('input', renew);
  document.querySelectorAll('th button').forEach(function (button) { button.addEventListener('click', renew); });
  document.addEventListener('keydown', function (event) { if (event.key === 'Escape') { clear(); } });
  panel.querySelector('button').addEventListener('click', clear);
  map.on('plotly_click', function (event) {
    var point = event.points[0];
    if (point.curveNumber === points.index) {
      from = null;
      mark(null);
      chooseLink(point.customdata);
    }
  });
  renew();

  // --- the filter; the slider is finer where flows are small, since most are
  var slider = document.getElementById('flow-slider'), field = document.getElementById('flow-field');
  var largest = Math.max.apply(null, flows.flow);
  function filter(least) {
    function shown(a) { return least <= 0 || (flows.capacity[a] > 0 && flows.flow[a] >= least); }
    var built = 0, kept = 0, change = {x: [], y: []};
    flows.capacity.forEach(function (capacity, a) {
      built += capacity > 0 ? 1 : 0;
      kept += capacity > 0 && shown(a) ? 1 : 0;
    });
    lines.forEach(function (line) {
      var left = line.pieces.filter(function (piece) { return shown(piece.link); });
      ['x', 'y'].forEach(function (axis) {
        change[axis].push([].concat.apply([], left.map(function (piece) { return piece[axis]; })));
      });
    });
    ['x', 'y'].forEach(function (axis) {
      change[axis].push(points[axis].map(function (value, k) { return shown(points.link[k]) ? value : null; }));
    });
    Plotly.restyle(map, change, lines.map(function (line) { return line.index; }).concat(points.index));
    document.getElementById('flow-count').textContent = kept + ' of ' + built + ' built links';
    document.querySelectorAll('tr[data-link]').forEach(function (row) {
      row.classList.toggle('little', !shown(Number(row.dataset.link)));
      row.hidden = row.classList.contains('little');
    });
    document.querySelectorAll('input[data-filters]').forEach(function (input) {  // both filters hold
      input.dispatchEvent(new Event('input', {bubbles: true}));
    });
    renew();
  }
  slider.addEventListener('input', function () {
    var least = largest * Math.pow(slider.value / slider.max, 2);
    field.value = Math.min(Number(least.toPrecision(3)), largest);
    filter(Number(field.value));
  });
  field.addEventListener('input', function () {
    var least = Math.max(Number(field.value) || 0, 0);
    slider.value = slider.max * Math.sqrt(Math.min(least / (largest || 1), 1));
    filter(least);
  });
  document.getElementById('flow-tools').hidden = false;
  filter(0);
})();
