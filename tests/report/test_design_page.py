"""The page: its figures, its safety, and how it looks in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from blocc.errors import BloccError
from blocc.kit.charts import UTILISATION_SCALE
from blocc.kit.page import environment
from blocc.report.transport.design_page import report_page, write_report
from blocc.report.transport.design_ways import flows_data
from blocc.result import Status
from blocc.transport.design.design_result import Design
from blocc.transport.network.network import TransportNetwork
from browser import Page, needs_browser, visit
from transport_designs import fake_design, geographic_network, large_network, one_market, small_network

EVIL = "<script>alert(1)</script>"
EVIL_NAMES = (EVIL, "</script><img src=x onerror=alert(2)>", '"><b onmouseover="alert(3)">', "&lt;i&gt; %{x} $a$")


def own_parts(text: str) -> str:
    """The page without plotly.js, which holds addresses that it would only use for maps with tiles."""
    scripts = re.findall(r"<script[^>]*>.*?</script>", text, flags=re.DOTALL)
    return text.replace(max(scripts, key=len), "")


@pytest.fixture(scope="module")
def design() -> Design:
    return fake_design()


@pytest.fixture(scope="module")
def text(design: Design) -> str:
    return report_page(design)


def test_key_figures(design: Design, text: str) -> None:
    words = " ".join(Page(own_parts(text)).words)
    for expected in ("Four stations", "converged", "63.413", "76.919", "13.507", "88.4 %", "of 10 candidates"):
        assert expected in words
    assert design.message in words
    assert re.search(r'class="badge good">converged<', text)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.CONVERGED])
def test_only_converged_is_green(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocc.kit.page.plotly_script", lambda: "")
    found = re.search(r'class="badge (\w+)">([^<]+)<', report_page(fake_design(status=status)))
    assert found is not None
    assert found[1] in ("warn", "bad")
    assert found[2] == status.value


def test_map_says_what_the_design_says(design: Design, text: str) -> None:
    traces = Page(text).figure("map")["data"]
    (hover,) = [trace for trace in traces if trace["mode"] == "markers" and "text" in trace]
    said = dict.fromkeys(hover["text"])
    assert len(said) == design.network.n_links
    assert sum("not built" in words for words in said) == 2
    assert any("North → Centre" in words and f"capacity {design.capacity[0]:.3f}" in words for words in said)
    drawn = [trace for trace in traces if trace["mode"] == "lines" and trace.get("visible", True)]
    assert sum(trace["x"].count(None) for trace in drawn[1:]) == int(design.built.sum())
    assert max(trace["line"]["width"] for trace in drawn) == 10.0


def test_what_tells_most_is_shown_first(design: Design) -> None:
    """Where capacities just fit, every link is full: then prices come first, or flows where no link has a price.

    A scale ends near the largest price that is not far from the others.
    """
    full = replace(design, capacity=np.where(design.built, design.follower.flow, 0.0))
    free = replace(full, follower=design.follower._replace(price=np.zeros(10)))
    price = np.where(design.built, np.linspace(1.0, 2.0, 10), np.nan)
    price[np.flatnonzero(design.built)[0]] = 500.0
    far = replace(full, follower=design.follower._replace(price=price))
    first, tops = [], []
    for case in (design, full, free, far):
        figure = Page(report_page(case)).figure("map")
        menu = figure["layout"]["meta"]
        assert {choice["label"] for choice in menu["choices"]} == {"capacity used", "flow", "price"}
        first.append(menu["choices"][menu["active"]]["label"])
        bars = [trace["marker"]["colorbar"] for trace in figure["data"] if "colorbar" in trace.get("marker", {})]
        tops.append(bars[0]["ticktext"][-1])
    assert first == ["capacity used", "price", "flow", "price"]
    assert tops[-1] == "2 or more"
    assert not tops[1].endswith("more")


def test_invented_places_are_named_at_the_map() -> None:
    sentence = "Invented: coordinates, on a circle."
    text = report_page(fake_design(replace(small_network(), assumptions=(sentence,))))
    assert sentence in text.partition('id="map-section"')[2].partition("</p>")[0]


def test_charts_have_words(text: str) -> None:
    labels = [a["aria-label"] or "" for tag, a in Page(text).tags if a.get("role") == "img"]
    assert labels[0].startswith("Map of the network: 8 of 10 links are built, the largest from ")
    assert "a demand of 29, of which 25.64 travel" in labels[1]
    assert labels[2].startswith("The operator's utility by evaluation from ")


def test_parallel_links_are_named_by_their_ids() -> None:
    plain = small_network()
    links = [*plain.link_rows(), {**plain.link_rows()[0], "link_id": "express", "time": 0.5}]
    network = TransportNetwork.from_tables(plain.node_rows(), links, plain.market_rows())
    design = fake_design(plain)
    design = replace(
        design,
        network=network,
        capacity=np.append(design.capacity, 5.0),
        follower=design.follower._replace(flow=np.append(design.follower.flow, 5.0), price=np.zeros(11)),
    )
    more = sp.csr_array((design.follower.market_flow.shape[0], 1))
    follower = design.follower._replace(market_flow=sp.csr_array(sp.hstack([design.follower.market_flow, more])))
    traces = Page(report_page(replace(design, follower=follower))).figure("map")["data"]
    (hover,) = [trace for trace in traces if trace["mode"] == "markers" and "text" in trace]
    assert any("North → Centre (express)" in words for words in hover["text"])
    assert any("North → Centre (1)" in words for words in hover["text"])
    assert any("<b>Centre → North</b>" in words for words in hover["text"])


@pytest.mark.parametrize("case", [fake_design(), fake_design(one_market(0.0), iterations=0, build=False)])
def test_plotly_knows_every_attribute(case: Design) -> None:
    go = pytest.importorskip("plotly.graph_objects")
    page = Page(report_page(case))
    for name in ("map", "demand", "convergence"):
        go.Figure(page.figure(name))


def test_convergence_is_the_utility(design: Design, text: str) -> None:
    exact, penalised = Page(text).figure("convergence")["data"]
    np.testing.assert_allclose(exact["y"], -design.history.upper_value, rtol=1e-6)
    np.testing.assert_allclose(penalised["y"], -design.history.upper_value_penalty, rtol=1e-6)
    notes = Page(text).figure("convergence")["layout"]["annotations"]
    assert [note["text"] for note in notes] == ["γ = 1", "γ = 4", "γ = 16", "γ = 64"]


def test_embedded_data_survives() -> None:
    data = {"words": ["</script>", "<!--", "&amp;", "\u2028\u2029", "é"]}
    embedded = environment().from_string("{{ data | tojson }}").render(data=data)
    assert json.loads(embedded) == data
    assert not set("<>&\u2028\u2029") & set(embedded)


def test_large_designs_stay_small() -> None:
    design = fake_design(large_network())
    text = report_page(design)
    assert len(text.encode()) < 12e6
    page = Page(text)
    assert sum(trace.get("visible", True) for trace in page.figure("map")["data"]) < 150
    assert "markets.csv has all 9,900" in text
    assert text.partition('id="markets"')[2].partition("</table>")[0].count("<tr>") == 501


@pytest.mark.parametrize(
    "design",
    [
        fake_design(build=False),
        fake_design(one_market()),
        fake_design(one_market(0.0), iterations=0, what_if=(), starts=(), settings={}, versions={}, seconds={}),
        fake_design(geographic_network(), iterations=1),
    ],
    ids=["nothing built", "one market", "no demand", "one iteration"],
)
def test_odd_designs(design: Design) -> None:
    page = Page(report_page(design))
    for name in ("map", "demand", "convergence"):
        assert page.figure(name)["data"]


def test_write_report(design: Design, tmp_path: Path) -> None:
    path = write_report(design, tmp_path / "made" / "page.html")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(BloccError, match="cannot write"):
        write_report(design, path / "below a file.html")


def two_ways(design: Design) -> Design:
    """The first market, North to South, half through Centre and a quarter through East; a quarter does not travel."""
    apart = design.follower.market_flow.tolil()
    apart[0] = 0.0
    apart[0, [0, 2]], apart[0, [8, 7]] = 0.5, 0.25
    share = design.follower.share.copy()
    share[0] = 0.75
    return replace(design, follower=design.follower._replace(market_flow=apart.tocsr(), share=share))


def test_ways_of_markets(design: Design) -> None:
    """Ways are paths; their passengers are the market's, and together the flows of the links."""
    network = design.network
    found = flows_data(design, range(network.n_markets), {"links": [3]})
    assert found is not None
    assert found["rows"] == {"links": [3]}
    flow = np.zeros(network.n_links)
    for k, market in enumerate(found["markets"]):
        assert sum(way[0] for way in market["ways"]) == pytest.approx(
            network.demand[k] * design.follower.share[k], 1e-5
        )
        for passengers, links in market["ways"]:
            assert [network.tail[links[0]], network.head[links[-1]]] == market["ends"]
            assert (network.head[links[:-1]] == network.tail[links[1:]]).all()
            flow[links] += passengers
    np.testing.assert_allclose(flow, design.follower.flow, rtol=1e-5)
    for link, users in found["users"].items():
        assert sum(user[2] for user in users) == pytest.approx(design.follower.flow[link], 1e-5)
    found = flows_data(two_ways(design), [0], {})
    assert found is not None
    assert found["markets"][0]["ways"] == [[4.0, [0, 2]], [2.0, [8, 7]]]


