"""One run on one of the paper's networks, by the defaults, by Algorithm 1 or by LV-HBA, and the row it becomes.

Every row tells the same: utility at both answers, how far they are apart, how the run ended, and the way there.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array
from blocc._lib.precision import double_precision
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerOracle, InnerSolution, WarmStart
from blocc.lagrangian import weights
from blocc.methods.single_loop import LvHba
from blocc.outer.algorithm_1 import Numbers, iterate
from blocc.penalty import Evaluation, assembled, cold_pair, no_upper_multipliers, unstack
from blocc.problem import BilevelProblem
from blocc.result import History
from blocc.studies.study import Row
from blocc.transport.design.design_network import design_network
from blocc.transport.design.options import PAPER_STEP
from blocc.transport.travellers.formulation import structured_problem
from reproduction.curves import finite_or_none
from reproduction.lv_hba_steps import advance_lv_hba
from reproduction.published_runs import AT_REST, STILL_MOVING, shared_model

MOST_POINTS = 200  #: of a curve
SETTLED = 1e-3  #: Algorithm 1 ends where x moves by less in a unit of its step
ACCURATE = 1e-6  #: tolerance of its inner solutions
LOOKS = 100  #: at Algorithm 1 and LV-HBA on their way
EXACT = 1e-10  #: tolerance of the follower's exact answer
UPDATE = 1e-5  #: the paper calls a run converged where the upper objective changes by less in an iteration
#: Columns of a row that are measured: they differ from one run to the next.
MEASURED = ("seconds", "curve_seconds")


@functools.cache
def shared_problem(network: str) -> BilevelProblem:
    """One problem for all cells of a process, so that each method compiles once."""
    return structured_problem(shared_model(network).network)


def run_default(network: str, gamma: float | str, seed: int) -> Row:
    """One start of ``design_network`` with its defaults; ``gamma`` fixed, or "auto"."""
    model = shared_model(network)
    design = design_network(model.network, gamma=gamma, starts=1, seed=seed, model=model)
    return {
        "utility": design.utility,
        "utility_penalised": design.penalised.utility,
        "distance": float(np.linalg.norm(design.penalised.share - design.follower.share)),
        # F_gamma = f(x, yF) + gamma (g(x, yF) - v(x)), and the certificate's gap is f(x, yg) - F_gamma.
        "lower_gap": (design.penalised.utility - design.utility - design.certificate.penalty_gap) / design.gamma,
        "links": int(design.built.sum()),
        "ended": design.status.value,
        "iterations": design.starts[0].evaluations,
        "seconds": design.seconds["run"],
        **_curves(design.history),
    }


class Way(NamedTuple):
    """Algorithm 1, after some steps."""

    x: Array
    warm: WarmStart
    steps: Array  #: of x
    moved: Array  #: how far the last one went, in units of eta


def _advance(
    flat: FlatProblem, oracle: InnerOracle, numbers: Numbers, way: Way, limit: Array
) -> tuple[Way, Evaluation]:
    """Steps of Algorithm 1 up to ``limit``, or until x rests; and F_gamma where they end."""

    def step(now: Way) -> Way:
        lines = iterate(flat, oracle, now.x, now.warm, numbers)
        moved = jnp.max(jnp.abs(lines.x - now.x)) / numbers.eta
        return Way(lines.x, lines.inner.solution.warm, now.steps + 1, moved)

    way = jax.lax.while_loop(lambda now: (now.steps < limit) & (now.moved > SETTLED), step, way)
    inner = iterate(flat, oracle, way.x, way.warm, numbers).inner
    return way, unstack(assembled(flat, way.x, numbers.gamma, numbers.leader, inner))


def run_algorithm_one(network: str, gamma: float, seed: int, max_steps: int) -> Row:
    """Algorithm 1 with the paper's eta from a random start, on the structured interior point."""
    flat, start = shared_problem(network).flat, shared_model(network).network.random_starts(1, seed)[0]
    oracle = shared_problem(network).oracle
    looks = np.unique(np.linspace(0, max_steps, LOOKS + 1).astype(int))[1:]
    rows: list[dict[str, float]] = []
    seconds: list[float] = []
    with double_precision():
        advance = flat.program(_advance, oracle)
        none = no_upper_multipliers(flat)
        numbers = Numbers(jnp.asarray(gamma), jnp.asarray(PAPER_STEP), none, jnp.asarray(ACCURATE))
        way = Way(jnp.asarray(start), cold_pair(flat, oracle), jnp.asarray(0), jnp.asarray(jnp.inf))
        advance(numbers, way, jnp.asarray(0))  # compiles
        began = time.perf_counter()
        for look in looks:
            way, found = jax.block_until_ready(advance(numbers, way, jnp.asarray(look)))
            seconds.append(time.perf_counter() - began)
            rows.append({"iteration": int(way.steps), **_told(flat, gamma, found)})
            if float(way.moved) <= SETTLED:
                break
    last = rows[-1]
    return {
        "utility": -last["upper_value"],
        "utility_penalised": -last["upper_value_penalised"],
        "distance": last["distance"],
        "lower_gap": last["lower_gap"],
        "ended": AT_REST if float(way.moved) <= SETTLED else STILL_MOVING,
        "iterations": last["iteration"],
        "seconds": seconds[-1],
        "curves": {name: finite_or_none([row[name] for row in rows]) for name in last},
        "curve_seconds": seconds,
    }


