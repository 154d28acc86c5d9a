"""The ways that runs took, and how they are drawn: colours by gamma, means with bands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.kit.figure import BLUE, GREEN, ORANGE, RED
from blocc.studies.study import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = tuple[Float[NDArray, "_"], Float[NDArray, "_"]]
#: The paper's colours: red, purple and blue for gamma 2, 3 and 4, orange for LV-HBA; green for gamma by itself.
PURPLE = "#7B3294"
COLOURS: dict[Any, str] = {2.0: RED, 3.0: PURPLE, 4.0: BLUE, "auto": GREEN, "lv-hba": ORANGE}


def finite_or_none(values: Iterable[float]) -> list[float | None]:
    """Numbers for a row that is to be drawn; None stands for those that are not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]


def curve(row: Row, name: str, *, timed: bool = False) -> Curve:
    """A column of the way that a run took, against its iterations or its seconds; NaN where a number is missing.

    Seconds count from the first record, since the first run of a process compiles before it.
    """
    places = row["curve_seconds"] if timed else row["curves"]["iteration"]
    place, values = (
        np.array([np.nan if value is None else value for value in given], dtype=np.float64)
        for given in (places, row["curves"][name])
    )
    return place - place[:1] if timed else place, values


def band(axes: Axes, curves: Sequence[Curve], colour: str, label: str, *, median: bool = False, **style: Any) -> None:
    """Mean of several curves over their range, with one standard deviation as a shade; or the median with quartiles."""
    usable = [(x[good], y[good]) for x, y in curves if (good := np.isfinite(x) & np.isfinite(y)).sum() > 1]
    if not usable:
        return
    grid = np.linspace(max(x[0] for x, _ in usable), max(x[-1] for x, _ in usable), 200)
    # A run that has ended stays where it ended.
    table = np.stack([np.interp(grid, x, y) for x, y in usable])
    if median:
        low, middle, high = np.quantile(table, (0.25, 0.5, 0.75), axis=0)
    else:
        middle, spread = table.mean(axis=0), table.std(axis=0)
        low, high = middle - spread, middle + spread
    axes.plot(grid, middle, color=colour, linewidth=1.6, label=label, **style)
    axes.fill_between(grid, low, high, color=colour, alpha=0.15, linewidth=0)