def test_no_ways_where_flows_are_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocc.kit.page.plotly_script", lambda: "")
    for design in (fake_design(lower_level_error=1.0), fake_design(build=False)):
        text = report_page(design)
        assert 'id="flows-data"' not in text
        assert 'id="selection"' not in text
        assert 'id="busy-links"' not in text


# --- in a browser ---------------------------------------------------------------------------------------------------
def link_pixels(picture: np.ndarray) -> int:
    """Pixels of the map, left of its colour bar, in the colours of links."""
    area = picture[330:1010, 60:1010]
    shades = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in UTILISATION_SCALE])
    between = np.linspace(0, len(shades) - 1, 60)
    scale = np.stack([np.interp(between, np.arange(len(shades)), shades[:, k]) for k in range(3)], axis=1)
    near = np.zeros(area.shape[:2], dtype=bool)
    for shade in scale:
        near |= (np.abs(area - shade) <= 6).all(axis=2)
    return int(near.sum())


#: Uses the page as a reader would, and says what came of it: the mouse goes near the middle of the last link, which
#: leads from East to North; the markets are sorted by demand twice and filtered; the page is printed.
READER = """<script>
drawing.then(function () { setTimeout(function () {
  var map = document.querySelector('[data-figure="map-data"]'), layout = map._fullLayout, said = [];
  var points = map.data.find(function (trace) { return trace.marker && trace.marker.opacity === 0; });
  var drag = map.querySelector('.nsewdrag'), box = drag.getBoundingClientRect(), last = points.x.length - 3;
  drag.dispatchEvent(new MouseEvent('mousemove', {
    bubbles: true, clientX: box.left + layout.xaxis.l2p(points.x[last]) + 3,
    clientY: box.top + layout.yaxis.l2p(points.y[last]) - 3
  }));
  var button = document.querySelectorAll('#markets th button')[2], body = document.querySelector('#markets tbody');
  button.click();
  said.push(body.rows[0].cells[2].textContent);
  button.click();
  said.push(body.rows[0].cells[2].textContent);
  var filter = document.querySelector('input[data-filters="markets"]');
  filter.value = 'ALERT(1) alert(3)';
  filter.dispatchEvent(new Event('input'));
  said.push(document.getElementById('markets-count').textContent);
  setTimeout(function () {
    said.push(map.querySelector('.hoverlayer').textContent);
    window.dispatchEvent(new Event('beforeprint'));
    said.push(map.querySelector('.main-svg').clientWidth);
    window.dispatchEvent(new Event('afterprint'));
    said.push(map.querySelector('.main-svg').clientWidth > 1000);
    console.log('READER ' + said.join(' | '));
  }, 500);
}, 1500); });
</script></body>"""


