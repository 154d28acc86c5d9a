"""Performance profiles for a paper: by derivatives of the lower level alone, as PDF, pgfplots and a LaTeX table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from blocc.kit.figure import add_legend, figure_image, new_figure
from blocc.report.comparison import method_style
from blocc.report.study.benchmark import ACCURACIES, COSTS, costs, draw_profile, method_table, profile
from blocc.report.study.study_views import StudyView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Derivatives do not depend on the machine, as seconds do.
_PLACE, _NAME, _LEAST = COSTS[1]
_COLUMNS = ("method", "applies", *(f"reached {accuracy:.0e}" for accuracy in ACCURACIES))


def paper_files(view: StudyView) -> dict[str, bytes]:
    """The content of every file, by its name."""
    return {
        "profiles-derivatives.pdf": figure_image(plot_derivatives(view), "pdf"),
        "profiles-derivatives.tex": pgfplots(view).encode(),
        "methods.tex": tabular(view).encode(),
    }


def plot_derivatives(view: StudyView) -> Figure:
    """One panel for each accuracy, as wide as a page of text."""
    figure = new_figure(7.0, 3.4)
    panels = figure.subplots(1, len(ACCURACIES), squeeze=False, sharey=True)[0]
    for axes, accuracy in zip(panels, ACCURACIES, strict=True):
        draw_profile(axes, view, accuracy, COSTS[1])
    add_legend(figure, [panels[0]], most=5)
    return figure


def pgfplots(view: StudyView) -> str:
    r"""The same as a ``groupplot`` of pgfplots, to be taken in by ``\input``."""
    panels = [profile(costs(view, accuracy, _PLACE, _LEAST)) for accuracy in ACCURACIES]
    last = 1.1 * max(float(np.max(ratios, initial=1.0, where=np.isfinite(ratios))) for ratios in panels)
    lines = [
        "% needs \\usepackage{pgfplots}, \\usepgfplotslibrary{groupplots} and \\pgfplotsset{compat=1.18}",
        *_colours(view.study.grid["method"]),
        "\\begin{tikzpicture}",
        f"\\begin{{groupplot}}[group style={{group size={len(ACCURACIES)} by 1, y descriptions at=edge left,",
        "  horizontal sep=0.08\\textwidth}, width=0.48\\textwidth, height=0.4\\textwidth,",
        f"  xmode=log, xmin=1, xmax={last:.5g}, ymin=0, ymax=1.02,",
        f"  xlabel={{times the fewest {_NAME}}}, xlabel style={{align=center, text width=0.4\\textwidth}},",
        "  legend style={font=\\footnotesize, at={(1.05,-0.45)}, anchor=north}, legend columns=4]",
    ]
    for panel, (accuracy, ratios) in enumerate(zip(ACCURACIES, panels, strict=True)):
        lines.append(f"\\nextgroupplot[title={{to $10^{{{round(math.log10(accuracy))}}}$}}]")
        for column, method in enumerate(view.study.grid["method"]):
            reached = np.sort(ratios[:, column][np.isfinite(ratios[:, column])])
            points = [(1.0, 0.0), *((ratio, (k + 1) / len(ratios)) for k, ratio in enumerate(reached))]
            points.append((last, points[-1][1]))  # what is reached stays reached
            placed = " ".join(f"({across:.5g},{share:.5g})" for across, share in points)
            lines.append(f"\\addplot[const plot, thick, color={_colour(column)}] coordinates {{{placed}}};")
            if panel == 0:
                lines.append(f"\\addlegendentry{{{_plain(method)}}}")
    return "\n".join([*lines, "\\end{groupplot}", "\\end{tikzpicture}", ""])


def tabular(view: StudyView) -> str:
    """What every method reached, and the median of the derivatives that it took, as a LaTeX table."""
    finest = f"median calls to {ACCURACIES[-1]:.0e}"
    count = len(view.study.grid["problem"])
    heads = " & ".join(["method", "applies", *(f"to {accuracy:.0e}" for accuracy in ACCURACIES), "derivatives"])
    rows = []
    for row in method_table(view).rows:
        median = row[finest]
        told = "--" if median is None else f"{median:,.0f}".replace(",", "\\,")
        rows.append(" & ".join([*(_plain(str(row[name])) for name in _COLUMNS), told]) + r" \\")
    return "\n".join(
        [
            f"% of {count} problems; derivatives of the lower level to {ACCURACIES[-1]:.0e}, median",
            "\\begin{tabular}{lrrrr}",
            "\\hline",
            heads + r" \\",
            "\\hline",
            *rows,
            "\\hline",
            "\\end{tabular}",
            "",
        ]
    )


def _colours(methods: Sequence[str]) -> list[str]:
    return [
        f"\\definecolor{{{_colour(place)}}}{{HTML}}{{{method_style(method)['color'].lstrip('#').upper()}}}"
        for place, method in enumerate(methods)
    ]


def _colour(place: int) -> str:
    """TeX knows letters only in names of commands; a colour may have digits."""
    return f"method{place}"


def _plain(text: str) -> str:
    return text.replace("_", r"\_").replace("%", r"\%").replace("&", r"\&")
