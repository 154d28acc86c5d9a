"""F_gamma as the outer methods see it: a compiled function that keeps warm starts and never crashes.

A point where the lower level has no solution comes back with ``usable`` false. Before that, a failed evaluation is
repeated from a cold start, and then by the next oracle in line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.compiled import compile_ahead
from blocc.inner.choice import general_oracles
from blocc.inner.elastic import Violation, violation
from blocc.inner.protocol import InnerCode, InnerOracle
from blocc.judge.convexity import Jensen, jensen
from blocc.outer import spectral
from blocc.outer.monitor import Monitor
from blocc.penalty import Evaluation, Leader, cold_pair, evaluate, evaluation_shapes
from blocc.problem import FlatProblem
from blocc.resume.recording import CheckpointError
from blocc.resume.replay import compare_with_problem, is_sampled
from blocc.sets import ConvexSet

Array = Any


#: After so many fruitless fallbacks in a row no other oracle is tried: the points have no lower-level answer.
_FUTILE = 2


def projector(convex_set: ConvexSet, cache: dict[Any, Any]) -> Any:
    """Projection on a set as a NumPy function."""
    if convex_set.is_box:
        low, high = convex_set.bounds_flat()
        return lambda point: np.clip(point, low, high)
    if "project" not in cache:
        cache["project"] = jax.jit(convex_set.project_flat)
    return lambda point: np.asarray(cache["project"](jnp.asarray(point)))


def beside_the_middle(flat: FlatProblem) -> np.ndarray:
    """A point of Y near its middle, and off it in every coordinate by another length."""
    middle = np.asarray(flat.y_set.interior_flat())
    steps = 0.1 * (1.0 + np.abs(middle)) * (1.0 + np.arange(middle.size) % 7 / 10.0)
    return np.asarray(flat.y_set.project_flat(jnp.asarray(middle + steps)))


def stationarity(project: Any, x: np.ndarray, gradient: np.ndarray) -> float:
    """Zero exactly where no feasible direction descends: the projected step, or what X cut off from its promise.

    The step is ``d = x - P_X(x - gradient)``. Close to a bound d is short however steep the slope towards it; then
    ``<gradient, d> - |d|^2``, which vanishes inside X, still tells that the bound should be reached.
    """
    step = x - project(x - gradient)
    return max(float(np.max(np.abs(step), initial=0.0)), float((gradient - step) @ step))


class Wall(NamedTuple):
    """Where the follower's feasibility ends."""

    normal: np.ndarray  #: of length 1: the direction in which the follower's violation grows
    depth: float  #: how far beyond the wall the point is, along the normal


def _undecided(evaluation: Evaluation) -> bool:
    """Whether the oracle could not tell why it failed."""
    codes = {int(evaluation.follower.code), int(evaluation.penalised.code)}
    return not codes & {InnerCode.INFEASIBLE, InnerCode.UNBOUNDED, InnerCode.NOT_FINITE}


def _lost(evaluation: Evaluation) -> bool:
    """Whether the follower has an answer and the penalised problem met points without a value."""
    return (
        int(evaluation.follower.code) == InnerCode.CONVERGED and int(evaluation.penalised.code) == InnerCode.NOT_FINITE
    )


