"""Run any method of this room: choose its numbers, iterate in compiled chunks, judge the end as blocc judges itself.

Whatever a method believes, the certificate is computed at its x: the follower's problem is solved again, exactly, and
stationarity is that of the penalty function.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc import conclude
from blocc.compilation import compile_ahead
from blocc.inner.auto import choose_oracles
from blocc.inner.protocol import InnerSolution
from blocc.lagrangian import weights
from blocc.methods.gam import Gam, active_gradient, kkt_sensitivity
from blocc.methods.protocol import Method, Size, constraints
from blocc.methods.requirements import require
from blocc.outer import continuation
from blocc.outer.continuation import Goal
from blocc.outer.function import PenaltyFunction
from blocc.outer.monitor import HistoryRow, Monitor, State, Stop, StopReason
from blocc.outer.stage import Outcome, measure
from blocc.penalty import Evaluation, no_leader
from blocc.problem import BilevelProblem
from blocc.result import Result, Status

Array = Any
Callback = Callable[[State], Any]
Report = Callable[[int, HistoryRow], None]

#: Rows of the history that a full run leaves.
ROWS = 40
#: Share of the iterations that is spent on choosing among automatic numbers.
TRIAL = 0.1
#: Iterations of the first compiled call; the next ones are as long as about a second allows.
FIRST_PIECE = 20
#: Seconds for the descent that tests an answer.
PROBE_SECONDS = 10.0
EXACT_GAMMAS = (1.0, 10.0, 1e2, 1e3, 1e4, 1e5)


@dataclass(frozen=True)
class MethodOptions:
    """What every method understands."""

    tolerance: float = 1e-3
    max_iterations: int = 20_000
    time_limit: float | None = None
    seed: int = 0


class MethodRun:
    """One run of one method from one start."""

    def __init__(
        self,
        problem: BilevelProblem,
        method: Method,
        options: MethodOptions,
        callback: Callback | None = None,
        report: Report | None = None,
    ) -> None:
        self.problem, self.flat, self.method, self.options = problem, problem.flat, method, options
        self.monitor = Monitor(problem.x_set.unravel, callback, report, options.time_limit)
        oracles = choose_oracles(problem, "auto")
        self.function = PenaltyFunction(problem.flat, oracles, problem.cache, self.monitor, options.seed)
        self.oracle = oracles[0]
        self.goal = Goal(tolerance=options.tolerance, finest=max(Goal.finest, getattr(self.oracle, "finest", 0.0)))
        self.compile_seconds = 0.0
        self.iterations = 0
        self.broke = False  #: the iterates ran away
        self.trouble = ""  #: why the method could not go on
        self.numbers: dict[str, float] = {}

    def run(self, x: np.ndarray) -> Result:
        """From ``x`` to a judged result."""
        first = self.follower(x)
        y = np.asarray(first.y)
        if not np.isfinite(y).all():
            y = np.asarray(self.flat.y_set.interior_flat())
        require(self.flat, self.method, x, y, self.options.seed)
        stop: StopReason | None = None
        end = (x, y)
        try:
            end = self.iterate(x, y)
        except (Stop, KeyboardInterrupt) as reason:
            stop = reason.reason if isinstance(reason, Stop) else StopReason.INTERRUPTED
            end = self.last
        return self.conclude(*end, stop)

    # --- iterations ---------------------------------------------------------------------------------------------
    def iterate(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All iterations of the method; the last point."""
        self.last = (x, y)
        limit = self.options.max_iterations
        candidates = self.candidates(x, y)
        if isinstance(self.method, Gam):
            self.numbers = candidates[0]
            return self.method.drive(self, x, y)
        if len(candidates) == 1:
            self.numbers = candidates[0]
            state, k = self.method.start(self.flat, jnp.asarray(x), jnp.asarray(y)), 0
        else:
            state, k = self.choose(candidates, x, y, max(int(TRIAL * limit), 1))
        chunk = max((limit - k) // ROWS, 1)
        before: tuple[np.ndarray, np.ndarray] | None = None
        while k < limit:
            count = min(chunk, limit - k)
            state, done = self.advance(self.numbers, state, k, count)
            k += done
            x, y = (np.asarray(part) for part in self.method.answer(state))
            if not (np.isfinite(x).all() and np.isfinite(y).all()):
                self.broke = True
                return self.last
            self.iterations = k
            step = float(np.linalg.norm(x - self.last[0]))
            self.last = (x, y)  # before the record, which may end the run
            self.record(x, y, k, step)
            if before is not None and self.settled(before, (x, y)):
                break
            before = (x, y)
        return self.last

    def settled(self, before: tuple[np.ndarray, np.ndarray], now: tuple[np.ndarray, np.ndarray]) -> bool:
        """Whether a whole chunk moved x and y by less than a hundredth of the tolerance."""
        least = 1e-2 * self.options.tolerance
        return all(
            float(np.abs(new - old).max(initial=0.0)) <= least * (1.0 + float(np.abs(new).max(initial=0.0)))
            for old, new in zip(before, now, strict=True)
        )

    def candidates(self, x: np.ndarray, y: np.ndarray) -> list[dict[str, float]]:
        """Settings to try: one if every number was given."""
        given = self.method.given
        if set(self.method.names) <= set(given):
            return [dict(given)]
        found: list[dict[str, float]] = []
        for setting in self.method.automatic(measure_size(self.problem, x, y)):
            if setting not in found:
                found.append(setting)
        return found

    def choose(self, candidates: list[dict[str, float]], x: np.ndarray, y: np.ndarray, count: int) -> tuple[Any, int]:
        """Run all settings side by side for a while; go on with the one whose x is best at the exact lower level."""
        numbers = {name: np.array([c[name] for c in candidates]) for name in candidates[0]}
        state = self.method.start(self.flat, jnp.asarray(x), jnp.asarray(y))
        states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(candidates), *leaf.shape)), state)
        # With a time limit the trials may take a fifth of it.
        limit = self.options.time_limit
        until = np.inf if limit is None else self.monitor.elapsed() + 0.2 * max(limit - self.monitor.elapsed(), 0.0)
        states, count = self.advance(numbers, states, 0, count, len(candidates), until)
        best, chosen = np.inf, 0
        for index in range(len(candidates)):
            point = np.asarray(self.method.answer(states)[0][index])
            if not np.isfinite(point).all():
                continue
            answer = self.follower(point)
            if float(np.max(np.stack(answer.residuals))) > 1e-3:
                continue
            value = self.upper(point, np.asarray(answer.y))
            if value < best:
                best, chosen = value, index
        self.numbers = candidates[chosen]
        if not np.isfinite(best):  # none of them works: the most cautious begins again
            self.numbers = candidates[-1]
            return state, 0
        return jax.tree.map(lambda leaf: leaf[chosen], states), count

    def advance(
        self, numbers: Any, state: Any, k: int, count: int, batch: int = 0, until: float = np.inf
    ) -> tuple[Any, int]:
        """Up to ``count`` iterations from k on, in calls of about a second, so that limits are kept."""
        done, piece = 0, FIRST_PIECE
        while done < count and (done == 0 or self.monitor.elapsed() < until):
            self.monitor.check_time()
            some = min(piece, count - done)
            begun = time.perf_counter()
            compiled = self.compile_seconds
            state = jax.block_until_ready(self.chunk(numbers, state, k + done, some, batch))
            seconds = time.perf_counter() - begun - (self.compile_seconds - compiled)
            done += some
            piece = max(1, min(int(some / max(seconds, 1e-6)), 20 * some))
        return state, done

    def chunk(self, numbers: Any, state: Any, k: int, count: int, batch: int = 0) -> Any:
        """Some iterations in one compiled call."""

        def several(numbers: Any, state: Any, first: Array, count: Array) -> Any:
            step = lambda i, s: self.method.step(self.flat, numbers, s, first + i)  # noqa: E731
            return jax.lax.fori_loop(0, count, step, state)

        function = jax.vmap(several, in_axes=(0, 0, None, None)) if batch else several
        arguments = (
            jax.tree.map(lambda value: jnp.asarray(value, jnp.float64), dict(numbers)),
            state,
            jnp.asarray(k),
            jnp.asarray(count),
        )
        key = ("method", self.method.name, tuple(sorted(self.method.counts.items())), batch)
        if key not in self.problem.cache:
            self.problem.cache[key], seconds = compile_ahead(function, *arguments)
            self.compile_seconds += seconds
        return self.problem.cache[key](*arguments)

    # --- the follower -------------------------------------------------------------------------------------------
    def follower(self, x: np.ndarray) -> InnerSolution:
        """The exact answer of the lower level."""
        arguments = (jnp.asarray(x), jnp.asarray(1e-10))
        key = ("follower", self.oracle)
        if key not in self.problem.cache:

            def solve(point: Array, tolerance: Array) -> InnerSolution:
                return self.oracle.solve(self.flat, point, weights(self.flat), self.oracle.cold(self.flat), tolerance)

            self.problem.cache[key], seconds = compile_ahead(solve, *arguments)
            self.compile_seconds += seconds
        return jax.device_get(self.problem.cache[key](*arguments)._replace(warm=()))

    def upper(self, x: np.ndarray, y: np.ndarray) -> float:
        """The upper objective."""
        return self.values(x, y)[0]

    def values(self, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
        """Both objectives."""
        if "values" not in self.problem.cache:
            flat = self.flat
            self.problem.cache["values"] = jax.jit(lambda a, b: (flat.upper(a, b), flat.lower(a, b)))
        upper, lower = self.problem.cache["values"](x, y)
        return float(upper), float(lower)

    def compiled_gam(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Sensitivities and gradients for any active set, compiled once for the problem."""
        if "gam" not in self.problem.cache:
            flat = self.flat
            sensitivity = jax.jit(lambda x, y, mu, nu, active: kkt_sensitivity(flat, x, y, mu, nu, active))
            gradient = jax.jit(lambda x, y, mu, nu, active: active_gradient(flat, x, y, mu, active, nu))
            self.problem.cache["gam"] = sensitivity, gradient
        return self.problem.cache["gam"]

    def record(self, x: np.ndarray, y: np.ndarray, k: int, step: float) -> None:
        """One row of the history, judged at the exact lower level."""
        answer = self.follower(x)
        exact = np.asarray(answer.y)
        self.monitor.append(
            HistoryRow(
                time=self.monitor.elapsed(),
                gamma=np.nan,
                upper_value=self.upper(x, exact),
                upper_value_penalty=self.upper(x, y),
                lower_value=self.values(x, exact)[1],
                penalty_value=np.nan,
                stationarity=np.nan,
                inner_residual=float(np.max(np.stack(answer.residuals))),
                distance=float(np.linalg.norm(y - exact)),
                step=step,
                evaluations=k,
            ),
            x,
        )

    # --- the end ------------------------------------------------------------------------------------------------
    def conclude(self, x: np.ndarray, y: np.ndarray, stop: StopReason | None) -> Result:
        """The certificate at x, and the status it deserves."""
        # What the closing evaluations do is no part of the method's history, and must not be stopped by its limits.
        rows = list(self.monitor.rows)
        self.monitor.callback = self.monitor.report = None
        self.monitor.time_limit, self.monitor.interrupted = None, False
        leader = jax.device_get(no_leader(self.flat))
        evaluation: Evaluation | None = None
        for gamma in EXACT_GAMMAS:
            found = self.function(x, gamma, leader, self.goal.inner(gamma, final=True))
            if found.usable or evaluation is None:
                evaluation = found
            if found.usable and self.goal.exact(found):
                break
        assert evaluation is not None
        outcome = Outcome(evaluation, measure(self.function, evaluation), 0.0)
        status, message = self.judge(outcome, stop)
        if status is Status.CONVERGED or stop is None:
            outcome, status, message = self.probe(outcome, status, message)
        result = conclude.result(
            self.problem,
            outcome,
            status,
            message,
            rows,
            {"evaluations": self.iterations, "iterations": self.iterations},
            {
                "compile": self.compile_seconds + self.function.compile_seconds,
                "run": self.monitor.elapsed() - self.compile_seconds - self.function.compile_seconds,
            },
            {
                "method": self.method.name,
                "numbers": dict(self.numbers),
                "counts": dict(self.method.counts),
                **vars(self.options),
            },
        )
        own = self.problem.y_set.unravel(np.asarray(y))
        distance = float(np.linalg.norm(np.asarray(y) - np.asarray(evaluation.answer)))
        return replace(
            result,
            y_penalty=jax.tree.map(np.asarray, own),
            upper_value_penalty=self.upper(x, y),
            certificate=replace(result.certificate, distance=distance),
        )

    def judge(self, outcome: Outcome, stop: StopReason | None) -> tuple[Status, str]:
        """Before the probe: unusable points, outside stops, divergence."""
        e = outcome.evaluation
        if not e.usable:
            return conclude.explain_failure(self.flat, self.function, e)
        if stop is not None:
            return conclude.STOPPED[stop]
        if self.trouble:
            return Status.STALLED, f"Method {self.method.name!r} could not go on: {self.trouble}."
        if self.broke:
            return Status.NOT_FINITE, "The iterates ran away to infinity; this is the last finite point."
        return Status.ITERATION_LIMIT, ""

    def probe(self, outcome: Outcome, status: Status, message: str) -> tuple[Outcome, Status, str]:
        """Whether x is stationary: by its gradient, or because a descent of F_gamma from x gains nothing."""
        e = outcome.evaluation
        if not e.usable or self.broke or self.trouble:
            return outcome, status, message
        if self.goal.stationary(outcome):
            return outcome, Status.CONVERGED, "x is stationary for F_gamma, and y is the follower's exact answer."
        goal = replace(self.goal, max_iterations=20)
        leader = jax.device_get(no_leader(self.flat))
        self.monitor.time_limit = self.monitor.elapsed() + PROBE_SECONDS
        try:
            reached, _ = continuation.minimise(self.function, e, leader, goal, fixed_gamma=True)
        except Stop:
            return (
                outcome,
                Status.ITERATION_LIMIT,
                (
                    f"x is not stationary (the gradient of F_gamma is {outcome.stationarity:.1e}), as far as "
                    f"{PROBE_SECONDS:g} s could tell."
                ),
            )
        gain = max(float(e.value) - float(reached.evaluation.value), 0.0)
        moved = float(np.linalg.norm(np.asarray(reached.evaluation.x) - np.asarray(e.x)))
        outcome = outcome._replace(stationarity=gain, radius=moved)
        if gain <= self.options.tolerance * (1.0 + abs(float(e.value))):
            return outcome, Status.CONVERGED, "A descent of F_gamma from x gains no more than the tolerance."
        return (
            outcome,
            Status.STALLED if self.iterations < self.options.max_iterations else Status.ITERATION_LIMIT,
            (f"x is not stationary: a descent of F_gamma from here still gains {gain:.2g}."),
        )


def measure_size(problem: BilevelProblem, x: np.ndarray, y: np.ndarray) -> Size:
    """Slopes and curvatures at a point, by dense derivatives."""
    flat = problem.flat
    n = flat.n_x

    def derivatives(both: Array) -> tuple[Array, ...]:
        upper = lambda z: flat.upper(z[:n], z[n:])  # noqa: E731
        below = lambda z: flat.lower(z[:n], z[n:])  # noqa: E731
        curved = jax.hessian(below)(both)
        jacobian = jax.jacfwd(lambda z: constraints(flat, z[:n], z[n:]))(both)
        return jax.hessian(upper)(both), curved[n:, n:], curved[n:, :n], jacobian, jax.grad(upper)(both)

    both = jnp.concatenate([jnp.asarray(x), jnp.asarray(y)])
    if "size" not in problem.cache:
        problem.cache["size"] = jax.jit(derivatives)
    upper, hessian, mixed, jacobian, gradient = (np.asarray(part) for part in problem.cache["size"](both))
    lower = np.linalg.eigvalsh(hessian)
    norm = lambda matrix: float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0  # noqa: E731
    return Size(
        lower=float(np.abs(lower).max()),
        lower_least=float(lower.min()),
        upper=norm(upper),
        coupling=norm(jacobian),
        coupling_y=norm(jacobian[:, n:]),
        mixed=norm(mixed),
        gradient=float(np.linalg.norm(gradient)),
        x=1.0 + float(np.linalg.norm(x)),
    )
