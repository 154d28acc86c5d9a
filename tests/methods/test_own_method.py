"""Methods that are not of this package: given as an object, as a class, or declared by another package."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import NamedTuple

import jax
import numpy as np
import pytest

from blocc import BilevelProblem, Box, OptionError, Reals, Status, compare, solve
from blocc.methods import Demand, Iteration, registry


class _State(NamedTuple):
    x: jax.Array
    y: jax.Array


class Unrolled(Iteration):
    """Descends f(x, y) along one gradient step of the follower."""

    name = "unrolled"
    title = "for this test"
    demands = (Demand.NO_INEQUALITY,)
    names = ("alpha", "eta")

    def automatic(self, size):
        return [{"alpha": 0.05, "eta": 1.0 / size.lower, **self.given}]

    def start(self, flat, x, y):
        return _State(x, y)

    def step(self, flat, numbers, state, k):
        def answer(x):
            return state.y - numbers["eta"] * jax.grad(flat.lower, argnums=1)(x, state.y)

        slope = jax.grad(lambda x: flat.upper(x, answer(x)))(state.x)
        return _State(flat.x_set.project_flat(state.x - numbers["alpha"] * slope), answer(state.x))


@pytest.fixture(scope="module")
def problem() -> BilevelProblem:
    return BilevelProblem(
        upper=lambda x, y: (x - 3) ** 2 + (y - 1) ** 2,
        lower=lambda x, y: (y - 2 * x) ** 2,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
    )


@pytest.mark.parametrize("numbers", [{}, {"alpha": 0.02}])
def test_as_a_class_with_numbers_by_name(problem: BilevelProblem, numbers: dict[str, float]) -> None:
    result = solve(problem, 0.5, method=Unrolled, **numbers)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(result.x, 1.0, atol=2e-3)  # (x - 3)^2 + (2x - 1)^2 is least there
    assert result.settings["numbers"]["alpha"] == numbers.get("alpha", 0.05)


def test_as_an_object_beside_the_known_ones(problem: BilevelProblem) -> None:
    compared = compare(problem, 0.5, methods=["blocc", Unrolled({"alpha": 0.02})])
    assert [row.method for row in compared.entries] == ["blocc", "unrolled"]
    assert all(row.success for row in compared.entries)
    assert compared["unrolled"].title == "for this test"
    assert "unrolled" in repr(compared)


def test_demands_are_checked() -> None:
    limited = BilevelProblem(
        upper=lambda x, y: x**2 + y**2,
        lower=lambda x, y: (y - x) ** 2,
        inequality=lambda x, y: y - 1.0,
        x_set=Box(0.0, 1.0),
        y_set=Reals(),
    )
    with pytest.raises(ValueError, match=r"'unrolled' does not apply .* no inequality"):
        solve(limited, 0.5, method=Unrolled())


def test_by_the_name_that_a_package_declares(problem: BilevelProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = {
        "unrolled": EntryPoint("unrolled", f"{__name__}:Unrolled", "blocc.methods"),
        "lost": EntryPoint("lost", "no_such_package:Method", "blocc.methods"),
        "number": EntryPoint("number", "math:pi", "blocc.methods"),
    }
    monkeypatch.setattr(registry, "_declared", lambda: declared)
    assert solve(problem, 0.5, method="unrolled").status is Status.CONVERGED
    with pytest.raises(OptionError, match="'lost' cannot be loaded from no_such_package:Method"):
        solve(problem, 0.5, method="lost")
    with pytest.raises(OptionError, match="math:pi must be a subclass of"):
        solve(problem, 0.5, method="number")


@pytest.mark.parametrize("method", [object(), 3, {}, "newton", dict])
def test_anything_else_is_refused(problem: BilevelProblem, method: object) -> None:
    with pytest.raises(OptionError, match=r"method must be one of 'blocc', .*or a blocc.methods.Method, got"):
        solve(problem, 0.5, method=method)


def test_numbers_are_given_once(problem: BilevelProblem) -> None:
    with pytest.raises(OptionError, match="'unrolled' is given with its numbers"):
        solve(problem, 0.5, method=Unrolled(), alpha=0.1)
    with pytest.raises(OptionError, match="two of them are called 'unrolled'"):
        compare(problem, 0.5, methods=[Unrolled(), Unrolled({"alpha": 0.1})])
