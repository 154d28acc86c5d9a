"""Sequential convex programs on the value function: VF-iDCA, and iP-DwCA by the Moreau envelope.

Gao, Ye, Yin, Zeng and Zhang (ICML 2022), after Ye, Yuan, Zeng and Zhang (2021). The bilevel problem is "minimise f
over the coupled set with g(x, y) <= v(x)". Where g and the constraints are convex in x and y together, v is convex
too, and the constraint is a difference of convex functions. At z_k = (x_k, y_k) the value function is replaced by its
tangent, which one solution of the lower level and its multipliers give, and the next point minimises

    f(x, y) + (rho / 2) |z - z_k|^2 + beta_k max(0, g(x, y) - v(x_k) - <v'(x_k), x - x_k> - epsilon)

over X x Y with the coupled constraints: one convex program. beta grows by ``growth`` when the point has settled faster
than the violation: |z_{k+1} - z_k| max(beta, 1 / violation) < ``patience``.

iP-DwCA (Gao, Ye, Yin, Zeng and Zhang 2023, arXiv 2306.16761) asks that of y alone: instead of v it takes the Moreau
envelope of the lower level, min over theta of g(x, theta) + |theta - y|^2 / (2 ``gamma``), whose tangent is one in x
and y, and it adds (``weak`` / 2) |z - z_k|^2 for each unit of beta, which makes up for what g and the envelope lack in
convexity. For a convex f any rho > 0 will do; otherwise rho has to exceed the most negative curvature of f.

Both convex programs are solved by the package's interior point.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray
from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.protocol import InnerSolution
from blocc.lagrangian import weights
from blocc.methods.base import Demand, Iterate, Method, Scalar, Size, VectorX, VectorY
from blocc.sets import Box, Product, Reals

TOLERANCE = 1e-9
#: Residual of a convex program from which on it counts as unsolved.
UNSOLVED = 1e-4
#: A step this short, relative to the tolerance and to z, ends the run where the violation is as small.
SETTLED = 1e-2
#: After a step this short, relative to z, an unsolved program is the end rather than a failure.
CLOSE = 1e-3


class Model(NamedTuple):
    """What one convex program is made of: its centre, the tangent of the value there, and its weights."""

    x: Float[AnyArray, "n_x"]
    y: Float[AnyArray, "n_y"]
    value: Scalar | float
    slope_x: Float[AnyArray, "n_x"]
    slope_y: Float[AnyArray, "n_y"]
    penalty: Scalar | float
    proximal: Scalar | float


def convex_step(flat: FlatProblem, model: Model, epsilon: Scalar) -> InnerSolution:
    """The minimiser (x, y, violation) of a model over the coupled set."""
    n, m = flat.n_x, flat.n_y
    centre, tangent = jnp.concatenate([model.x, model.y]), jnp.concatenate([model.slope_x, model.slope_y])

    def objective(_: AnyArray, w: AnyArray) -> Array:
        move = w[:-1] - centre
        return flat.upper(w[:n], w[n:-1]) + 0.5 * model.proximal * move @ move + model.penalty * w[-1]

    def rows(_: AnyArray, w: AnyArray) -> Array:
        x, y = w[:n], w[n:-1]
        excess = flat.lower(x, y) - model.value - tangent @ (w[:-1] - centre) - epsilon - w[-1]
        return jnp.concatenate([flat.inequality(x, y), excess[None]])

    return _minimise(
        FlatProblem(
            upper=lambda _, w: jnp.zeros(()),
            lower=objective,
            inequality=rows,
            equality=lambda _, w: flat.equality(w[:n], w[n : n + m]),
            upper_inequality=lambda _, w: jnp.zeros(0),
            x_set=Reals(0),
            y_set=Product((flat.x_set, flat.y_set, Box.nonnegative(1))),
            n_inequality=flat.n_inequality + 1,
            n_equality=flat.n_equality,
            n_upper_inequality=0,
        ),
        jnp.zeros(0),
    )


def moreau_envelope(flat: FlatProblem, x: VectorX, y: VectorY, gamma: Scalar) -> InnerSolution:
    """theta, and by Danskin's rule the envelope's derivative in (x, y)."""
    n = flat.n_x
    return _minimise(
        FlatProblem(
            upper=lambda z, theta: jnp.zeros(()),
            lower=lambda z, theta: flat.lower(z[:n], theta) + jnp.sum((theta - z[n:]) ** 2) / (2.0 * gamma),
            inequality=lambda z, theta: flat.inequality(z[:n], theta),
            equality=lambda z, theta: flat.equality(z[:n], theta),
            upper_inequality=lambda z, theta: jnp.zeros(0),
            x_set=Product((flat.x_set, flat.y_set)),
            y_set=flat.y_set,
            n_inequality=flat.n_inequality,
            n_equality=flat.n_equality,
            n_upper_inequality=0,
        ),
        jnp.concatenate([x, y]),
    )


def _minimise(program: FlatProblem, parameters: Float[Array, "parameters"]) -> InnerSolution:
    oracle = InteriorPoint()
    return oracle.solve(program, parameters, weights(program), oracle.cold(program), jnp.asarray(TOLERANCE))


class DcaState(NamedTuple):
    """What a run is in the midst of; kept, and enough to go on from here."""

    x: Float[NDArray, "n_x"]
    y: Float[NDArray, "n_y"]
    penalty: float
    k: int
    calls: int


class VfIdca(Method):
    """Convex programs with the tangent of the value function; few, expensive steps without a step length.

    To cite:

        @inproceedings{gao2022value,
          title = {Value Function Based Difference-of-Convex Algorithm for Bilevel Hyperparameter Selection Problems},
          author = {Gao, Lucy L. and Ye, Jane and Yin, Haian and Zeng, Shangzhi and Zhang, Jin},
          booktitle = {International Conference on Machine Learning}, year = {2022}}
    """

    name = "vf-idca"
    title = "VF-iDCA (Gao, Ye, Yin, Zeng, Zhang, ICML 2022)"
    demands: ClassVar[tuple[Demand, ...]] = (
        Demand.CONVEX_LOWER,
        Demand.JOINTLY_CONVEX,
        Demand.NO_LEADER_CONSTRAINT,
    )
    names: ClassVar[tuple[str, ...]] = ("rho", "beta", "growth", "patience", "epsilon")
    #: The authors' defaults; they leave rho and epsilon to each experiment, and round numbers stand here for them.
    presets: ClassVar = {"paper": {"rho": 1.0, "beta": 1.0, "growth": 5.0, "patience": 1.0, "epsilon": 0.0}}

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """A proximal term as stiff as the leader's objective is curved: then its sum with it is convex.

        A large penalty shortens all steps along the follower's answers, so that it grows with more patience than the
        authors have.
        """
        rho = max(size.upper, 1e-2)
        return [{"rho": rho, "beta": 1.0, "growth": 5.0, "patience": 0.1, "epsilon": 1e-8, **self.given}]

    def tangent(self, run: Any, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> tuple[float, Any, Any, float]:
        """The value function's value and derivatives in x and y, and the residual of the solution behind them."""
        answer = run.ask(x)
        slope = np.asarray(answer.gradient_x)
        return float(answer.value), slope, np.zeros_like(y), float(np.max(np.stack(answer.residuals)))

    def weakness(self, numbers: dict[str, float]) -> float:
        """What a unit of beta lacks in convexity."""
        return 0.0

    def drive(self, run: Any, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> Iterate:
        """All convex programs; ``run``, a :class:`~blocc.methods.execute.MethodRun` or its like, records and stops."""
        numbers = run.numbers = run.candidates(x, y)[0]
        x, y, penalty, run.iterations, run.calls = _begin(run, DcaState(x, y, numbers["beta"], 0, 0))
        least, moved = SETTLED * run.options.tolerance, np.inf
        program = run.flat.program(convex_step)
        for k in range(run.iterations, run.options.max_iterations):
            run.monitor.check_time()
            run.monitor.keep("dca", DcaState(x, y, penalty, k, run.calls))
            value, slope_x, slope_y, residual = self.tangent(run, x, y)
            proximal = numbers["rho"] + self.weakness(numbers) * penalty
            found = program(Model(x, y, value, slope_x, slope_y, penalty, proximal), numbers["epsilon"])
            run.calls += int(found.iterations)
            new = np.asarray(found.y)
            worst = max(residual, float(np.max(np.stack(found.residuals))) / (1.0 + penalty))
            if not (np.isfinite(new).all() and worst <= UNSOLVED):
                # Next to an answer the programs are degenerate; elsewhere the method cannot go on.
                if not moved <= CLOSE * (1.0 + float(np.linalg.norm(x)) + float(np.linalg.norm(y))):
                    run.trouble = f"convex program {k + 1} could not be solved"
                return run.last
            violation = max(float(new[-1]), 0.0)
            moved = float(np.linalg.norm(new[:-1] - np.concatenate([x, y])))
            x, y = new[: len(x)], new[len(x) : -1]
            run.iterations, run.last = k + 1, (x, y)
            run.record(x, y, moved)
            # The larger the penalty, the shorter its steps along the follower's answers: their product is what counts.
            pace = moved * max(1.0, penalty)
            if pace <= least * (1.0 + float(np.linalg.norm(new[:-1]))) and violation <= least * (1.0 + abs(value)):
                return x, y
            if moved * max(penalty, 1.0 / max(violation, TINY)) < numbers["patience"]:
                penalty += numbers["growth"]
        return run.last


class IpDwca(VfIdca):
    """The same with the Moreau envelope, for lower objectives that are convex in y alone.

    To cite:

        @article{gao2023moreau,
          title = {{M}oreau Envelope Based Difference-of-Weakly-Convex Reformulation and Algorithm for Bilevel
            Programs},
          author = {Gao, Lucy L. and Ye, Jane J. and Yin, Haian and Zeng, Shangzhi and Zhang, Jin},
          journal = {arXiv:2306.16761}, year = {2023}}
    """

    name = "ip-dwca"
    title = "iP-DwCA (Gao, Ye, Yin, Zeng, Zhang 2023)"
    demands: ClassVar[tuple[Demand, ...]] = (Demand.JOINTLY_CONVEX, Demand.NO_LEADER_CONSTRAINT)
    names: ClassVar[tuple[str, ...]] = (*VfIdca.names, "gamma", "weak")
    presets: ClassVar = {"paper": {**VfIdca.presets["paper"], "gamma": 10.0, "weak": 1.0}}

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """A long proximal term below; what convexity may lack is bounded by the mixed curvature."""
        gamma = 10.0 / max(size.lower, 0.1)
        return [{**VfIdca.automatic(self, size)[0], "gamma": gamma, "weak": size.mixed + 1.0 / gamma, **self.given}]

    def tangent(self, run: Any, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> tuple[float, Any, Any, float]:
        """Those of the Moreau envelope."""
        found = run.flat.program(moreau_envelope)(x, y, run.numbers["gamma"])
        run.calls += int(found.iterations)
        slope = np.asarray(found.gradient_x)
        residual = float(np.max(np.stack(found.residuals)))
        return float(found.value), slope[: len(x)], slope[len(x) :], residual

    def weakness(self, numbers: dict[str, float]) -> float:
        """As given, or from the curvatures at the start."""
        return numbers["weak"]


def _begin(run: Any, first: DcaState) -> DcaState:
    """Nothing done yet, or where an earlier run left off."""
    found = run.monitor.begin("dca", first)
    x, y = np.asarray(found.x), np.asarray(found.y)
    if found is not first:
        run.last = (x, y)
    return DcaState(x, y, float(found.penalty), int(found.k), int(found.calls))
