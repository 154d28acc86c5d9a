"""The paper's table and figures of support vector machines: accuracy, losses and time of BLOCC, LV-HBA and GAM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.report.figure import BLUE, GREEN, ORANGE, RED, new_figure, style_axes
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.studies.study import Row, Study, select
from reproduction.curves import Curve, band, curve
from reproduction.item import Item, RowsByStudy
from reproduction.summary import column, endings, finished, is_complete, mean, short, spread, together
from reproduction.svm_runs import ETA, GAMMA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASETS = ("diabetes", "fourclass")
DEFAULT, PAPER = "svm-default", "svm-algorithm-1"
LV_HBA, GAM = "svm-lv-hba", "svm-gam"
SPLITS, QUICK_SPLITS = 50, 3
GAM_SPLITS = 10  #: an iteration takes most of a second
#: Most iterations of each method, at full and at reduced size.
LIMITS = {PAPER: (500, 500), LV_HBA: (600, 200), GAM: (10, 3)}
#: Accuracy, its deviation, seconds and their deviation in the paper.
PUBLISHED: dict[tuple[str, str], tuple[float, float, float, float]] = {
    ("diabetes", "BLOCC"): (0.767, 0.039, 1.729, 0.529),
    ("diabetes", "LV-HBA"): (0.765, 0.039, 2.899, 1.378),
    ("diabetes", "GAM"): (0.721, 0.047, 8.752, 4.736),
    ("fourclass", "BLOCC"): (0.761, 0.014, 1.922, 0.108),
    ("fourclass", "LV-HBA"): (0.748, 0.060, 2.404, 0.795),
    ("fourclass", "GAM"): (0.715, 0.056, 13.481, 0.970),
}
#: Each method's rows with the paper's settings and with the defaults: a study, and which of its rows.
VARIANTS: dict[str, tuple[tuple[str, dict[str, str]], tuple[str, dict[str, str]]]] = {
    "BLOCC": ((PAPER, {"formula": "paper"}), (DEFAULT, {"price": "default"})),
    "LV-HBA": ((LV_HBA, {"preset": "paper"}), (LV_HBA, {"preset": "default"})),
    "GAM": ((GAM, {"preset": "paper"}), (GAM, {"preset": "default"})),
}
#: All variants by the name that the second table gives them.
ALL_VARIANTS: dict[str, tuple[str, dict[str, str]]] = {
    "BLOCC, defaults": (DEFAULT, {"price": "default"}),
    "BLOCC, defaults at the paper's price": (DEFAULT, {"price": "paper"}),
    "BLOCC, Algorithm 1, paper's formula": (PAPER, {"formula": "paper"}),
    "BLOCC, Algorithm 1, published code's formula": (PAPER, {"formula": "published code"}),
    "LV-HBA, paper's numbers": (LV_HBA, {"preset": "paper"}),
    "LV-HBA, automatic numbers": (LV_HBA, {"preset": "default"}),
    "GAM, paper's numbers": (GAM, {"preset": "paper"}),
    "GAM, automatic numbers": (GAM, {"preset": "default"}),
}
SIMILAR = 0.02  #: accuracies this close count as of a similar level
ATTAINED = 1e-6  #: a lower-level gap below this counts as none

_RUNS, _OTHERS = "reproduction.svm_runs", "reproduction.svm_other_methods"


def studies(quick: bool) -> list[Study]:
    """All methods on the same splits; the reduced size leaves out the numbers that are not the paper's."""
    seeds = range(QUICK_SPLITS if quick else SPLITS)
    limit = {study: sizes[1 if quick else 0] for study, sizes in LIMITS.items()}
    data = {"dataset": list(DATASETS)}
    presets = ["paper"] if quick else ["paper", "default"]
    return [
        Study(DEFAULT, f"{_RUNS}:run_default", {**data, "price": ["default", "paper"]}, seeds=seeds),
        Study(
            PAPER,
            f"{_RUNS}:run_algorithm_one",
            {**data, "formula": ["paper", "published code"]},
            seeds=seeds,
            fixed={"max_steps": limit[PAPER]},
        ),
        Study(
            LV_HBA,
            f"{_OTHERS}:run_lv_hba",
            {**data, "preset": presets},
            seeds=seeds,
            fixed={"max_iterations": limit[LV_HBA]},
        ),
        Study(
            GAM,
            f"{_OTHERS}:run_gam",
            {**data, "preset": presets},
            seeds=seeds[:GAM_SPLITS],
            fixed={"max_iterations": limit[GAM]},
        ),
    ]


