"""One page about a design, complete in itself: it opens from a disk, offline, and asks no server for anything."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from blocc._lib.version import __version__
from blocc.report.html import page, write_html
from blocc.report.plots import PlotError
from blocc.report.transport.design_page_assets import CHARTS_SCRIPT
from blocc.report.transport.design_page_charts import convergence_figure, demand_figure
from blocc.report.transport.design_page_map import legend, map_figure
from blocc.report.transport.design_page_tables import (
    MOST_LINKS,
    certificate_table,
    facts_table,
    markets_table,
    starts_table,
    valuable_links,
    what_if_table,
)
from blocc.report.transport.design_rows import totals
from blocc.report.transport.design_style import number, percent
from blocc.result import Status
from blocc.transport.design.design_result import Design

_FAILURES = (Status.INFEASIBLE, Status.UNBOUNDED, Status.NOT_CONVEX, Status.NOT_FINITE)


def write_report(design: Design, path: str | Path) -> Path:
    """Write the interactive page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return write_html(report_page(design), path)


def report_page(design: Design) -> str:
    """The page as text."""
    sections = [_map(design), _demand(design), _convergence(design), _links(design), _markets(design)]
    sections += [_certificate(design), _what_if(design), _starts(design), _settings(design)]
    joined = "\n".join(sections)
    body = f"""{_header(design)}
<main>
<noscript><section><p>The charts and the sorting of tables need JavaScript; the figures are all here without it.</p>
</section></noscript>
{joined}
</main>
<footer>Written by blocc {html.escape(__version__)}. All figures are also in design.json, links.csv and markets.csv.
</footer>"""
    return page(f"{design.network.name}: network design", body, scripts=(_plotly(), CHARTS_SCRIPT))


def embedded(data: Any) -> str:
    """JSON that can stand inside a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise PlotError("the interactive page needs plotly: pip install 'blocc[plot]'") from error
    library: str = get_plotlyjs()
    # The library is trusted, but it must not end its own element (a string in it once did).
    return library.replace("</script", "<\\/script")


def _header(design: Design) -> str:
    network, follower, sums = design.network, design.follower, totals(design)
    colour = "good" if design.success else "bad" if design.status in _FAILURES else "warn"
    served = percent(sums["served"] / sums["demand"]) if sums["demand"] else "–"
    compile_seconds = design.seconds.get("compile")
    figures = (
        ("Operator’s utility", number(design.utility, 5), "revenue less cost"),
        ("Revenue", number(follower.revenue, 5), "paid by passengers"),
        ("Construction cost", number(follower.construction_cost, 5), "of all capacities"),
        ("Links built", number(int(design.built.sum())), f"of {network.n_links:,} candidates"),
        ("Demand served", served, f"{number(sums['served'])} of {number(sums['demand'])}"),
        ("Gamma", number(design.gamma), "weight of the penalty"),
        (
            "Time",
            f"{number(design.seconds.get('run'), 3)} s",
            "" if compile_seconds is None else f"and {number(compile_seconds, 3)} s to compile",
        ),
    )
    cells = "\n".join(
        f"<div><dt>{title}</dt><dd>{value}<small>{html.escape(detail)}</small></dd></div>"
        for title, value, detail in figures
    )
    return f"""<header><div>
