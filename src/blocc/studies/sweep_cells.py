"""The cells of a sweep: one solve, one design or one fit, and the row it becomes.

Whatever a cell needs is in its parameters, so any process can compute it. What was read and compiled stays in the
process for its next cells.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Bool, NDArray
from blocc._lib.files import plain
from blocc.errors import InputError
from blocc.networks.checked_rows import PLACE
from blocc.problem import BilevelProblem
from blocc.problems.loading import load_problem, parse_x0, split_name
from blocc.problems.toy import toy_problem
from blocc.result import Certificate, Result
from blocc.solve import solve
from blocc.svm.data.samples import LabelledData, expand_data, proportional_sizes, read_samples, split_indices
from blocc.transport.design.design_network import design_network
from blocc.transport.design.model import DesignModel
from blocc.transport.network.files import read_network, read_raw
from blocc.transport.network.readers.rules import FillRules

TOY = "toy"
#: Parameters that begin so are arguments of the function that builds the problem.
ARGUMENT = "arguments."
#: Longer lists of numbers are left out of a row.
MOST_NUMBERS = 50

_PROOF = ("stationarity", "feasibility", "complementarity", "distance", "stationarity_x")
_VALUES = ("upper_value", "upper_value_penalty", "lower_value")
_END = ("iterations", "final_gamma", "seconds", "compile_seconds", "message")
MEASURED = ("seconds", "compile_seconds")
#: ``status`` is that of the cell, so how the run ended is its ``outcome``.
SOLVE_COLUMNS = ("outcome", "success", *_VALUES, "gap", *_PROOF, *_END, "x")
DESIGN_COLUMNS = (
    *("outcome", "success", "utility", "utility_penalised", "revenue", "construction_cost", "links_built"),
    *("total_capacity", "demand_served", "gap", *_PROOF, "evaluations", *_END, "x"),
)
SVM_COLUMNS = (
    *("outcome", "success", "test_accuracy", "test_accuracy_penalised", "validation_accuracy", "training_accuracy"),
    *("validation_loss", "training_loss", *_VALUES, "is_global", "support_vectors", "forgiven", "gap", *_PROOF, *_END),
)


# --- the three functions -------------------------------------------------------------------------------------------
def solve_cell(
    *, problem: str, sha256: str | None, seed: int, start: str = "middle", x0: Any = None, **options: Any
) -> dict[str, Any]:
    """Solve a problem once: from ``x0``, from the middle of X, or (``start="random"``) from a point the seed draws."""
    arguments = {key.removeprefix(ARGUMENT): value for key, value in options.items() if key.startswith(ARGUMENT)}
    given = {key: value for key, value in options.items() if not key.startswith(ARGUMENT)}
    target = cached_problem(problem, sha256, json.dumps(arguments, sort_keys=True))
    point = target.x_set.sample(seed) if start == "random" else fitted_start(target, x0)
    result = solve(target, point, seed=seed, progress=False, **given)
    return {**_result_columns(result), "x": _numbers(target.x_set.ravel(result.x))}


def design_cell(*, problem: str, sha256: str, seed: int, **options: Any) -> dict[str, Any]:
    """Design a network once, as the fill rules among the options complete it; the seed draws its starts."""
    rules, given = split_rules(options)
    model = cached_model(problem, sha256, json.dumps(rules, sort_keys=True))
    design = design_network(model.network, seed=seed, model=model, **given)
    network, follower = design.network, design.follower
    return {
        "outcome": design.status.value,
        "success": design.success,
        "utility": _finite(design.utility),
        "utility_penalised": _finite(design.penalised.utility),
        "revenue": _finite(follower.revenue),
        "construction_cost": _finite(follower.construction_cost),
        "links_built": int(design.built.sum()),
        "total_capacity": _finite(design.capacity.sum()),
        "demand_served": _finite(np.nansum(network.demand * follower.share)),
        **_proof_columns(design.certificate),
        "evaluations": sum(start.evaluations for start in design.starts),
        **_end_columns(len(design.history), design.gamma, design.seconds, design.message),
        "x": _numbers(design.capacity),
    }


def svm_cell(
    *,
    problem: str,
    sha256: str,
    seed: int,
    expand: bool = False,
    standardize: bool = True,
    train: int | None = None,
    validation: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Fit a support vector machine to one random split, which the seed draws, and test it on what is left."""
    from sklearn.preprocessing import StandardScaler

    from blocc.svm.estimator import BilevelSVC

    samples = cached_samples(problem, sha256)
    samples = expand_data(samples) if expand else samples
    sizes = split_sizes(samples.n_samples, train, validation)
    parts = split_indices(samples.n_samples, train=sizes[0], validation=sizes[1], seed=seed)
    features = StandardScaler().fit(samples.X[parts[0]]).transform(samples.X) if standardize else samples.X
    (X, y), (X_val, y_val), (X_test, y_test) = ((features[part], samples.y[part]) for part in parts)
    model = BilevelSVC(random_state=seed, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the outcome tells whether it converged
        model.fit(X, y, X_val, y_val)
    penalised = model.classes_[(model.penalised_decision_function(X_test) > 0.0).astype(int)]
    columns = _result_columns(model.result_)
    return {
        "outcome": columns.pop("outcome"),
        "success": columns.pop("success"),
        "test_accuracy": _share(model.predict(X_test) == y_test),
        "test_accuracy_penalised": _share(penalised == y_test),
        "validation_accuracy": _share(model.predict(X_val) == y_val),
        "training_accuracy": _share(model.predict(X) == y),
        "validation_loss": _finite(model.validation_loss_),
        "training_loss": _finite(model.training_loss_),
        "is_global": bool(model.is_global_),
        "support_vectors": len(model.support_),
        "forgiven": int((model.margins_ > 1e-9).sum()),
        **columns,
    }


# --- what a cell works on, kept in the process ----------------------------------------------------------------------
@functools.lru_cache(maxsize=8)
def cached_problem(problem: str, sha256: str | None, arguments: str = "{}") -> BilevelProblem:
    """The problem behind ``toy`` or ``FILE.py[:NAME]``, built with these arguments (JSON)."""
    if problem == TOY:
        return toy_problem()
    file, _ = split_name(problem)
    _compare(sha256, file_hash(file), str(file))
    return load_problem(problem, json.loads(arguments))


@functools.lru_cache(maxsize=4)
def cached_model(problem: str, sha256: str, rules: str = "{}") -> DesignModel:
    """The compiled functions of a network, completed by these rules (JSON)."""
    _compare(sha256, network_hash(problem), problem)
    return DesignModel(read_network(problem, rules=FillRules(**json.loads(rules))))


@functools.lru_cache(maxsize=4)
def cached_samples(problem: str, sha256: str) -> LabelledData:
    """Labelled samples of two classes."""
    samples = read_samples(problem)
    _compare(sha256, samples_hash(samples), problem)
    return samples


def split_rules(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fill rules among the options of a design, and the others."""
    names = {rule.name for rule in fields(FillRules)}
    rules = {name: value for name, value in options.items() if name in names}
    return rules, {name: value for name, value in options.items() if name not in names}


def split_sizes(n: int, train: int | None, validation: int | None) -> tuple[int, int]:
    """How many samples to train and to validate with; what is not given is as in the published experiment."""
    usual = proportional_sizes(n)
    return usual[0] if train is None else train, usual[1] if validation is None else validation


def fitted_start(problem: BilevelProblem, x0: Any) -> Any:
    """A start of plain numbers in the structure of the leader's set; None stands for its middle."""
    return None if x0 is None else parse_x0(json.dumps(x0), problem)


# --- fingerprints: what is read must be what the study was planned with ----------------------------------------------
def file_hash(file: Path) -> str:
    """SHA-256 of a file's content."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error


def network_hash(source: str) -> str:
    """SHA-256 of everything that the files of a network hold."""
    raw = read_raw(source)
    tables = (raw.nodes, raw.links, raw.markets or ())
    rows = [[{key: value for key, value in row.items() if key != PLACE} for row in table] for table in tables]
    held = (raw.name, rows, raw.start_range, raw.units, raw.crs, raw.notes, raw.assumptions)
    return hashlib.sha256(json.dumps(plain(held), sort_keys=True).encode()).hexdigest()


def samples_hash(samples: LabelledData) -> str:
    """SHA-256 of all samples and their labels."""
    found = hashlib.sha256(np.ascontiguousarray(samples.X).tobytes())
    found.update("\n".join(map(str, samples.y.tolist())).encode())
    return found.hexdigest()


def _compare(planned: str | None, found: str, source: str) -> None:
    if planned is not None and planned != found:
        raise InputError(f"{source} has changed since the study was planned; run the study again")


# --- rows ----------------------------------------------------------------------------------------------------------
def _result_columns(result: Result) -> dict[str, Any]:
    return {
        "outcome": result.status.value,
        "success": result.success,
        **{name: _finite(getattr(result, name)) for name in _VALUES},
        **_proof_columns(result.certificate),
        **_end_columns(
            result.counts.get("iterations", len(result.history)), result.gamma, result.seconds, result.message
        ),
    }


def _proof_columns(certificate: Certificate) -> dict[str, Any]:
    numbers = asdict(certificate)
    return {"gap": _finite(numbers["penalty_gap"]), **{name: _finite(numbers[name]) for name in _PROOF}}


def _end_columns(iterations: int, gamma: float, seconds: dict[str, float], message: str) -> dict[str, Any]:
    return {
        "iterations": iterations,
        "final_gamma": _finite(gamma),
        "seconds": _finite(seconds.get("run", math.nan)),
        "compile_seconds": _finite(seconds.get("compile", math.nan)),
        "message": message,
    }


def _finite(value: Any) -> float | None:
    """A number of Python's own; JSON knows no infinity and no NaN."""
    number = float(value)
    return number if math.isfinite(number) else None


def _numbers(flat: Any) -> list[float | None] | None:
    array = np.asarray(flat, dtype=np.float64).ravel()
    return None if len(array) > MOST_NUMBERS else [_finite(value) for value in array]


def _share(right: Bool[NDArray, "samples"]) -> float:
    return float(np.mean(right))
