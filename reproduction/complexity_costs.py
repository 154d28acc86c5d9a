"""What one iteration of every method costs on a lower level of a given size: the measurement itself.

The lower level has dense affine constraints: d_y variables and d_c constraints (equalities for AiPOD). Numbers are
fixed; what is measured is the cost of a step, not how many steps are needed. Every step is taken where it has work to
do: LV-HBA starts at a point outside the coupled set, so that rows are active in its projections, and GAM pays for all
active sets that it splits into. A method may change its solver with the size; an exponent belongs to one solver.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.inner.choice import choose_oracles
from blocc.inner.maxmin import MaxMin
from blocc.methods import registry
from blocc.methods.gam import MOST_SPLITS, active_gradient, kkt_sensitivity
from blocc.methods.projection import projector
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.penalty import Evaluation, no_upper_multipliers
from blocc.problem import BilevelProblem
from blocc.sets import Reals

#: BLOCC as published: a step of Algorithm 1 with this many single-loop iterations of Algorithm 2 for each of its two
#: inner problems. "blocc" is the package's own choice of an inner solver.
PUBLISHED, INNER_STEPS = "algorithm-1", 100
METHODS = ("blocc", PUBLISHED, "lv-hba", "gam", "bvfsm", "aipod", "e-aipod", "bic-gaffa", "sflcb")
AXES = ("d_y", "d_c")
SIZES = (10, 30, 100, 300, 1_000, 3_000, 10_000)
#: Sizes beyond which a method's dense matrices are hopeless on a small machine.
DENSE = {"gam": 3_000, "aipod": 1_000, "e-aipod": 1_000, "lv-hba": 3_000, "log-barrier": 1_000}
OTHER = 10  #: the size that does not grow
#: AiPOD wants fewer equalities than variables: so many of each where the other one grows.
AIPOD_ROWS, AIPOD_VARIABLES = 5, 600
#: Where LV-HBA's steps begin: so far out that about half of the rows are broken before the projection.
FAR = 5.0
GAM_RADIUS = 0.005  #: the published epsilon, within which constraints count as doubtful
PATIENCE = 2.0  #: seconds of one iteration after which larger sizes are left out
FIT_FROM = 100  #: overheads rule below

UPPER_VARIABLES = 5


def family(d_y: int, d_c: int, equality: bool) -> BilevelProblem:
    """A strongly convex lower level with random dense constraints."""
    generator = np.random.default_rng(0)
    A = generator.standard_normal((d_c, d_y)) / np.sqrt(d_y)
    B = generator.standard_normal((d_c, UPPER_VARIABLES))
    C = generator.standard_normal((d_y, UPPER_VARIABLES)) / np.sqrt(UPPER_VARIABLES)
    coupled: dict[str, Any] = (
        {"equality": lambda x, y: A @ y - B @ x} if equality else {"inequality": lambda x, y: A @ y - B @ x - 1.0}
    )
    return BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2) + 0.5 * jnp.sum(x**2),
        lower=lambda x, y: 0.5 * jnp.sum((y - C @ x) ** 2),
        x_set=Reals(UPPER_VARIABLES),
        y_set=Reals(d_y),
        **coupled,
    )


class Cost(NamedTuple):
    """One measurement."""

    size: int
    seconds: float
    solver: str  #: of the step's largest part; "" where a method has only one


def sweep(method: str, axis: str, sizes: Sequence[int]) -> list[Cost]:
    """Seconds of one iteration at every size, while the method can and patience lasts."""
    found: list[Cost] = []
    for size in sizes:
        shape = shape_of(method, axis, size)
        if shape is None or (found and found[-1].seconds > PATIENCE):
            break
        found.append(Cost(size, *cost(method, *shape)))
    return found


def shape_of(method: str, axis: str, size: int) -> tuple[int, int] | None:
    """d_y and d_c of a sweep at one size; None where the method cannot."""
    if size > DENSE.get(method, size):
        return None
    if "aipod" not in method:
        return (size, OTHER) if axis == "d_y" else (OTHER, size)
    if axis == "d_y":
        return size, AIPOD_ROWS
    return (AIPOD_VARIABLES, size) if 2 * size <= AIPOD_VARIABLES else None


def exponents(found: Sequence[Cost]) -> dict[str, float]:
    """By solver: the slope of log seconds over log size, where overheads no longer rule, from two sizes on."""
    fitted = {}
    for solver in dict.fromkeys(one.solver for one in found):
        large = [(one.size, one.seconds) for one in found if one.solver == solver and one.size >= FIT_FROM]
        if len(large) >= 2:
            sizes, seconds = np.log(np.array(large)).T
            fitted[solver] = float(np.polyfit(sizes, seconds, 1)[0])
    return fitted


def cost(method: str, d_y: int, d_c: int) -> tuple[float, str]:
    """Seconds of one iteration, compilation apart, and the solver of its largest part."""
    with double_precision():
        if method in ("blocc", PUBLISHED):
            return _evaluation(method, d_y, d_c)[:2]
        if method == "gam":
            return _gam(d_y, d_c)
        problem = family(d_y, d_c, equality="aipod" in method)
        flat = problem.flat
        x, y = jnp.zeros(UPPER_VARIABLES), jnp.zeros(d_y)
        solver = ""
        if method == "lv-hba":
            y = jnp.asarray(FAR * np.random.default_rng(2).standard_normal(d_y))
            solver = "interior point" if projector(flat, x, y) is None else "Newton on the dual"
        chosen: Any = registry.make_method(method, "paper")
        numbers = {key: jnp.asarray(value) for key, value in chosen.given.items()}
        state = chosen.start(flat, x, y)

        def several(state: Any) -> Any:
            return jax.lax.fori_loop(0, 10, lambda k, s: chosen.step(flat, numbers, s, k), state)

        return per_call(compile_ahead(several, state)[0], state) / 10.0, solver


def _gam(d_y: int, d_c: int) -> tuple[float, str]:
    """Two lower levels (at x and at the first trial step), the sensitivity, and a gradient for every active set."""
    seconds, solver, found = _evaluation("blocc", d_y, d_c)
    flat = family(d_y, d_c, equality=False).flat
    inequality = np.maximum(np.asarray(found.follower.multipliers.inequality), 0.0)
    x, y = jnp.asarray(found.x), jnp.asarray(found.follower.y)
    slack = -np.asarray(flat.inequality(x, y))
    point = (x, y, jnp.asarray(inequality), jnp.zeros(0), jnp.asarray(inequality > slack))
    gradient, _ = compile_ahead(lambda *arguments: active_gradient(flat, *arguments), *point)
    sensitivity, _ = compile_ahead(lambda *arguments: kkt_sensitivity(flat, *arguments), *point)
    moves = jax.device_get(sensitivity(*point))
    sets = 2 ** min(MOST_SPLITS, doubtful(moves, inequality, slack))
    # An evaluation of F_gamma holds two inner solutions, as many as GAM needs.
    return seconds + per_call(sensitivity, *point) + sets * per_call(gradient, *point), solver


def doubtful(moves: Any, inequality: AnyArray, slack: AnyArray) -> int:
    """How many constraints a step of GAM's radius could bring to the other side."""
    rows = len(slack)
    nearer = np.where(
        inequality > slack,
        GAM_RADIUS * np.linalg.norm(moves.multipliers[:rows], axis=1) - inequality,
        GAM_RADIUS * np.linalg.norm(moves.constraints[:rows], axis=1) - slack,
    )
    return int((nearer > 0.0).sum())