<p class="kicker">Network design: {network.n_nodes:,} nodes, {network.n_links:,} candidate links, \
{network.n_markets:,} markets</p>
<div class="headline"><h1>{html.escape(network.name)}</h1>
<span class="badge {colour}">{html.escape(design.status.value)}</span></div>
<p class="message">{html.escape(design.message)}</p>
<dl class="figures">
{cells}
</dl>
</div></header>"""


def _map(design: Design) -> str:
    nothing = "" if design.built.any() else " Nothing is built."
    note = (
        "Width shows the capacity of a link, colour how much of it is used. Each direction runs on the right-hand side "
        f"of its travellers. Point at a link or a station for its figures; drag to move the map.{nothing}"
    )
    return _section("map", "The network", note, _chart("map", map_figure(design)) + legend(design))


def _demand(design: Design) -> str:
    figure = demand_figure(design)
    left_out = f" {figure['left_out']} nodes with the least demand are left out." if figure["left_out"] else ""
    note = f"Passengers from each origin to each destination, in the same colours. Grey: there is no market.{left_out}"
    return _section("demand", "Who wants to travel, and who does", note, _chart("demand", figure))


def _convergence(design: Design) -> str:
    note = (
        "The operator’s utility while the capacities were improved. The method looks at a penalised answer of the "
        "travellers (yF) and drives it to their own (yg) by raising gamma; at the end the two curves should meet."
    )
    return _section(
        "convergence", "How the utility was reached", note, _chart("convergence", convergence_figure(design))
    )


def _links(design: Design) -> str:
    content, count = valuable_links(design)
    if not count:
        return _section(
            "valuable", "Most valuable links", "No link has a price: nowhere does capacity hold travellers up."
        )
    rest = f" The {MOST_LINKS} largest of {count:,} are shown, links.csv has all." if count > MOST_LINKS else ""
    note = (
        "The price of a link is what one more unit of its capacity would save the travellers. It is the multiplier of "
        f"the capacity, and zero where there is room left; for a link that is not built, of a first unit.{rest}"
    )
    return _section("valuable", "Most valuable links", note, content, long=True)


def _markets(design: Design) -> str:
    content, shown = markets_table(design)
    count = design.network.n_markets
    cut = f" The {shown:,} with the largest demand are shown, markets.csv has all {count:,}." if shown < count else ""
    note = (
        "Travel time is the mean of those who use the new network; time with prices adds what full links cost. "
        f"A dash means that nobody travels, ∞ that there is no path.{cut}"
    )
    tools = (
        '<p class="tools"><input type="search" data-filters="markets" data-count="markets-count" data-cells="2" '
        'placeholder="Filter by origin or destination" aria-label="Filter by origin or destination">'
        f'<span id="markets-count">{shown} rows</span></p>'
    )
    return _section("market-list", "Markets", note, tools + content, long=True)


def _certificate(design: Design) -> str:
    note = (
        "These numbers prove, or disprove, that the answer is one. All are measured at the reported design and should "
        "be close to zero. Size means the largest figure of the travellers’ answer."
    )
    return _section("certificate", "Certificate", note, certificate_table(design))


def _what_if(design: Design) -> str:
    if not design.what_if:
        return _section("what-if", "Another gamma", "No other gamma was tried.")
    note = (
        "What the design would have been for other values of gamma, each continued from the one before. Where gamma is "
        "too small, the method believes in a utility (at yF) that the travellers (at yg) do not deliver."
    )
    return _section("what-if", "Another gamma", note, what_if_table(design))


def _starts(design: Design) -> str:
    if not design.starts:
        return _section("starts", "Starts", "No start was recorded.")
    note = "The search began at several random link prices; the best end is the design above."
    return _section("starts", "Starts", note, starts_table(design), long=True)


def _settings(design: Design) -> str:
    seconds = {f"seconds: {name}": number(value) for name, value in design.seconds.items()}
    settings = _section("settings", "Settings", "", facts_table(design.settings))
    versions = _section("versions", "Versions and times", "", facts_table({**design.versions, **seconds}))
    return f'<div class="pair">{settings}{versions}</div>'


def _section(name: str, title: str, note: str, content: str = "", *, long: bool = False) -> str:
    kind = ' class="long"' if long else ""
    words = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return f'<section id="{name}-section"{kind}><h2>{title}</h2>\n{words}\n<div id="{name}">{content}</div></section>'


def _chart(name: str, figure: dict[str, Any]) -> str:
    data = embedded({"data": figure["data"], "layout": figure["layout"]})
    kind = "chart halo" if figure.get("halo") else "chart"
    return (
        f'<div class="{kind}" data-figure="{name}-data" style="min-height:{figure["height"]}px"></div>'
        f'<script type="application/json" id="{name}-data">{data}</script>'
    )
