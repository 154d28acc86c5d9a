"""Small problems that are hard to be honest about: each has its truth written beside it, and every result is verified.

A success must lie at a known local minimiser, and a problem without a minimum must never end in one. Whatever ends
otherwise is no false claim: statuses may vary with the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Result, Simplex, Status, solve, verify

FREE = Reals()
POSITIVE = Box(0.0, np.inf)


@dataclass(frozen=True)
class Hostile:
    """A problem, starts, and the x that a success may report (none where there is no minimum)."""

    problem: BilevelProblem
    minimisers: tuple[Any, ...] = ()
    starts: tuple[Any, ...] = (None,)
    unit: float = 1.0  #: size of x


def made(upper: Any, lower: Any, x_set: Any, y_set: Any, **rest: Any) -> Hostile:
    names = [field.name for field in fields(Hostile)]
    about = {name: rest.pop(name) for name in names if name in rest}
    return Hostile(BilevelProblem(upper=upper, lower=lower, x_set=x_set, y_set=y_set, **rest), **about)


def target(x: Any, y: Any) -> Any:
    """A follower who wants y = x."""
    return (y - x) ** 2


def in_units(x_unit: float, upper: float, lower: float, row: float) -> Hostile:
    """y <= x binds at the answer, x = 2 units, in whatever units."""
    return made(
        lambda x, y: upper * ((x / x_unit - 3.0) ** 2 + (y / x_unit - 1.0) ** 2),
        lambda x, y: lower * ((y - 2.0 * x) / x_unit) ** 2,
        Box(0.0, 3.0 * x_unit),
        FREE,
        inequality=lambda x, y: row * (y - x) / x_unit,
        minimisers=(2.0 * x_unit,),
        unit=x_unit,
    )


def curved_kink(weight: float, bend: float) -> Hostile:
    """``weight |x1 - bend x0^2| + (1 - x0)^2``: a valley with a sharp, curved floor that ends at (1, bend)."""
    return made(
        lambda x, y: weight * y + (1.0 - x[0]) ** 2,
        lambda x, y: y,
        Box(-2.0, 2.0, shape=2),
        FREE,
        inequality=lambda x, y: jnp.stack([x[1] - bend * x[0] ** 2 - y, bend * x[0] ** 2 - x[1] - y]),
        minimisers=(np.array([1.0, bend]),),
        starts=(np.array([-1.2, 1.0]),),
    )


def curved_boundary(weight: float, bend: float) -> Hostile:
    """The same valley with a wall in place of one side: the follower has no answer where x1 < bend x0^2."""
    return made(
        lambda x, y: weight * (x[1] - bend * x[0] ** 2) + (1.0 - x[0]) ** 2 + 0.0 * y,
        lambda x, y: (y + 1.0) ** 2,
        Box(-2.0, 2.0, shape=2),
        POSITIVE,
        inequality=lambda x, y: y - (x[1] - bend * x[0] ** 2),
        minimisers=(np.array([1.0, bend]),),
        starts=(np.array([-1.2, 1.6]),),
    )


def redundant_rows() -> Hostile:
    """The follower's split of x obeys an equality told twice and a limit told four times; x = 1.95."""
    return made(
        lambda x, y: (y[1] - 1.0) ** 2 + 0.1 * x,
        lambda x, y: y[0] ** 2 + 3.0 * y[1] ** 2,
        Box(-5.0, 5.0),
        Reals(2),
        equality=lambda x, y: (y[0] + y[1] - x) * jnp.array([1.0, 2.0]),
        inequality=lambda x, y: jnp.stack([y[0] - 1.0, 5.0 * y[0] - 5.0, 1e-3 * (y[0] - 1.0), y[0] - 7.0]),
        minimisers=(1.95,),
        starts=(None, -4.0),
    )


