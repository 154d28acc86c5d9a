"""How maps are laid out: places, sides of streets, widths, colours, labels."""

from __future__ import annotations

import numpy as np
import pytest

from blocc.kit.charts import UTILISATION_SCALE, scale_colour
from blocc.kit.map_geometry import frame_places, label_box, link_offsets, link_widths
from blocc.kit.network_map import Layer, NetworkMap


def street(**given: object) -> NetworkMap:
    """Two nodes from west to east, a link each way and an express one beside the first."""
    layer = Layer("load", np.array([0.0, 1.0, np.nan]), "load", [""] * 5)
    frame = frame_places(np.array([[0.0, 0.0], [1.0, 0.0]]))
    tail, head = np.array([0, 1, 0]), np.array([1, 0, 1])
    fields: dict = {"widths": np.array([10.0, 5.0, 4.0]), "layers": [layer], **given}
    return NetworkMap(frame, tail, head, ["a", "b"], **fields)


def test_longitudes_shrink_towards_the_poles() -> None:
    frame = frame_places(np.array([[10.0, 60.0], [10.2, 60.08]]), is_geographic=True)
    np.testing.assert_allclose(np.ptp(frame.points, axis=0), [0.2 * np.cos(np.radians(60.04)), 0.08])


def test_links_run_on_the_right_and_beside_each_other() -> None:
    east, west, express = street().curves
    np.testing.assert_allclose(east[[0, -1]], [[0.0, 0.0], [1.0, 0.0]])
    assert east[:, 1].min() < 0.0 < west[:, 1].max()  # to the east, the right is the south
    assert express[:, 1].min() < east[:, 1].min()
    offsets = link_offsets(np.array([0, 0]), np.array([1, 1]), np.array([6.0, 4.0]))
    assert offsets[1] - 2.0 >= offsets[0] + 3.0
    assert not street(is_directed=False).offsets.any()


def test_unbuilt_links_share_a_dotted_line() -> None:
    assert street().candidates == []
    assert street(widths=np.array([0.0, 0.0, 3.0])).candidates == [0]  # once for both directions
    assert street(widths=np.zeros(3)).candidates == [0]


@pytest.mark.parametrize("marked", [(), (1,)])
def test_each_choice_shows_its_own_layer(marked: tuple[int, ...]) -> None:
    other = Layer("price", np.zeros(3), "price", [""] * 5)
    figure = street(layers=[*street().layers, other], marked=marked, active=1).plotly()
    menu = figure["layout"]["meta"]
    assert [choice["label"] for choice in menu["choices"]] == ["load", "price"]
    for k, choice in enumerate(menu["choices"]):
        shown = choice["change"][0]["visible"]
        visible = [trace for trace, is_shown in zip(figure["data"], shown, strict=True) if is_shown]
        assert sum("colorscale" in trace.get("marker", {}) for trace in visible) == 1
        if k == menu["active"]:
            assert shown == [trace.get("visible", True) for trace in figure["data"]]


def test_labels_do_not_cover_each_other() -> None:
    side = 7
    places = np.array([[x, y] for x in range(side) for y in range(side)], dtype=float)
    labels = [f"Station {k} of the grid" for k in range(side**2)]
    empty = np.zeros(0, dtype=int)
    drawn = NetworkMap(frame_places(places), empty, empty, labels, np.zeros(0), ())
    points = (drawn.frame.points - drawn.frame.low) / drawn.frame.pixel
    trace = drawn.plotly()["data"][-1]
    where = {"middle": "", "top": "above", "bottom": "below", "center": ""}
    boxes = []
    for point, label, text, place in zip(points, labels, trace["text"], trace["textposition"], strict=True):
        vertical, across = place.split()
        name = " ".join(filter(None, (where[vertical], where.get(across, across))))
        size = np.array([0.6 * 12.0 * len(label) + 2.0, 1.25 * 12.0])
        boxes += [label_box(point, size, name, 5.5)] if text else []
    assert len(boxes) > 20
    for k, box in enumerate(boxes):
        assert not any(((box[0] < other[1]) & (other[0] < box[1])).all() for other in boxes[:k])


def test_colours_and_widths() -> None:
    assert scale_colour(0.0, UTILISATION_SCALE) == UTILISATION_SCALE[0]
    assert scale_colour(1.0 + 1e-9, UTILISATION_SCALE) == UTILISATION_SCALE[-1]
    assert scale_colour(float("nan"), UTILISATION_SCALE) not in UTILISATION_SCALE
    np.testing.assert_allclose(link_widths(np.array([0.0, 10.0, 5.0, 0.001])), [0.0, 10.0, 5.0, 1.5])
    assert not link_widths(np.zeros(3)).any()