def variant_rows(rows_by_study: RowsByStudy, variant: tuple[str, dict[str, str]], dataset: str) -> list[Row]:
    """The rows of one variant on one data set that were computed."""
    study, wanted = variant
    return list(select(finished(rows_by_study, study), dataset=dataset, **wanted))


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """The paper's table beside both of ours, and both answers of every variant."""
    main = [_line(rows_by_study, dataset, method) for dataset in DATASETS for method in VARIANTS]
    answers = [
        _answers(rows, dataset, name)
        for dataset in DATASETS
        for name, variant in ALL_VARIANTS.items()
        if (rows := variant_rows(rows_by_study, variant, dataset))
    ]
    found = _Compared(rows_by_study)
    caps = {study: max((row["iterations"] for row in finished(rows_by_study, study)), default=0) for study in LIMITS}
    notes = (*_NOTES, f"Most iterations that a run made: LV-HBA {caps[LV_HBA]}, GAM {caps[GAM]}.")
    return Findings(
        [
            Table("Test accuracy and time of a linear SVM", main, notes),
            Table("Both answers of every variant", answers, _ANSWER_NOTES),
        ],
        [*_accuracy_statements(found), *_optimality_statements(found)],
    )


_NOTES = (
    "Mean ± standard deviation over random splits. The paper's accuracies are those of yF. Seconds are without "
    "compilation.",
    f"BLOCC, paper's settings: Algorithm 1 with gamma {GAMMA:g}, eta {ETA:g} and exact inner solutions, on the paper's "
    "formula. It ends where the next step leaves the follower without an answer; the published program does not "
    "notice, because its inexact inner loops break the constraints.",
    "BLOCC, defaults: the exact fit of BilevelSVC with its own price of c.",
    "LV-HBA and GAM: this package's, on the paper's formula with b^2 / 2 below, as the published code has it. They "
    "stop by the paper's rule (GAM by its own) or at a limit of iterations: the column 'ended' tells. LV-HBA's "
    "automatic numbers are those that it chooses on the first split. GAM runs on ten splits. The "
    "paper gives it another formulation.",
)
_ANSWER_NOTES = (
    "yg is the follower's exact answer to the margins c, 'own' the method's own classifier: yF for BLOCC.",
    "The upper value is the paper's formula at (c, y), whatever was minimised. The lower gap is g(own) - g(yg). The "
    "violation is the largest of the coupled constraints at the own classifier.",
    "Values, gaps and violations are medians: next to margins that no classifier meets multipliers have no limit, so a "
    "step of Algorithm 1 can make c as large as 1e8 before it ends.",
)


def _line(rows_by_study: RowsByStudy, dataset: str, method: str) -> dict[str, Any]:
    accuracy, deviation, seconds, other = PUBLISHED[dataset, method]
    line: dict[str, Any] = {
        "data": dataset,
        "method": method,
        "paper: accuracy": f"{accuracy:.3f} ± {deviation:.3f}",
        "paper: seconds": f"{seconds:.3f} ± {other:.3f}",
    }
    names = ("paper's settings", "defaults")
    for name, variant, which in zip(names, VARIANTS[method], ("accuracy_own", "accuracy"), strict=True):
        rows = variant_rows(rows_by_study, variant, dataset)
        line[f"{name}: accuracy"] = spread(rows, which, 3)
        line[f"{name}: seconds"] = short(rows, "seconds")
        line[f"{name}: ended"] = endings(rows)
    return line


