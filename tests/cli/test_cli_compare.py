"""``blocc compare``: its problems, what it prints and writes, its exit codes, and what it refuses."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import blocc as call
from typer.testing import Result as Outcome

from blocc import solve
from blocc.cli import compare as cli_compare
from blocc.cli.compare import beside, find_case
from blocc.methods.compare import Comparison, MethodRow
from blocc.problems.toy import local_minimisers, true_value
from blocc.studies.cases import svm_case
from blocc.transport.network.files import read_network

PROBLEM = """
from blocc import BilevelProblem, Box, Reals

held = BilevelProblem(
    upper=lambda x, y: (x - 1.0) ** 2 + y**2,
    lower=lambda x, y: (y - 2.0 * x) ** 2,
    inequality=lambda x, y: y - x,
    x_set=Box(0.0, 3.0),
    y_set=Reals(),
    name="held",
)
"""


def blocc(*arguments: object) -> Outcome:
    return call("compare", *arguments)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("problems") / "held.py"
    path.write_text(PROBLEM)
    return path


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two overlapping clouds in a file that is called like a published data set."""
    generator = np.random.default_rng(1)
    labels = np.where(np.arange(40) % 2 == 0, 1, -1)
    features = generator.standard_normal((40, 2)) + 0.8 * labels[:, None]
    lines = [f"{label} 1:{a:.6f} 2:{b:.6f}" for label, (a, b) in zip(labels, features, strict=True)]
    path = tmp_path_factory.mktemp("samples") / "diabetes.libsvm"
    path.write_text("\n".join(lines) + "\n")
    return path


# --- problems ------------------------------------------------------------------------------------------------------
def test_toy() -> None:
    outcome = blocc("toy", "--methods", "blocc,gam,aipod", "--x0", "1.4")
    assert outcome.exit_code == 0, outcome.output
    first, head, *lines = outcome.stdout.splitlines()
    assert first.startswith("the toy of the BLOCC paper: 3 methods, best upper value 1.72187")
    assert head.split()[0] == "method"
    assert lines[0].split()[:2] == ["blocc", "converged"]
    assert lines[1].split()[:2] == ["gam", "converged"]
    known = true_value(local_minimisers())
    assert np.abs(known - float(lines[0].split()[2])).min() < 1e-5
    assert any(line.startswith("  aipod: needs equality constraints") for line in lines)


@pytest.mark.slow
def test_file_and_json(file: Path) -> None:
    outcome = blocc(f"{file}:held", "--methods", "blocc, gam", "--x0", 2, "--json")
    assert outcome.exit_code == 0, outcome.output
    shown = json.loads(outcome.stdout)
    assert shown["name"] == "held"
    assert [row["method"] for row in shown["rows"]] == ["blocc", "gam"]
    assert [row["upper_value"] for row in shown["rows"]] == [pytest.approx(0.5, abs=1e-5)] * 2
    assert [row["x"] for row in shown["rows"]] == [pytest.approx(0.5, abs=1e-2)] * 2


@pytest.mark.slow
def test_three_nodes() -> None:
    outcome = blocc("three", "--methods", "sflcb,gam", "--max-iterations", 20, "--seed", 4, "--json")
    assert outcome.exit_code == 3, outcome.output
    rows = {row["method"]: row for row in json.loads(outcome.stdout)["rows"]}
    assert rows["sflcb"]["utility"] == -rows["sflcb"]["upper_value"]
    assert rows["sflcb"]["iterations"] == 20
    assert rows["gam"]["status"] == "does not apply"
    assert rows["gam"]["utility"] is None
    case = find_case("three", 4)
    assert case.x0.tolist() == read_network("three").random_starts(1, 4)[0].tolist()


def test_published_figures_of_three_nodes() -> None:
    made = Comparison("three", tuple(MethodRow(name, "") for name in ("blocc", "lv-hba", "gam")))
    rows = beside(made, find_case("three", 0)).rows()
    assert [(row["paper_utility"], row["paper_seconds"]) for row in rows] == [(1.71, 20.0), (1.53, 351.0), (None, None)]


