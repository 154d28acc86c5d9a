"""The pictures of the support vector machines: accuracy, upper and lower loss of each method on its way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocc.report.figure import BLUE, GREEN, ORANGE, RED, new_figure, style_axes
from blocc.report.study.study_views import Findings
from blocc.studies.study import Row
from reproduction.item import RowsByStudy
from reproduction.pictures.style import Curve, band
from reproduction.summary import curve
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
DIVERGED = 1e3  #: an upper loss so many times that of the start is left out


def draw(rows_by_study: RowsByStudy, findings: Findings) -> dict[str, Figure]:
    """One figure for each data set: three panels, means with bands of one standard deviation over the splits."""
    return {dataset: _figure(rows_by_study, dataset) for dataset in DATASETS}


def _figure(rows_by_study: RowsByStudy, dataset: str) -> Figure:
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
        style_axes(axes)
        if name == "accuracy" and axes.lines:
            axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _curve(row: Row, name: str) -> Curve:
    """A column of the way against its iterations, as far as it is drawn."""
    iteration, values = curve(row, name)
    # Next to margins that no classifier meets a last step can take c to 1e8, which would hide all the rest.
    diverged = (values > DIVERGED * values[:1]) & (name == "upper_value")
    shown = (iteration <= FIRST) & ~diverged
    return iteration[shown], values[shown]