def _told(flat: FlatProblem, gamma: float, found: Evaluation) -> dict[str, float]:
    share = lambda y: np.asarray(flat.y_set.unravel(y)["share"])  # noqa: E731
    return {
        "upper_value": float(found.upper_follower),
        "upper_value_penalised": float(found.upper_penalised),
        "lower_gap": float(found.value - found.upper_penalised) / gamma,
        "distance": float(np.linalg.norm(share(found.penalised.y) - share(found.follower.y))),
    }


def run_lv_hba(network: str, seed: int, max_iterations: int, numbers: Mapping[str, float]) -> Row:
    """LV-HBA from a random start, all of its iterations, judged at the exact lower level on its way."""
    problem, start = shared_problem(network), shared_model(network).network.random_starts(1, seed)[0]
    flat = problem.flat
    looks = np.unique(np.linspace(0, max_iterations, LOOKS + 1).astype(int))
    rows: list[dict[str, float]] = []
    seconds: list[float] = []
    with double_precision():
        follower = flat.program(_follower, problem.oracle)
        advance = flat.program(advance_lv_hba)
        y = jnp.asarray(follower(jnp.asarray(start)).y)
        state, changed = LvHba().start(flat, jnp.asarray(start), y), np.inf
        given = {name: jnp.asarray(value) for name, value in numbers.items()}
        advance(given, state, 0, 0)  # compiles
        spent = 0.0
        for done, following in itertools.pairwise(looks):
            began = time.perf_counter()
            state, update = jax.block_until_ready(advance(given, state, done, following - done))
            spent += time.perf_counter() - began
            changed = float(update)
            exact = np.asarray(follower(jnp.asarray(state.x)).y)
            rows.append(_judged(flat, np.asarray(state.x), np.asarray(state.y), exact))
            seconds.append(spent)
    curves: dict[str, Any] = {"iteration": [int(look) for look in looks[1:]]}
    curves |= {name: finite_or_none([row[name] for row in rows]) for name in rows[0]}
    return {
        "utility": -rows[-1]["upper_value"],
        "utility_penalised": -rows[-1]["upper_value_penalised"],
        "distance": rows[-1]["distance"],
        "lower_gap": rows[-1]["lower_gap"],
        "ended": AT_REST if changed <= UPDATE else STILL_MOVING,
        "iterations": int(looks[-1]),
        "derivatives": LvHba().calls * int(looks[-1]),
        "projections": int(looks[-1]),
        "seconds": spent,
        "curves": curves,
        "curve_seconds": seconds,
    }


def _follower(flat: FlatProblem, oracle: InnerOracle, x: Array) -> InnerSolution:
    """The exact answer, by the structured interior point."""
    return oracle.solve(flat, x, weights(flat), oracle.cold(flat), jnp.asarray(EXACT))._replace(warm=())


def _judged(flat: FlatProblem, x: AnyArray, own: AnyArray, exact: AnyArray) -> dict[str, float]:
    """What a point (x, y) of LV-HBA is worth, at its own y and at the follower's."""
    share = lambda y: np.asarray(flat.y_set.unravel(y)["share"])  # noqa: E731
    return {
        "upper_value": float(flat.upper(x, exact)),
        "upper_value_penalised": float(flat.upper(x, own)),
        "lower_gap": float(flat.lower(x, own) - flat.lower(x, exact)),
        "distance": float(np.linalg.norm(share(own) - share(exact))),
    }


def _curves(history: History) -> dict[str, Any]:
    """A sample of the way; a number that is not finite is left out as None."""
    chosen = np.unique(np.linspace(0, max(len(history) - 1, 0), min(len(history), MOST_POINTS)).astype(int))
    gap = (history.penalty_value - history.upper_value_penalty) / history.gamma
    columns = {
        "iteration": history.evaluations,
        "gamma": history.gamma,
        "upper_value": history.upper_value,
        "upper_value_penalised": history.upper_value_penalty,
        "lower_gap": gap,
        "distance": history.distance,
    }
    curves = {name: finite_or_none(values[chosen]) for name, values in columns.items()}
    return {"curves": curves, "curve_seconds": finite_or_none(history.time[chosen])}
