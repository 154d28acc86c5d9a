"""How designs look, in pictures and on the page alike: colours of use and of demand, widths of links."""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.report.figure import BLUE, ORANGE

#: Perceptually uniform (a stretch of "magma", reversed): an empty link is pale, a full one dark, also in grey print.
UTILISATION_SCALE = (
    *("#fea973", "#fb835f", "#ef5d5e", "#d5446d", "#b3367a"),
    *("#912b81", "#721f81", "#51127c", "#2d1161"),
)
#: The same with its pale end, for heat maps.
DEMAND_SCALE = ("#fdf3d3", "#fec488", "#fd9668", "#f4695c", "#db476a", "#b5367a", "#8e2a81", "#681c81", "#400f74")
EXACT, PENALISED = BLUE, ORANGE  #: at the travellers' own answer yg, and at the penalised one yF

THINNEST, WIDEST = 1.5, 10.0  # of a link, in pixels


def utilisation_colour(utilisation: float) -> str:
    """Colour of a link that is used to this part of its capacity (beyond 0 and 1: as there)."""
    channels = np.array([[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in UTILISATION_SCALE])
    position = np.nan_to_num(utilisation, posinf=0.0, neginf=0.0) * (len(channels) - 1)
    mixed = [np.interp(position, np.arange(len(channels)), channel) for channel in channels.T]
    return "#" + "".join(f"{round(float(part)):02x}" for part in mixed)


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


def width_samples(capacity: Float[NDArray, "links"]) -> list[tuple[float, float]]:
    """Widths with their capacities, for a legend; none where nothing is built."""
    largest, widest = float(capacity.max(initial=0.0)), float(link_widths(capacity).max(initial=0.0))
    return [(widest * part, largest * part) for part in (1.0, 0.5, 0.2)] if largest > 0 else []
