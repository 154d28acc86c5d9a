"""Every answer in the textbook collection, checked without any of blocc's solvers.

The follower's answers are recomputed twice: by Clarabel (quadratic and linear programs) or SLSQP (the rest), and by the
closed forms below, which are written from the problems' definitions and serve the searches over X.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import reload
from itertools import combinations

import clarabel
import jax
import numpy as np
import pytest
import scipy.sparse
from scipy.linalg import solveh_banded
from scipy.optimize import minimize

from blocc._lib.compiled import compile_seconds
from blocc._lib.precision import double_precision
from blocc.errors import OptionError
from blocc.problems import textbook
from blocc.problems.textbook import TAGS, KnownProblem, known_problem, known_problems
from selections import few

NAMES = [entry.name for entry in known_problems()]
LARGE = [entry.name for entry in known_problems() if "large" in entry.tags]
SMALL = [name for name in NAMES if name not in LARGE]

#: Problems with more than one answer (flat x): all of them.
SEVERAL_ANSWERS = {
    "aiyoshi_shimizu_1984_example_2": [np.array([0.0, 0.0]), np.array([0.0, 30.0])],
    "tuy_2007": [np.array([1.5]), np.array([4.5])],
}

#: Where to search when X is unbounded or the entry is about a local minimum: (lower, upper) per coordinate.
WINDOWS = {
    "macal_hurter_1997": ([-50.0], [50.0]),
    "shimizu_aiyoshi_1981_example_2": ([-20.0, -20.0], [40.0, 15.0]),
    "aiyoshi_shimizu_1984_example_2_local": ([11.0, 11.0], [50.0, 50.0]),
    "anandalingam_white_1990": ([0.0], [20.0]),
    "candler_townsley_1982": ([0.0, 0.0], [2.0, 1.0]),
    "bard_falk_1982": ([0.0, 0.0], [2.0, 2.0]),
    "outrata_1990_example_1a": ([-4.0, -4.0], [8.0, 8.0]),
    "bard_1988_example_3": ([0.0, 0.0], [2.0, 2.0]),
    "braess_toll_4": ([0.0], [30.0]),
    "braess_toll_6": ([0.0], [13.0]),
}


# --- closed forms of the follower's answer: (k, n_x) -> (k, n_y), NaN where the follower has no feasible point --------
def one(formula: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """A response of one variable to one variable."""
    return lambda x: formula(x[:, :1])


def pair(first: Callable[[np.ndarray], np.ndarray], second: Callable[[np.ndarray], np.ndarray]) -> Callable:
    """A response of two variables to one variable."""
    return lambda x: np.column_stack([first(x[:, 0]) + 0.0 * x[:, 0], second(x[:, 0]) + 0.0 * x[:, 0]])


def where_feasible(feasible: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(np.reshape(feasible, (-1, 1)), y, np.nan)


def between(low: np.ndarray, wanted: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The point nearest to ``wanted`` in [low, high], NaN if that interval is empty."""
    return np.where(low <= high + 1e-12, np.minimum(np.maximum(wanted, low), high), np.nan)


def onto_simplex(points: np.ndarray, total: float) -> np.ndarray:
    """Projection by bisection on the shift, rather than by sorting as the library does."""
    low, high = points.min(axis=1) - total, points.max(axis=1)
    for _ in range(200):
        middle = 0.5 * (low + high)
        too_much = np.maximum(points - middle[:, None], 0.0).sum(axis=1) > total
        low, high = np.where(too_much, middle, low), np.where(too_much, high, middle)
    return np.maximum(points - 0.5 * (low + high)[:, None], 0.0)


def quartic_response(x: np.ndarray) -> np.ndarray:
    # Cardano for y^3 + y = x.
    root = np.sqrt(x**2 / 4.0 + 1.0 / 27.0)
    return np.cbrt(x / 2.0 + root) + np.cbrt(x / 2.0 - root)


def toll_response(x: np.ndarray) -> np.ndarray:
    pays = x[:, 0] <= 3.0
    return np.column_stack([pays, ~pays]).astype(float)


