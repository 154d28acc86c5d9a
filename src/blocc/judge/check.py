"""``problem.check(x)``: do the method's assumptions hold near x? Measured, and said in words.

Every finding is a fact about numbers that were computed here, at x and at the follower's answer there; none is a proof
for the whole of X.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, PyTree
from blocc._lib.notebook import card
from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc.errors import OptionError
from blocc.inner.choice import choose_oracles
from blocc.judge.convexity import Jensen, jensen
from blocc.judge.curvature import curvature_of, feasible_samples
from blocc.judge.failures import NO_ROOM, name_nonfinite, no_slater
from blocc.judge.jumps import in_words
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.penalty import Evaluation, no_upper_multipliers
from blocc.problem import BilevelProblem

_DENSE = 2000  #: beyond this many variables dense Jacobians are not formed


@dataclass(frozen=True)
class Finding:
    """One checked assumption: ``ok`` is True, False, or None where nothing could be said."""

    name: str
    ok: bool | None
    words: str
    value: float | None = None


@dataclass(frozen=True)
class CheckReport:
    """All findings at one x. ``print(report)`` reads as text; ``ok`` is False if any assumption was seen to fail."""

    problem: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """No checked assumption fails."""
        return all(finding.ok is not False for finding in self.findings)

    def __getitem__(self, name: str) -> Finding:
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(name)

    def _repr_html_(self) -> str:
        return card(str(self), self.ok)

    def __str__(self) -> str:
        marks = {True: "ok  ", False: "FAIL", None: "?   "}
        width = max(len(finding.name) for finding in self.findings)
        lines = [f"{self.problem}: {'all checked assumptions hold here' if self.ok else 'an assumption fails here'}"]
        lines += [f"  {marks[f.ok]}  {f.name:<{width}}  {f.words}" for f in self.findings]
        return "\n".join(lines)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"problem": self.problem, "ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}


def check(problem: BilevelProblem, x: PyTree | None = None, seed: int = 0) -> CheckReport:
    """Probe the assumptions of ``problem`` at ``x`` (by default a point in the middle of X)."""
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise OptionError(f"seed must be a nonnegative whole number, got {seed!r}")
    at = problem.x_set.interior_flat() if x is None else problem.x_set.ravel(x, "x")
    with double_precision(), single_blas_thread(problem.flat.n_y):
        return CheckReport(problem.name, tuple(_Checker(problem, at, seed).run()))


class _Checker:
    """The probes, in the order in which one's failure makes the next pointless."""

    def __init__(self, problem: BilevelProblem, x: np.ndarray, seed: int) -> None:
        self.problem, self.flat, self.x, self.seed = problem, problem.flat, x, seed
        self.at = jnp.asarray(x)

    def run(self) -> list[Finding]:
        flat = self.flat
        found = [self._shapes(), self._constants(), self._start(), self._derivatives()]
        finite = self._finite()
        found.append(finite)
        if finite.ok is False:
            return found
        solution = self._solve()
        found.append(self._feasible(solution))
        if not solution.usable:
            return found
        y = np.asarray(solution.follower.y)
        samples = feasible_samples(flat, self.x, y, 8, self.seed)
        pairs = jensen(self.flat, self.x, y, seed=self.seed)
        convexity, modulus = self._convex(samples, pairs)
        found += [convexity, self._strongly_convex(modulus), *self._rules(pairs)]
        found += self._qualifications(solution, y)
        found.append(self._gamma(samples, modulus))
        return found

    def _shapes(self) -> Finding:
        flat = self.flat
        counts = (
            f"{flat.n_inequality} inequalities, {flat.n_equality} equalities, {flat.n_upper_inequality} of the leader"
        )
        return Finding("shapes", True, f"{flat.n_x} variables above, {flat.n_y} below; {counts}")

    def _constants(self) -> Finding:
        """Numbers in single precision inside the functions limit the accuracy of everything else."""
        words = self.problem.single_precision()
        return Finding("dtypes", not words, words or "all data are double precision")

    def _derivatives(self) -> Finding:
        """Functions whose derivative shows nothing of them."""
        words = [text for name in ("upper", "lower", "upper_inequality") if (text := in_words(self.flat, name))]
        return Finding("derivatives", not words, "; ".join(words) or "no function varies in jumps alone")

    def _start(self) -> Finding:
        away = self.problem.x_set.distance(self.problem.x_set.unravel(self.x))
        inside = away <= 1e-7 * (1.0 + float(np.max(np.abs(self.x), initial=0.0)))
        return Finding("x in X", inside, "x lies in x_set" if inside else f"x is {away:.3g} away from x_set", away)

    def _finite(self) -> Finding:
        cause = name_nonfinite(self.flat, self.x, self.flat.y_set.interior_flat())
        if cause:
            return Finding("finite", False, f"in the middle of y_set, {cause}")
        return Finding("finite", True, "all functions and first derivatives are finite in the middle of y_set")

    def _solve(self) -> Evaluation:
        monitor = Monitor(self.problem.x_set.unravel)
        self.function = Evaluator(self.flat, choose_oracles(self.problem, "auto"), monitor)
        leader = no_upper_multipliers(self.flat)
        found = self.function(self.x, 1.0, leader, 1e-10)
        gamma = 1.0
        while (
            not found.usable and gamma < 1e6
        ):  # f may be unbounded or concave in y: only a large gamma makes up for it
            gamma *= 16.0
            found = self.function(self.x, gamma, leader, 1e-10)
        return found

    def _feasible(self, found: Evaluation) -> Finding:
        name = "lower level solvable"
        if found.usable:
            violated = float(found.follower.residuals.feasibility)
            return Finding(
                name, True, f"the follower has an answer at x (constraints hold to {violated:.1e})", violated
            )
        if self.flat.n_inequality + self.flat.n_equality:
            violation = self.function.violation(self.x)
            if violation.solved and violation.value > 1e-9:
                words = f"infeasible: the follower's smallest constraint violation at x is {float(violation.value):.3g}"
                return Finding(name, False, words, float(violation.value))
            if violation.solved and violation.value > -NO_ROOM:
                return Finding(name, False, no_slater(float(violation.value)), float(violation.value))
        return Finding(name, False, "no solution of the lower level was found: unbounded, or not convex")

    def _convex(self, samples: list[np.ndarray], pairs: Jensen) -> tuple[Finding, float]:
        curvature = curvature_of(lambda z: self.flat.lower(self.at, z))
        ends = np.array([curvature(point) for point in samples])
        smallest, largest = float(np.nanmin(ends[:, 0])), float(np.nanmax(np.abs(ends)))
        self.vanishes = smallest < 1e-3 * float(np.nanmax(ends[:, 0]))  # flatter at some points than at others
        convex = smallest >= -1e-7 * (1.0 + largest)
        words = f"smallest curvature of lower in y over {len(samples)} feasible points: {smallest:.3g}"
        if convex and pairs.lower > 1e-7:
            convex, words = False, f"{words}; but elsewhere in y_set pairs of points show that it bends down"
        return Finding("lower convex in y", convex, words, smallest), smallest

    def _strongly_convex(self, modulus: float) -> Finding:
        strong = modulus > 1e-8 and not self.vanishes
        if strong:
            return Finding("strongly convex", True, f"modulus about {modulus:.3g}", modulus)
        words = "not strongly convex: y may not be unique; blocc then reports the answer best for the leader"
        if modulus > -1e-8 and self.vanishes:
            words = (
                "not strongly convex: the curvature of lower vanishes near the answer, as that of a fourth power does"
            )
        return Finding("strongly convex", None, words, max(modulus, 0.0))

    def _rules(self, found: Jensen) -> list[Finding]:
        """Jensen's inequality for the constraints: cheaper than a Hessian for each row."""
        words = f"largest violation of Jensen's inequality: {max(found.inequality, 0.0):.1e}"
        inequality = Finding("inequality convex in y", found.inequality <= 1e-7, words, found.inequality)
        if self.flat.n_inequality == 0:
            inequality = Finding("inequality convex in y", True, "there is no inequality")
        words = f"largest deviation from the midpoint rule: {found.equality:.1e}"
        equality = Finding("equality affine in y", found.equality <= 1e-7, words, found.equality)
        if self.flat.n_equality == 0:
            equality = Finding("equality affine in y", True, "there is no equality")
        return [inequality, equality]

    def _qualifications(self, found: Evaluation, y: np.ndarray) -> list[Finding]:
        flat, at = self.flat, jnp.asarray(y)
        if flat.n_inequality + flat.n_equality == 0:
            words = "there is no coupled constraint"
            return [Finding("LICQ", True, words), Finding("strict complementarity", True, words)]
        slack = -np.asarray(flat.inequality(self.at, at))
        prices = np.asarray(found.follower.multipliers.inequality)
        active = slack <= 1e-6 * (1.0 + np.abs(y).max(initial=0.0))
        licq = Finding("LICQ", None, f"not computed for more than {_DENSE} variables")
        if flat.n_y <= _DENSE:
            licq = self._independent(at, active)
        if flat.n_inequality == 0:
            return [licq, Finding("strict complementarity", True, "there is no inequality")]
        smallest = float(np.min(np.maximum(prices, slack)))
        counted = f"{int(active.sum())} of {slack.size} inequalities are active"
        words = f"{counted}; min over rows of max(mu, -gc) = {smallest:.1e}"
        return [licq, Finding("strict complementarity", smallest > 1e-5, words, smallest)]

    def _independent(self, y: Array, active: np.ndarray) -> Finding:
        """Smallest singular value of the active gradients, those of the bounds of Y included."""
        flat = self.flat
        rows = []
        if flat.n_inequality:
            rows.append(np.asarray(jax.jacrev(lambda z: flat.inequality(self.at, z))(y))[active])
        if flat.n_equality:
            rows.append(np.asarray(jax.jacrev(lambda z: flat.equality(self.at, z))(y)))
        rows.append(np.asarray(jax.jacrev(flat.y_set.equality_flat)(y)).reshape(-1, flat.n_y))
        low, high = flat.y_set.bounds_flat()
        size = 1e-6 * (1.0 + float(np.max(np.abs(np.asarray(y)))))
        rows.append(np.eye(flat.n_y)[(np.asarray(y) - low <= size) | (high - np.asarray(y) <= size)])
        matrix = np.concatenate(rows)
        if len(matrix) == 0:
            return Finding("LICQ", True, "no constraint is active at the follower's answer")
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        unit = matrix / np.where(norms > 0, norms, 1.0)
        smallest = 0.0
        if len(unit) <= flat.n_y:
            smallest = float(np.linalg.svd(unit, compute_uv=False)[-1])
        ok = smallest > 1e-6
        words = f"{len(matrix)} active gradients, smallest singular value {smallest:.2g}"
        return Finding("LICQ", ok, words if ok else words + ": multipliers are not unique", smallest)

    def _gamma(self, samples: list[np.ndarray], modulus: float) -> Finding:
        name = "gamma for convexity"
        curvature = curvature_of(lambda z: self.flat.upper(self.at, z))
        bend = float(np.nanmin([curvature(point)[0] for point in samples]))
        if bend >= 0.0:
            return Finding(name, True, "upper is convex in y here: any gamma > 0 keeps L_F convex", 0.0)
        if modulus <= 1e-8:
            words = f"upper bends by {bend:.3g} in y and lower is not strongly convex: no gamma is sure to be enough"
            return Finding(name, None, words)
        needed = -bend / modulus
        return Finding(name, True, f"gamma > {needed:.4g} makes L_F strongly convex in y here", needed)
