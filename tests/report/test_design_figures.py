"""The pictures show the design's own numbers, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from blocc.report.transport.design_figures import plot_convergence, plot_demand, plot_map
from blocc.report.transport.design_geometry import (
    UTILISATION_SCALE,
    frame_network,
    label_box,
    link_curve,
    link_points,
    link_widths,
    place_labels,
    utilisation_colour,
)
from blocc.report.transport.design_series import MOST_NODES, convergence, demand_matrices

from blocc.errors import BloccError
from transport_designs import fake_design, geographic_network, large_network, one_market, small_network


def test_map_shows_built_and_unbuilt_links(tmp_path: Path) -> None:
    design = fake_design()
    figure = plot_map(design, tmp_path / "made" / "map.png")
    assert (tmp_path / "made" / "map.png").stat().st_size > 10_000
    axes = figure.axes[0]
    waiting, built = axes.collections[:2]
    assert len(built.get_segments()) == int(design.built.sum()) == 8
    assert len(waiting.get_segments()) == 2
    widths = sorted(built.get_linewidths())
    assert widths[-1] / widths[0] == pytest.approx(
        design.capacity.max() / design.capacity[design.built].min(), rel=0.01
    )
    assert [text.get_text() for text in axes.texts] == list(design.network.labels)
    assert axes.get_aspect() == 1.0


def test_demand_is_put_where_it_belongs() -> None:
    design = fake_design()
    left, right = plot_demand(design).axes[:2]
    demand = left.images[0].get_array()
    assert demand[0, 2] == 8.0
    assert demand[2, 0] == 7.0
    assert np.ma.getmaskarray(demand).sum() == 16 - design.network.n_markets
    served = right.images[0].get_array()
    assert served[0, 2] == pytest.approx(8.0 * design.follower.share[0])
    assert left.images[0].get_clim() == right.images[0].get_clim() == (0.0, 8.0)


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
    series = convergence(design)
    assert len(series.evaluation) == 2000
    assert series.evaluation[-1] == design.history.evaluations[-1]
    assert series.exact[0] == -design.history.upper_value[0]


def test_only_the_nodes_with_most_demand_are_shown() -> None:
    design = fake_design(large_network(11))
    matrices = demand_matrices(design)
    assert len(matrices.labels) == MOST_NODES
    assert matrices.left_out == 21
    assert np.isnan(np.diag(matrices.demand)).all()


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    plot_convergence(fake_design(iterations=3), tmp_path / f"picture.{suffix}")
    assert list(tmp_path.iterdir()) == [tmp_path / f"picture.{suffix}"]


def test_unknown_format_and_unwritable_place(tmp_path: Path) -> None:
    with pytest.raises(BloccError, match=r"use \.png, \.pdf or \.svg"):
        plot_map(fake_design(), tmp_path / "picture.doc")
    (tmp_path / "file").write_text("")
    with pytest.raises(BloccError, match="cannot write"):
        plot_map(fake_design(), tmp_path / "file" / "picture.png")


@pytest.mark.parametrize(
    "design", [fake_design(build=False), fake_design(one_market(0.0), iterations=0)], ids=["nothing built", "no demand"]
)
def test_odd_designs(design: object) -> None:
    for plot in (plot_map, plot_demand, plot_convergence):
        plot(design).draw_without_rendering()  # type: ignore[arg-type]


def test_longitudes_shrink_towards_the_poles() -> None:
    frame = frame_network(geographic_network())
    width, height = np.ptp(frame.points, axis=0)
    assert width == pytest.approx(0.2 * np.cos(np.radians(60.04)))
    assert height == pytest.approx(0.08)


def test_directions_run_on_the_right() -> None:
    frame = frame_network(one_market())
    curve = link_curve(frame, 0, 1, offset=5.0)  # to the east: its right is the south
    np.testing.assert_allclose(curve[[0, -1]], frame.points)
    assert curve[:, 1].min() == pytest.approx(-5.0 * frame.pixel)
    assert link_curve(frame, 1, 0, offset=5.0)[:, 1].max() == pytest.approx(5.0 * frame.pixel)


def test_labels_do_not_cover_each_other() -> None:
    design = fake_design(large_network(7))
    frame = frame_network(design.network)
    labels = list(design.network.labels)
    places = place_labels(frame, labels, link_points(design, frame), radius=5.0, letter=11.0)
    points = (frame.points - frame.low) / frame.pixel
    boxes = [
        label_box(point, np.array([0.6 * 11.0 * len(label) + 2.0, 1.25 * 11.0]), place, 5.0)
        for point, label, place in zip(points, labels, places, strict=True)
        if place
    ]
    assert len(boxes) > 30
    for k, box in enumerate(boxes):
        for other in boxes[:k]:
            assert not ((box[0] < other[1]) & (other[0] < box[1])).all()


def test_colours_and_widths() -> None:
    assert utilisation_colour(0.0) == UTILISATION_SCALE[0]
    assert utilisation_colour(1.0 + 1e-9) == UTILISATION_SCALE[-1]
    assert utilisation_colour(float("nan")) not in UTILISATION_SCALE
    np.testing.assert_allclose(link_widths(np.array([0.0, 10.0, 5.0, 0.001])), [0.0, 10.0, 5.0, 1.5])
    assert not link_widths(np.zeros(3)).any()


def test_names_are_no_formulas(tmp_path: Path) -> None:
    design = fake_design(small_network(("$x", "$y$", "\\frac{", "a_b^c"), name="costs $5 or $6"))
    for plot in (plot_map, plot_demand, plot_convergence):
        plot(design, tmp_path / "picture.png")


@pytest.mark.slow
def test_missing_packages_are_named() -> None:
    code = (
        "import sys; sys.modules['matplotlib.figure'] = None; sys.modules['jinja2'] = None\n"
        "from transport_designs import fake_design\n"
        "from blocc.report.transport.design_figures import plot_map\n"
        "from blocc.report.transport.design_page import report_page\n"
        "for make in (plot_map, report_page):\n"
        "    try: make(fake_design())\n"
        "    except ValueError as error: print(type(error).__name__, 'blocc[plot]' in str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[1]
    )
    assert done.stdout.split() == ["PlotError", "True"] * 2, done.stderr
