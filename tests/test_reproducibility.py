"""A seed fixes the answer bit for bit on one machine, and every saved answer says how it was computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blocc import solve
from blocc.methods.compare import compare
from blocc.report.comparison import describe_comparison
from blocc.report.storage import describe, load_result
from blocc.report.svm.svm_parts import SplitData
from blocc.report.svm.svm_tables import fit_summary
from blocc.svm.data.samples import LabelledData, split_indices
from blocc.svm.estimator import BilevelSVC
from blocc.transport.design.design_network import design_network
from blocc.transport.design.documents import DESIGN
from blocc.transport.network.files import read_network
from test_concurrency import make_problem

VERSIONS = {"blocc", "jax", "numpy", "scipy", "python", "platform"}

SCRIPT = """
import hashlib, sys
sys.path.insert(0, {tests!r})
import numpy as np
from blocc import solve, solve_many
from blocc.methods.compare import compare
from test_concurrency import designed, fitted, make_problem

def digest(*parts):
    return hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest()

wanted = sys.argv[1:]
if "solve" in wanted:
    one = solve(make_problem(), seed=4)
    print("solve", digest(one.x, one.y, one.y_penalty, one.multipliers.inequality))
if "solve_many" in wanted:
    many = solve_many(make_problem(), starts=4, seed=4)
    print("solve_many", digest(*(part for result in many.results for part in (result.x, result.y))))
if "BilevelSVC" in wanted:
    print("BilevelSVC", digest(np.frombuffer(fitted())))
if "design_network" in wanted:
    print("design_network", digest(np.frombuffer(designed())))
if "compare" in wanted:
    entry = compare(make_problem(), methods=["blocc"])["blocc"]
    print("compare", digest(entry.result.x, entry.result.y))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "wanted",
    [
        ("solve", "BilevelSVC"),
        pytest.param(("solve_many", "design_network", "compare"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_fresh_processes_side_by_side_agree_bit_for_bit(wanted: tuple[str, ...]) -> None:
    """Two at once: so neither a warm process nor company makes a difference."""
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    environment = {**os.environ, "PYTHONHASHSEED": "random"}
    started = [
        subprocess.Popen([sys.executable, "-c", script, *wanted], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    first, second = (process.communicate(timeout=280)[0].splitlines() for process in started)
    assert [process.returncode for process in started] == [0, 0]
    assert [line.split()[0] for line in first] == list(wanted)
    assert first == second


def test_saved_results_say_how_they_were_computed(tmp_path: Path) -> None:
    result = solve(make_problem(), tolerance=1e-5, seed=7)
    again = load_result(result.save(tmp_path / "result"))
    for found in (again.versions, describe(result)["versions"], describe(again)["versions"]):
        assert set(found) >= VERSIONS
        assert all(isinstance(value, str) and value for value in found.values())
    for settings in (again.settings, describe(result)["settings"]):
        assert settings["tolerance"] == 1e-5
        assert settings["seed"] == 7
    json.dumps(describe(result), allow_nan=False)


def test_designs_say_how_they_were_computed() -> None:
    summary = DESIGN.document(design_network(read_network("three"), starts=1, seed=3, tolerance=1e-2))["summary"]
    assert set(summary["versions"]) >= VERSIONS
    assert (summary["settings"]["seed"], summary["settings"]["tolerance"]) == (3, 1e-2)


def test_fits_say_how_they_were_computed() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 3))
    data = LabelledData(X, np.where(X[:, 0] + 0.3 * random.normal(size=40) > 0, 1, -1), ("a", "b", "c"), "clouds")
    parts = SplitData(data, *split_indices(40, train=24, validation=8, seed=0))
    known = [array for part in ("train", "validation") for array in (parts.X(part), parts.y(part))]
    summary = fit_summary(BilevelSVC(random_state=5).fit(*known), parts)
    assert set(summary["versions"]) >= VERSIONS
    assert summary["settings"]["random_state"] == 5


def test_comparisons_say_how_they_were_computed() -> None:
    document = describe_comparison(compare(make_problem(), methods=["blocc"]))
    assert set(document["versions"]) >= VERSIONS
    assert document["settings"]