def vertices(
    rows: np.ndarray, inputs: np.ndarray, rhs: np.ndarray, cost: np.ndarray, upper: Callable
) -> Callable[[np.ndarray], np.ndarray]:
    """Best vertex of min <cost, y> subject to rows @ y + inputs @ x <= rhs, ties broken for the leader."""

    def response(x: np.ndarray) -> np.ndarray:
        right = rhs - x @ inputs.T
        best_cost, best_upper = np.full(len(x), np.inf), np.full(len(x), np.inf)
        best = np.full((len(x), rows.shape[1]), np.nan)
        for choice in map(list, combinations(range(len(rhs)), rows.shape[1])):
            if abs(np.linalg.det(rows[choice])) < 1e-9:
                continue
            y = np.linalg.solve(rows[choice], right[:, choice].T).T
            feasible = (y @ rows.T <= right + 1e-9).all(axis=1)
            costs, uppers = np.where(feasible, y @ cost, np.inf), upper(x, y)
            tie = np.abs(costs - best_cost) < 1e-9
            better = feasible & ((costs < best_cost - 1e-9) | (tie & (uppers < best_upper)))
            best_cost[better], best_upper[better], best[better] = costs[better], uppers[better], y[better]
        return best

    return response


def bard_1988_example_3_response(x: np.ndarray) -> np.ndarray:
    # The second row caps y2, which pays for itself up to y1 = 15/8; the first row and y2 >= 0 bound y1.
    room = 3.0 + x[:, 0] ** 2 - 2.0 * x[:, 0] + x[:, 1] ** 2
    first = between((4.0 - x[:, 1]) / 3.0, np.full(len(x), 15.0 / 8.0), (room + (x[:, 1] - 4.0) / 4.0) / 1.25)
    return np.column_stack([first, (x[:, 1] - 4.0 + 3.0 * first) / 4.0])


def obstacle_response(x: np.ndarray) -> np.ndarray:
    """Primal-dual active sets, exact for this matrix after finitely many rounds."""
    answers = []
    for load in x:
        free = np.ones(len(load), dtype=bool)
        for _ in range(100):
            beside = np.append(0.0, -1.0 * (free[1:] & free[:-1]))
            y = solveh_banded(np.vstack([beside, np.full(len(load), 3.0)]), np.where(free, load, 0.0))
            push = 3.0 * y - np.append(y[1:], 0.0) - np.append(0.0, y[:-1]) - load
            now_free = y - push > 0.0
            if (now_free == free).all():
                break
            free = now_free
        else:
            raise AssertionError("active sets did not settle")
        answers.append(y)
    return np.array(answers)


def braess_response(demand: float) -> Callable[[np.ndarray], np.ndarray]:
    """Bisection on the drivers who take the bridge: it is worth taking while it is cheaper than an outer path."""

    def response(x: np.ndarray) -> np.ndarray:
        low, high = np.zeros(len(x)), np.full(len(x), demand)
        for _ in range(80):
            bridge = 0.5 * (low + high)
            ends, outer = 0.5 * (demand + bridge), 0.5 * (demand - bridge)
            cheaper = 20.0 * ends + 10.0 + bridge + x[:, 0] < 10.0 * ends + 50.0 + outer
            low, high = np.where(cheaper, bridge, low), np.where(cheaper, high, bridge)
        bridge = np.where(low > 0.0, low, 0.0)
        return np.column_stack([0.5 * (demand - bridge), 0.5 * (demand - bridge), bridge])

    return response


def sixteen_links_response(x: np.ndarray) -> np.ndarray:
    """Newton steps between the eight paths of each origin and its cheapest one, for all x at once."""
    ends = ["12", "13", "21", "23", "24", "31", "32", "35", "42", "45", "46", "53", "54", "56", "64", "65"]
    forth = ["1246", "1356", "12356", "13246", "12456", "13546", "123546", "132456"]
    routes = [forth, [route[::-1] for route in forth]]
    uses = np.array([[[route.count(link) for link in ends] for route in side] for side in routes], dtype=float)
    free = np.array([1, 2, 3, 4, 5, 2, 1, 1, 2, 3, 9, 4, 4, 2, 5, 6.0])
    delay = np.array([10, 5, 3, 20, 50, 20, 10, 1, 8, 3, 2, 10, 25, 33, 5, 1.0])
    room = np.tile([3, 10, 9, 4, 3, 2, 1, 10, 45, 3, 2, 6, 44, 20, 1, 4.5], (len(x), 1))
    room[:, [5, 14, 15]] += x
    at, flow = np.arange(len(x)), np.zeros((len(x), 2, 8))
    flow[:, 0, 1], flow[:, 1, 0] = 5.0, 10.0
    for _ in range(400):
        excess = 0.0
        for side in range(2):
            for path in range(8):
                fill = np.einsum("ksp,spa->ka", flow, uses) / room
                cost = (free + delay * fill**4) @ uses[side].T
                best = cost.argmin(axis=1)
                changed = np.abs(uses[side][path] - uses[side][best])
                slope = np.einsum("ka,ka->k", 4.0 * delay * fill**3 / room, changed)
                dearer = cost[:, path] - cost[at, best]
                moved = np.minimum(flow[:, side, path], dearer / np.maximum(slope, 1e-12))
                flow[:, side, path] -= moved
                flow[at, side, best] += moved
                excess = max(excess, float(np.max(moved * dearer)))
        if excess < 1e-15:
            break
    return np.einsum("ksp,spa->ksa", flow, uses).reshape(len(x), 32)