def valley_across_the_axes() -> Hostile:
    """Along neither axis does f fall, only along the kink between them."""
    return made(
        lambda x, y: 4.0 * y - (x[0] + x[1]) + 0.05 * (x @ x),
        lambda x, y: y,
        Box(-5.0, 5.0, shape=2),
        FREE,
        inequality=lambda x, y: jnp.stack([x[0] - x[1] - y, x[1] - x[0] - y]),
        minimisers=(np.array([5.0, 5.0]),),
        starts=(np.array([-4.0, -4.0]), np.array([-4.0, 3.0])),
    )


QUICK: dict[str, Callable[[], Hostile]] = {
    "kink": lambda: made(lambda x, y: 3.0 * y - x, target, Box(-2.0, 3.0), POSITIVE, minimisers=(0.0,), starts=(2.0,)),
    "start on a saddle": lambda: made(
        lambda x, y: x[0] ** 2 - y**2 + y**4,
        lambda x, y: (y - x[1]) ** 2,
        Box(-2.0, 2.0, shape=2),
        FREE,
        minimisers=(np.array([0.0, 0.5**0.5]), np.array([0.0, -(0.5**0.5)])),
        starts=(np.zeros(2),),
    ),
    "leader's constraint": lambda: made(
        lambda x, y: (x - 3.0) ** 2 + y,
        lambda x, y: (y - 2.0 * x) ** 2,
        Box(-5.0, 5.0),
        FREE,
        upper_inequality=lambda x, y: y - 1.0,
        minimisers=(0.5,),
        starts=(4.0,),
    ),
    "falls for ever": lambda: made(lambda x, y: -jnp.log(1.0 + y**2), target, FREE, FREE, starts=(1.0,)),
    "two wells below": lambda: made(
        lambda x, y: (x - 0.5) ** 2 + (y + 1.0) ** 2,
        lambda x, y: y**4 / 4.0 - y**2 / 2.0 - x * y,
        Box(-2.0, 2.0),
        Box(-2.0, 2.0),
    ),
}

