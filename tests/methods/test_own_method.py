"""Methods that are not of this package: given as an object, as a class, or declared by another package."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from blocc import BilevelProblem, Box, OptionError, Reals, Status, compare, solve
from blocc.methods import Demand, Iteration, registry, steps_of


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


def test_a_package_that_is_installed(problem: BilevelProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip leaves it: a module, and a folder with the entry points beside it."""
    (tmp_path / "my_methods.py").write_text(f"from {__name__} import Unrolled\n")
    folder = tmp_path / "my_methods-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: my-methods\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[blocc.methods]\nunrolled = my_methods:Unrolled\nsflcb = my_methods:Own\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._declared.cache_clear()
    try:
        known = (*registry.NAMES, *registry.SAMPLED)
        assert registry.known_names() == (*known, "unrolled")  # a known name stays what it is
        assert compare(problem, 0.5, methods=["unrolled"])["unrolled"].success
    finally:
        registry._declared.cache_clear()
        sys.modules.pop("my_methods", None)


def test_a_run_is_continued_from_its_checkpoint(problem: BilevelProblem, tmp_path: Path) -> None:
    whole = solve(problem, 0.5, method=Unrolled({"alpha": 0.001}))
    file = tmp_path / "run.npz"
    rows: list[int] = []

    def third(state: Any) -> bool:
        rows.append(state.iteration)
        return len(rows) == 3

    first = solve(problem, 0.5, method=Unrolled({"alpha": 0.001}), checkpoint=file, callback=third)
    assert first.status is Status.STOPPED
    again = solve(problem, 0.5, method=Unrolled({"alpha": 0.001}), resume=file)
    assert float(again.x) == float(whole.x)
    assert len(again.history) == len(whole.history)
    np.testing.assert_array_equal(again.history.evaluations, whole.history.evaluations)


@dataclass(frozen=True)
class Heavy(Unrolled):
    """With a field of its own, which its step reads."""

    weight: Any = 1.0

    def step(self, flat, numbers, state, k):
        new = super().step(flat, numbers, state, k)
        return new._replace(x=state.x + self.weight * (new.x - state.x))


def test_fields_of_a_method_reach_its_step(problem: BilevelProblem) -> None:
    given = {"alpha": 0.05, "eta": 0.5}
    plain, double = (steps_of(problem, Heavy(given, weight=weight), 0.5, 1.0, 2) for weight in (1.0, 2.0))
    # y is 2x after the first step; f(x, 2x) has the slope 2 (x - 3) + 4 (2x - 1) there.
    np.testing.assert_allclose(plain[0].x, 0.5 - 0.05 * (2 * (0.5 - 3.0) + 4 * (2 * 0.5 - 1.0)), rtol=1e-14)
    np.testing.assert_allclose(double[0].x - 0.5, 2.0 * (plain[0].x - 0.5), rtol=1e-14)
    assert solve(problem, 0.5, method=Heavy(weight=1.5)).success
    with pytest.raises(OptionError, match=r"its own fields \(weight\) must be hashable"):
        solve(problem, 0.5, method=Heavy(weight=[1.0]))


class Made(Unrolled):
    """With a constructor of its own, from which no compiled loop could make it again."""

    def __init__(self, rate: float) -> None:
        super().__init__({"alpha": rate})


def test_a_constructor_of_its_own_is_refused(problem: BilevelProblem) -> None:
    with pytest.raises(OptionError, match="must be made of given numbers and counts; write further fields as those of"):
        solve(problem, 0.5, method=Made(0.1))


def test_every_number_is_needed_for_single_steps(problem: BilevelProblem) -> None:
    with pytest.raises(OptionError, match="'unrolled' needs all of its numbers here; eta are missing"):
        steps_of(problem, Unrolled({"alpha": 0.1}), 0.5, 1.0, 1)


@pytest.mark.parametrize(
    ("numbers", "counts", "message"),
    [
        ({"alhpa": 0.1}, {}, "unknown option 'alhpa' of method 'unrolled'"),
        ({"alpha": -1.0}, {}, "alpha must be a nonnegative number"),
        ({}, {"steps": 3}, "unknown option 'steps'"),
    ],
)
def test_numbers_of_an_object_are_checked(
    problem: BilevelProblem, numbers: dict[str, float], counts: dict[str, int], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        solve(problem, 0.5, method=Unrolled(numbers, counts))


def test_numbers_are_given_once(problem: BilevelProblem) -> None:
    with pytest.raises(OptionError, match="'unrolled' is given with its numbers"):
        solve(problem, 0.5, method=Unrolled(), alpha=0.1)
    with pytest.raises(OptionError, match="two of them are called 'unrolled'"):
        compare(problem, 0.5, methods=[Unrolled(), Unrolled({"alpha": 0.1})])
