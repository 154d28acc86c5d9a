"""The numerical core needs numpy, scipy and jax, and nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import blocc

SCRIPT = """
import sys

ALLOWED = {"numpy", "scipy", "jax", "jaxlib", "ml_dtypes", "opt_einsum", "blocc"}


class Only:
    # Hides every other distribution, as if it were not installed.

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ALLOWED or top.startswith("_"):
            return self.finder.find_spec(name, path, target)
        return None


sys.meta_path = [Only(finder) for finder in sys.meta_path]
import jax.numpy as jnp

from blocc import BilevelProblem, Box, Reals, solve, solve_many

problem = BilevelProblem(
    upper=lambda x, y: (y - 1.0) ** 2 + x**2,
    lower=lambda x, y: (y - 2.0 * x) ** 2,
    inequality=lambda x, y: y - x,
    x_set=Box(0.0, 3.0),
    y_set=Reals(),
)
result = solve(problem)
assert result.success and abs(float(result.x) - 0.5) < 1e-4, result
assert solve_many(problem, starts=3).best.success
loaded = {name.partition(".")[0] for name in sys.modules}
print("matplotlib" in loaded, "typer" in loaded, "rich" in loaded)
"""


def test_core_runs_with_numpy_scipy_and_jax_alone() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False", "False"]


def test_import_is_light_and_clean() -> None:
    """No warning, no flag flipped, no backend started."""
    code = (
        "import jax, blocc, sys; from jax._src import xla_bridge; "
        "print(jax.config.jax_enable_x64, xla_bridge.backends_are_initialized(), "
        "*(name in sys.modules for name in ('scipy.optimize', 'scipy.sparse', 'scipy.linalg', 'jaxtyping')))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"False"}


def test_names_that_are_loaded_later_are_where_type_checkers_look() -> None:
    tree = ast.parse(Path(blocc.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imported for alias in node.names} == blocc._LATER
    for name in blocc.__all__:
        assert name in dir(blocc)
        assert getattr(blocc, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = blocc.nothing
