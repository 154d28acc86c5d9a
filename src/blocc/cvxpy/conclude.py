"""The result of a run, in the user's names, units and signs."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import AnyArray
from blocc._lib.rounding import KEPT
from blocc.cvxpy.around import sizes_of
from blocc.cvxpy.judge import Exact, is_exact
from blocc.cvxpy.model import Model, Vector, value_of
from blocc.judge.probe import DISTANCES, Probed
from blocc.lagrangian import Multipliers
from blocc.outer.tolerances import Endpoint
from blocc.result import Certificate, History, Result, Status
from blocc.run.conclude import versions

if TYPE_CHECKING:
    from blocc.cvxpy.run import ConicRun


def assemble(
    run: ConicRun,
    x: Vector,
    end: Endpoint | None,
    here: Exact | None,
    spread: float | None,
    probed: Probed | None,
    status: Status,
    message: str,
) -> Result:
    """The result, in the user's names, units and signs."""
    problem, model, e = run.problem, run.model, None if end is None else end.evaluation
    y = {} if here is None else dict(zip(model.variable_names, here.values, strict=False))
    left = [] if here is None else list(run.judge.residuals(here))
    each = [one.told for one in left]
    kkt = tuple(max(one[k] for one in each) if each else np.inf for k in range(3))
    upper = np.nan if here is None else problem.sign * here.upper
    lower = np.nan if here is None else sum(s * v for s, v in zip(problem.lower_signs, here.lower, strict=True))
    scale = run.units.upper
    slope, radius = _slope(run, x, end, probed)
    certificate = Certificate(
        stationarity=kkt[0],
        feasibility=kkt[1],
        complementarity=kkt[2],
        penalty_gap=np.inf if e is None else scale * e.gap,
        distance=np.inf if e is None else e.distance,
        stationarity_x=slope,
        radius=radius,
        leader_violation=np.inf if here is None else here.violation,
        exact=here is not None and is_exact(left) and here.violation <= KEPT * (1.0 + abs(here.upper)),
    )
    settings = {
        **run.options.described(),
        "spread": spread,
        "followers": [dict(zip(("stationarity", "feasibility", "complementarity"), one, strict=True)) for one in each],
        "probed_improvement": None if probed is None else probed.gain,
    }
    penalised = np.nan if e is None else problem.sign * scale * float(e.upper_penalised)
    return Result(
        x={name: np.asarray(value) for name, value in model.x_set.unravel(x).items()},
        y=y,
        y_penalty=y if e is None else _named(model, e.penalised.y),
        multipliers=_multipliers(model, here),
        upper_value=float(upper),
        lower_value=float(lower),
        upper_value_penalty=float(penalised),
        gamma=np.inf if e is None else float(e.gamma),
        status=status,
        message=message,
        certificate=certificate,
        history=History(list(run.monitor.rows)),
        counts={"evaluations": run.evaluator.evaluations, "inner_iterations": run.evaluator.inner_iterations},
        seconds={"compile": 0.0, "run": perf_counter() - run.began},
        name=problem.name,
        settings=settings,
        versions=versions(),
    )


def _slope(run: ConicRun, x: Vector, end: Endpoint | None, probed: Probed | None) -> tuple[float, float]:
    """How steep f(x, y(x)) is at x, and within which radius: by its derivative, or by probes where that is noise."""
    if end is None:
        return np.inf, 0.0
    if run.descents.stationary(end) or probed is None:
        return run.units.upper * end.stationarity, end.radius
    return probed.steepest, DISTANCES[0] * float(np.max(sizes_of(x), initial=0.0))


def _named(model: Model, seen: AnyArray) -> dict[str, np.ndarray]:
    found, at = {}, 0
    own = [(follower, one) for follower in model.followers for one in follower.variables]
    for name, (follower, variable) in zip(model.variable_names, own, strict=True):
        size = follower.program.variables[variable.id].size
        found[name] = np.asarray(value_of(variable, np.asarray(seen[at : at + size])))
        at += size
    return found


def _multipliers(model: Model, here: Exact | None) -> Multipliers:
    """Prices of the followers' constraints by their place in the follower's list."""
    inequality: dict[str, np.ndarray] = {}
    equality: dict[str, np.ndarray] = {}
    if here is not None:
        at = 0
        for index, follower in enumerate(model.followers):
            for place, constraint in enumerate(follower.constraints):
                parts = [np.ravel(part) for part in here.prices[at] if part is not None]
                whole = here.prices[at][0] if len(parts) == 1 else np.concatenate(parts) if parts else None
                at += 1
                if whole is not None:
                    name = f"{place}" if len(model.followers) == 1 else f"{index}.{place}"
                    kind = equality if type(constraint).__name__ in ("Equality", "Zero") else inequality
                    kind[name] = np.asarray(whole)
    found: Any = (inequality, equality)
    return Multipliers(*found)