class PenaltyFunction:
    """Evaluates F_gamma at one x with the first oracle that manages to."""

    def __init__(
        self,
        flat: FlatProblem,
        oracles: Sequence[InnerOracle],
        cache: dict[Any, Any],
        monitor: Monitor,
        seed: int = 0,
    ) -> None:
        self.flat, self.oracles, self.monitor = flat, tuple(oracles), monitor
        self.project = projector(flat.x_set, cache)
        self.evaluations = 0
        self.inner_iterations = 0
        self.fallbacks = 0
        self.seed = seed  #: for every random probe of the run
        self.start_size = np.inf  #: 1 + |x| at the first evaluation
        self.compile_seconds = 0.0
        self._cache = cache
        self._futile = 0
        self._jensen: dict[Any, Jensen] = {}
        self._warm: dict[InnerOracle, Any] = {}
        self._cold: dict[InnerOracle, Any] = {}
        self._journal = monitor.journal
        self._name = self._journal.enrol(self)
        self._violation: tuple[np.ndarray, Violation] | None = None
        self._awake = False
        self._recalled = 0

    # --- long runs ----------------------------------------------------------------------------------------------
    def warm_leaves(self) -> list[np.ndarray] | None:
        """The warm starts as plain arrays, for the journal; None before the first evaluation of this sitting.

        For each oracle: whether it has one, and its leaves.
        """
        if not self._awake:
            return None
        found: list[np.ndarray] = []
        for oracle in self.oracles:
            warm = self._warm.get(oracle)
            found.append(np.asarray(warm is not None))
            found += jax.device_get(jax.tree.leaves(cold_pair(self.flat, oracle) if warm is None else warm))
        return found

    def _wake(self) -> None:
        """Before the first evaluation of this sitting: take over the warm starts of an earlier one."""
        self._awake = True
        if self._journal.earlier == 0.0:
            return
        like = [(np.asarray(True), cold_pair(self.flat, oracle)) for oracle in self.oracles]
        found = self._journal.warm(self._name, like)
        if found is not None:
            self._warm = {oracle: warm for oracle, (known, warm) in zip(self.oracles, found, strict=True) if known}

    def _repeated(self, answer: np.ndarray) -> Evaluation:
        """An evaluation out of the journal, with the counts as they were after it."""
        shapes, structure = jax.tree.flatten(evaluation_shapes(self.flat, self.oracles[0], self._cache))
        wanted = 3 + sum(int(np.prod(leaf.shape, dtype=int)) for leaf in shapes)
        if answer.size != wanted or not np.isfinite(answer[:3]).all():
            raise CheckpointError("the checkpoint does not fit this version of blocc: an evaluation has another form")
        self.inner_iterations, self.fallbacks, self._futile = (int(number) for number in answer[:3])
        leaves, start = [], 3
        for leaf in shapes:
            size = int(np.prod(leaf.shape, dtype=int))
            leaves.append(answer[start : start + size].reshape(leaf.shape).astype(leaf.dtype))
            start += size
        found: Evaluation = jax.tree.unflatten(structure, leaves)
        self.monitor.consider(found)
        return found

    def _packed(self, found: Evaluation) -> np.ndarray:
        """The inverse of :meth:`_repeated`: every number is exact as a float64."""
        counts = np.array([self.inner_iterations, self.fallbacks, self._futile], dtype=np.float64)
        leaves = jax.tree.leaves(found._replace(warm=()))
        return np.concatenate([counts, *(np.asarray(leaf, dtype=np.float64).ravel() for leaf in leaves)])

    def _compiled(self, oracle: InnerOracle, *arguments: Any) -> Any:
        key = ("evaluate", oracle)
        if key not in self.flat.shared:

            def function(data: Any, x: Array, gamma: Array, leader: Leader, warm: Any, tolerance: Array) -> Evaluation:
                return evaluate(self.flat.bind(data), oracle, x, gamma, leader, warm, tolerance)

            self.flat.shared[key], seconds = compile_ahead(function, self.flat.data, *arguments)
            self.compile_seconds += seconds
        return self.flat.shared[key]

    def _evaluate(
        self, oracle: InnerOracle, x: np.ndarray, gamma: float, leader: Leader, tolerance: float, warm: Any
    ) -> Evaluation:
        finest = getattr(oracle, "finest", 0.0)
        numbers = (jnp.asarray(gamma, jnp.float64), jax.tree.map(jnp.asarray, leader), warm)
        arguments = (jnp.asarray(x), *numbers, jnp.asarray(max(tolerance, finest), jnp.float64))
        compiled = self._compiled(oracle, *arguments)
        for data in () if self.flat.easier is None else self.flat.easier(self.flat.data):
            near = compiled(data, *arguments)  # leads to the problem proper: its answer is where that one begins
            arguments = (*arguments[:3], near.warm, arguments[4])
        found = compiled(self.flat.data, *arguments)
        keep = found.warm
        found = jax.device_get(found._replace(warm=()))
        self.inner_iterations += int(found.follower.iterations) + int(found.penalised.iterations)
        return found._replace(warm=keep)

    def violation(self, x: np.ndarray) -> Violation:
        """The smallest violation of the coupled constraints that the follower can reach at ``x``, and its gradient."""
        if self._violation is not None and np.array_equal(self._violation[0], x):
            return self._violation[1]  # whoever finds a point infeasible asks for the wall's normal next
        self.monitor.spend()
        oracle = general_oracles(self.flat)[0]  # a problem's own oracle knows nothing of the elastic problem
        arguments = (self.flat.data, jnp.asarray(x), jnp.asarray(1e-9, jnp.float64))
        middle = (jnp.asarray(self.flat.y_set.interior_flat()), jnp.asarray(False))
        key = ("violation", oracle)
        if key not in self.flat.shared:

            def function(data: Any, point: Array, tolerance: Array, begin: Array, known: Array) -> Violation:
                return violation(self.flat.bind(data), oracle, point, tolerance, begin, known)

            self.flat.shared[key], seconds = compile_ahead(function, *arguments, *middle)
            self.compile_seconds += seconds
        found: Violation = jax.device_get(self.flat.shared[key](*arguments, *middle))
        if not found.solved and hasattr(oracle, "begin_at"):  # a function may have no derivative in the middle of Y
            beside = (jnp.asarray(beside_the_middle(self.flat)), jnp.asarray(True))
            found = jax.device_get(self.flat.shared[key](*arguments, *beside))
        self._violation = np.array(x), found
        return found

    def convexity(self, x: np.ndarray, y: np.ndarray, gamma: float = 1.0) -> Jensen:
        """Jensen's inequality for the lower level, and for f + gamma g, around (x, y); once for all nearby x."""
        around = y if np.isfinite(y).all() else self.flat.y_set.interior_flat()
        size = 1e-2 * (1.0 + float(np.max(np.abs(x), initial=0.0)))
        key = (np.round(np.asarray(x) / size).tobytes(), gamma)
        if key not in self._jensen:
            self._jensen[key] = jensen(self.flat, x, around, gamma, self.seed)
        return self._jensen[key]

    def _provably_infeasible(self, failed: Evaluation, position: int, x: np.ndarray) -> bool:
        """Whether the first oracle of several failed at ``x``, without knowing why, because there is no answer."""
        if position > 0 or len(self.oracles) == 1 or not _undecided(failed):
            return False
        if self.flat.n_inequality + self.flat.n_equality == 0:
            return False
        found = self.violation(x)
        return bool(found.solved) and float(found.value) > 1e-9

    def _inside(self, failed: Evaluation, oracle: InnerOracle, position: int, x: np.ndarray) -> Any | None:
        """A start with all constraints slack, where the first of several oracles failed although there is room.

        Between curved constraints that nearly touch, such a point is found more easily by itself than on the way.
        """
        begin_at = getattr(oracle, "begin_at", None)
        if begin_at is None or position > 0 or len(self.oracles) == 1 or not _undecided(failed):
            return None
        if (
            self.flat.n_inequality == 0
            or self.flat.n_equality > 0
            or failed.follower.concave
            or failed.penalised.concave
        ):
            return None
        found = self.violation(x)
        if not found.solved or found.value >= 0.0:
            return None
        start = begin_at(self.flat, found.y)
        return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), start)

    def _elsewhere(self, failed: Evaluation, oracle: InnerOracle, position: int) -> Any | None:
        """A start away from the middle of Y, where a function has no derivative (a norm at its origin)."""
        begin_at = getattr(oracle, "begin_at", None)
        if begin_at is None or position > 0 or int(failed.follower.code) != InnerCode.NOT_FINITE:
            return None
        start = begin_at(self.flat, beside_the_middle(self.flat))
        return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), start)

    def wall(self, x: np.ndarray) -> Wall | None:
        """The wall before an ``x`` where the follower has no answer, as the violation's linear model tells it."""
        if self.flat.n_inequality + self.flat.n_equality == 0:
            return None
        found = self.violation(x)
        length = float(np.linalg.norm(found.gradient))
        if not found.solved or found.value <= 0.0 or length < 1e-12:
            return None
        return Wall(np.asarray(found.gradient) / length, float(found.value) / length)

    @property
    def advance(self) -> Any:
        """One compiled step of the spectral method's state machine over X."""
        flat = self.flat
        if "advance" not in flat.shared:
            flat.shared["advance"] = jax.jit(lambda data, *state: spectral.advance(flat.bind(data), *state))
        return partial(flat.shared["advance"], flat.data)

    def leader_constraint(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The leader's own constraint G(x, y), flat."""
        return np.asarray(self.flat.upper_inequality(jnp.asarray(x), jnp.asarray(y)))

    def __call__(self, x: np.ndarray, gamma: float, leader: Leader, tolerance: float) -> Evaluation:
        """Evaluate at ``x``; the warm starts come from the last usable evaluation."""
        self.monitor.spend()
        if self.evaluations == 0:
            self.start_size = 1.0 + float(np.max(np.abs(x), initial=0.0))
        self.evaluations += 1
        if not (self._journal.active or self._journal.replaying):
            return self._by_any_oracle(x, gamma, leader, tolerance)
        inputs = np.concatenate([x, [gamma, tolerance, leader.penalty], leader.multipliers]).astype(np.float64)
        if (answer := self._journal.recall(self._name, inputs)) is not None:
            found = self._repeated(answer)
            self._recalled += 1
            if is_sampled(self._recalled) or not self._journal.replaying:
                self.compile_seconds += compare_with_problem(self.flat, found, self._recalled)
            return found
        if not self._awake:
            self._wake()
        found = self._by_any_oracle(x, gamma, leader, tolerance)
        self._journal.note(self._name, inputs, self._packed(found))
        return found

    def _by_any_oracle(self, x: np.ndarray, gamma: float, leader: Leader, tolerance: float) -> Evaluation:
        """The first usable evaluation, or the first of all where none is."""
        found: Evaluation | None = None
        for position, oracle in enumerate(self.oracles):
            if position > 0 and self._futile >= _FUTILE:
                break
            if oracle not in self._cold:
                self._cold[oracle] = cold_pair(self.flat, oracle)
            cold = self._cold[oracle]
            warm = self._warm.get(oracle)
            candidate = self._evaluate(oracle, x, gamma, leader, tolerance, cold if warm is None else warm)
            if not candidate.usable and warm is not None:
                if self._provably_infeasible(candidate, position, x):
                    return candidate  # cheaper to find out than to solve again, or by another oracle
                candidate = self._evaluate(oracle, x, gamma, leader, tolerance, cold)
            if not candidate.usable and _lost(candidate):
                # f may have no value in the middle of Y, and has one where the follower answers: begin there.
                begin = jax.tree.map(lambda leaf: jnp.stack([leaf[0], leaf[0]]), candidate.warm)
                candidate = self._evaluate(oracle, x, gamma, leader, tolerance, begin)
            if not candidate.usable and (elsewhere := self._elsewhere(candidate, oracle, position)) is not None:
                candidate = self._evaluate(oracle, x, gamma, leader, tolerance, elsewhere)
            if not candidate.usable and (inside := self._inside(candidate, oracle, position, x)) is not None:
                candidate = self._evaluate(oracle, x, gamma, leader, tolerance, inside)
            if candidate.usable:
                self._warm[oracle] = candidate.warm
                self.fallbacks += position > 0
                self._futile = 0 if position > 0 else self._futile
                self.monitor.consider(candidate)
                return candidate
            found = found or candidate
            self._futile += position > 0
            if candidate.follower.concave or candidate.penalised.concave:
                return candidate  # not convex: a method that cannot see that must not paper over it
            if not _undecided(candidate):
                return candidate  # a proven failure: no other oracle will do better
            if self._provably_infeasible(candidate, position, x):
                return candidate  # likewise
        assert found is not None
        return found