SLOW: dict[str, Callable[[], Hostile]] = {
    "start on a maximum at a kink": lambda: made(
        lambda x, y: x - 3.0 * y + 0.1 * x**2,
        target,
        Box(-2.0, 3.0),
        POSITIVE,
        minimisers=(-2.0, 3.0),
        starts=(0.0, 1e-9),
    ),
    "leader without an admissible x": lambda: made(
        lambda x, y: x**2 + y**2, target, Box(-1.0, 1.0), FREE, upper_inequality=lambda x, y: 1e-3 + (x - y) ** 2
    ),
    "tie at the answer": lambda: made(
        lambda x, y: (y - 0.5) ** 2 + x**2 + x / 2.0,
        lambda x, y: x * y,
        Box(-1.0, 1.0),
        Box(-1.0, 1.0),
        minimisers=(-0.25, 0.0),
        starts=(None, -0.7, 0.6),
    ),
    "jump between corners": lambda: made(
        lambda x, y: 3.0 * y[0] + y[2] + (x - 0.2) ** 2,
        lambda x, y: x * y[0] + (1.0 - x) * y[1] + 0.6 * y[2],
        Box(0.0, 1.0),
        Simplex(3),
        minimisers=(0.2, 0.5),
        starts=(None, 0.1, 0.9),
    ),
    "indifferent follower": lambda: made(
        lambda x, y: (y - 1.0) ** 2 + 0.1 * x,
        lambda x, y: 0.0 * y,
        Box(0.0, 3.0),
        POSITIVE,
        inequality=lambda x, y: y - x,
        minimisers=(0.95,),
        starts=(None, 2.9, 0.0),
    ),
    "fourth power below": lambda: made(
        lambda x, y: (x - 1.0) ** 2 + (y + 1.0) ** 2,
        lambda x, y: (y - x) ** 4,
        Box(-3.0, 3.0),
        FREE,
        minimisers=(0.0,),
        starts=(None, 2.5),
    ),
    "no Slater point": lambda: made(
        lambda x, y: (x - y[0] - 1.0) ** 2,
        lambda x, y: jnp.sum((y - x) ** 2),
        Box(-3.0, 3.0),
        Reals(2),
        inequality=lambda x, y: y @ y,
        minimisers=(1.0,),
    ),
    "feasible at one x": lambda: made(
        lambda x, y: (x - 1.0) ** 2 + y,
        lambda x, y: y**2,
        Box(-1.0, 1.0),
        FREE,
        inequality=lambda x, y: jnp.stack([y + (x - 0.3) ** 2, (x - 0.3) ** 2 - y]),
        minimisers=(0.3,),
    ),
    "steep edge of feasibility": lambda: made(
        lambda x, y: x + 2.0 * y,
        lambda x, y: (y - 2.0) ** 2,
        Box(-5.0, 10.0),
        POSITIVE,
        inequality=lambda x, y: y**2 - (x - 1.0),
        minimisers=(1.0,),
        starts=(-4.0, 9.0),
    ),
    "gap in x": lambda: made(
        lambda x, y: (x - 0.3) ** 2 + 0.01 * y,
        lambda x, y: (y + 1.0) ** 2,
        Box(-4.0, 4.0),
        POSITIVE,
        inequality=lambda x, y: y - (x**2 - 1.0),
        minimisers=(1.0, -1.0),
        starts=(None, 3.0, -3.0),
    ),
    "admissible on both sides": lambda: made(
        lambda x, y: (x - 0.2) ** 2,
        target,
        Box(-5.0, 5.0),
        FREE,
        upper_inequality=lambda x, y: 1.0 - y**2,
        minimisers=(1.0, -1.0),
        starts=(0.0, -3.0),
    ),
    "infimum that is not attained": lambda: made(lambda x, y: jnp.exp(-y), target, FREE, FREE, starts=(None, 3.0)),
    "follower without a minimum": lambda: made(
        lambda x, y: x**2 + 1.0 / (1.0 + y**2), lambda x, y: jnp.exp(-y), Box(-1.0, 1.0), FREE
    ),
    "follower without a bound": lambda: made(lambda x, y: x**2 + y, lambda x, y: x - y, Box(-1.0, 1.0), FREE),
    "infeasible by a thousandth": lambda: made(
        lambda x, y: x**2 + y**2,
        target,
        Box(-1.0, 1.0),
        FREE,
        inequality=lambda x, y: jnp.stack([y - x, x + 1e-3 - y]),
    ),
    "redundant rows": redundant_rows,
    "valley across the axes": valley_across_the_axes,
    "x in millions": lambda: in_units(1e6, 1.0, 1.0, 1.0),
    "x in millionths": lambda: in_units(1e-6, 1.0, 1.0, 1.0),
    "f in millions, g in millionths": lambda: in_units(1.0, 1e6, 1e-6, 1.0),
    "rows in millions": lambda: in_units(1.0, 1e-6, 1e6, 1e6),
    "flat curved kink": lambda: curved_kink(10.0, 0.3),
    "steep curved kink": lambda: curved_kink(1000.0, 1.0),
    "flat curved boundary": lambda: curved_boundary(100.0, 0.1),
    "steep curved boundary": lambda: curved_boundary(100.0, 1.0),
}


@cache
def made_once(name: str) -> Hostile:
    return (QUICK | SLOW)[name]()


CASES = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.mark.parametrize("name", CASES)
def test_no_false_claim_and_no_honest_result_rejected(name: str) -> None:
    case = made_once(name)
    for start in case.starts:
        result = solve(case.problem, start, progress=False, time_limit=20)
        if result.success:
            away = [float(np.max(np.abs(result.x - x))) / case.unit for x in case.minimisers]
            assert min(away, default=np.inf) < 2e-3, str(result)
        verification = verify(case.problem, result)
        assert verification.ok, str(verification)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [curved_kink(100.0, 1.0), curved_boundary(30.0, 1.0)],
    ids=["kink", "boundary"],
)
def test_a_curved_valley_is_no_minimum(case: Hostile) -> None:
    """All along the floor no straight step gains anything, and f = 0 at its end alone."""
    result = solve(case.problem, case.starts[0], progress=False, time_limit=10)
    assert not result.success or result.upper_value <= 1e-3, str(result)


