"""The picture of the toy's sensitivity: the gap by gamma, for every eta, the paper's beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from blocc.report.figure import BLUE, GREEN, GREY, ORANGE, RED, new_figure, style_axes
from blocc.report.study.study_views import Findings
from blocc.studies.study import select
from reproduction.item import RowsByStudy
from reproduction.summary import finished, mean, means_by
from reproduction.toy_sensitivity import DEFAULT, PAPER, PUBLISHED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST = 1e-17  #: stands for zero on a logarithmic axis


def draw(rows_by_study: RowsByStudy, findings: Findings) -> dict[str, Figure]:
    """One panel for the paper's figures, one for ours."""
    rows, default = finished(rows_by_study, PAPER), finished(rows_by_study, DEFAULT)
    figure = new_figure(10.0, 4.4)
    printed, ours = figure.subplots(1, 2, sharex=True, sharey=True)
    etas = sorted({row["eta"] for row in rows})
    for eta, colour in zip(etas, (BLUE, ORANGE, GREEN, RED, GREY), strict=False):
        by_gamma = means_by(rows, "gamma", "distance", eta=eta)
        gammas = sorted(by_gamma)
        known = [gamma for gamma in gammas if (eta, gamma) in PUBLISHED]
        printed.plot(known, [PUBLISHED[eta, gamma][0] for gamma in known], "o-", color=colour, label=f"eta {eta:g}")
        ours.plot(gammas, [by_gamma[gamma] for gamma in gammas], "o-", color=colour, label=f"eta {eta:g}")
    gammas = sorted({row["gamma"] for row in default if row["gamma"] != "auto"})
    means = [max(mean(select(default, gamma=gamma), "distance"), LEAST) for gamma in gammas]
    ours.plot(gammas, np.array(means), "s--", color="black", label="defaults")
    for axes, title in ((printed, "paper"), (ours, "paper's settings, and defaults")):
        axes.set_xscale("log")
        axes.set_xlabel(r"$\gamma$")
        axes.set_title(title, fontsize=11)
        axes.legend(frameon=False, fontsize=8)
        style_axes(axes)
    printed.set_ylabel(r"$\|y_g(x_T) - y_{F,T}\|$")
    return {"gap": figure}
