// plotly.js lies in the page compressed. `drawing` is fulfilled when it has been unpacked and run.
var drawing = (async function () {
  'use strict';
  var packed = Uint8Array.from(atob(document.getElementById('plotly').textContent), function (c) { return c.charCodeAt(0); });
  var stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  var script = document.createElement('script');
  script.textContent = await new Response(stream).text();
  document.head.appendChild(script);
})();
drawing.catch(function () {
  document.querySelectorAll('.chart[data-figure]').forEach(function (holder) {
    holder.textContent = 'The charts could not be drawn: this browser may be too old to unpack them. The tables of this page hold their figures.';
  });
});