def large_data(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@cache
def capacity_demand() -> np.ndarray:
    generator = large_data(101)
    generator.uniform(size=2000)
    return generator.uniform(0.0, 3.0, 1000)


RESPONSES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "quadratic_tracking": one(lambda x: x),
    "macal_hurter_1997": one(lambda x: 50.0 * x - 500.0),
    "lampariello_sagratella_2017_example_3_2": one(lambda x: 1.0 - x),
    "shrinkage": lambda x: np.array([1.0, 2.0, -1.0, 0.5, 3.0]) / (1.0 + np.exp(x)),
    "exponential_follower": one(np.log),
    "quartic_follower": one(quartic_response),
    "stackelberg_duopoly": one(lambda x: np.maximum(0.0, (9.0 - x) / 2.0)),
    "falk_liu_1995": lambda x: np.clip(x, 0.5, 1.5),
    "sinha_smd2": lambda x: np.column_stack([np.zeros((len(x), 3)), np.exp(x[:, 2:])]),
    "softmax_matching": lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True),
    "logit_toll": pair(lambda x: 1.0 / (1.0 + np.exp(x - 3.0)), lambda x: 1.0 / (1.0 + np.exp(3.0 - x))),
    "ball_follower": lambda x: x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True)),
    "simplex_projection": lambda x: onto_simplex(x, 10.0),
    "halfspace_projection": lambda x: x - np.maximum(0.0, x.sum(axis=1, keepdims=True) - 1.0) / 2.0,
    "water_filling": lambda x: np.minimum(x, np.array([2.2, 1.9, 1.5, 1.0, 0.5])),
    "blocc_toy": one(lambda x: x),
    "moving_lower_bound": one(lambda x: np.maximum(2.0 * x, 3.0 * x)),
    "bard_1988_example_1": one(
        lambda x: between(np.maximum(0.0, 2.0 * x - 8.0), 1.0 + 0.75 * x, np.minimum(3.0 * x - 3.0, 7.0 - x))
    ),
    "clark_westerberg_1990": one(
        lambda x: between((x + 2.0) / 2.0, 0.0 * x + 5.0, np.minimum(2.0 * x + 1.0, (14.0 - x) / 2.0))
    ),
    "gumus_floudas_2001_example_1": one(lambda x: between(0.0 * x, 20.0 - x, 50.0 - 4.0 * x)),
    "shimizu_aiyoshi_1981_example_2": lambda x: np.clip(x, 0.0, 10.0),
    "aiyoshi_shimizu_1984_example_2": lambda x: np.clip(np.minimum(x - 20.0, (x - 10.0) / 2.0), -10.0, 20.0),
    "aiyoshi_shimizu_1984_example_2_local": lambda x: np.clip(np.minimum(x - 20.0, (x - 10.0) / 2.0), -10.0, 20.0),
    "bard_1988_example_3": bard_1988_example_3_response,
    "priced_capacity": lambda x: np.maximum(0.0, np.minimum(np.array([2.0, 3.0]) - x[:, :1], x[:, 1:])),
    "moving_ball": lambda x: np.minimum(2.0, np.sqrt(x)) * np.array([0.6, 0.8]),
    "lower_semicircle": one(lambda x: np.where(np.abs(x) <= 1.0, -np.sqrt(np.maximum(0.0, 1.0 - x**2)), np.nan)),
    "colson_2002_bipa_4": one(lambda x: np.minimum(1.0 / np.sqrt(3.0), (x + 3.0) / 2.0)),
    "colson_2002_bipa_5": pair(
        lambda x: 0.0 * x,
        lambda x: np.where(15.0 - 6.0 * x >= 1.0, np.minimum(1.5, np.log(np.maximum(1.0, 15.0 - 6.0 * x))), np.nan),
    ),
    "pigou_toll": pair(lambda x: x, lambda x: 1.0 - x),
    "bard_falk_1982": lambda x: where_feasible(
        (x[:, 0] <= 2.0 + 3.0 * x[:, 1] + 1e-12) & (x[:, 0] + 3.0 * x[:, 1] >= 0.5),
        np.column_stack([x[:, 0] + 3.0 * x[:, 1] - 0.5, 2.0 - x[:, 0] + 3.0 * x[:, 1]]),
    ),
    "candler_townsley_1982": vertices(
        np.vstack([[[-1.0, 1.0, 1.0], [-1.0, 2.0, -0.5], [2.0, -1.0, -0.5]], -np.eye(3)]),
        np.vstack([[[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]], np.zeros((3, 2))]),
        np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
        np.array([1.0, 1.0, 2.0]),
        lambda x, y: 4.0 * y[:, 0] - 40.0 * y[:, 1] - 4.0 * y[:, 2],
    ),
    "anandalingam_white_1990": one(
        lambda x: between(
            np.maximum(np.maximum(0.0, (10.0 - x) / 2.0), np.maximum((x - 6.0) / 2.0, 2.0 * x - 21.0)),
            0.0 * x,
            np.minimum((38.0 - x) / 2.0, (18.0 + x) / 2.0),
        )
    ),
    "liu_hart_1994": one(
        lambda x: between(np.maximum(0.0, 4.0 * x - 12.0), 0.0 * x, np.minimum(x + 3.0, (12.0 - x) / 2.0))
    ),
    "ben_ayed_blair_1990": pair(lambda x: 0.0 * x, lambda x: (5.0 - 2.0 * x) / 3.0),
    "bard_1991_example_1": pair(lambda x: x + 4.0, lambda x: 0.0 * x),
    "tuy_2007": one(
        lambda x: between(0.0 * x, 0.0 * x + 99.0, np.minimum(np.minimum(15.0 - 3.0 * x, 7.0 - x), (15.0 - x) / 3.0))
    ),
    "lampariello_sagratella_2017_example_3_3": pair(lambda x: 0.0 * x, lambda x: np.maximum(0.0, 1.0 - x)),
    "morgan_patrone_2006": one(lambda x: np.where(x <= 0.0, 1.0, -1.0)),
    "two_road_toll": toll_response,
    "dempe_1992b": one(lambda x: np.minimum(3.0, np.sqrt(x))),
    "allende_still_2013": lambda x: np.clip(x, 0.5, 1.5),
    "shimizu_aiyoshi_1981_example_1": one(lambda x: np.minimum(15.0 - x / 2.0, 20.0 - x)),
    "absolute_value": one(lambda x: np.maximum(x, 0.0)),
    "weakly_active_bound": one(lambda x: np.maximum(0.0, x - 1.0)),
    "redundant_bounds": one(np.abs),
    "tangent_discs": pair(lambda x: 0.0 * x, lambda x: 1.0 + x - np.sqrt(1.0 - x**2)),
    "repeated_rows": pair(lambda x: np.maximum(0.0, x / 2.0), lambda x: np.maximum(0.0, x / 2.0)),
    "pinched": pair(lambda x: x, lambda x: x),
    "shrinking_budget": pair(lambda x: x / 2.0, lambda x: x / 2.0),
    "braess_toll_4": braess_response(4.0),
    "braess_toll_6": braess_response(6.0),
    "sixteen_links": sixteen_links_response,
    "capacity_kinks_1000": lambda x: np.minimum(capacity_demand(), x),
    "water_filling_1000": lambda x: np.minimum(large_data(102).uniform(0.0, 1.0, 1000) + 0.5, x),
    "obstacle_control_1000": obstacle_response,
    "obstacle_control_10000": obstacle_response,
    "tracking_control_1000": lambda x: np.array([scan(point) for point in x]),
    "clipped_response_10000": lambda x: np.clip(x, 0.0, 1.0),
    "shrinkage_10000": lambda x: large_data(105).standard_normal(10_000) / (1.0 + x),
    "average_10000": lambda x: np.maximum(0.0, x.mean(axis=1, keepdims=True)),
    "budget_10000": lambda x: (
        (demand := large_data(107).uniform(0.5, 1.5, 10_000)) - np.maximum(0.0, demand.mean() - x)
    ),
}