@needs_browser
def test_browser_shows_the_map_and_asks_nobody(tmp_path: Path) -> None:
    """With hostile names, so that a script of theirs would be noticed, too."""
    text = report_page(fake_design(small_network(EVIL_NAMES, name=EVIL)))
    found = visit(text.replace("</body>", READER), tmp_path)
    assert found.requests == []
    assert link_pixels(found.picture) > 5000
    (line,) = found.console
    said = line.partition("READER ")[2].rpartition('", source:')[0].split(" | ")
    assert said[:3] == ["8", "2", "2 of 6 rows"]
    assert f"→ {EVIL}" in said[3]
    assert "flow" in said[3]
    assert said[4:] == ["680", "true"]


#: A market is chosen with the mouse and cleared with Escape, a link with the Enter key, another with the mouse on the
#: map, and from its table one of its markets; then links with little flow are hidden, in
#: the table too.
CHOOSER = """<script>
drawing.then(function () { setTimeout(function () {
  var map = document.querySelector('[data-figure="map-data"]'), said = [], panel = document.getElementById('selection');
  function say() {
    var drawn = map.data.filter(function (trace) { return trace.meta === 'way' && trace.x.length; }).length;
    var rows = Array.from(panel.querySelectorAll('tbody tr')).map(function (row) {
      return Array.from(row.cells).map(function (cell) { return cell.textContent; }).join(', ');
    });
    var words = panel.hidden ? 'hidden' : panel.querySelector('h3').textContent + '; ' + rows.join('; ');
    said.push(words + '; ' + drawn);
  }
  function press(key, where) { where.dispatchEvent(new KeyboardEvent('keydown', {key: key, bubbles: true})); }
  say();
  var market = document.querySelector('#markets tbody tr');
  market.click();
  say();
  said.push(document.activeElement === panel.querySelector('h3'));
  press('Escape', document.activeElement);
  say();
  said.push(document.activeElement === market);
  press('ArrowDown', market);
  said.push(document.activeElement === market.nextElementSibling);
  var link = document.querySelector('#busy-links tbody tr');
  said.push(link.tabIndex + ' ' + link.nextElementSibling.tabIndex);
  press('Enter', link);
  say();
  press('Escape', document);
  var points = map.data.find(function (trace) { return trace.meta === 'links'; }), k = points.customdata.indexOf(7);
  var drag = map.querySelector('.nsewdrag'), box = drag.getBoundingClientRect(), layout = map._fullLayout;
  var place = {bubbles: true, buttons: 1, clientX: box.left + layout.xaxis.l2p(points.x[k]),
    clientY: box.top + layout.yaxis.l2p(points.y[k])};
  drag.dispatchEvent(new MouseEvent('mousemove', place));
  setTimeout(function () {
    drag.dispatchEvent(new MouseEvent('mousedown', place));
    document.dispatchEvent(new MouseEvent('mouseup', place));
    setTimeout(function () {
      say();
      panel.querySelector('tbody tr').click();
      said.push(panel.querySelector('h3').textContent);
      var field = document.getElementById('flow-field');
      field.value = FLOW;
      field.dispatchEvent(new Event('input', {bubbles: true}));
      said.push(document.getElementById('flow-count').textContent);
      said.push(map.data.filter(function (trace) { return Array.isArray(trace.meta) && trace.visible !== false; })
        .reduce(function (sum, trace) { return sum + trace.x.filter(function (x) { return x === null; }).length; }, 0));
      said.push(document.querySelectorAll('#busy-links tbody tr:not([hidden])').length);
      console.log('CHOOSER ' + said.join(' | '));
    }, 500);
  }, 500);
}, 1500); });
</script></body>"""


