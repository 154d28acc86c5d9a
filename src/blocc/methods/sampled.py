"""Methods whose steps see mini-batches: epochs in one compiled loop, a batch and a key for every step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, NDArray, PyTree
from blocc._lib.tracing import digest_of_arrays
from blocc._lib.warning import warn_caller
from blocc.errors import OptionError, ProblemError
from blocc.flat_problem import FlatProblem
from blocc.judge.curvature import bends_down
from blocc.methods.base import SAMPLES, Counter, Iterate, Numbers, VectorX, VectorY
from blocc.methods.batches import Batches, Plan
from blocc.methods.execute import MethodRun
from blocc.methods.loop import Iteration, State
from blocc.result import Result, Status

#: Standard errors by which the mean over batches may differ from the value on all data.
_ERRORS = 6.0
_KINDS = {"double": np.float64, "single": np.float32}


@dataclass(frozen=True)
class Sampled(Iteration):
    """A method that is given by its start and its step on a batch.

    ``start(flat, x, y)`` sees all data. ``step(flat, numbers, state, k, key)`` sees the batch of step k: the functions
    of ``flat`` are those of the problem over it, and ``key`` is a key of ``jax.random`` for anything else that the step
    draws. The rest of :class:`~blocc.methods.loop.Iteration` holds; its count ``epochs`` limits the run in the place of
    ``max_iterations``.

    :param batches: how the data are drawn; None: every step sees all data
    :param y0: where y begins; None: in the middle of Y
    :param precision: "single": steps compute with 32 bits. What judges them has 64 all the same
    """

    batches: Batches | Plan | None = None
    y0: PyTree = None
    precision: str = "double"

    default_counts: ClassVar = {"epochs": 0}
    switches: ClassVar = ("epochs",)  # 0: as max_iterations says

    def __post_init__(self) -> None:
        if self.batches is not None and not isinstance(self.batches, (Batches, Plan)):
            raise OptionError(f"batches must be a Batches(data, size=...), got {type(self.batches).__name__}")
        if self.precision not in _KINDS:
            raise OptionError(f"precision must be 'double' or 'single', got {self.precision!r}")

    @property
    def plan(self) -> Plan | None:
        """How batches are drawn."""
        return self.batches.plan if isinstance(self.batches, Batches) else self.batches

    @property
    def own_fields(self) -> tuple[tuple[str, Any], ...]:
        """Neither the data nor the start of y: programs do not depend on them."""
        rest = ((name, value) for name, value in super().own_fields if name not in ("batches", "y0"))
        return (*rest, ("batches", self.plan))

    @property
    def described(self) -> dict[str, Any]:
        """By what a checkpoint is known."""
        start = None if self.y0 is None else digest_of_arrays(jax.tree.map(np.asarray, self.y0))
        size, seed = (None, None) if not isinstance(self.batches, Batches) else (self.batches.size, self.batches.seed)
        return {"batch_size": size, "batch_seed": seed, "y0": start, "precision": self.precision}

    @property
    def kind(self) -> Any:
        """Type of the numbers that steps compute with."""
        return _KINDS[self.precision]

    @property
    def period(self) -> int:
        """Steps of one epoch."""
        return 1 if self.plan is None else self.plan.steps

    @property
    def is_sampled(self) -> bool:
        """Whether a step sees less than all data."""
        return self.plan is not None and bool(self.plan.lists)

    @abstractmethod
    def step(self, flat: FlatProblem, numbers: Numbers, state: State, k: Counter, key: Array | None = None) -> State:
        """The state after step k (counted from 0) on its batch."""

    def advance(self, flat: FlatProblem, numbers: Numbers, state: State, first: Counter, count: Counter) -> State:
        """Steps ``first``, ``first + 1``, ...; each epoch begins with a new order of the samples."""
        plan, period = self.plan, self.period
        drawing, drawn = jax.random.split(jax.random.key(jnp.asarray(numbers["seed"]).astype(jnp.uint32)))
        numbers = {name: jnp.asarray(value).astype(self.kind) for name, value in numbers.items()}

        def step(i: Counter, carried: tuple[State, Any]) -> tuple[State, Any]:
            state, orders = carried
            k, part = first + i, flat
            if plan is not None:
                fresh = lambda: plan.order(drawing, k // period)  # noqa: E731
                orders = jax.lax.cond(k % period == 0, fresh, lambda: orders)
                part = flat.bind(plan.take(flat.data, orders, k % period, self.kind))
            moved = self.step(part, numbers, state, k, jax.random.fold_in(drawn, k))
            return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, state), orders

        orders = () if plan is None else plan.order(drawing, first // period)
        return jax.lax.fori_loop(0, count, step, (state, orders))[0]

    # --- a run -------------------------------------------------------------------------------------------------------
    def begin(self, run: MethodRun, x: Float[NDArray, "n_x"]) -> Float[NDArray, "n_y"]:
        """Where y begins; batches of other data are refused, and so are those that do not estimate the whole."""
        if isinstance(self.batches, Batches):
            self.batches.check(run.problem.data)
        y = self.start_y(run.flat)
        if self.is_sampled:
            self._check_functions(run, x, y)
        return y

    def start_y(self, flat: FlatProblem) -> Float[NDArray, "n_y"]:
        """The given start as a member of Y, or the middle."""
        within = flat.y_set
        given = None if self.y0 is None else within.nearest_flat(within.ravel(self.y0, "y0"))
        return np.asarray(within.interior_flat() if given is None else given)

    def first(self, flat: FlatProblem, x: VectorX, y: VectorY) -> State:
        """The start in the precision of the steps."""
        state = self.start(flat, x, y)
        real = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)  # noqa: E731
        arrays = jax.tree.map(jnp.asarray, state)
        return jax.tree.map(lambda leaf: leaf.astype(self.kind) if real(leaf) else leaf, arrays)

    @property
    def traced(self) -> dict[str, float]:
        """The seed, which programs are not compiled for."""
        return {"seed": float(self.batches.seed) if isinstance(self.batches, Batches) else 0.0}

    def limit(self, run: MethodRun) -> int:
        """Steps of all epochs."""
        epochs = int(self.counts.get("epochs", 0))
        return epochs * self.period if epochs else super().limit(run)

    def stretch(self, run: MethodRun, chunk: int, k: int) -> int:
        """Whole epochs, unless ``judge_every`` says otherwise."""
        steps = super().stretch(run, chunk, k)
        whole = self.period * max(1, round(steps / self.period))
        return whole - k % self.period if run.options.judge_every is None else steps

    def settled(self, run: MethodRun, before: Iterate, now: Iterate) -> bool:
        """Noise keeps moving x and y: never, where batches are drawn."""
        return not self.is_sampled and super().settled(run, before, now)

    def conclude(self, run: MethodRun, end: Iterate, stop: Any) -> Result:
        """Judged in double precision, at a member of X; a large follower that is not convex is recognised first."""
        x = run.flat.project_x(end[0])
        result = super().conclude(run, (x, end[1]), stop)
        if not (result.success and bends_down(run.flat, x, [end[1], self.start_y(run.flat)])):
            return result
        message = (
            "lower(x, y) is not convex in y on the follower's set, so y may be only a local answer of the follower."
        )
        return replace(result, status=Status.NOT_CONVEX, message=message)

    def _check_functions(self, run: MethodRun, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> None:
        """Whether rows are as many on a batch as on all data, and objectives means over the samples."""
        flat, plan = run.flat, self.plan
        assert plan is not None
        shapes = jax.eval_shape(lambda: _batch(flat, plan, 0.0, 0))
        at = [jax.ShapeDtypeStruct(np.shape(point), np.float64) for point in (x, y)]
        part = lambda function: jax.eval_shape(lambda data, *points: function(flat.bind(data))(*points), shapes, *at)  # noqa: E731
        for name, rows in (("inequality", flat.n_inequality), ("equality", flat.n_equality)):
            try:
                found = part(lambda one, name=name: getattr(one, name)).shape[0]
            except Exception as error:  # the user's code, on other shapes than it was built for
                raise ProblemError(f"{name}(x, y, batch) fails on a batch of the data: {error}") from error
            if found != rows:
                raise ProblemError(
                    f"{name}(x, y, batch) returns {found} rows on a batch and {rows} on all data: constraints cannot "
                    "be drawn; let each be a mean over the samples"
                )
        try:
            values = flat.program(_values, plan)(np.asarray(self.traced["seed"]), x, y)
        except (TypeError, ValueError) as error:
            raise ProblemError(f"upper or lower(x, y, batch) fails on a batch of the data: {error}") from error
        for name, (whole, parts) in zip(("upper", "lower"), values, strict=True):
            least = _ERRORS * np.std(parts) / np.sqrt(len(parts)) + 1e-6 * abs(whole)
            if np.isfinite(parts).all() and abs(np.mean(parts) - whole) > least:
                warn_caller(
                    f"{name} is {np.mean(parts):.4g} on average over batches, and {whole:.4g} on all data: let it be a "
                    "mean over the samples (jnp.mean, not jnp.sum), or sampled gradients are not those of the problem",
                    UserWarning,
                )


def _batch(flat: FlatProblem, plan: Plan, seed: Any, step: Counter) -> PyTree:
    """A batch of the first epoch."""
    drawing, _ = jax.random.split(jax.random.key(jnp.asarray(seed).astype(jnp.uint32)))
    return plan.take(flat.data, plan.order(drawing, 0), step)


def over_batches(flat: FlatProblem, plan: Plan | None, seed: Any, function: Callable[[FlatProblem], Any]) -> Any:
    """What ``function`` returns for the problem over some batches of the first epoch, or over all data once."""
    if plan is None:
        return jax.tree.map(lambda found: found[None], function(flat))
    count = min(plan.steps, SAMPLES)
    return jax.lax.map(lambda step: function(flat.bind(_batch(flat, plan, seed, step))), jnp.arange(count))


def _values(flat: FlatProblem, plan: Plan, seed: Array, x: VectorX, y: VectorY) -> tuple[Any, ...]:
    """Both objectives on all data, and on some batches."""
    objectives = lambda over: (over.upper(x, y), over.lower(x, y))  # noqa: E731
    return tuple(zip(objectives(flat), over_batches(flat, plan, seed, objectives), strict=True))