def scan(inputs: np.ndarray) -> np.ndarray:
    state, states = 0.0, []
    for value in inputs:
        state = 0.9 * state + value
        states.append(state)
    return np.array(states)


# --- solvers that know nothing of the closed forms --------------------------------------------------------------------
@cache
def lower_functions(name: str) -> dict[str, Callable]:
    """The follower's problem as compiled functions of flat (x, y), the constraints of Y included."""
    flat = known_problem(name).problem.flat

    def inequality(x, y):
        return jax.numpy.concatenate([flat.inequality(x, y), flat.y_set.inequality_flat(y)])

    def equality(x, y):
        return jax.numpy.concatenate([flat.equality(x, y), flat.y_set.equality_flat(y)])

    functions = {
        "value": flat.lower,
        "gradient": jax.grad(flat.lower, argnums=1),
        "hessian": jax.hessian(flat.lower, argnums=1),
        "inequality": inequality,
        "inequality_jacobian": jax.jacfwd(inequality, argnums=1),
        "equality": equality,
        "equality_jacobian": jax.jacfwd(equality, argnums=1),
    }

    def in_double(function: Callable) -> Callable:
        compiled = jax.jit(function)

        def call(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            with double_precision():
                return np.asarray(compiled(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)))

        return call

    return {key: in_double(function) for key, function in functions.items()}