def _answers(rows: Sequence[Row], dataset: str, name: str) -> dict[str, Any]:
    return {
        "data": dataset,
        "variant": name,
        "splits": len(rows),
        "accuracy at yg": spread(rows, "accuracy", 3),
        "accuracy, own": spread(rows, "accuracy_own", 3),
        "upper value at yg": f"{_median(rows, 'upper_value'):.1f}",
        "upper value, own": f"{_median(rows, 'upper_value_own'):.1f}",
        "lower value at yg": f"{_median(rows, 'lower_value'):.3f}",
        "lower gap": f"{_median(rows, 'lower_gap'):.1e}",
        "violation": f"{_median(rows, 'violation'):.1e}",
        "iterations": short(rows, "iterations"),
        "seconds": short(rows, "seconds"),
        "ended": endings(rows),
    }


OURS, EXACT, ALGORITHM_1 = list(ALL_VARIANTS)[:3]
LV_HBA_PAPER, GAM_PAPER = "LV-HBA, paper's numbers", "GAM, paper's numbers"


class _Compared:
    """The variants that the paper's statements are about, on both data sets."""

    def __init__(self, rows_by_study: RowsByStudy) -> None:
        self.rows = {
            (name, dataset): variant_rows(rows_by_study, ALL_VARIANTS[name], dataset)
            for name in (OURS, EXACT, ALGORITHM_1, LV_HBA_PAPER, GAM_PAPER)
            for dataset in DATASETS
        }
        self.is_complete = is_complete(rows_by_study, DEFAULT, PAPER, LV_HBA, GAM) and all(self.rows.values())

    def observation(self, statement: str, verdicts: Sequence[bool | None], measured: str) -> Observation:
        """The statement holds where all verdicts are true; where rows are missing nothing can be told."""
        return Observation(statement, together(*verdicts) if self.is_complete else None, measured)

    def means(self, name: str, quantity: str) -> list[float]:
        """Of a column, on each data set."""
        return [mean(self.rows[name, dataset], quantity) for dataset in DATASETS]

    def medians(self, name: str, quantity: str) -> list[float]:
        """Of a column, on each data set; for seconds, because a process's first run is slow."""
        return [_median(self.rows[name, dataset], quantity) for dataset in DATASETS]


def _pair(figures: Sequence[float], form: str = ".3f") -> str:
    return " and ".join(f"{value:{form}}" for value in figures)


def _accuracy_statements(found: _Compared) -> list[Observation]:
    """The paper's statements about the accuracies in its table and its figure of diabetes."""
    gains = {dataset: _gain(found.rows[OURS, dataset], found.rows[GAM_PAPER, dataset]) for dataset in DATASETS}
    early = {name: _early_accuracy(found.rows[name, "diabetes"]) for name in (ALGORITHM_1, EXACT)}
    printed = [PUBLISHED[dataset, "BLOCC"][0] for dataset in DATASETS]
    ours, lv_hba = found.means(OURS, "accuracy"), found.means(LV_HBA_PAPER, "accuracy_own")
    return [
        found.observation(
            "BLOCC is as accurate as printed",
            [now >= then for now, then in zip(ours, printed, strict=True)],
            f"at yg, defaults: {_pair(ours)}; printed: {_pair(printed)}",
        ),
        found.observation(
            "BLOCC is significantly more accurate than GAM",
            [gain > 2.0 * error for gain, error in gains.values()],
            "; ".join(f"{dataset}: {gain:.3f} more, ± {error:.3f}" for dataset, (gain, error) in gains.items())
            + ". The standard error is that of the mean over the splits",
        ),
        found.observation(
            "BLOCC is of a similar level of accuracy as LV-HBA",
            [abs(one - other) <= SIMILAR for one, other in zip(ours, lv_hba, strict=True)],
            f"BLOCC {_pair(ours)}; LV-HBA {_pair(lv_hba)} by its own classifier and "
            f"{_pair(found.means(LV_HBA_PAPER, 'accuracy'))} at yg",
        ),
        found.observation(
            "BLOCC's accuracy on diabetes is above 0.76 within two iterations",
            [value > 0.76 for value in early.values()],
            "; ".join(f"{name}: {value:.3f}" for name, value in early.items()),
        ),
    ]


