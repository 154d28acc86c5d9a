"""Problems for comparisons of methods: by name, with a start, what else tells about an answer, and what is known.

``toy`` and ``three`` are the BLOCC paper's; ``svm`` and ``gam-svm`` stand for data that every machine has,
standardised; ``svm:DATA`` has margins as there, and ``gam-svm:DATA`` weights of slacks, as GAM was published with;
any other name is that of a problem with a known answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from blocc.errors import InputError
from blocc.problem import BilevelProblem
from blocc.problems.textbook import KnownProblem, known_problem
from blocc.problems.toy import toy_problem
from blocc.result import Result
from blocc.svm.data.samples import expand_quadratic, proportional_sizes, read_samples, split_indices
from blocc.svm.fitting import FitOptions, fit_margins
from blocc.svm.slack_weights import slack_weight_problem
from blocc.svm.svm_problem import svm_problem
from blocc.transport.design.options import PAPER_STEP
from blocc.transport.network.files import read_network
from blocc.transport.travellers.formulation import structured_problem

#: Published figures of a built-in problem: value and seconds of a method.
Published = Mapping[str, tuple[float, float]]
THREE_NODES: Published = {"blocc": (1.71, 20.0), "lv-hba": (1.53, 351.0)}
SVM_ACCURACY: Mapping[str, Published] = {
    "diabetes": {"blocc": (0.767, 1.73), "lv-hba": (0.765, 2.9), "gam": (0.721, 8.8)},
    "fourclass": {"blocc": (0.761, 1.92)},
}
GAM_ACCURACY: Mapping[str, Published] = {"diabetes": {"gam": (0.721, 8.8)}, "fourclass": {"gam": (0.715, 13.5)}}
#: The published code gives the follower b^2 / 2 as well; without it GAM's matrix is singular wherever w = 0 is best.
INTERCEPT_WEIGHT = 1.0
#: Comes with scikit-learn; other built-in data sets are fetched.
OFFLINE = "breast_cancer"
#: The two links that are worth building, each as wide as the demand of sigmoid(2) that it attracts, earn 2 and cost 1
#: a unit.
THREE_NODES_BEST = -2.0 / (1.0 + float(np.exp(-2.0)))


@dataclass(frozen=True)
class Case:
    """A problem with its start, and what else is worth knowing about a method's answer."""

    problem: BilevelProblem
    x0: Any = None
    measure: Callable[[Result], dict[str, float]] = lambda result: {}
    published: Published = field(default_factory=dict)
    quantity: str = "value"  #: what the published figures are
    own: Callable[[float], Result] | None = None  #: what its own solver makes of it in so many seconds
    known: float | None = None  #: the best upper value, where it is known
    local: bool = False  #: whether better values than ``known`` exist elsewhere
    #: For ``solve``: the numbers that Algorithm 1 was published with on this problem, where it was.
    algorithm_1: Mapping[str, Any] | None = None


def find_known_case(name: str, seed: int = 0) -> Case:
    """The case of this name; see the top of this module."""
    if name == "toy":
        # The toy as published; the collection has it with its answer and starts downhill of it.
        return replace(known_case(known_problem("blocc_toy")), algorithm_1={"preset": "toy"})
    if name == "three":
        return three_case(seed)
    kind, found, source = name.partition(":")
    if kind in ("svm", "gam-svm"):
        make = svm_case if kind == "svm" else gam_svm_case
        return make(source, seed) if found else make(OFFLINE, seed, standardize=True)
    return known_case(known_problem(name))


def known_case(entry: KnownProblem) -> Case:
    """A problem with a known answer, from the first of its starts."""
    return Case(entry.problem, entry.starts[0], known=entry.upper_value, local="local" in entry.tags)


def toy_case() -> Case:
    """The toy of the paper, from the middle of X."""
    return Case(toy_problem())


def three_case(seed: int) -> Case:
    """The network of three nodes; the published figures are utilities, which the leader maximises."""
    network = read_network("three")
    return Case(
        structured_problem(network),
        network.random_starts(1, seed)[0],
        lambda result: {"utility": -result.upper_value},
        THREE_NODES,
        "utility",
        known=THREE_NODES_BEST,
        # gamma and eta of the text; steps of 0.01 would leave less than one of x for each second.
        algorithm_1={"preset": "three", "step": PAPER_STEP, "inner": "auto"},
    )


@dataclass(frozen=True)
class Parts:
    """Samples to train, to validate and to test with; labels are -1 and 1."""

    name: str
    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]

    def accuracy(self, y: Any) -> float:
        """Of (w, b, ...) on the test samples."""
        X, labels = self.test
        w, b = np.asarray(y)[: X.shape[1]], np.asarray(y)[X.shape[1]]
        return float(np.mean((X @ w + b > 0.0) == (labels > 0.0)))

    def measure(self, result: Result) -> dict[str, float]:
        """Test accuracies of the follower's exact answer, and of the method's own."""
        return {"test_accuracy": self.accuracy(result.y), "own_accuracy": self.accuracy(result.y_penalty)}


def split_samples(source: str, seed: int, *, expand: bool = False, standardize: bool = False) -> Parts:
    """A data set in three parts, by proportion; ``expand`` adds squares and products of its features.

    ``standardize`` gives every feature a mean of zero and a variance of one in the training part.
    """
    if not source:
        raise InputError("svm: needs samples, for instance svm:diabetes or svm:samples.csv")
    samples = read_samples(source)
    if len(samples.classes) != 2:
        raise InputError(f"svm:{source} must have two classes of samples, got {len(samples.classes)}")
    if samples.n_samples < 3:
        raise InputError(f"{samples.name} has {samples.n_samples} samples; a comparison needs three at least")
    train, validation = proportional_sizes(samples.n_samples)
    X = expand_quadratic(samples.X) if expand else samples.X
    signs = np.where(samples.y == samples.classes[1], 1.0, -1.0)
    parts = split_indices(samples.n_samples, train=train, validation=validation, seed=seed)
    if standardize:
        deviation = X[parts[0]].std(axis=0)
        X = (X - X[parts[0]].mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    return Parts(samples.name, *((X[part], signs[part]) for part in parts))


def svm_case(source: str, seed: int, *, standardize: bool = False) -> Case:
    """Margins of a linear SVM, with the paper's price of c and its start; by default on samples as they are."""
    parts = split_samples(source, seed, standardize=standardize)
    data = (*parts.train, *parts.validation)

    def own(time_limit: float) -> Result:
        options = FitOptions("squared", 1.0, INTERCEPT_WEIGHT, gamma=12.0, time_limit=time_limit)
        return fit_margins(data, options).result

    return Case(
        svm_problem(*data, c_penalty="squared", c_weight=1.0, intercept_weight=INTERCEPT_WEIGHT),
        np.random.default_rng(seed).uniform(1.0, 5.0, len(parts.train[0])),
        parts.measure,
        SVM_ACCURACY.get(parts.name, {}),
        "accuracy",
        own,
        algorithm_1={"preset": "svm"},
    )


def gam_svm_case(source: str, seed: int, *, standardize: bool = False) -> Case:
    """Weights of slacks; no value is known. As GAM's authors ran it on squares and products of the features, too, or
    on standardised features alone.
    """
    parts = split_samples(source, seed, expand=not standardize, standardize=standardize)
    return Case(
        slack_weight_problem(*parts.train, *parts.validation),
        np.random.default_rng(seed).uniform(-7.0, -6.0, len(parts.train[0])),
        parts.measure,
        GAM_ACCURACY.get(parts.name, {}),
        "accuracy",
    )