@cache
def is_quadratic(name: str) -> bool:
    """Whether the follower solves a quadratic program, judged from derivatives at several points."""
    entry, functions = known_problem(name), lower_functions(name)
    generator = np.random.default_rng(0)
    x = entry.problem.x_set.ravel(entry.starts[0])
    points = [np.abs(generator.standard_normal(entry.problem.flat.n_y)) + 0.1 for _ in range(3)]
    return all(
        np.allclose(functions[key](x, points[0]), functions[key](x, point), rtol=1e-12, atol=1e-12)
        for key in ("hessian", "inequality_jacobian", "equality_jacobian")
        for point in points[1:]
    )


def clarabel_answer(entry: KnownProblem, x: np.ndarray) -> np.ndarray:
    """The follower's answer by an interior-point method, NaN if it reports infeasibility."""
    functions, n_y = lower_functions(entry.name), entry.problem.flat.n_y
    zero = np.zeros(n_y)
    low, high = entry.problem.y_set.bounds_flat()
    equality_rows = functions["equality_jacobian"](x, zero)
    inequality_rows = np.vstack(
        [functions["inequality_jacobian"](x, zero), np.eye(n_y)[np.isfinite(high)], -np.eye(n_y)[np.isfinite(low)]]
    )
    inequality_rhs = np.concatenate(
        [-functions["inequality"](x, zero), high[np.isfinite(high)], -low[np.isfinite(low)]]
    )
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solution = clarabel.DefaultSolver(
        scipy.sparse.triu(scipy.sparse.csc_matrix(functions["hessian"](x, zero)), format="csc"),
        functions["gradient"](x, zero),
        scipy.sparse.csc_matrix(np.vstack([equality_rows, inequality_rows])),
        np.concatenate([-functions["equality"](x, zero), inequality_rhs]),
        [clarabel.ZeroConeT(len(equality_rows)), clarabel.NonnegativeConeT(len(inequality_rhs))],
        settings,
    ).solve()
    solved = str(solution.status) in ("Solved", "AlmostSolved")
    return np.array(solution.x) if solved else np.full(n_y, np.nan)


