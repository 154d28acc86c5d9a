"""Is a result true? Everything it claims is recomputed from the problem's functions, and compared.

The solver that produced the result is not asked. A result that says ``CONVERGED`` must also meet the tolerance in the
recomputed numbers; any other status claims nothing but its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc.errors import BloccError, OptionError
from blocc.outer.continuation import Goal
from blocc.penalty import Leader, no_leader
from blocc.precision import double_precision
from blocc.problem import BilevelProblem
from blocc.recompute import Penalty, gain_at, in_units, kkt, penalty_at, slope_at, solve_below
from blocc.result import Result, Status
from blocc.scaling import Units, slope_ratio, units_of
from blocc.verification import Check, Verification

#: Values of the same function at the same point agree to this, relative to their size.
_SAME = 1e-9
_INSIDE = 1e-7
#: Powers of two by which the units of a run, chosen at its start, may differ from those at its end.
_FAR = 20.0


def verify(problem: BilevelProblem, result: Result, tolerance: float | None = None) -> Verification:
    """Recompute everything that ``result`` claims about ``problem``, and say which claims hold.

    ``tolerance`` is relative, as in :class:`~blocc.options.Options`; by default the one the result was made with.
    """
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    if not isinstance(result, Result):
        raise OptionError(f"result must be a Result, got {type(result).__name__}")
    wanted = result.settings.get("tolerance", 1e-5) if tolerance is None else tolerance
    if isinstance(wanted, bool) or not isinstance(wanted, (int, float)) or not 0.0 < wanted < np.inf:
        raise OptionError(f"tolerance must be a positive number, got {wanted!r}")
    with double_precision():
        return _Verifier(problem, result, float(wanted)).run()


class _Verifier:
    """Collects the checks of one result."""

    def __init__(self, problem: BilevelProblem, result: Result, tolerance: float) -> None:
        self.problem, self.flat, self.result = problem, problem.flat, result
        self.goal = Goal(tolerance=tolerance)
        self.converged = result.status is Status.CONVERGED
        self.other_method = "method" in result.settings
        self.checks: list[Check] = []

    def run(self) -> Verification:
        if self._shapes():
            self._sets()
            self._values()
            self._lower_level()
            self._penalty()
        if self.converged:
            wrong = [check.name for check in self.checks if not check.ok]
            self._add("status", "converged", f"not: {', '.join(wrong)}" if wrong else "converged", not wrong)
        return Verification(self.result.name, self.goal.tolerance, tuple(self.checks), self.converged)

    def _add(self, name: str, claimed: Any, recomputed: Any, ok: bool | None, note: str = "") -> None:
        plain = lambda value: value if isinstance(value, str) else float(value)  # noqa: E731
        self.checks.append(Check(name, plain(claimed), plain(recomputed), None if ok is None else bool(ok), note))

    # --- does it fit, and is it allowed? ------------------------------------------------------------------------
    def _shapes(self) -> bool:
        """Flatten everything; a result of another problem ends here."""
        result, problem = self.result, self.problem
        try:
            self.x = _flatten(problem.x_set.template, result.x, "x")
            self.y = _flatten(problem.y_set.template, result.y, "y")
            self.y_penalty = _flatten(problem.y_set.template, result.y_penalty, "y_penalty")
            parts = [
                _flatten(problem.unravel_multipliers(name, np.zeros(size)), prices, f"multipliers.{name}")
                for name, size, prices in (
                    ("inequality", self.flat.n_inequality, result.multipliers.inequality),
                    ("equality", self.flat.n_equality, result.multipliers.equality),
                )
            ]
        except BloccError as error:
            self._add("shapes", "those of the problem", str(error), False)
            return False
        self.prices: tuple[np.ndarray, np.ndarray] = (parts[0], parts[1])
        self._add("shapes", "those of the problem", "the same", True)
        self._units()
        return True

    def _units(self) -> None:
        """The problem in the units it was solved in; tolerances are relative to those."""
        told = self.result.settings.get("units")
        self.work, self.units = self.problem, None
        self.at = (self.x, self.y, *self.prices)
        if told is None:
            return
        try:
            units = Units(**{name: np.asarray(part, dtype=np.float64) for name, part in told.items()})
            work = in_units(self.problem, units)
        except (TypeError, ValueError, AttributeError) as error:
            self._add("units", "those of the run", f"unusable: {error}", False)
            return
        # Units that have nothing to do with the problem could make any slope look small.
        expected = units_of(self.flat, self.x)
        away = abs(float(np.log2(units.upper)) - (0.0 if expected is None else float(np.log2(expected.upper))))
        self._add("units", "those of the run", "plausible" if away <= _FAR else "far from the problem's", away <= _FAR)
        self.work, self.units = work, units
        mu, nu = self.prices
        prices = (mu * units.lower / units.inequality, nu * units.lower / units.equality)
        self.at = (self.x / units.x, self.y / units.y, *prices)

    def _sets(self) -> None:
        for name, point, convex_set in (("x", self.x, self.flat.x_set), ("y", self.y, self.flat.y_set)):
            if not np.isfinite(point).all():
                self._add(f"{name} in its set", "member", "not finite", not self.converged)
                continue
            away = float(np.linalg.norm(np.asarray(convex_set.project_flat(jnp.asarray(point))) - point))
            within = away <= _INSIDE * (1.0 + _largest(point))
            # A run that failed below may hold the follower's best attempt, which its certificate calls infeasible.
            allowed = name == "y" and not self.converged and away <= 2.0 * self.result.certificate.feasibility + _INSIDE
            self._add(f"{name} in its set", "member", f"{away:.1e} away", within or allowed)

    # --- values -------------------------------------------------------------------------------------------------
    def _values(self) -> None:
        r, flat = self.result, self.flat
        cases: tuple[tuple[str, float, Callable[..., Any], np.ndarray], ...] = (
            ("upper value", r.upper_value, flat.upper, self.y),
            ("lower value", r.lower_value, flat.lower, self.y),
            ("upper value at yF", r.upper_value_penalty, flat.upper, self.y_penalty),
        )
        for name, claimed, function, y in cases:
            found = float(function(jnp.asarray(self.x), jnp.asarray(y)))
            self._add(name, claimed, found, _same(claimed, found, _SAME * (1.0 + abs(claimed))))
        size = _SAME * (1.0 + _largest(self.y) + _largest(self.y_penalty))
        self.distance = float(np.linalg.norm(self.y_penalty - self.y))
        self._add(
            "||yF - y||", r.certificate.distance, self.distance, _same(r.certificate.distance, self.distance, size)
        )

    # --- the follower -------------------------------------------------------------------------------------------
    def _lower_level(self) -> None:
        c = self.result.certificate
        found = kkt(self.flat, self.x, self.y, *self.prices)
        judged = found if self.units is None else kkt(self.work.flat, *self.at)
        # Large prices magnify rounding in the gradient of the Lagrangian; beyond 100 they count in the scale.
        prices = np.concatenate(self.at[2:])
        steep = max(1.0, float(np.abs(prices).mean()) / 100.0) if prices.size else 1.0
        allowed = max(1e-6, self.goal.tolerance) * (1.0 + _largest(self.at[1]))
        for name, scale in (("stationarity", steep), ("feasibility", 1.0), ("complementarity", 1.0)):
            claimed, value = getattr(c, name), getattr(found, name)
            blur = found.noise + 1e-6 * abs(value)
            small = not self.converged or getattr(judged, name) <= allowed * scale
            self._add(f"lower level: {name}", claimed, value, small and _same(claimed, value, blur))
        violated = float(np.max(self.flat.upper_inequality(jnp.asarray(self.x), jnp.asarray(self.y)), initial=0.0))
        limit = self.goal.leader_tolerance * (1.0 + _largest(self.x))
        fits = _same(c.leader_violation, violated, _SAME * (1.0 + violated))
        self._add(
            "leader's constraint", c.leader_violation, violated, fits and (not self.converged or violated <= limit)
        )
        if self.converged:
            self._minimiser()

    def _minimiser(self) -> None:
        """Whether y is the follower's answer, by a solver of another family."""
        unit = 1.0 if self.units is None else float(self.units.lower)
        claimed = self.result.lower_value
        found = solve_below(self.work.flat, *self.at[:2])
        if found is None:
            self._add("y minimises g", claimed, "no second opinion", None)
            return
        # A point that violates its constraints a little is worth that much times their prices less.
        slack = found.violation * float(sum(np.abs(part).sum() for part in self.at[2:]))
        allowed = max(1e-6, self.goal.tolerance) * (1.0 + abs(found.value)) + slack
        better = claimed * unit - found.value
        self._add("y minimises g", claimed, found.value / unit, better <= allowed, found.solver)

    # --- the leader ---------------------------------------------------------------------------------------------
    def _leader(self) -> Leader | None:
        """Multipliers of the leader's own constraints; None where the result does not tell."""
        told = self.result.settings.get("leader")
        if self.flat.n_upper_inequality and told is not None:
            multipliers, penalty = np.asarray(told["multipliers"], float), np.asarray(told["penalty"], float)
            if multipliers.shape != (self.flat.n_upper_inequality,) or (multipliers < 0.0).any() or not penalty > 0.0:
                return None
            return Leader(multipliers, penalty)
        if self.flat.n_upper_inequality and not self.other_method and self.result.settings.get("outer") != "pgd":
            return None
        found: Leader = jax.device_get(no_leader(self.flat))
        return found

    def _penalty(self) -> None:
        r, c = self.result, self.result.certificate
        leader = self._leader()
        used = r.settings.get("inner", "auto")
        gamma = r.gamma if self.units is None else r.gamma * float(self.units.upper / self.units.lower)
        usable = np.isfinite(self.x).all() and gamma > 0.0
        found = penalty_at(self.work, self.at[0], gamma, leader, self.goal, used) if usable and leader else None
        if found is None or leader is None:
            why = "no second opinion" if leader is not None else "the leader's multipliers are not told"
            for name, claimed in (("penalty gap", c.penalty_gap), ("stationarity of x", c.stationarity_x)):
                self._add(name, claimed, why, None)
            return
        self._gap(found)
        self._stationarity(found, leader)

    def _gap(self, found: Penalty) -> None:
        r, x, y = self.result, *self.at[:2]
        unit = 1.0 if self.units is None else float(self.units.upper)
        upper = float(self.work.flat.upper(jnp.asarray(x), jnp.asarray(y)))
        gap, allowed = upper - float(found.evaluation.value), self.goal.tolerance * (1.0 + abs(upper))
        ok = _same(r.certificate.penalty_gap * unit, gap, allowed)
        if self.converged and r.settings.get("gamma") == "auto":
            distance = self.distance
            if self.units is not None:
                distance = float(np.linalg.norm(self.y_penalty / self.units.y - y))
            size = 1.0 + float(np.linalg.norm(y))
            ok = ok and abs(gap) <= 1.01 * allowed and distance <= 10.1 * self.goal.tolerance * size
        self._add("penalty gap", r.certificate.penalty_gap, gap / unit, ok, found.solver)

    def _stationarity(self, found: Penalty, leader: Leader) -> None:
        c, e = self.result.certificate, found.evaluation
        wanted = self.goal.slope(e, self.goal.tolerance)
        slope = slope_at(found, leader, self.goal, 0.0 if self.other_method else c.radius)
        if self.other_method and slope.size > wanted and self.converged:
            slope, wanted = gain_at(found, leader, self.goal), self.goal.tolerance * (1.0 + abs(float(e.value)))
        noise = 10.0 * self.goal.finest * float(e.gamma)
        # Below the tolerance numbers may differ: they are made of inner solutions, magnified by gamma.
        unit = 1.0
        if self.units is not None:
            unit = slope_ratio(self.result.upper_value * float(self.units.upper), self.units)
        claimed = c.stationarity_x / unit
        fits = _same(claimed, slope.size, 2.0 * wanted + noise + 0.05 * abs(slope.size))
        honest = fits or (slope.size <= claimed) or self.other_method
        small = slope.size <= 1.5 * wanted + noise
        ok = honest and (small or not self.converged)
        self._add("stationarity of x", c.stationarity_x, slope.size * unit, ok, slope.how)


