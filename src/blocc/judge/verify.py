"""Is a result true? Everything it claims is recomputed from the problem's functions and (x, y), and compared.

Nothing else in the result is believed: not its tolerance, not its multipliers, not the units it was made in. The
follower is solved again by another solver, y is judged with multipliers of the verifier's own, and probes around x look
for a better one. A result that says ``CONVERGED`` must pass all of it. Any other status claims its numbers, and what it
says about the problem (:mod:`blocc.judge.status_claim`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.precision import double_precision
from blocc._lib.rounding import KEPT, ROUNDED, TINY
from blocc._lib.threads import single_blas_thread
from blocc.corners import kinks_of
from blocc.errors import BloccError, OptionError
from blocc.judge.challenge import cost_allowance
from blocc.judge.examine import Judge
from blocc.judge.lower_level import LowerKKT, ratio_with
from blocc.judge.penalty_claim import downhill_by_oracles, gap_by_oracles, gap_of_numbers, wrong_gamma
from blocc.judge.responses import below_tolerance
from blocc.judge.second_opinion import SecondOpinion
from blocc.judge.status_claim import ABOUT_THE_PROBLEM, PROBED, WITHOUT_ANSWER, Claim
from blocc.judge.verdict import Verdict
from blocc.judge.verification import Check, Verification
from blocc.lagrangian import Multipliers, expand, figures, weights, zero_multipliers
from blocc.problem import BilevelProblem
from blocc.reformulate.epigraph import EpigraphForm, epigraph_form
from blocc.reformulate.smoothing import smoothed
from blocc.result import Result, Status

#: The verifier's own tolerance, whatever the result was made with.
TOLERANCE = 1e-5
#: Values of the same function at the same point agree to this, relative to their size.
_SAME = 1e-9
_BELOW = 1e-6  #: by how much a value may lie below its bound, relative
_INSIDE = 1e-7
_ROUNDING = 64.0 * float(np.finfo(float).eps)  #: of the terms of a function that may cancel
_WITNESSES = 32  #: members of X that a bound is held against


def verify(problem: BilevelProblem, result: Result, tolerance: float = TOLERANCE) -> Verification:
    """Recompute everything that ``result`` claims about ``problem``, and say which claims hold.

    ``tolerance`` has the meaning that it has in :class:`~blocc.options.Options`, and is never taken from the result.
    """
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    if not isinstance(result, Result):
        raise OptionError(f"result must be a Result, got {type(result).__name__}")
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0.0 < tolerance < np.inf:
        raise OptionError(f"tolerance must be a positive number, got {tolerance!r}")
    with double_precision(), single_blas_thread(problem.flat.n_y):
        found = _Verifier(problem, result, float(tolerance), problem).run()
        if found.ok or not kinks_of(problem):
            return found
        # At a kink no derivative vanishes: residuals are those of the problem without its kinks, by the best
        # subgradient, or of the functions with their corners rounded off.
        exact = epigraph_form(problem)
        if exact is not None:
            found = _Verifier(problem, result, float(tolerance), exact.problem, exact).run()
        return found if found.ok else _Verifier(problem, result, float(tolerance), smoothed(problem)).run()


class _Verifier:
    """Collects the checks of one result."""

    def __init__(
        self,
        problem: BilevelProblem,
        result: Result,
        tolerance: float,
        smooth: BilevelProblem,
        exact: EpigraphForm | None = None,
    ) -> None:
        """``smooth`` is the problem whose derivatives count; where that is an epigraph form, ``exact`` leads there."""
        self.problem, self.flat, self.result, self.tolerance = problem, problem.flat, result, tolerance
        self.stand_in, self.smooth, self.exact = smooth, smooth.flat, exact
        self.converged = result.status is Status.CONVERGED
        self.checks: list[Check] = []

    def run(self) -> Verification:
        if self._shapes():
            self._sets()
            self._values()
            self._residuals()
            if np.isfinite(self.x).all():
                self._judge()
        if self.converged:
            wrong = [check.name for check in self.checks if check.against(self.converged)]
            self._add("status", "converged", f"not: {', '.join(wrong)}" if wrong else "converged", not wrong)
        return Verification(self.result.name, self.tolerance, tuple(self.checks), self.converged)

    def _add(
        self, name: str, claimed: Any, recomputed: Any, ok: bool | None, note: str = "", needed: bool = True
    ) -> None:
        plain = lambda value: value if isinstance(value, str) else float(value)  # noqa: E731
        found = None if ok is None else bool(ok)
        self.checks.append(Check(name, plain(claimed), plain(recomputed), found, note, needed))

    # --- does it fit, and is it allowed? ------------------------------------------------------------------------
    def _shapes(self) -> bool:
        """Flatten everything; a result of another problem ends here."""
        result, problem = self.result, self.problem
        try:
            self.x = _flatten(problem.x_set.template, result.x, "x")
            self.y, self.y_penalty = (
                np.asarray(problem.y_set.lift_flat(_flatten(problem.y_set.template, part, name)))
                for part, name in ((result.y, "y"), (result.y_penalty, "y_penalty"))
            )
            self.prices = Multipliers(
                *(
                    _flatten(problem.unravel_multipliers(name, np.zeros(size)), prices, f"multipliers.{name}")
                    for name, size, prices in (
                        ("inequality", self.flat.n_inequality, result.multipliers.inequality),
                        ("equality", self.flat.n_equality, result.multipliers.equality),
                    )
                )
            )
        except BloccError as error:
            self._add("shapes", "those of the problem", str(error), False)
            return False
        self._add("shapes", "those of the problem", "the same", True)
        if not self.flat.y_set.is_smooth and all(np.isfinite(part).all() for part in (self.x, self.y, *self.prices)):
            # A zero may stand for any point of a tiny tip: the one that is meant is the lowest.
            slope = expand(self.flat, self.x, self.y, self.prices, weights(self.flat)).gradient_y
            self.y = self.flat.y_set.descended_flat(self.y, np.asarray(slope))
        return True

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

    # --- numbers ------------------------------------------------------------------------------------------------
    def _values(self) -> None:
        r, flat, c = self.result, self.flat, self.result.certificate
        cases: tuple[tuple[str, float, Callable[..., Any], np.ndarray], ...] = (
            ("upper value", r.upper_value, flat.upper, self.y),
            ("lower value", r.lower_value, flat.lower, self.y),
            ("upper value at yF", r.upper_value_penalty, flat.upper, self.y_penalty),
        )
        for name, claimed, function, y in cases:
            found = float(function(jnp.asarray(self.x), jnp.asarray(y)))
            slopes = jax.grad(function, argnums=(0, 1))(jnp.asarray(self.x), jnp.asarray(y))
            terms = sum(float(np.abs(slope) @ np.abs(at)) for slope, at in zip(slopes, (self.x, y), strict=True))
            rounding = _ROUNDING * terms if np.isfinite(terms) else 0.0
            self._add(name, claimed, found, _same(claimed, found, _SAME * (1.0 + abs(claimed)) + rounding))
        self._bound()
        size = _SAME * (1.0 + _largest(self.y) + _largest(self.y_penalty))
        distance = float(np.linalg.norm(self.y_penalty - self.y))
        self._add("||yF - y||", c.distance, distance, _same(c.distance, distance, size))
        at = jnp.asarray(self.x), jnp.asarray(self.y)
        violated = float(np.max(np.asarray(flat.upper_inequality(*at)), initial=0.0))
        slopes = jax.jacfwd(flat.upper_inequality, argnums=(0, 1))(*at)
        terms = sum(np.abs(slope) @ np.abs(z) for slope, z in zip(slopes, at, strict=True))
        rounding = _ROUNDING * float(np.max(terms, initial=0.0)) if np.isfinite(terms).all() else 0.0
        honest = _same(c.leader_violation, violated, _SAME * (1.0 + violated) + rounding)
        self._add("leader's constraint", c.leader_violation, violated, honest)

    def _bound(self) -> None:
        """A bound and a gap must fit the value; the proof behind the bound is not repeated."""
        r = self.result
        if r.bound is None and r.gap is None:
            return
        left = np.nan if r.bound is None else r.upper_value - r.bound
        slack = _BELOW * (1.0 + abs(r.upper_value))
        fits = r.gap is None or _same(r.gap, left, slack)
        told = np.nan if r.gap is None else r.gap
        refuted = bool(left < -slack) and r.certificate.exact
        note = "the value itself lies below the bound" if refuted else ""
        self._add("gap of the bound", told, left, r.bound is not None and fits and not refuted, note)

    def _below_bound(self, judge: Judge, unit: float) -> None:
        """Descents from members of X that end below a false bound; without one it is not checked."""
        bound = self.result.bound
        if bound is None or bound == -np.inf:  # which claims nothing
            return
        if not judge.dense:
            self._add("bound", bound, "no proof", None, "the proof is not repeated", needed=False)
            return
        generator = np.random.default_rng(0)
        found = [judge.reduced_objective(self.smooth.x_set.sample_flat(generator)) for _ in range(_WITNESSES)]
        seen = sorted((value for value in found if value is not None), key=lambda value: value.upper)
        ends = [judge.follow(value) for value in seen[: _WITNESSES // 4]]
        allowed = below_tolerance(self.tolerance)
        least = min((end.upper for end in [*seen, *ends] if end.violation <= allowed), default=np.inf)
        slack = _BELOW * (1.0 + abs(bound)) + self.tolerance * unit
        refuted = not least >= bound - slack
        note = f"the least of {len(seen)} values and {len(ends)} descents; the proof is not repeated"
        self._add("bound", bound, least, False if refuted else None, note, needed=False)

    def _residuals(self) -> None:
        """The certificate's residuals, by their definition and with the result's own multipliers."""
        c = self.result.certificate
        y = self._raised(self.y)
        found = figures(self.smooth, self.x, y, self._priced(y)).residuals
        noise = 1e-11 * (1.0 + _largest(self.y) + sum(_largest(np.asarray(part)) for part in self.prices))
        for name in ("stationarity", "feasibility", "complementarity"):
            claimed, value = float(getattr(c, name)), float(getattr(found, name))
            self._add(f"lower level: {name}", claimed, value, _same(claimed, value, noise + KEPT * abs(value)))

    def _priced(self, y: np.ndarray) -> Multipliers:
        """The result's multipliers as the problem has them whose derivatives count."""
        if self.exact is None:
            return self.prices
        finite = all(np.isfinite(part).all() for part in (self.x, y, *self.prices))
        return self.exact.priced(self.x, y, self.prices) if finite else zero_multipliers(self.smooth)

    def _raised(self, y: np.ndarray) -> np.ndarray:
        """The follower's variables as the problem has them whose derivatives count."""
        return y if self.exact is None else self.exact.raised(self.x, y)

    # --- is it the answer? --------------------------------------------------------------------------------------
    def _judge(self) -> None:
        told = bool(np.isfinite(self.y).all())
        y = self._raised(self.y) if told else self.smooth.y_set.interior_flat()
        judge = Judge.over(self.smooth, lambda x: None)
        first = judge.polished(self.x, y) if judge.dense else None
        sizes = np.maximum(1.0, np.abs(y)) if first is None else first.sizes.y
        scale = max(1.0, abs(self.result.lower_value)) if first is None else float(np.max(first.slope, initial=TINY))
        second = SecondOpinion(self.smooth, y, sizes, scale)
        if self.converged and told:
            self._minimiser(second, scale, first)
        judge = Judge.over(self.smooth, second.answer, self.tolerance)
        needed = self.converged and told and not judge.dense
        verdict = judge.examine(
            self.x,
            y,
            downhill=downhill_by_oracles(self.stand_in, self.x, y) if needed else None,
            multipliers=self._priced(y),
            probes=self.converged or self.result.status in PROBED,
            polishing=False,
        )
        if told:
            self._below_bound(judge, verdict.unit)
            self._lower_level(verdict)
            self._leader(verdict)
            self._penalty(verdict)
        self._status(y, verdict, second)

    def _status(self, y: np.ndarray, verdict: Verdict, second: SecondOpinion) -> None:
        """What a status other than ``CONVERGED`` says about the problem."""
        status = self.result.status
        if status not in ABOUT_THE_PROBLEM:
            return
        y_penalty = self._raised(self.y_penalty) if np.isfinite(self.y_penalty).all() else y
        claim = Claim(self.smooth, self.result, self.x, y, y_penalty, verdict, second, self.tolerance)
        against = claim.contradiction()
        self._add("status", status.value, against or "nothing speaks against it", not against)

    def _minimiser(self, second: SecondOpinion, scale: float, judged: LowerKKT | None) -> None:
        """Whether y is the follower's answer, by a solver of another family."""
        found = second.best(self.x)
        claimed = self.result.lower_value
        if found is None:
            self._add("y minimises g", claimed, "no second opinion", None)
            return
        wanted = below_tolerance(self.tolerance)
        allowed = 10.0 * wanted * scale if judged is None else cost_allowance(judged, found, wanted)
        self._add("y minimises g", claimed, found.value, claimed - found.value <= allowed, found.solver)

    def _lower_level(self, verdict: Verdict) -> None:
        """Residuals relative to natural sizes, with multipliers of the verifier's own."""
        if self.result.certificate.exact and self.result.settings.get("method") != "global":
            holds = verdict.lower_optimal and verdict.admissible
            self._add("exact", "y answers x, G holds", "so it is" if holds else "not shown", holds)
        if verdict.reply is None or not self.converged:
            return
        allowed = below_tolerance(self.tolerance)
        for name in ("stationarity", "feasibility"):
            value = getattr(verdict.reply, name)
            self._add(f"y answers x: {name}", f"within {allowed:.0e}", value, value <= allowed, "own multipliers")
        unsure = verdict.undetermined
        self._add(
            "y answers x: distance", f"within {self.tolerance:.0e}", unsure or "nothing speaks against it", not unsure
        )
        self._own_multipliers(verdict.reply, allowed)
        objection = verdict.challenge.objection
        self._add("best response", "none better", objection or "none better found", not objection)
        self._add(
            "G(x, y) <= 0", f"within {allowed:.0e}", verdict.value.violation, verdict.admissible, "relative to its rows"
        )

    def _own_multipliers(self, judged: LowerKKT, allowed: float) -> None:
        """A result that says ``CONVERGED`` must not print multipliers that prove nothing."""
        left = ratio_with(self.smooth, judged, *map(np.asarray, self._priced(judged.y)))
        self._add("multipliers", f"within {allowed:.0e}", left, left <= 10.0 * allowed, "those of the result")

    def _leader(self, verdict: Verdict) -> None:
        """Whether x is stationary for f(x, y(x)), and whether the certificate says so truthfully."""
        c = self.result.certificate
        sound = bool(np.isfinite(c.radius) and c.radius >= 0.0)
        self._add("radius", c.radius, "a length" if sound else "no length", sound)
        slope = verdict.slope
        if self.result.status in WITHOUT_ANSWER:  # of a penalty function that was not descended to the end
            self._add("stationarity of x", c.stationarity_x, "not recomputed", None)
        elif slope is not None:
            found = _largest(slope.left)
            noise = 2.0 * self.tolerance * float(verdict.unit / np.min(slope.sizes))
            honest = _same(c.stationarity_x, found, noise + 0.1 * abs(found)) if c.radius == 0.0 or sound else False
            if not self.converged:  # what was not judged to the end may tell a larger slope, never a smaller one
                honest = honest or c.stationarity_x >= found
            small = not self.converged or verdict.first_order is not False
            self._add("stationarity of x", c.stationarity_x, found, honest and small, "derivative of f(x, y(x))")
        elif self.converged:
            honest = bool(np.isfinite(c.stationarity_x)) and c.stationarity_x >= 0.0
            limit = 2.0 * verdict.probed.steepest + 10.0 * self.tolerance * verdict.scale / float(
                np.min(verdict.reply.sizes.x) if verdict.reply is not None else 1.0
            )
            honest = honest and c.stationarity_x <= limit
            self._add("stationarity of x", c.stationarity_x, verdict.probed.steepest, honest, "probes around x")
        if self.converged:
            gain = verdict.probed.gain if verdict.probed.better is not None else 0.0
            note = f"{verdict.probed.asked} probes"
            ok = None if verdict.probed.asked == 0 and self._movable() else verdict.probed.better is None
            self._add("no better x nearby", "none", f"gain {gain:.2g}" if gain else "none", ok, note)
            if verdict.unsettled:
                self._add("x is a minimum", "decided", verdict.unsettled, False)
            if verdict.unbounded:
                self._add("bounded", "a minimum", "f falls for ever along a ray", False)

    def _penalty(self, verdict: Verdict) -> None:
        """gamma and the penalty gap: no part of what makes a success, but numbers that are told.

        The augmented Lagrangian of a leader's own constraints has multipliers that a result does not tell: there the
        gap is held against yF alone.
        """
        r, gamma, claimed = self.result, self.result.gamma, self.result.certificate.penalty_gap
        if r.status in WITHOUT_ANSWER:
            self._add("penalty gap", claimed, "not recomputed", None)
            return
        method = r.settings.get("method")
        unit = verdict.unit
        apart = float(np.linalg.norm(self.y_penalty - self.y)) > self.tolerance * (1.0 + _largest(self.y))
        hidden = apart or not abs(claimed) <= self.tolerance * unit
        ratio = 0.0 if verdict.reply is None else float(np.max(verdict.reply.slope, initial=0.0)) / unit
        wrong = wrong_gamma(gamma, hidden, method, ratio)
        self._add("gamma", gamma, wrong or "possible", not wrong)
        if wrong:
            return
        found: tuple[float, str] | None = None
        own = method is None and r.settings.get("outer") != "pgd"
        if not 0.0 < gamma < np.inf:
            found = 0.0, ""
        elif not self.flat.n_upper_inequality and r.settings.get("outer") != "pgd":
            wanted = 0.1 * self.tolerance * verdict.scale
            target = self.problem if self.exact is None else self.stand_in
            found = gap_by_oracles(target, self.x, self._raised(self.y), gamma, wanted, verdict.lower_optimal)
        if found is None and own:
            found = gap_of_numbers(self.flat, self.x, self.y, self.y_penalty, gamma), "yF as told"
        if found is None:  # other methods and Algorithm 1 tell a y of their own in place of yF
            sound = bool(np.isfinite(claimed)) and claimed >= -10.0 * self.tolerance * unit
            self._add("penalty gap", claimed, "a gap" if sound else "no gap", sound or not self.converged)
            return
        gap, note = found
        rounding = ROUNDED * gamma * (1.0 + abs(r.lower_value)) if note == "yF as told" else 0.0
        ok = _same(claimed, gap, 10.0 * self.tolerance * unit + 1e-3 * abs(gap) + rounding)
        self._add("penalty gap", claimed, gap, ok, note)

    def _movable(self) -> bool:
        low, high = self.flat.x_set.bounds_flat()
        return bool((high > low).any())


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