# --- forged results ---------------------------------------------------------------------------------------------------
@cache
def honest() -> tuple[BilevelProblem, Result]:
    """A problem with a constraint of the leader's that binds, and its answer x = 1/2, y = 1."""
    case = made_once("leader's constraint")
    result = solve(case.problem, progress=False)
    assert result.success
    assert verify(case.problem, result).ok
    return case.problem, result


def consistent(result: Result, x: float, y: float) -> Result:
    """A result that claims (x, y), with the right values, a perfect certificate and a loose tolerance."""
    upper = honest()[0].upper(x, y)
    perfect = {field.name: field.name == "exact" or 0.0 for field in fields(result.certificate)}
    return replace(
        result,
        x=np.asarray(x),
        y=np.asarray(y),
        y_penalty=np.asarray(y),
        upper_value=upper,
        upper_value_penalty=upper,
        lower_value=honest()[0].lower(x, y),
        certificate=replace(result.certificate, **perfect),
        settings={**result.settings, "tolerance": 1e3},
    )


def forgeries() -> Iterator[tuple[str, Callable[[Result], Result]]]:
    for by in (0.3, -0.3, 1e-3, -1e-3):
        yield f"x and y by {by}", lambda r, by=by: consistent(r, float(r.x) + by, 2.0 * (float(r.x) + by))
        yield f"y by {by}", lambda r, by=by: consistent(r, float(r.x), float(r.y) + by)
        yield f"x alone by {by}", lambda r, by=by: replace(r, x=r.x + by)
    for name in ("upper_value", "lower_value", "upper_value_penalty"):
        for by in (1e-3, np.nan, np.inf):
            yield f"{name} by {by}", lambda r, n=name, by=by: replace(r, **{n: getattr(r, n) + by})
    for gamma in (0.0, -1.0, np.nan, -np.inf, 1e30):
        yield f"gamma {gamma}", lambda r, g=gamma: replace(r, gamma=g)
    numbers = ("stationarity", "feasibility", "complementarity", "penalty_gap", "distance", "stationarity_x")
    for name in (*numbers, "leader_violation"):
        for value in (1.0, -1.0, np.nan, np.inf):
            yield (
                f"{name} {value}",
                lambda r, n=name, v=value: replace(r, certificate=replace(r.certificate, **{n: v})),
            )
    for status in (Status.INFEASIBLE, Status.UNBOUNDED, Status.NOT_CONVEX, Status.NOT_FINITE, Status.PENALTY_OPEN):
        yield f"status {status.value}", lambda r, s=status: replace(r, status=s)
    nothing = np.asarray(np.nan)
    values = {"upper_value": np.nan, "lower_value": np.nan}
    yield "infeasible without y", lambda r: replace(r, y=nothing, status=Status.INFEASIBLE, **values)


@pytest.mark.parametrize(("name", "forge"), list(forgeries()), ids=[name for name, _ in forgeries()])
def test_a_forgery_is_noticed(name: str, forge: Callable[[Result], Result]) -> None:
    problem, result = honest()
    verification = verify(problem, forge(result))
    assert not verification.ok, f"{name}\n{verification}"


@pytest.mark.parametrize("status", [Status.STALLED, Status.TIME_LIMIT, Status.INTERRUPTED])
def test_saying_less_than_was_achieved_is_no_forgery(status: Status) -> None:
    problem, result = honest()
    assert verify(problem, replace(result, status=status, name="another", message="nothing")).ok