def _largest(vector: np.ndarray) -> float:
    return float(np.max(np.abs(vector), initial=0.0))


def _same(claimed: float, found: float, allowed: float) -> bool:
    """Equal up to ``allowed``; what is not finite must be the same kind of not finite."""
    if not (np.isfinite(claimed) and np.isfinite(found)):
        return bool(claimed == found or (np.isnan(claimed) and np.isnan(found)))
    return bool(abs(claimed - found) <= allowed)


def _flatten(template: Any, tree: Any, name: str) -> np.ndarray:
    """A pytree as a vector, if its leaves have the shapes of the template's; named tuples may have become tuples."""
    expected, leaves = jax.tree.leaves(template), jax.tree.leaves(tree)
    shapes = [np.shape(leaf) for leaf in expected], [np.shape(leaf) for leaf in leaves]
    if sum(map(np.size, expected)) == sum(map(np.size, leaves)) == 0:
        return np.zeros(0)
    if shapes[0] != shapes[1]:
        raise OptionError(f"{name} has the shapes {shapes[1]}, the problem wants {shapes[0]}")
    try:
        return np.concatenate([np.asarray(leaf, dtype=np.float64).ravel() for leaf in leaves])
    except (TypeError, ValueError):
        raise OptionError(f"{name} does not hold numbers") from None
