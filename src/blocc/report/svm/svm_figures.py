"""A fitted SVM as pictures (matplotlib): accuracies and objectives on the way, forgiven samples, many splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.kit.figure import (
    BLUE,
    GREEN,
    GREY,
    MUTED,
    ORANGE,
    RED,
    add_heading,
    add_legend,
    add_note,
    figure_image,
    keep_figure,
    new_figure,
    style_axes,
)
from blocc.kit.text import number, percent, shortened
from blocc.report.svm.svm_parts import (
    FORGIVEN,
    PARTS,
    SplitData,
    accuracies,
    answer_row,
    descents,
    order_of_margins,
    running_seconds,
    scalar,
    stages,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from blocc.svm.estimator import BilevelSVC

_COLOURS = {"train": BLUE, "validation": ORANGE, "test": GREEN}
_DASHES: dict[str, Any] = {"train": "-", "validation": (0, (6, 2)), "test": (0, (2, 1.2))}
#: With more points than this a marker on each would hide the curve.
_MOST_MARKERS = 60
#: How many decades a logarithmic axis shows at most: what is smaller is nothing beside the rest.
_DECADES = 6.0


def plot_accuracy(model: BilevelSVC, parts: SplitData, path: str | Path | None = None) -> Figure:
    """Draw the accuracy on each part by iteration and by time; a star marks the answer.

    Written when ``path`` is given (.png, .pdf, .svg).
    """
    figure = new_figure(11.0, 5.1)
    panels: Any = figure.subplots(1, 2, sharey=True)
    on_the_way, answer = stages(model, parts), accuracies(model, parts)
    for axes, horizontal in zip(panels, _horizontal(model, panels), strict=True):
        for part in parts.names:
            label = f"{part}: {percent(answer[part]['exact'], 1)}"
            style = {"color": _COLOURS[part], "linestyle": _DASHES[part], "label": label}
            rows = on_the_way.rows
            _curve(axes, model, rows, horizontal[rows], 100.0 * on_the_way.accuracy[part], **style)
            _star(axes, model, horizontal, 100.0 * answer[part]["exact"], _COLOURS[part])
    _mark_starts(panels[0], model)
    panels[0].set_ylabel("accuracy (%)", color=MUTED)
    panels[0].margins(y=0.1)
    least, greatest = panels[0].get_ylim()
    panels[0].set_ylim(max(least, -2.0), min(greatest, 100.0 + 0.06 * (101.0 - least)))
    add_legend(figure, [panels[1]], "accuracy of the answer")
    _title(figure, model, parts, "accuracy")
    return keep_figure(figure, path)


def plot_losses(model: BilevelSVC, parts: SplitData, path: str | Path | None = None) -> Figure:
    """Draw the objectives of the leader and of the follower by iteration and by time; a star marks the answer."""
    figure = new_figure(11.0, 7.6)
    panels: Any = figure.subplots(2, 2, sharex="col", sharey="row")
    result, history, on_the_way = model.result_, model.result_.history, stages(model, parts)
    every = np.arange(len(history))
    for column, horizontal in enumerate(_horizontal(model, panels[1])):
        upper, lower = panels[0, column], panels[1, column]
        _curve(upper, model, every, horizontal, history.upper_value, color=BLUE, label="upper objective")
        loss = on_the_way.validation_loss
        style = {"color": ORANGE, "linestyle": (0, (5, 2)), "label": "validation loss alone"}
        _curve(upper, model, on_the_way.rows, horizontal[on_the_way.rows], loss, **style)
        _curve(lower, model, every, horizontal, history.lower_value, color=GREEN, label="lower objective")
        _star(upper, model, horizontal, result.upper_value, BLUE)
        _star(lower, model, horizontal, result.lower_value, GREEN)
    _mark_starts(panels[0, 0], model)
    _mark_starts(panels[1, 0], model)
    _scale(panels[0, 0], [history.upper_value, on_the_way.validation_loss])
    _scale(panels[1, 0], [history.lower_value])
    panels[0, 0].set_ylabel("the leader's objective", color=MUTED)
    panels[1, 0].set_ylabel("the follower's objective", color=MUTED)
    answer = f"answer: upper {number(result.upper_value, 6)}, lower {number(result.lower_value, 6)}"
    add_legend(figure, [panels[0, 1], panels[1, 1]], answer)
    _title(figure, model, parts, "objectives")
    return keep_figure(figure, path)


def plot_margins(model: BilevelSVC, parts: SplitData, path: str | Path | None = None, top: int = 12) -> Figure:
    """Draw c: the ``top`` most forgiven samples by name, all of them in order, and how they are distributed."""
    order = order_of_margins(model, parts)
    c = model.margins_[order]
    c = c[c > FORGIVEN]
    chosen = order[: min(top, len(c))]
    figure = new_figure(11.0, max(4.8, 1.9 + 0.27 * len(chosen)) if len(chosen) else 2.0)
    _title(figure, model, parts, f"{len(c)} of {len(parts.train)} training samples forgiven")
    if not len(chosen):
        empty = figure.add_subplot()
        empty.set_axis_off()
        add_note(empty, "no sample is forgiven")
        return keep_figure(figure, path)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.15, 1.0))
    places = ((slice(None), 0), (0, 1), (1, 1))
    panels: list[Any] = [figure.add_subplot(grid[place]) for place in places]
    bars, ranks, spread = panels
    style_axes(bars, "most forgiven samples (number: label)", x="$c_i$", grid="x")
    style_axes(ranks, "all forgiven samples in order", x="rank", y="$c_i$")
    style_axes(spread, "how many, how much", x="$c_i$", y="samples")
    _draw_bars(bars, model, parts, chosen)
    ranks.plot(np.arange(1, len(c) + 1), c, color=BLUE, lw=1.7, marker="o" if len(c) <= _MOST_MARKERS else None, ms=4)
    ranks.set_ylim(0.0, 1.08 * c[0])
    if len(c) <= 2:
        ranks.set_xticks(range(1, len(c) + 1))
    ranks.set_xlim(0.5, len(c) + 0.5)
    spread.hist(c, bins=min(max(5, round(np.sqrt(len(c)))), 30), range=(0.0, c[0]), color=BLUE, edgecolor="white")
    spread.yaxis.get_major_locator().set_params(integer=True)
    return keep_figure(figure, path)


def plot_splits(rows: Sequence[dict[str, Any]], path: str | Path | None = None, name: str = "SVM") -> Figure:
    """Draw the accuracies of many random splits (rows of ``splits.csv``): every split, mean and standard deviation."""
    figure = new_figure(7.6, 4.8)
    axes = figure.add_subplot()
    kinds = (("", BLUE, "o", "the follower's answer $y$"), ("_penalised", ORANGE, "s", "penalised, $y_F$"))
    drawn: list[str] = []
    for shift, (suffix, colour, marker, label) in zip((-0.17, 0.17), kinds, strict=True):
        for part in PARTS:
            shares = 100.0 * np.array([row[f"{part}_accuracy{suffix}"] for row in rows], dtype=np.float64)
            shares = shares[np.isfinite(shares)]
            if not len(shares):
                continue
            if part not in drawn:
                drawn.append(part)
            middle = drawn.index(part) + shift
            places = middle + (np.linspace(-0.09, 0.09, len(shares)) if len(shares) > 1 else np.zeros(1))
            axes.plot(places, shares, marker, color=colour, alpha=0.45, ms=5, mec="none", label=label)
            deviation = float(shares.std(ddof=1)) if len(shares) > 1 else 0.0
            axes.errorbar(middle, shares.mean(), deviation, color=colour, capsize=5, lw=1.6, marker="_", ms=16, mew=2)
            label = "_nolegend_"
    axes.set_xticks(range(len(drawn)), drawn)
    axes.set_xlim(-0.6, max(len(drawn), 1) - 0.4)
    style_axes(axes, y="accuracy (%)", grid="y")
    if drawn:
        axes.legend(frameon=False, fontsize=9, labelcolor=MUTED, loc="upper left", bbox_to_anchor=(0.0, -0.08), ncols=2)
    facts = f"{len(rows)} random splits  ·  bars: mean ± standard deviation"
    add_heading(figure, f"{shortened(name, 60)}: accuracy", facts)
    return keep_figure(figure, path)


def figure_files(model: BilevelSVC | None, parts: SplitData, splits: Sequence[dict[str, Any]] = ()) -> dict[str, bytes]:
    """PNG files by their names: three of a model, and one of several splits."""
    figures: dict[str, Figure] = {}
    if model is not None:
        figures = {
            "accuracy.png": plot_accuracy(model, parts),
            "losses.png": plot_losses(model, parts),
            "forgiven.png": plot_margins(model, parts),
        }
    if splits:
        figures["splits.png"] = plot_splits(splits, name=parts.data.name)
    return {name: figure_image(figure) for name, figure in figures.items()}


# --- pieces --------------------------------------------------------------------------------------------------------
def _horizontal(model: BilevelSVC, panels: Any) -> tuple[Float[NDArray, "iterations"], Float[NDArray, "iterations"]]:
    """Where the rows of the history stand on the two horizontal axes, which are named on ``panels``."""
    seconds, about = running_seconds(model)
    by_iteration, by_time = panels  # Any: the locators take more than the base class tells
    by_iteration.set_xlabel("iteration", color=MUTED)
    by_time.set_xlabel(f"seconds, {about}", color=MUTED)
    if len(seconds) <= 2:  # too short an axis for a locator to find whole numbers on it
        by_iteration.set_xticks(range(1, len(seconds) + 1))
        by_iteration.set_xlim(0.5, max(len(seconds), 1) + 0.5)
    else:
        by_iteration.xaxis.get_major_locator().set_params(integer=True)
    return np.arange(1.0, len(seconds) + 1.0), seconds


def _curve(
    axes: Axes,
    model: BilevelSVC,
    rows: Int[NDArray, "points"],
    x: Float[NDArray, "points"],
    y: Float[NDArray, "points"],
    **style: Any,
) -> None:
    """A curve with a gap wherever a new descent begins; a lone point is a marker."""
    cuts = np.searchsorted(rows, descents(model)[1:])
    marker = "o" if len(x) <= _MOST_MARKERS else None
    axes.plot(np.insert(x, cuts, np.nan), np.insert(y, cuts, np.nan), lw=1.7, marker=marker, ms=3.2, **style)
    style_axes(axes)


def _star(axes: Axes, model: BilevelSVC, horizontal: Float[NDArray, "iterations"], value: float, colour: str) -> None:
    row = answer_row(model)
    if row is not None and np.isfinite(value):
        axes.plot([horizontal[row]], [value], marker="*", ms=13, color=colour, mec="white", mew=0.8, zorder=5)


def _mark_starts(axes: Axes, model: BilevelSVC) -> None:
    for row in descents(model)[1:]:
        axes.axvline(row + 0.5, color=GREY, linestyle=":", linewidth=1.0, zorder=0)


def _scale(axes: Axes, columns: list[NDArray]) -> None:
    """A logarithmic axis where the values are positive and span more than a decade; no magnified rounding elsewhere."""
    values = np.concatenate(columns)
    values = values[np.isfinite(values)]
    if not len(values):
        return
    least, greatest = float(values.min()), float(values.max())
    if least > 0.0 and greatest > 10.0 * least:
        axes.set_yscale("log")
        axes.set_ylim(max(least, greatest * 10.0**-_DECADES) / 1.6, greatest * 1.6)
        return
    room = max(0.08 * (greatest - least), 0.02 * max(abs(least), abs(greatest)))
    axes.ticklabel_format(axis="y", useOffset=False)
    if room > 0.0:
        axes.set_ylim(least - room, greatest + room)


def _draw_bars(axes: Axes, model: BilevelSVC, parts: SplitData, chosen: Int[NDArray, "chosen"]) -> None:
    c, labels, numbers = model.margins_[chosen], parts.y("train")[chosen], parts.train[chosen]
    wrong = model.predict(parts.X("train")[chosen]) != labels
    places = np.arange(len(chosen))
    for mask, colour, label in ((wrong, RED, "classified wrongly"), (~wrong, BLUE, "classified rightly")):
        if mask.any():
            axes.barh(places[mask], c[mask], color=colour, height=0.68, label=label)
    names = [f"{index}: {shortened(str(scalar(label)), 16)}" for index, label in zip(numbers, labels, strict=True)]
    axes.set_yticks(places, names, fontsize=9, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.16 * float(c[0]))
    for place, value in zip(places, c, strict=True):
        axes.annotate(number(value, 3), (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.legend(frameon=False, fontsize=9, labelcolor=MUTED, loc="lower right")


def _title(figure: Figure, model: BilevelSVC, parts: SplitData, what: str) -> None:
    result = model.result_
    facts = [result.status.value, f"upper value {number(result.upper_value, 5)}"]
    facts += ["a global optimum"] if model.is_global_ else []
    facts += ["dotted: a new start"] if len(descents(model)) > 1 and "forgiven" not in what else []
    if len(result.history) == 0:
        facts.append("no iteration was recorded")
    add_heading(figure, f"{shortened(parts.data.name, 60)}: {what}", "  ·  ".join(facts))