def _optimality_statements(found: _Compared) -> list[Observation]:
    """The paper's statements about both objectives, and about time."""
    values = {name: found.medians(name, "upper_value") for name in (EXACT, ALGORITHM_1, LV_HBA_PAPER, GAM_PAPER)}
    gaps = {name: found.medians(name, "lower_gap") for name in (LV_HBA_PAPER, OURS, ALGORITHM_1)}
    seconds = {name: found.medians(name, "seconds") for name in (OURS, ALGORITHM_1, LV_HBA_PAPER)}
    return [
        found.observation(
            "BLOCC reaches the lowest upper objective",
            [
                best < min(others)
                for best, *others in zip(values[EXACT], values[LV_HBA_PAPER], values[GAM_PAPER], strict=True)
            ],
            "median of the paper's formula at yg: "
            + "; ".join(f"{name}: {_pair(figures, '.0f')}" for name, figures in values.items()),
        ),
        found.observation(
            "On diabetes LV-HBA does not attain the lower-level optimum, BLOCC does",
            [gaps[LV_HBA_PAPER][0] > ATTAINED, abs(gaps[OURS][0]) < ATTAINED],
            "median lower gap: " + "; ".join(f"{name}: {_pair(figures, '.1e')}" for name, figures in gaps.items()),
        ),
        found.observation(
            "LV-HBA takes longer than BLOCC",
            [
                slow > quick
                for name in (OURS, ALGORITHM_1)
                for slow, quick in zip(seconds[LV_HBA_PAPER], seconds[name], strict=True)
            ],
            "median seconds: " + "; ".join(f"{name} {_pair(figures, '.2g')}" for name, figures in seconds.items()),
        ),
    ]


def _gain(rows: Sequence[Row], others: Sequence[Row]) -> tuple[float, float]:
    """By how much one classifier is more accurate than another on the same splits, and the standard error of that."""
    theirs = {row["seed"]: row["accuracy"] for row in others}
    gains = np.array([row["accuracy"] - theirs[row["seed"]] for row in rows if row["seed"] in theirs])
    if len(gains) < 2:
        return float("nan"), float("nan")
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))


def _median(rows: Sequence[Row], name: str) -> float:
    """Median of a column; NaN where there is no row."""
    return float(np.median(column(rows, name))) if rows else float("nan")


def _early_accuracy(rows: Sequence[Row]) -> float:
    """Mean accuracy of the own classifier after two iterations; that of the start is not counted."""
    found = []
    for row in rows:
        iterations, accuracy = row["curves"]["iteration"], row["curves"]["accuracy"]
        found += [value for iteration, value in zip(iterations, accuracy, strict=True) if iteration <= 2][-1:]
    return float(np.mean(found)) if found else float("nan")


# --- pictures ------------------------------------------------------------------------------------------------------
#: The variants that are drawn, with their colours.
DRAWN = {
    "BLOCC, defaults at the paper's price": GREEN,
    "BLOCC, Algorithm 1, paper's formula": BLUE,
    "LV-HBA, paper's numbers": ORANGE,
    "GAM, paper's numbers": RED,
}
#: Columns of a curve, and what the axis says.
PANELS = {"accuracy": "test accuracy", "upper_value": "upper loss $f(x, y)$", "lower_value": "lower loss $g(x, y)$"}
FIRST = 100  #: iterations that are drawn
DIVERGED = 1e3  #: an upper loss so many times that of the start is left out


def draw(rows_by_study: RowsByStudy) -> dict[str, Figure]:
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


ITEM = Item(
    name="svm",
    title="Accuracy, losses and time of a linear SVM: BLOCC, LV-HBA and GAM",
    studies=studies,
    conclude=conclude,
    draw=draw,
    seconds=(25.0, 500.0),
    needs=tuple(f"{dataset}.libsvm" for dataset in DATASETS),
)
