"""``blocc svm``: the files it writes, what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result as Outcome

pytest.importorskip("sklearn")

from command_line import blocc as call
from command_line import strict, table

from blocc.cli.svm import part_sizes
from blocc.result import Result
from blocc.svm.data.samples import read_samples

FILES = {
    "summary.json",
    "predictions.csv",
    "history.csv",
    "margins.csv",
    "coefficients.csv",
    "result.json",
    "accuracy.png",
    "losses.png",
    "forgiven.png",
}


def blocc(*arguments: object) -> Outcome:
    return call("svm", *arguments)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same two overlapping clouds as CSV and LIBSVM, and three clouds."""
    folder = tmp_path_factory.mktemp("samples")
    generator = np.random.default_rng(1)
    code = np.arange(60) % 3
    X = np.round(generator.normal(size=(60, 2)) + np.array([[0.0, 0.0], [1.5, 1.5], [4.0, 0.0]])[code], 4)
    two, three = np.array(["ham", "spam", "ham"])[code], np.array(["red", "green", "blue"])[code]
    lines = {
        "two.csv": ["kind,width,height", *(f"{a},{x},{y}" for a, (x, y) in zip(two, X, strict=True))],
        "three.csv": ["width;height;class", *(f"{x};{y};{a}" for a, (x, y) in zip(three, X, strict=True))],
        "two.libsvm": [f"{'+1' if a == 'spam' else '-1'} 1:{x} 2:{y}" for a, (x, y) in zip(two, X, strict=True)],
    }
    for name, content in lines.items():
        (folder / name).write_text("\n".join(content) + "\n")
    return {name: folder / name for name in lines}


