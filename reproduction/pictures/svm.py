"""The pictures of the support vector machines: accuracy, upper and lower loss of each method on its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from blocc.report.plots import BLUE, GREEN, ORANGE, RED, new_figure
from blocc.report.study.study_views import Findings
from blocc.studies.study import Row
from reproduction.pictures.style import band, dress
from reproduction.svm import ALL_VARIANTS, DATASETS, variant_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The variants that are drawn, with their colours.
DRAWN = {
    "BLOCC, defaults at the paper's price": GREEN,
    "BLOCC, Algorithm 1, paper's formula": BLUE,
    "LV-HBA, paper's numbers": ORANGE,
    "GAM, paper's numbers": RED,
}
#: Columns of a curve, and what the axis says.
PANELS = {
    "accuracy": "test accuracy",
    "upper_value": "upper loss $f(x, y)$",
    "lower_value": "lower loss $g(x, y)$",
}
FIRST = 100  #: iterations that are drawn
THROWN = 1e3  #: an upper loss so many times that of the start is left out


def draw(rows_by_study: Mapping[str, Sequence[Row]], findings: Findings) -> dict[str, Figure]:
    """One figure for each data set: three panels, means with bands of one standard deviation over the splits."""
    return {dataset: _figure(rows_by_study, dataset) for dataset in DATASETS}


def _figure(rows_by_study: Mapping[str, Sequence[Row]], dataset: str) -> Figure:
    figure = new_figure(13.0, 4.4)
    figure.suptitle(f"{dataset}: each method's own classifier on its way", fontsize=12, fontweight="bold")
    for axes, (name, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for variant, colour in DRAWN.items():
            rows = variant_rows(rows_by_study, ALL_VARIANTS[variant], dataset)
            band(axes, [_curve(row, name) for row in rows], colour, variant)
        axes.set_xlabel("iteration")
        axes.set_ylabel(title)
        if name == "upper_value":
            axes.set_yscale("log")
        dress(axes)
        if name == "accuracy" and axes.lines:
            axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _curve(row: Row, name: str) -> tuple[np.ndarray, np.ndarray]:
    """A column of the way against its iterations, as far as it is drawn."""
    iteration, values = (
        np.array([np.nan if value is None else value for value in row["curves"][key]], dtype=np.float64)
        for key in ("iteration", name)
    )
    # Next to margins that nobody meets, a last step of fixed length can throw c to 1e8: it would hide all the rest.
    thrown = (values > THROWN * values[:1]) & (name == "upper_value")
    shown = (iteration <= FIRST) & ~thrown
    return iteration[shown], values[shown]