@pytest.mark.slow
def test_svm(samples: Path, tmp_path: Path) -> None:
    outcome = blocc(f"svm:{samples}", "--methods", "gam,aipod", "--max-iterations", 9, "--out", tmp_path, "--seed", 2)
    assert outcome.exit_code in (0, 3), outcome.output
    head = outcome.stdout.splitlines()[1]
    assert head.endswith("test accuracy  own accuracy  paper accuracy  paper seconds")
    with (tmp_path / "comparison.csv").open(newline="", encoding="utf-8") as stream:
        rows = {row["method"]: row for row in csv.DictReader(stream)}
    assert [rows["gam"][f"paper_{name}"] for name in ("accuracy", "seconds")] == ["0.721", "8.8"]
    assert [rows["aipod"][f"paper_{name}"] for name in ("accuracy", "seconds")] == ["", ""]
    assert 0.0 <= float(rows["gam"]["test_accuracy"]) <= 1.0
    assert rows["aipod"]["test_accuracy"] == ""
    for path in tmp_path.iterdir():
        assert f"written: {path}" in outcome.stdout


def test_the_svm_has_a_solver_of_its_own(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = Comparison("svm", (MethodRow("blocc", "", status="error"),))
    monkeypatch.setattr(cli_compare, "compare", lambda *given, **options: none)  # the general method has its own tests
    outcome = blocc(f"svm:{samples}", "--methods", "blocc", "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    with (tmp_path / "comparison.csv").open(newline="", encoding="utf-8") as stream:
        own, general = csv.DictReader(stream)
    assert (own["method"], own["status"], own["best"], general["method"]) == ("blocc svm", "converged", "True", "blocc")
    assert float(own["violation"]) < 1e-8  # by the functions of the problem that the other methods solve
    assert abs(float(own["lower_gap"])) < 1e-8


@pytest.mark.slow
def test_accuracy_on_the_test_samples(samples: Path) -> None:
    case = svm_case(str(samples), 2)
    assert case.x0.tolist() == np.random.default_rng(2).uniform(1.0, 5.0, 26).tolist()
    result = solve(case.problem, case.x0, method="gam", max_iterations=1)
    table = np.loadtxt(samples, converters=lambda cell: float(cell.partition(":")[2] or cell))
    test = table[np.random.default_rng(2).permutation(40)[34:]]
    exact, own = np.array([1.0, 0.5, 0.1]), np.array([-0.2, 1.0, -0.6])
    shares = [np.mean((test[:, 1:] @ y[:2] + y[2] > 0.0) == (test[:, 0] > 0.0)) for y in (exact, own)]
    assert shares[0] != shares[1]
    found = case.measure(replace(result, y=exact, y_penalty=own))
    assert found == {"test_accuracy": pytest.approx(shares[0]), "own_accuracy": pytest.approx(shares[1])}


def test_svm_without_published_figures(samples: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.libsvm"
    other.write_text(samples.read_text())
    case = find_case(f"svm:{other}", 0)
    assert case.published == {}
    start = case.problem.upper(case.x0, np.zeros(3))
    # exp(1) for each of 8 validation samples, and half the squares of c.
    assert float(start) == pytest.approx(8 * np.e + 0.5 * np.sum(case.x0**2), rel=1e-6)


# --- ends ----------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_no_method_converges(file: Path) -> None:
    outcome = blocc(file, "--methods", "aipod,bic-gaffa", "--max-iterations", 2)
    assert outcome.exit_code == 3, outcome.output


def test_options_reach_the_comparison(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    def spy(problem: object, x0: object, **options: object) -> object:
        seen.update(options, x0=x0)
        return Comparison("held", (MethodRow("gam", "", status="error"),))

    monkeypatch.setattr("blocc.cli.compare.compare", spy)
    blocc(file, "--preset", "paper", "--time-limit", 7, "--max-iterations", 9, "--seed", 3, "--x0", 0.25)
    assert seen.pop("callback") is not None
    assert seen == {
        "methods": None,
        "preset": "paper",
        "time_limit": 7.0,
        "max_iterations": 9,
        "seed": 3,
        "x0": np.array(0.25),
    }


# --- bad input -----------------------------------------------------------------------------------------------------
