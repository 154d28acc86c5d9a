"""What the pictures of the paper's items share: colours by gamma, and means with bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.report.figure import BLUE, GREEN, ORANGE, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = tuple[Float[NDArray, "_"], Float[NDArray, "_"]]
#: The paper's colours: red, purple and blue for gamma 2, 3 and 4, orange for LV-HBA; green for gamma by itself.
PURPLE = "#7B3294"
COLOURS: dict[Any, str] = {2.0: RED, 3.0: PURPLE, 4.0: BLUE, "auto": GREEN, "lv-hba": ORANGE}


def band(axes: Axes, curves: Sequence[Curve], colour: str, label: str, **style: Any) -> None:
    """Mean of several curves over their common range, with one standard deviation as a shade."""
    usable = [(x[good], y[good]) for x, y in curves if (good := np.isfinite(x) & np.isfinite(y)).sum() > 1]
    if not usable:
        return
    grid = np.linspace(max(x[0] for x, _ in usable), max(x[-1] for x, _ in usable), 200)
    # A run that has ended stays where it ended.
    table = np.stack([np.interp(grid, x, y) for x, y in usable])
    middle, spread = table.mean(axis=0), table.std(axis=0)
    axes.plot(grid, middle, color=colour, linewidth=1.6, label=label, **style)
    axes.fill_between(grid, middle - spread, middle + spread, color=colour, alpha=0.15, linewidth=0)