@needs_browser
def test_browser_shows_ways_and_users_and_filters(design: Design, tmp_path: Path) -> None:
    design = two_ways(design)
    least = float(np.median(design.follower.flow[design.built]))
    text = report_page(design).replace("</body>", CHOOSER.replace("FLOW", str(least)))
    (line,) = visit(text, tmp_path).console
    said = line.partition("CHOOSER ")[2].rpartition('", source:')[0].split(" | ")
    time = design.network.time
    times = [f"{time[way].sum():.4g}" for way in ([0, 2], [8, 7])]
    ways = ("North → Centre → South, 4", "North → East → South, 2")
    assert said[0] == "hidden; 0"
    market = said[1].split("; ")
    assert market[0] == "Market: North → South"
    assert all(row.startswith(f"{way}, {time}, ") for row, way, time in zip(market[1:3], ways, times, strict=True))
    assert market[3] == "2"
    assert said[2:7] == ["true", "hidden; 0", "true", "true", "0 -1"]
    busiest = int(np.argmax(design.follower.flow))
    ends = (design.network.labels[end[busiest]] for end in (design.network.tail, design.network.head))
    assert said[7].startswith(f"Link {design.network.link_ids[busiest]}: {' → '.join(ends)}; ")
    assert said[8].startswith(f"Link {design.network.link_ids[7]}: East → South; ")
    assert "North, South, 2, " in said[8]
    assert said[9].startswith("Market: ")
    kept = int((design.built & (design.follower.flow >= least)).sum())
    assert 0 < kept < design.built.sum()
    assert said[10:] == [f"{kept} of {design.built.sum()} built links", str(kept), str(kept)]


