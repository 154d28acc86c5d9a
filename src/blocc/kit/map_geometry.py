"""How a map is drawn: where nodes stand, how links run beside each other, widths and colours, where labels fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc.kit.text import shortened

#: Where a label may stand, seen from its node, best place first.
PLACES = ("right", "left", "above", "below", "above right", "below right", "above left", "below left")
DENSE = 60  #: more nodes than this are drawn smaller
GAP = 0.7  #: pixels between a link and the straight line from node to node
_BEND = 16.0  # pixels


@dataclass(frozen=True)
class Frame:
    """Nodes on a plane with equal scales, and how large a pixel is there when the map has its usual size."""

    points: Float[NDArray, "nodes 2"]
    low: Float[NDArray, "2"]  #: lower left corner of what is shown
    high: Float[NDArray, "2"]
    pixel: float

    @property
    def aspect(self) -> float:
        """Height over width."""
        width, height = self.high - self.low
        return float(height / width)


def frame_places(
    coordinates: Float[NDArray, "nodes 2"], is_geographic: bool = False, width: float = 1060.0, height: float = 640.0
) -> Frame:
    """Project the nodes (longitudes shrink with the cosine of the latitude) and choose what the map shows."""
    points = np.array(coordinates, dtype=float)
    if is_geographic:
        middle = 0.5 * (points[:, 1].min() + points[:, 1].max())
        points[:, 0] *= max(float(np.cos(np.radians(middle))), 0.05)
    low, high = points.min(axis=0), points.max(axis=0)
    span = float((high - low).max()) or 1.0
    # Room for labels beside the outermost nodes; and a network on a line still gets a map with two sides.
    pad = np.maximum(0.045 * span, 0.5 * (0.3 * span - (high - low)))
    low, high = low - pad, high + pad
    return Frame(points, low, high, float(((high - low) / (width, height)).max()))


def link_curve(frame: Frame, tail: int, head: int, offset: float, count: int = 2) -> Float[NDArray, "points 2"]:
    """A link as points from node to node, pushed ``offset`` pixels to the right of its travellers.

    The two directions of a street thus run beside each other; near the nodes they come together. ``count`` points lie
    on the straight part in the middle.
    """
    start, end = frame.points[tail], frame.points[head]
    along = end - start
    length = float(np.hypot(*along))
    if length == 0.0:
        return np.repeat(start[None, :], 2, axis=0)
    bend = min(_BEND * frame.pixel / length, 0.3)  # part of the link, at either end, where it leaves the node
    rise = np.linspace(0.0, 1.0, 6)
    height = rise * rise * (3.0 - 2.0 * rise)
    t = np.concatenate([bend * rise[:-1], np.linspace(bend, 1.0 - bend, count), 1.0 - bend * rise[-2::-1]])[:, None]
    push = np.concatenate([height[:-1], np.ones(count), height[-2::-1]])[:, None]
    aside = np.array([along[1], -along[0]]) / length
    return start + t * along + min(offset * frame.pixel, 0.2 * length) * push * aside


def curve_count(frame: Frame, tail: int, head: int, spacing: float) -> int:
    """How many points make a curve with one every ``spacing`` pixels (at most 60, so that pages stay small)."""
    length = float(np.hypot(*(frame.points[head] - frame.points[tail]))) / frame.pixel
    return int(np.clip(np.ceil(length / spacing), 2, 60))


def map_labels(names: Sequence[str], identifiers: Sequence[object]) -> list[str]:
    """What is written at the nodes: their names, or on a dense map their ids where only these are short."""
    names = [shortened(name) for name in names]
    ids = [str(identifier) for identifier in identifiers]
    return ids if len(names) > DENSE and not labels_inside(names) and labels_inside(ids) else names


def node_size(labels: Sequence[str]) -> float:
    """Diameter of the nodes in pixels."""
    if labels_inside(labels):
        return 17.0 if len(labels) <= DENSE else 12.0
    return 11.0 if len(labels) <= DENSE else 8.0


def labels_inside(labels: Sequence[str]) -> bool:
    """Whether all labels are short enough to stand inside their nodes, as on a metro map."""
    return all(len(label) <= 3 for label in labels)


def place_labels(
    frame: Frame, labels: Sequence[str], obstacles: Float[NDArray, "points 2"], *, radius: float, letter: float
) -> list[str | None]:
    """Choose one of ``PLACES`` for each label so that none covers another or a node; None where there is no room.

    Labels keep clear of ``obstacles`` (points on links) where they can; on a dense map, those that cannot are left
    out. Sizes are in pixels of the usual map.
    """
    most_covered = np.inf if len(labels) <= DENSE else 2.0
    points = (frame.points - frame.low) / frame.pixel
    blocked = (obstacles - frame.low) / frame.pixel
    edge = (frame.high - frame.low) / frame.pixel
    taken: list[NDArray] = []
    chosen: list[str | None] = []
    for index, label in enumerate(labels):
        size = np.array([0.6 * letter * len(label) + 2.0, 1.25 * letter])
        best: tuple[float, str, NDArray] | None = None
        for rank, place in enumerate(PLACES):
            box = label_box(points[index], size, place, radius)
            if (box[0] < -20).any() or (box[1] > edge + 20).any():
                continue
            others = np.delete(points, index, axis=0)
            if _inside(others, box[0] - radius, box[1] + radius).any():
                continue
            if any((box[0] < other[1]).all() and (other[0] < box[1]).all() for other in taken):
                continue
            covered = float(_inside(blocked, box[0], box[1]).sum())
            cost = covered + 0.3 * rank
            if covered > most_covered:
                continue
            if best is None or cost < best[0]:
                best = (cost, place, box)
        chosen.append(best[1] if best else None)
        if best:
            taken.append(best[2])
    return chosen


def label_box(
    point: Float[NDArray, "2"], size: Float[NDArray, "2"], place: str, radius: float
) -> Float[NDArray, "2 2"]:
    """Lower left and upper right corner of a label of ``size`` beside a node."""
    x, y = point
    gap = radius + 4.0 if " " not in place else 0.75 * radius + 2.0
    centre_x = x + (gap + size[0] / 2) * (("right" in place) - ("left" in place))
    centre_y = y + (gap + size[1] / 2) * (("above" in place) - ("below" in place))
    return np.array([[centre_x, centre_y] - size / 2, [centre_x, centre_y] + size / 2])


def _inside(
    points: Float[NDArray, "points 2"], low: Float[NDArray, "2"], high: Float[NDArray, "2"]
) -> Bool[NDArray, "points"]:
    return np.asarray(((points > low) & (points < high)).all(axis=1))


THINNEST, WIDEST = 1.5, 10.0  # of a link, in pixels


def link_widths(capacity: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
    """Width of each link in pixels: proportional to its capacity, but never too thin to be seen; 0 where unbuilt.

    Networks with very many links are drawn finer, so that they do not become one blot.
    """
    built = np.isfinite(capacity) & (capacity > 0)
    largest = float(capacity[built].max(initial=0.0))
    if not largest:
        return np.zeros(len(capacity))
    widest = WIDEST if built.sum() <= 200 else 0.7 * WIDEST
    return np.where(built, np.maximum(widest * np.where(built, capacity, 0.0) / largest, THINNEST), 0.0)


def link_offsets(
    tail: Int[NDArray, "links"], head: Int[NDArray, "links"], widths: Float[NDArray, "links"]
) -> Float[NDArray, "links"]:
    """How many pixels each link runs to the right of the straight line; parallel links run beside each other."""
    used: dict[tuple[int, int], float] = {}
    offsets = np.zeros(len(widths))
    for a, ends in enumerate(zip(tail.tolist(), head.tolist(), strict=True)):
        inner = used.get(ends, GAP)
        offsets[a], used[ends] = inner + widths[a] / 2, inner + max(widths[a], 2.0) + 2.0 * GAP
    return offsets


def width_samples(capacity: Float[NDArray, "links"]) -> list[tuple[float, float]]:
    """Widths with their capacities, for a legend; none where nothing is built."""
    largest, widest = float(capacity.max(initial=0.0)), float(link_widths(capacity).max(initial=0.0))
    return [(widest * part, largest * part) for part in (1.0, 0.5, 0.2)] if largest > 0 else []
