"""One random split of a data set, BLOCC's ways to choose its margins, and the row that any method's answer becomes.

Every row tells the same: accuracy on the test samples, both objectives and the violation, at the follower's exact
answer (yg) and at the method's own one (yF), how the run ended, and the way there. Samples are expanded, shuffled and
split as in the published program, for every method alike.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.result import Status
from blocc.studies.study import Row
from blocc.svm.fitting import FitOptions, fit_margins
from blocc.svm.margins import CPenalty, FeatureUnits, MarginProblem, scaled_problem
from blocc.svm.padded import FollowerSolution, Solvers
from reproduction.curves import finite_or_none
from reproduction.published_gam import DRAWN, run_published_gam
from reproduction.published_svm import (
    DERIVATIVES,
    EPOCHS,
    ETA,
    GAMMA,
    Samples,
    draw_margins,
    published_samples,
    run_published_svm,
)

#: The paper stops when the upper objective's update is smaller than this.
UPDATE = 1e-5
MOST_POINTS = 60  #: of a curve
#: The paper's formula leaves b free; the published code charges ||c|| and gives the follower b^2 / 2 as well.
FORMULAS: dict[str, tuple[CPenalty, float]] = {"paper": ("squared", 0.0), "published code": ("norm", 1.0)}
#: How a run of a fixed step can end, beside the package's own words.
CONVERGED, NO_ANSWER, LIMIT = "converged", "no answer ahead", Status.ITERATION_LIMIT.value


Margins = Float[NDArray, "train"]  #: c, one for each training sample
Classifier = Float[NDArray, "weights"]  #: y = (w, b)


MOST_SPLITS = 50  #: that are drawn for a data set


@functools.cache
def shared_samples(dataset: str) -> Samples:
    """All splits of a data set, read and shuffled once in each process."""
    return published_samples(dataset, MOST_SPLITS)


@dataclass(frozen=True, eq=False)
class Split:
    """Samples in three parts, the published start, and the price of c."""

    train: tuple[Float[NDArray, "train features"], Float[NDArray, "train"]]  #: features and labels, -1 or 1
    validation: tuple[Float[NDArray, "validation features"], Float[NDArray, "validation"]]
    test: tuple[Float[NDArray, "test features"], Float[NDArray, "test"]]
    start: Margins
    c_penalty: CPenalty = "squared"
    intercept_weight: float = 0.0

    @classmethod
    def draw(cls, dataset: str, seed: int, c_penalty: CPenalty = "squared", intercept_weight: float = 0.0) -> Split:
        """The split that a seed stands for, as the published program draws it."""
        train, validation, test = (_unsigned(np.asarray(rows[seed])) for rows in shared_samples(dataset))
        return cls(train, validation, test, draw_margins(seed), c_penalty, intercept_weight)

    @functools.cached_property
    def problem(self) -> MarginProblem:
        """The bilevel problem in the samples' own units."""
        return MarginProblem.of((*self.train, *self.validation), self.c_penalty, 1.0, self.intercept_weight)

    @functools.cached_property
    def _scaled(self) -> tuple[Solvers, FeatureUnits]:
        scaled, units = scaled_problem((*self.train, *self.validation), self.c_penalty, 1.0, self.intercept_weight)
        return Solvers(scaled), units

    def follower(self, c: Margins, gamma: float | None = None) -> tuple[Classifier, Margins, FollowerSolution]:
        """The exact answer to margins ``c`` and its multipliers; with ``gamma`` the penalised one."""
        solvers, units = self._scaled
        found = solvers.follower(c, gamma=None if gamma is None else gamma / units.unit**2)
        return units.back(found.y), (gamma or 1.0) * found.price / units.unit**2, found

    def paper_value(self, c: Margins, y: Classifier) -> float:
        """The upper objective by the paper's formula, whatever was minimised."""
        return self.problem.validation_loss(y) + 0.5 * float(c @ c)

    def loss(self, y: Classifier) -> float:
        """The validation loss for each sample, without the price of c: what the published figures show."""
        return self.problem.validation_loss(y) / len(self.validation[1])

    def accuracy(self, y: Classifier) -> float:
        """Share of the test samples that (w, b) puts on their side."""
        features, labels = self.test
        return float(np.mean((features @ y[:-1] + y[-1] > 0.0) == (labels > 0.0)))


