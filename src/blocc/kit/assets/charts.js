(function () {
  'use strict';
  var config = {
    displaylogo: false, responsive: true, showSendToCloud: false, showEditInChartStudio: false, plotlyServerURL: '',
    modeBarButtonsToRemove: ['select2d', 'lasso2d', 'autoScale2d'],
    typesetMath: false  // a dollar sign in a name is no formula
  };
  var charts = Array.from(document.querySelectorAll('.chart[data-figure]'));
  charts.forEach(function (holder) {
    var figure = JSON.parse(document.getElementById(holder.dataset.figure).textContent);
    var options = config;
    if (holder.clientWidth < 640) {
      options = Object.assign({}, config, {displayModeBar: false});
      narrow(figure, holder.clientWidth);
      holder.style.minHeight = '';
    }
    Plotly.newPlot(holder, figure.data, figure.layout, options);
    var menu = document.querySelector('select[data-chooses="' + holder.dataset.figure + '"]');
    if (menu) {
      menu.addEventListener('change', function () {
        var change = figure.layout.meta.choices[menu.value].change;
        Plotly.update(holder, change[0], change[1] || {});
      });
      menu.closest('.tools').hidden = false;
    }
  });
  function narrow(figure, width) {
    figure.data.forEach(function (trace) {
      if (trace.meta === 'nodes') {  // labels would cover each other; a tap on a node still names it
        trace.mode = 'markers';
        trace.marker.size = 7;
        figure.layout.height = Math.max(260, Math.round(figure.layout.height * width / 1060) + 20);
      }
      if (trace.line && trace.type === 'scatter' && figure.layout.dragmode === 'pan') { trace.line.width *= 0.6; }
      if (trace.type === 'heatmap') { trace.showscale = false; }
    });
    if (figure.layout.xaxis2) {  // one heat map under the other
      figure.layout.height = 2 * width + 60;
      figure.layout.annotations.pop();  // the title of the colour bar, which has no room
      figure.layout.margin.r = 10;
      figure.layout.xaxis.domain = figure.layout.xaxis2.domain = [0, 1];
      figure.layout.yaxis.domain = [0.55, 1];
      figure.layout.yaxis2.domain = [0, 0.45];
      figure.layout.yaxis2.showticklabels = true;
    }
  }
  // Paper is narrower than most screens, and a chart does not shrink by itself.
  window.addEventListener('beforeprint', function () {
    charts.forEach(function (chart) {
      if (chart.clientWidth > 680) { Plotly.relayout(chart, {width: 680}); }
    });
  });
  window.addEventListener('afterprint', function () {
    charts.forEach(function (chart) { Plotly.relayout(chart, {width: null, autosize: true}); });
  });
})();