def slsqp_answer(entry: KnownProblem, x: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """The follower's answer by sequential quadratic programming."""
    functions = lower_functions(entry.name)
    low, high = entry.problem.y_set.bounds_flat()
    constraints = [
        {
            "type": "ineq",
            "fun": lambda y: -functions["inequality"](x, y),
            "jac": lambda y: -functions["inequality_jacobian"](x, y),
        },
        {
            "type": "eq",
            "fun": lambda y: functions["equality"](x, y),
            "jac": lambda y: functions["equality_jacobian"](x, y),
        },
    ]
    sizes = (functions["inequality"](x, guess).size, functions["equality"](x, guess).size)
    result = minimize(
        lambda y: float(functions["value"](x, y)),
        guess,
        jac=lambda y: functions["gradient"](x, y),
        # A hair above zero keeps the entropy's logarithm finite.
        bounds=list(zip(np.where(low == 0.0, 1e-12, low), high, strict=True)),
        constraints=[row for row, size in zip(constraints, sizes, strict=True) if size],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return result.x


def solver_answer(entry: KnownProblem, x: np.ndarray) -> np.ndarray:
    if is_quadratic(entry.name):
        return clarabel_answer(entry, x)
    return slsqp_answer(entry, x, entry.problem.y_set.interior_flat())


def violation(entry: KnownProblem, x: np.ndarray, y: np.ndarray) -> float:
    """Largest violation of the follower's constraints."""
    functions = lower_functions(entry.name)
    low, high = entry.problem.y_set.bounds_flat()
    parts = [functions["inequality"](x, y), np.abs(functions["equality"](x, y)), low - y, y - high]
    return max(float(np.max(part, initial=0.0)) for part in parts)


# --- the leader's value -----------------------------------------------------------------------------------------------
@cache
def batched_upper(name: str) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    flat = known_problem(name).problem.flat
    compiled = jax.jit(jax.vmap(lambda x, y: (flat.upper(x, y), flat.upper_inequality(x, y).max(initial=-np.inf))))

    def call(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with double_precision():
            values, excess = compiled(x, y)
        return np.asarray(values), np.asarray(excess)

    return call


def respond(entry: KnownProblem, points: np.ndarray) -> np.ndarray:
    """The follower's answers at many x: by closed form where there is one, else by a solver."""
    response = RESPONSES.get(entry.name)
    if response is not None:
        return response(points)
    return np.array([solver_answer(entry, point) for point in points])


def leader_values(entry: KnownProblem, points: np.ndarray, slack: float = 1e-9) -> np.ndarray:
    """f(x, y(x)) at many x; infinite where the follower has no answer or the leader's constraint is violated."""
    with np.errstate(invalid="ignore"):
        y = respond(entry, points)
    values, excess = batched_upper(entry.name)(points, y)
    return np.where(np.isnan(y).any(axis=1) | np.isnan(values) | (excess > slack), np.inf, values)


def answers(entry: KnownProblem) -> list[np.ndarray]:
    """The flat x of every answer."""
    if entry.x is None:
        return SEVERAL_ANSWERS[entry.name]
    return [entry.problem.x_set.ravel(entry.x)]


# --- the tests --------------------------------------------------------------------------------------------------------
def test_registry_is_well_formed():
    assert len(NAMES) == len(set(NAMES)) == 68
    for entry in known_problems():
        assert entry.tags <= set(TAGS), entry.name
        assert ("literature" in entry.tags) != ("constructed" in entry.tags), entry.name
        assert len(entry.starts) >= (2 if entry.problem.flat.n_x >= 10_000 else 3), entry.name
        assert entry.problem.name == entry.name
        assert (entry.x is None) == (entry.y is None) == (entry.name in SEVERAL_ANSWERS)
        for start in entry.starts:
            assert entry.problem.x_set.contains(start), (entry.name, start)
        for leaf in jax.tree.leaves((entry.x, entry.y, entry.starts)):
            assert isinstance(leaf, np.ndarray), entry.name
            assert leaf.dtype == np.float64, entry.name
        assert isinstance(entry.upper_value, float), entry.name
        assert abs(entry.upper_value) < 1e5, entry.name


def test_collection_covers_every_tag_and_size():
    assert set().union(*(entry.tags for entry in known_problems())) == set(TAGS)
    sizes_x = {entry.problem.flat.n_x for entry in known_problems()}
    sizes_y = {entry.problem.flat.n_y for entry in known_problems()}
    assert {1, 2, 3, 1000, 10_000} <= sizes_x & sizes_y


def test_building_is_quick():
    families = [part for part in vars(textbook).values() if hasattr(part, "PROBLEMS")]
    assert sum(len(family.PROBLEMS) for family in families) == len(NAMES)
    before = compile_seconds()
    for family in families:
        reload(family)
    assert compile_seconds() == before  # nothing is traced or compiled for a list of problems


def test_unknown_name_lists_close_ones():
    with pytest.raises(OptionError, match="bard_1988_example_1"):
        known_problem("bard_1988_example")
    with pytest.raises(OptionError, match="blocc_toy"):
        known_problem("zzz")


@pytest.mark.parametrize("name", few(NAMES, *NAMES[::4]))
def test_upper_value_and_leaders_constraint(name):
    entry = known_problem(name)
    for x in answers(entry):
        y = respond(entry, x[None, :])
        if entry.y is not None:
            stated = entry.problem.y_set.ravel(entry.y)
            np.testing.assert_allclose(y[0], stated, rtol=1e-6, atol=1e-6)
            y = stated[None, :]
        values, excess = batched_upper(name)(x[None, :], y)
        assert values[0] == pytest.approx(entry.upper_value, rel=1e-6, abs=1e-9)
        assert excess[0] <= 1e-9
        assert entry.problem.x_set.contains(entry.problem.x_set.unravel(x))


@pytest.mark.parametrize("name", few(SMALL, *SMALL[::6]))
def test_answer_is_optimal_below(name):
    entry = known_problem(name)
    value = lower_functions(name)["value"]
    for x in answers(entry):
        y = entry.problem.y_set.ravel(entry.y) if entry.y is not None else respond(entry, x[None, :])[0]
        assert violation(entry, x, y) <= 1e-8
        other = solver_answer(entry, x)
        # The solver must have arrived somewhere feasible, and nowhere better: it may stop a little short.
        scale = 1.0 + abs(float(value(x, y)))
        assert violation(entry, x, other) <= 1e-5
        assert float(value(x, y)) == pytest.approx(float(value(x, other)), abs=2e-5 * scale)


@pytest.mark.parametrize(
    "name",
    few(
        [name for name in SMALL if name in RESPONSES], "sixteen_links", "allende_still_2013", "water_filling", "pinched"
    ),
)
def test_closed_forms_are_optimal_below_elsewhere(name):
    entry = known_problem(name)
    value, generator = lower_functions(name)["value"], np.random.default_rng(3)
    starts = np.array([entry.problem.x_set.ravel(start) for start in entry.starts])
    mixtures = generator.dirichlet(np.ones(len(starts)), size=2) @ starts
    for x in np.vstack([starts, mixtures]):
        y = RESPONSES[name](x[None, :])[0]
        if np.isnan(y).any():
            continue
        assert violation(entry, x, y) <= 1e-8
        other = solver_answer(entry, x)
        assert violation(entry, x, other) <= 1e-6
        assert float(value(x, y)) == pytest.approx(float(value(x, other)), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", few(SMALL, *SMALL[::6]))
def test_lower_level_is_convex_in_y(name):
    # Halfway between two random members of Y no function of the follower may lie above the mean of its ends.
    flat, generator = known_problem(name).problem.flat, np.random.default_rng(9)
    draws = [
        (flat.x_set.sample_flat(generator), flat.y_set.sample_flat(generator), flat.y_set.sample_flat(generator))
        for _ in range(200)
    ]
    xs, firsts, seconds = (np.array(part) for part in zip(*draws, strict=True))

    def bulge(x, first, second):
        def stacked(y):
            return jax.numpy.append(flat.inequality(x, y), flat.lower(x, y)), flat.equality(x, y)

        middle, ends = stacked(0.5 * (first + second)), (stacked(first), stacked(second))
        convex = middle[0] - 0.5 * (ends[0][0] + ends[1][0])
        affine = jax.numpy.abs(middle[1] - 0.5 * (ends[0][1] + ends[1][1]))
        return jax.numpy.concatenate([convex, affine])

    with double_precision():
        bulges = np.asarray(jax.jit(jax.vmap(bulge))(xs, firsts, seconds))
    assert bulges.max() <= 1e-9 * (1.0 + np.abs(bulges).max())


@pytest.mark.parametrize("name", LARGE)
def test_large_answers_satisfy_the_followers_optimality_conditions(name):
    # The stated y equals the closed form (tested above); here the closed form itself is tested, through the conditions
    # grad g + multiplier * grad gc = 0 with the multiplier that each structure dictates.
    entry = known_problem(name)
    x, y = entry.problem.x_set.ravel(entry.x), entry.problem.y_set.ravel(entry.y)
    flat = entry.problem.flat
    with double_precision():
        gradient = np.asarray(jax.grad(flat.lower, argnums=1)(x, y))
        rows = np.asarray(flat.inequality(x, y))
    if flat.n_equality:
        with double_precision():
            assert np.abs(np.asarray(flat.equality(x, y))).max() < 1e-9  # as many rows as unknowns: no other point
    elif rows.size == y.size:  # y <= x row by row, or y >= mean(x)
        multipliers = -gradient if rows.size > 1 else gradient
        assert multipliers.min() > -1e-9
        assert np.abs(multipliers * rows).max() < 1e-9
        assert rows.max() < 1e-9
    elif rows.size == 1:  # one budget row with equal weights
        assert np.ptp(gradient) < 1e-9
        assert gradient.max() < 1e-9
        assert abs(rows[0]) < 1e-7
    else:  # bounds only
        low, high = flat.y_set.bounds_flat()
        projected = np.clip(y - gradient, low, high)
        assert np.abs(projected - y).max() < 1e-9


def search_grid(entry: KnownProblem) -> np.ndarray:
    """Points of X: many where the follower's answer is a formula and small, fewer where it has to be computed."""
    low, high = (np.clip(side, -10.0, 10.0) for side in entry.problem.x_set.bounds_flat())
    if entry.name in WINDOWS:
        low, high = (np.array(side) for side in WINDOWS[entry.name])
    cheap = entry.name in RESPONSES and entry.problem.flat.n_y < 1000
    if len(low) == 1:
        return np.linspace(low[0], high[0], 40_001 if cheap else 401)[:, None]
    axes = (np.linspace(*ends, 301 if cheap else 49) for ends in zip(low, high, strict=True))
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    with double_precision():
        nearest = np.asarray(jax.vmap(entry.problem.x_set.project_flat)(points))
    return points[np.abs(nearest - points).max(axis=1) < 1e-9]


FLAT = [name for name in NAMES if known_problem(name).problem.flat.n_x <= 2]


@pytest.mark.parametrize("name", few(FLAT, *(name for name in FLAT if name in RESPONSES)))
def test_nothing_better_on_a_grid(name):
    entry = known_problem(name)
    values = leader_values(entry, search_grid(entry))
    assert np.isfinite(values).any()
    assert values.min() >= entry.upper_value - 1e-3
    # The search would prove nothing had it not come near the answer.
    assert values.min() <= entry.upper_value + 0.05 * (1.0 + abs(entry.upper_value))


@pytest.mark.parametrize("name", [name for name in NAMES if known_problem(name).problem.flat.n_x > 2])
def test_nothing_better_nearby_or_at_random(name):
    entry, generator = known_problem(name), np.random.default_rng(5)
    (answer,) = answers(entry)
    count = 400 if entry.name in RESPONSES and len(answer) < 100 else 25
    points = [entry.problem.x_set.sample_flat(generator) for _ in range(count)]
    for scale in (1e-3, 1e-1, 1.0):
        steps = scale * generator.standard_normal((count, len(answer)))
        # Half of the steps touch few coordinates, which a kink would notice first.
        steps[::2] *= generator.uniform(size=steps[::2].shape) < 2.0 / len(answer)
        points.extend(answer + steps)
    with double_precision():
        points = np.asarray(jax.vmap(entry.problem.x_set.project_flat)(np.array(points)))
    values = leader_values(entry, points)
    assert values.min() >= entry.upper_value - 1e-7 * (1.0 + abs(entry.upper_value))


@pytest.mark.parametrize("name", few(NAMES, *NAMES[::4]))
def test_every_start_lies_uphill_of_an_answer(name):
    # Along the segment from the start to the nearest answer the leader's value must fall all the way: enough to show
    # that no other local minimum stands in between (for one variable; for more it is evidence, not proof).
    entry = known_problem(name)
    for start in entry.starts:
        begin = entry.problem.x_set.ravel(start)
        end = min(answers(entry), key=lambda x: float(np.linalg.norm(x - begin)))
        steps = np.linspace(0.0, 1.0, 201 if entry.name in RESPONSES and len(begin) < 1000 else 21)[:, None]
        values = leader_values(entry, begin + steps * (end - begin), slack=1e-7)
        tolerance = 1e-7 * (1.0 + np.abs(values[0]))
        assert np.isfinite(values).all(), start
        assert (np.diff(values) <= tolerance).all(), (start, values)
        assert values[-1] == pytest.approx(entry.upper_value, rel=1e-6, abs=1e-6)