@pytest.fixture(scope="module")
def run(samples: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    target = tmp_path_factory.mktemp("svm") / "deep" / "made"
    return blocc(samples["two.csv"], "--label", "kind", "--top", 4, "--out", target), target


# --- what it writes ------------------------------------------------------------------------------------------------
def test_files_agree(run: tuple[Outcome, Path]) -> None:
    _, target = run
    summary = strict((target / "summary.json").read_text())
    predictions = table(target / "predictions.csv")
    assert [int(row["index"]) for row in predictions] == list(range(60))
    for part, size in {"train": 39, "validation": 12, "test": 9}.items():
        rows = [row for row in predictions if row["part"] == part]
        assert len(rows) == size == summary["data"]["parts"][part]
        right = np.mean([row["label"] == row["predicted"] for row in rows])
        assert right == pytest.approx(summary["accuracy"][part]["exact"])
    margins = table(target / "margins.csv")
    result = Result.load(target / "result.json")
    assert sorted(float(row["c"]) for row in margins) == pytest.approx(sorted(result.x))
    assert sum(row["forgiven"] == "yes" for row in margins) == summary["forgiven"] > 0
    assert [int(row["index"]) for row in margins[:4]] == [row["index"] for row in summary["most_forgiven"]]
    decisions = {row["index"]: row["decision"] for row in predictions}
    assert all(decisions[row["index"]] == row["decision"] for row in margins)
    history = table(target / "history.csv")
    assert len(history) == summary["iterations"] == len(result.history)
    assert min(float(row["upper_value"]) for row in history) == pytest.approx(summary["upper_value"], rel=1e-5)
    assert result.upper_value == summary["upper_value"]


def test_coefficients_classify_the_file(run: tuple[Outcome, Path], samples: dict[str, Path]) -> None:
    _, target = run
    weights = {row["feature"]: float(row["weight_original"]) for row in table(target / "coefficients.csv")}
    data = read_samples(samples["two.csv"], label="kind")
    decisions = data.X @ [weights["width"], weights["height"]] + weights["(intercept)"]
    written = [float(row["decision"]) for row in table(target / "predictions.csv")]
    np.testing.assert_allclose(decisions, written, atol=1e-9)


@pytest.mark.slow
def test_coefficients_only_where_it_is_linear(samples: dict[str, Path], tmp_path: Path) -> None:
    outcome = blocc(
        samples["two.csv"], "--label", 0, "--kernel", "poly", "--degree", 2, "--coef0", 1, "--out", tmp_path
    )
    assert outcome.exit_code == 0, outcome.output
    assert {path.name for path in tmp_path.iterdir()} == FILES - {"coefficients.csv"}
    settings = strict((tmp_path / "summary.json").read_text())["settings"]
    assert (settings["kernel"], settings["degree"], settings["coef0"]) == ("poly", 2, 1.0)


# --- what it prints ------------------------------------------------------------------------------------------------
def test_prints_what_the_summary_says(run: tuple[Outcome, Path]) -> None:
    outcome, target = run
    summary = strict((target / "summary.json").read_text())
    lines = outcome.output.splitlines()
    assert lines[0].startswith("two: converged")
    for words in (
        "60 samples, 2 features, standardised",
        "ham (40), spam (20)",
        "train 39, validation 12, test 9 (seed 0)",
        f"{summary['forgiven']} of 39 training samples forgiven",
        "validation loss + ||c||^2 / 2",
        "lower level   stationarity",
    ):
        assert words in outcome.output
    (row,) = [line.split() for line in lines if line.startswith("  test ")]
    assert float(row[1]) == pytest.approx(100.0 * summary["accuracy"]["test"]["exact"], abs=0.006)
    first = summary["most_forgiven"][0]
    shown = [line.split() for line in lines if line.startswith(f"  {first['index']} ")]
    assert shown[0][1:3] == [first["label"], first["predicted"]]
    assert float(shown[0][3]) == pytest.approx(first["c"], rel=1e-3)


def test_libsvm_file_gives_the_same_classifier(run: tuple[Outcome, Path], samples: dict[str, Path]) -> None:
    outcome = blocc(samples["two.libsvm"], "--json")
    assert outcome.exit_code == 0, outcome.output
    shown, before = strict(outcome.stdout), strict((run[1] / "summary.json").read_text())
    assert shown["upper_value"] == pytest.approx(before["upper_value"], rel=1e-9)
    assert shown["accuracy"] == before["accuracy"]
    assert {entry["label"] for entry in shown["data"]["classes"]} == {-1, 1}


@pytest.mark.slow
def test_splits(samples: dict[str, Path], tmp_path: Path) -> None:
    outcome = blocc(samples["two.libsvm"], "--splits", 3, "--seed", 5, "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    rows = table(tmp_path / "splits.csv")
    assert [row["seed"] for row in rows] == ["5", "6", "7"]
    shares = [float(row["test_accuracy"]) for row in rows]
    assert len(set(shares)) > 1
    summary = strict((tmp_path / "summary.json").read_text())
    found = summary["splits"]["accuracy"]["test"]["exact"]
    assert (found["mean"], found["std"]) == (pytest.approx(np.mean(shares)), pytest.approx(np.std(shares, ddof=1)))
    (line,) = [line for line in outcome.output.splitlines() if line.startswith("  test ")]
    assert f"{100 * np.mean(shares):.2f} %" in line
    assert f"{100 * np.std(shares, ddof=1):.2f} %" in line
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"splits.csv", "splits.png"}
    # The other files are about the first split, which is what a run of its own gives.
    alone = strict(blocc(samples["two.libsvm"], "--seed", 5, "--json").stdout)
    assert alone["accuracy"] == summary["accuracy"]
    assert alone["accuracy"]["test"]["exact"] == shares[0]


def test_more_than_two_classes(samples: dict[str, Path], tmp_path: Path) -> None:
    outcome = blocc(samples["three.csv"], "--out", tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert {path.name for path in tmp_path.iterdir()} == {"summary.json", "predictions.csv"}
    summary = strict((tmp_path / "summary.json").read_text())
    assert [fit["label"] for fit in summary["fits"]] == ["blue", "green", "red"]
    rows = table(tmp_path / "predictions.csv")
    assert {row["predicted"] for row in rows} == {"blue", "green", "red"}
    for part in ("train", "test"):
        right = [row["label"] == row["predicted"] for row in rows if row["part"] == part]
        assert np.mean(right) == pytest.approx(summary["accuracy"][part]["exact"])
        assert np.mean(right) > 0.5
    for label in ("blue", "green", "red"):
        assert f"    {label}: converged" in outcome.output


# --- options reach the fit -----------------------------------------------------------------------------------------
def test_expand_and_other_options(samples: dict[str, Path]) -> None:
    options = ["--expand", "--no-standardize", "--c-penalty", "squared", "--c-weight", 2, "--intercept-weight", 0.5]
    outcome = blocc(samples["two.libsvm"], *options, "--gamma", 50, "--start", "uniform", "--json")
    assert outcome.exit_code == 0, outcome.output
    shown = strict(outcome.stdout)
    assert shown["data"]["features"] == 6
    assert shown["data"]["standardized"] is False
    assert shown["gamma"] == 50
    wanted = {"c_penalty": "squared", "c_weight": 2.0, "intercept_weight": 0.5, "start": "uniform", "gamma": 50.0}
    assert {name: shown["settings"][name] for name in wanted} == wanted
    # With this price of c, twice what the paper's formula adds.
    paper = 2.0 * (shown["upper_value_paper"] - shown["validation_loss"])
    assert shown["upper_value"] - shown["validation_loss"] == pytest.approx(paper, rel=1e-6)


@pytest.mark.parametrize(
    ("train", "validation", "sizes"),
    [(None, None, (39, 12)), (30, None, (30, 17)), (None, 20, (32, 20)), (57, None, (57, 2)), (7, 8, (7, 8))],
)
def test_the_rest_is_divided_in_proportion(
    samples: dict[str, Path], train: int | None, validation: int | None, sizes: tuple[int, int]
) -> None:
    assert part_sizes(read_samples(samples["two.libsvm"]), train, validation) == sizes


@pytest.mark.slow
def test_paper_preset_out_of_iterations(samples: dict[str, Path]) -> None:
    outcome = blocc(samples["two.libsvm"], "--preset", "paper", "--max-iterations", 3, "--json")
    assert outcome.exit_code == 3, outcome.output
    shown = strict(outcome.stdout)
    assert shown["status"] == "iteration limit"
    assert shown["bound"] is None
    assert shown["gamma"] == 12
    assert shown["iterations"] == 4  # at x_0, ..., x_3
    assert shown["upper_value"] == pytest.approx(shown["upper_value_paper"])


# --- bad input -----------------------------------------------------------------------------------------------------
def test_without_scikit_learn(samples: dict[str, Path]) -> None:
    """The other commands go on; this one says what is missing."""
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from typer.testing import CliRunner; from blocc.cli import commands as cli\n"
        "def run(*arguments): return CliRunner().invoke(cli.build_app(), list(arguments))\n"
        "assert run('--help').exit_code == 0 and run('svm', '--help').exit_code == 0\n"
        "outcome = run('svm', sys.argv[1])\n"
        "print(outcome.exit_code, outcome.stderr)"
    )
    command = [sys.executable, "-c", code, str(samples["two.libsvm"])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 blocc: blocc svm needs scikit-learn")
    assert 'pip install "blocc[svm]"' in done.stdout


def test_without_matplotlib(samples: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = blocc(samples["two.libsvm"], "--out", tmp_path / "made")
    assert outcome.exit_code == 2
    assert "pip install 'blocc[plot]'" in outcome.stderr
    assert not (tmp_path / "made").exists()