@functools.cache
def _evaluation(method: str, d_y: int, d_c: int) -> tuple[float, str, Evaluation]:
    """Seconds of F_gamma with its gradient, which a step of Algorithm 1 needs; the solver, and an evaluation."""
    inner = "auto" if method == "blocc" else MaxMin.single_loop(iterations=INNER_STEPS, primal_step=0.1, dual_step=0.1)
    problem = family(d_y, d_c, equality=False)
    flat = problem.flat
    function = Evaluator(flat, choose_oracles(problem, inner), Monitor(lambda point: point))
    leader = jax.device_get(no_upper_multipliers(flat))
    # A step away from each other, as on the way of a descent.
    places = itertools.cycle(0.5 * np.random.default_rng(1).standard_normal((7, UPPER_VARIABLES)))
    seconds = per_call(lambda: function(next(places), 10.0, leader, 1e-8).value)
    return seconds, type(function.oracles[0]).__name__, function(next(places), 10.0, leader, 1e-8)


def per_call(function: Callable[..., Any], *arguments: Any) -> float:
    """Least processor seconds of several compiled calls, which other work on the machine hardly changes."""
    jax.block_until_ready(function(*arguments))
    times: list[float] = []
    while len(times) < 5 and sum(times) <= PATIENCE:
        begun = time.process_time()
        jax.block_until_ready(function(*arguments))
        times.append(time.process_time() - begun)
    return min(times)
