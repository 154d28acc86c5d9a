"""Other ways to design a network: descent of F_gamma in all capacities, by L-BFGS-B and by Newton's method.

A start of the descent in prices, which ``design_network`` uses, takes a tenth of their time. They serve as a comparison
(``benchmarks/transport.py``), and the Newton step shows what the Schur complement of the lower level knows about the
curvature: it yields the exact Hessian.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from scipy.optimize import minimize

from blocc._lib.precision import double_precision
from blocc.outer.monitor import Monitor
from blocc.transport import CapacitySet, DesignModel
from blocc.transport.design.search import Search
from blocc.transport.travellers.assignment import Case, factorise

#: Capacities stay above this part of the mean demand, so that a closed link still has a gradient.
FLOOR = 1e-6
#: gamma of the sweep; each begins where the one before ended.
SWEEP = (2.0, 4.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3)
METHODS = ("lbfgsb", "newton")


def sensitivity(graph, capacity, solution):
    """Second derivative of the travellers' value in the capacities, which is minus that of the prices.

    It is the inverse of the Schur complement at the solution, so it costs no more than one further iteration.
    """
    is_open = capacity > 0.0
    demand = jnp.where(solution.nodes, graph.demand, 0.0)
    case = Case(graph, capacity, graph.alternative, demand, is_open, solution.nodes, solution.links)
    inverse = cho_solve((factorise(case, solution.point).schur, True), jnp.eye(len(capacity)))
    return jnp.where(is_open[:, None] & is_open[None, :], 0.5 * (inverse + inverse.T), 0.0)


@jax.jit
def _curvature(graph, capacity, gamma, follower, penalised):
    return gamma * (sensitivity(graph, capacity, penalised) - sensitivity(graph, capacity, follower))


def curvature(model, capacity, gamma, found):
    """Second derivative of F_gamma, from the Schur complements of both solutions."""
    with double_precision():
        return np.asarray(_curvature(model.graph, capacity, gamma, found.follower, found.penalised))


def design_by(method, model: DesignModel, start, gamma=1e4, limit=None) -> Search:
    """Minimise F_gamma over ``0 <= x <= limit`` for growing gamma; the search holds the design and what it took."""
    limits = CapacitySet(model.network, limit=limit)
    search = Search(model, limits, gamma, Monitor(lambda x: x))
    low = np.minimum(FLOOR * (1.0 + float(np.mean(model.network.demand))), limits.limit)
    # More than the whole demand fits on no link.
    high = np.maximum(np.minimum(limits.limit, float(model.network.demand.sum()) + 1.0), low)
    x = np.clip(start, low, high)
    search.keep(np.clip(start, 0.0, limits.limit))
    descend = partial({"lbfgsb": _lbfgsb, "newton": _newton}[method], model, low=low, high=high, observe=search.observe)
    for level in [g for g in SWEEP if g < gamma] + [gamma]:
        x = descend(x, level)
    search.keep(np.where(x > 10.0 * low, x, 0.0))
    return search


def _lbfgsb(model, x, gamma, *, low, high, observe):
    def objective(trial):
        found = model.capacities(trial, gamma)
        observe(trial, gamma, found)
        return float(found.value), np.asarray(found.gradient)

    options = {"maxiter": 500, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-6}
    bounds = list(zip(low, high, strict=True))
    return np.asarray(minimize(objective, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)


def _newton(model, x, gamma, *, low, high, observe):
    """Projected Newton steps; eigenvalues enter by their size, so that every step descends."""
    found = model.capacities(x, gamma)
    for _ in range(60):
        gradient, value = np.asarray(found.gradient), float(found.value)
        held = ((x <= low * 1.0001) & (gradient > 0)) | ((x >= high) & (gradient < 0))
        if np.max(np.abs(x - np.clip(x - gradient, low, high)), initial=0.0) < 1e-5 or held.all():
            break
        free = np.flatnonzero(~held)
        values, vectors = np.linalg.eigh(curvature(model, x, gamma, found)[np.ix_(free, free)])
        step = np.zeros_like(x)
        step[free] = -vectors @ ((vectors.T @ gradient[free]) / np.maximum(np.abs(values), 1e-3))
        length = 1.0
        while length > 1e-9:
            trial = np.clip(x + length * step, low, high)
            ahead = model.capacities(trial, gamma)
            observe(trial, gamma, ahead)
            if float(ahead.follower.error) < 1e-7 and float(ahead.value) <= value + 1e-4 * gradient @ (trial - x):
                break
            length *= 0.3
        else:
            break
        small = value - float(ahead.value) < 1e-9 * (1.0 + abs(value))
        x, found = trial, ahead
        if small:
            break
    return x