#: The menu of the map is a field of the page: it takes the focus, and its choice changes the map.
MENU = """<script>
drawing.then(function () { setTimeout(function () {
  var map = document.querySelector('[data-figure="map-data"]'), menu = document.querySelector('select'), said = [];
  function say() {
    var bar = map.data.find(function (trace) {
      return trace.marker && trace.marker.showscale && trace.visible !== false;
    });
    var title = map.layout.annotations[0].text, top = bar.marker.colorbar.ticktext[4];
    said.push(menu.options[menu.selectedIndex].text, title, top);
  }
  menu.focus();
  said.push(document.activeElement === menu, menu.labels[0].textContent.trim().split(/\\s/)[0]);
  say();
  menu.value = '2';
  menu.dispatchEvent(new Event('change', {bubbles: true}));
  say();
  console.log('MENU ' + said.join(' | '));
}, 1500); });
</script></body>"""


@needs_browser
def test_browser_takes_the_menu_and_dark_pages(design: Design, tmp_path: Path) -> None:
    found = visit(report_page(design).replace("</body>", MENU), tmp_path, dark=True)
    (line,) = found.console
    said = line.partition("MENU ")[2].rpartition('", source:')[0].split(" | ")
    assert said[:5] == ["true", "Colour", "capacity used", "capacity<br>used", "100 %"]
    assert said[5:7] == ["price", "price"]
    assert said[7] != said[4]
    area = found.picture[520:1180, 60:1140].mean(axis=2)  # the map: dark paper, with light words and links on it
    assert np.median(area) < 60
    assert (area > 150).sum() > 2000


@pytest.mark.slow
@needs_browser
def test_browser_test_notices_a_missing_map(text: str, tmp_path: Path) -> None:
    found = visit(text.replace('data-figure="map-data"', ""), tmp_path)
    assert link_pixels(found.picture) < 100


@pytest.mark.slow
@needs_browser
def test_browser_test_notices_requests_and_errors(text: str, tmp_path: Path) -> None:
    outside = '<img src="http://blocc.invalid/picture.png"></main>'
    policy = re.search(r"<meta http-equiv.*?>", text)
    assert policy is not None
    broken = own_parts(text).replace("</main>", outside)  # and without plotly.js
    unguarded = visit(broken.replace(policy[0], ""), tmp_path)
    assert set(unguarded.requests) == {"http://blocc.invalid/picture.png"}
    assert any("Uncaught (in promise)" in line for line in unguarded.console)
    assert "The tables of this page hold their figures." in unguarded.document
    (tmp_path / "guarded").mkdir()
    guarded = visit(broken, tmp_path / "guarded")
    assert guarded.requests == []
    assert any("Content Security Policy" in line for line in guarded.console)
