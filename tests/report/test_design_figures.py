"""The pictures of a design show its own numbers, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blocc.report.transport.design_charts import plot_convergence, plot_demand, plot_map
from blocc.transport.design.design_result import Design
from transport_designs import fake_design, large_network, one_market, small_network


def test_map_shows_built_and_unbuilt_links(tmp_path: Path) -> None:
    design = fake_design()
    axes = plot_map(design, tmp_path / "made" / "map.png").axes[0]
    assert (tmp_path / "made" / "map.png").stat().st_size > 10_000
    waiting, _, built = axes.collections[:3]
    assert len(built.get_segments()) == int(design.built.sum()) == 8
    assert len(waiting.get_segments()) == 2
    widths = sorted(built.get_linewidths())
    expected = design.capacity.max() / design.capacity[design.built].min()
    assert widths[-1] / widths[0] == pytest.approx(expected, rel=0.01)
    assert [text.get_text() for text in axes.texts] == list(design.network.labels)
    assert axes.get_aspect() == 1.0


def test_demand_is_put_where_it_belongs() -> None:
    design = fake_design()
    left, right = plot_demand(design).axes[:2]
    demand = left.images[0].get_array()
    assert demand[0, 2] == 8.0
    assert demand[2, 0] == 7.0
    assert np.ma.getmaskarray(demand).sum() == 16 - design.network.n_markets
    assert right.images[0].get_array()[0, 2] == pytest.approx(8.0 * design.follower.share[0])
    assert left.images[0].get_clim() == right.images[0].get_clim() == (0.0, 8.0)


def test_only_the_nodes_with_most_demand_are_shown() -> None:
    figure = plot_demand(fake_design(large_network(11)))
    assert figure.axes[0].images[0].get_array().shape == (100, 100)
    assert any("21 small nodes left out" in text.get_text() for text in figure.texts)


def test_convergence_shows_utility_at_both_answers() -> None:
    design = fake_design()
    axes = plot_convergence(design).axes[0]
    exact, penalised = axes.lines[:2]
    np.testing.assert_array_equal(exact.get_ydata(), -design.history.upper_value)
    np.testing.assert_array_equal(penalised.get_ydata(), -design.history.upper_value_penalty)
    np.testing.assert_array_equal(exact.get_xdata(), design.history.evaluations)
    assert [line.get_xdata()[0] for line in axes.lines[2:]] == [30.0, 60.0, 90.0]  # where gamma grew
    assert "= 64" in axes.texts[-1].get_text()


def test_long_history_is_thinned_and_keeps_its_end() -> None:
    design = fake_design(iterations=9000)
    exact = plot_convergence(design).axes[0].lines[0]
    assert len(exact.get_xdata()) == 2000
    assert exact.get_xdata()[-1] == design.history.evaluations[-1]
    assert exact.get_ydata()[0] == -design.history.upper_value[0]


@pytest.mark.parametrize(
    "design",
    [
        fake_design(build=False),
        fake_design(one_market(0.0), iterations=0),
        fake_design(small_network(("$x", "$y$", "\\frac{", "a_b^c"), name="costs $5 or $6")),  # no formulas
    ],
    ids=["nothing built", "no demand", "names"],
)
def test_odd_designs(design: Design) -> None:
    for plot in (plot_map, plot_demand, plot_convergence):
        plot(design).draw_without_rendering()


@pytest.mark.slow
def test_missing_packages_are_named() -> None:
    code = (
        "import sys; sys.modules['matplotlib.figure'] = None; sys.modules['jinja2'] = None\n"
        "from transport_designs import fake_design\n"
        "from blocc.report.transport.design_charts import plot_map\n"
        "from blocc.report.transport.design_page import report_page\n"
        "for make in (plot_map, report_page):\n"
        "    try: make(fake_design())\n"
        "    except ValueError as error: print(type(error).__name__, 'blocc[plot]' in str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.stdout.split() == ["PlotError", "True"] * 2, done.stderr