def _unsigned(rows: Float[NDArray, "samples weights"]) -> tuple[Any, Any]:
    """Features and labels out of rows that carry their labels as signs, the last column that of b."""
    return rows[:, :-1] * rows[:, -1:], rows[:, -1].copy()


def has_no_answer(found: FollowerSolution) -> bool:
    """Whether no classifier meets the margins."""
    return found.infeasible and found.error > 1e-7


@dataclass
class Trajectory:
    """The points of a run, of which a curve keeps a few."""

    split: Split
    iterations: list[int] = field(default_factory=list)
    points: list[tuple[Margins, Classifier]] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  #: of the upper objective that the method itself minimises

    def note(self, iteration: int, c: Margins, y: Classifier, value: float | None = None) -> None:
        """The run is at margins c with its own classifier y."""
        self.iterations.append(iteration)
        self.points.append((np.array(c), np.array(y)))
        self.values.append(self.split.problem.upper(c, y) if value is None else value)

    @property
    def settled(self) -> bool:
        """The paper's rule: the last update of the upper objective is smaller than 1e-5."""
        return len(self.values) > 1 and abs(self.values[-1] - self.values[-2]) < UPDATE

    @property
    def ended(self) -> str:
        """By the rule, or at a limit of iterations."""
        return CONVERGED if self.settled else LIMIT

    def curves(self) -> dict[str, list[Any]]:
        """Accuracy and both objectives of the run's own classifier against its iterations."""
        count = len(self.points)
        # The first iterations change most: half of the points are spread evenly over their logarithms.
        even = np.linspace(0, count - 1, MOST_POINTS // 2)
        early = np.geomspace(1, max(count, 1), MOST_POINTS // 2) - 1
        chosen: list[int] = sorted({int(place) for place in np.concatenate([even, early]).round()}) if count else []
        kept = [self.points[index] for index in chosen]
        return {
            "iteration": [self.iterations[index] for index in chosen],
            "accuracy": [self.split.accuracy(y) for _, y in kept],
            "upper_value": finite_or_none([self.split.paper_value(c, y) for c, y in kept]),
            "validation_loss": finite_or_none([self.split.loss(y) for _, y in kept]),
            "lower_value": finite_or_none([self.split.problem.lower(y) for _, y in kept]),
        }


def row_of(split: Split, c: Margins, own: Classifier, trajectory: Trajectory, **columns: Any) -> Row:
    """A run's answer, judged at the exact lower level."""
    problem = split.problem
    violation = float(np.max(1.0 - c - problem.rows @ own, initial=0.0))
    exact, _, found = split.follower(c)
    if has_no_answer(found):  # of a projection's rounding: the least margins that its own classifier meets
        c = np.maximum(c, problem.forgiven(own))
        exact, _, found = split.follower(c)
    return {
        "accuracy": split.accuracy(exact),
        "accuracy_own": split.accuracy(own),
        "loss": split.loss(exact),
        "loss_own": split.loss(own),
        "upper_value": split.paper_value(c, exact),
        "upper_value_own": split.paper_value(c, own),
        "lower_value": problem.lower(exact),
        "lower_gap": problem.lower(own) - problem.lower(exact),
        "violation": violation,
        "curves": trajectory.curves(),
        **columns,
    }


def run_published(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The published program of BLOCC on the splits of all seeds, in one batch."""
    dataset, seeds = cells[0]["dataset"], [cell["seed"] for cell in cells]
    samples = Samples(*(rows[seeds] for rows in shared_samples(dataset)))
    figures, seconds = run_published_svm(samples, np.stack([draw_margins(seed) for seed in seeds]))
    rows: list[Row] = []
    for place, seed in enumerate(seeds):
        split = Split.draw(dataset, seed, *FORMULAS["published code"])
        trajectory = Trajectory(split)
        for epoch, (c, y) in enumerate(zip(figures.margins[place], figures.own[place], strict=True)):
            trajectory.note(epoch, c, y)
            if trajectory.settled:
                break
        c, own = trajectory.points[-1]
        made = len(trajectory.points)
        how = {"ended": trajectory.ended, "iterations": made, "derivatives": made * DERIVATIVES, "projections": 0}
        row = row_of(split, c, own, trajectory, **how, seconds=seconds / len(cells) * made / EPOCHS)
        exact = split.problem.lower(split.follower(c)[0])
        way = row["curves"]
        way["lower_value_follower"] = [float(figures.lower_value[place][epoch]) for epoch in way["iteration"]]
        rows.append(
            {**row, "lower_gap_follower": split.problem.lower(np.asarray(figures.follower[place][made - 1])) - exact}
        )
    return rows


def run_gam(dataset: str, seed: int) -> Row:
    """GAM as the published comparison runs it: its own lower level, whose exact answer is its own classifier."""
    split = Split.draw(dataset, seed)
    samples = Samples(*(rows[seed] for rows in shared_samples(dataset)))
    began = time.perf_counter()
    start = np.random.default_rng(seed).uniform(*DRAWN, len(split.start))
    path = run_published_gam(samples, start)
    seconds, trajectory = time.perf_counter() - began, Trajectory(split)
    for iteration, y in enumerate(path.classifiers):
        trajectory.note(iteration, split.problem.forgiven(y), y, split.problem.validation_loss(y))
        if trajectory.settled:
            break
    accuracy, loss = split.accuracy(y), split.loss(y)
    return {
        **{"accuracy": accuracy, "accuracy_own": accuracy, "loss": loss, "loss_own": loss},
        "curves": trajectory.curves(),
        **{"ended": trajectory.ended, "iterations": len(trajectory.points), "projections": 0},
        "seconds": seconds * len(trajectory.points) / len(path.classifiers),
    }


def run_default(dataset: str, price: str, seed: int) -> Row:
    """The exact fit with the default price of c, or with the paper's; everything else as by default."""
    options = FitOptions() if price == "default" else FitOptions("squared", 1.0)
    split = Split.draw(dataset, seed)
    fit = fit_margins((*split.train, *split.validation), options)
    trajectory = Trajectory(split)
    for iteration, y in enumerate(fit.path):
        trajectory.note(iteration, split.problem.forgiven(y), y)
    return row_of(
        split,
        fit.result.x,
        fit.result.y_penalty,
        trajectory,
        ended=fit.result.status.value,
        is_global=fit.is_global,
        iterations=int(fit.result.counts["newton_steps"]),
        seconds=fit.result.seconds["run"],
    )


def run_algorithm_one(dataset: str, formula: str, seed: int, max_steps: int) -> Row:
    """Algorithm 1 with the paper's gamma and step, from the published start, on exact inner solutions."""
    split = Split.draw(dataset, seed, *FORMULAS[formula])
    split.follower(split.start)  # compiles, where this was not done before
    trajectory, began = Trajectory(split), time.perf_counter()
    c, ended = split.start, LIMIT
    here, own = c, np.zeros(split.problem.rows.shape[1])
    for step in range(1, max_steps + 1):
        _, prices, found = split.follower(c)
        if has_no_answer(found):
            ended = NO_ANSWER
            break
        here = c
        own, penalised_prices, _ = split.follower(c, GAMMA)
        trajectory.note(step, c, own)
        if trajectory.settled:
            ended = CONVERGED
            break
        # Danskin: the constraints are 1 - c - rows y <= 0, and the lower objective does not see c.
        slope = split.problem.price_slope(c) + GAMMA * prices - penalised_prices
        c = np.maximum(c - ETA * slope, 0.0)
    seconds = time.perf_counter() - began
    return row_of(split, here, own, trajectory, ended=ended, iterations=len(trajectory.points), seconds=seconds)
