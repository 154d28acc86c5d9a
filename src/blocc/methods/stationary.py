"""The end of a stochastic run whose follower is not convex: what can be claimed there, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from blocc.lagrangian import Multipliers
from blocc.methods.execute import MethodRun
from blocc.result import Certificate, History, Result, Status
from blocc.run import conclude

if TYPE_CHECKING:
    from blocc.methods.stochastic import StochasticFigures


def stationary_result(run: MethodRun, found: StochasticFigures, stop: Any) -> Result:
    """First-order stationarity of both levels on all data; that y is the follower's minimiser is not claimed."""
    run.monitor.close()
    problem, flat, state = run.problem, run.flat, run.state
    x, y, z, _, prices = (np.asarray(part, np.float64) for part in state[:5])
    follower, wanted = found.follower, run.options.tolerance
    certificate = Certificate(
        stationarity=float(follower.stationarity),
        feasibility=float(follower.feasibility),
        complementarity=float(follower.complementarity),
        penalty_gap=float(found.gap),
        distance=float(found.distance),
        stationarity_x=float(found.stationarity),
    )
    residuals = (
        f"largest relative residual {found.worst:.1e}, wanted {wanted:.0e}; penalty gap {found.gap:.1e}, "
        f"||yF - y|| {found.distance:.1e} at gamma = {found.gamma:.4g}"
    )
    if stop is not None:
        status, message = conclude.stopped(stop, run.monitor)
        message = f"{message} On all data: {residuals}."
    elif found.worst <= wanted:
        status = Status.STATIONARY
        message = f"Both levels are stationary to first order on all data ({residuals})."
    else:
        status, message = Status.ITERATION_LIMIT, f"Not stationary on all data ({residuals})."
    message += " lower(x, y) is not convex in y: nothing is claimed about other answers of the follower."
    tree = lambda within, flat_part: jax.tree.map(np.asarray, within.unravel(flat_part))  # noqa: E731
    return Result(
        x=tree(problem.x_set, x),
        y=problem.y_set.shown(z),
        y_penalty=problem.y_set.shown(y),
        multipliers=Multipliers(
            problem.unravel_multipliers("inequality", prices[: flat.n_inequality]),
            problem.unravel_multipliers("equality", prices[flat.n_inequality :]),
        ),
        upper_value=float(found.upper_follower),
        lower_value=float(found.lower),
        upper_value_penalty=float(found.upper_penalised),
        gamma=float(found.gamma),
        status=status,
        message=message,
        certificate=certificate,
        history=History(list(run.monitor.rows)),
        counts={"evaluations": run.calls, "iterations": run.iterations},
        seconds=run.seconds,
        name=problem.name,
        settings=run.described,
        versions=conclude.versions(),
    )
