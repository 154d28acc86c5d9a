"""Methods that are one step, repeated: the step is a pure function of arrays, and the loop is compiled.

The numbers of a method are traced, so that one compilation serves all their values, and several settings can run side
by side until one of them is chosen.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, NDArray
from blocc.flat_problem import FlatProblem
from blocc.methods.base import Counter, Iterate, Method, Numbers, VectorX, VectorY
from blocc.methods.execute import MethodRun

State = Any  #: a method's own tuple of arrays, with x and y among them
Settings = Mapping[str, Float[Array, "*settings"] | float]  #: the numbers of one setting, or of several side by side

#: Rows of the history that a full run leaves.
ROWS = 40
#: Share of the iterations that is spent on choosing among automatic numbers, and share of a time limit.
TRIAL, TRIAL_TIME = 0.1, 0.2
#: Iterations of the first compiled call; the next ones are as long as about a second allows.
FIRST_PIECE = 20
#: How often, and how much, automatic step lengths are shortened when an iteration leaves the finite numbers.
SHORTENINGS = 5
SHORTER = 0.3
#: Residual of the exact lower level beyond which a trial does not count.
UNSOLVED = 1e-3


class Iteration(Method):
    """A method that is given by its start and its step."""

    lengths: ClassVar[tuple[str, ...]] = ("alpha", "eta")  #: which of its numbers are step lengths

    @abstractmethod
    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> State:
        """The state before the first step."""

    @abstractmethod
    def step(self, flat: FlatProblem, numbers: Numbers, state: State, k: Counter) -> State:
        """The state after step k (counted from 0)."""

    def drive(self, run: MethodRun, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> Iterate:
        """Choose the numbers, then repeat the step; the last point."""
        limit = run.options.max_iterations
        steps = CompiledSteps(run, self)
        now = _begin(run, self, x, y)
        run.numbers, run.last, run.iterations = now.numbers, now.last, now.k

        def keep(part: State, done: int) -> None:
            run.monitor.keep("iteration", now._replace(part=part, done=done))

        while now.k < limit:
            count = min(now.chunk, limit - now.k)
            state, done = steps.advance(run.numbers, now.part, now.k, count, done=now.done, keep=keep)
            x, y = np.asarray(state.x), np.asarray(state.y)
            if not (np.isfinite(x).all() and np.isfinite(y).all()):
                if now.shortened == SHORTENINGS:
                    run.diverged = True
                    break
                # Automatic steps were too long: the same iterations again, with shorter steps.
                run.numbers = {name: v * (SHORTER if name in self.lengths else 1) for name, v in run.numbers.items()}
                now = now._replace(part=now.state, done=0, shortened=now.shortened + 1, numbers=run.numbers)
                continue
            run.iterations = now.k + done
            step = float(np.linalg.norm(x - run.last[0]))
            run.last = (x, y)  # before the record, which may end the run
            run.record(x, y, run.iterations, step)
            if _settled(run, now.before, (x, y)):
                break
            now = now._replace(state=state, part=state, k=run.iterations, done=0, before=(x, y), last=(x, y))
        return run.last


class LoopState(NamedTuple):
    """Everything that the loop needs in order to go on; kept after every compiled call."""

    state: State  #: before the current chunk
    part: State  #: within it
    k: int  #: iterations before the current chunk
    done: int  #: iterations of the current chunk
    chunk: int
    shortened: int
    numbers: dict[str, float]
    before: Iterate  #: the point a chunk ago, NaN where there is none
    last: Iterate


def _begin(run: MethodRun, method: Iteration, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> LoopState:
    """The numbers chosen and nothing done yet, or where an earlier run left off."""
    limit, unknown = run.options.max_iterations, (np.full_like(x, np.nan), np.full_like(y, np.nan))
    candidates = run.candidates(x, y)
    state = method.start(run.flat, jnp.asarray(x), jnp.asarray(y))
    first = LoopState(state, state, 0, 0, 0, 0, dict(candidates[0]), unknown, (x, y))
    if (found := run.monitor.begin("iteration", first)) is not first:
        k, done, chunk, shortened = (int(number) for number in found[2:6])
        numbers = {name: float(value) for name, value in found.numbers.items()}
        before, last = ((np.asarray(point[0]), np.asarray(point[1])) for point in (found.before, found.last))
        return LoopState(found.state, found.part, k, done, chunk, shortened, numbers, before, last)
    numbers, k = candidates[0], 0
    if len(candidates) > 1:
        numbers, state, k = _choose(run, method, candidates, state, max(int(TRIAL * limit), 1))
    shortened = 0 if len(candidates) > 1 else SHORTENINGS
    return LoopState(state, state, k, 0, max((limit - k) // ROWS, 1), shortened, numbers, unknown, (x, y))


def _settled(run: MethodRun, before: Iterate, now: Iterate) -> bool:
    """Whether a whole chunk moved x and y by less than a hundredth of the tolerance."""
    least = 1e-2 * run.options.tolerance
    return all(
        float(np.abs(new - old).max(initial=0.0)) <= least * (1.0 + float(np.abs(new).max(initial=0.0)))
        for old, new in zip(before, now, strict=True)
    )


def _choose(
    run: MethodRun, method: Iteration, candidates: list[dict[str, float]], start: State, count: int
) -> tuple[dict[str, float], State, int]:
    """Run all settings side by side for a while; go on with the one whose x is best at the exact lower level."""
    numbers = {name: jnp.asarray([setting[name] for setting in candidates]) for name in candidates[0]}
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(candidates), *leaf.shape)), start)
    now, limit = run.monitor.elapsed(), run.monitor.time_limit
    until = np.inf if limit is None else now + TRIAL_TIME * max(limit - now, 0.0)
    steps = CompiledSteps(run, method, len(candidates))
    states, count = steps.advance(numbers, states, 0, count, until=until)
    values = [_exact_value(run, point) for point in np.asarray(states.x)]
    if not np.isfinite(values).any():  # none of them works: the shortest steps begin again
        return candidates[-1], start, 0
    best = int(np.argmin(values))
    return candidates[best], jax.tree.map(lambda leaf: leaf[best], states), count


def _exact_value(run: MethodRun, x: Float[NDArray, "n_x"]) -> float:
    """The upper objective at the follower's exact answer; infinite where there is none."""
    if not np.isfinite(x).all():
        return np.inf
    answer = run.follower(x)
    value = run.upper(x, np.asarray(answer.y))
    return value if float(np.max(np.stack(answer.residuals))) <= UNSOLVED and np.isfinite(value) else np.inf


@dataclass(frozen=True)
class CompiledSteps:
    """Steps of a method in one compiled call: with one setting, or with several side by side."""

    run: MethodRun
    method: Iteration
    settings: int = 0  #: how many side by side; 0: one, without an axis for it

    def advance(
        self,
        numbers: Settings,
        state: State,
        k: int,
        count: int,
        *,
        done: int = 0,
        until: float = np.inf,
        keep: Callable[[State, int], None] | None = None,
    ) -> tuple[State, int]:
        """Up to ``count`` iterations from k on, in calls of about a second, so that limits are kept.

        ``done`` of them are over already; ``keep(state, done)`` follows every compiled call.
        """
        piece, monitor = FIRST_PIECE, self.run.monitor
        while done < count and (done == 0 or monitor.elapsed() < until):
            monitor.check_time()
            some = min(piece, count - done)
            began, compiled = time.perf_counter(), self.run.compile_seconds
            state = jax.block_until_ready(self._call(numbers, state, k + done, some))
            seconds = time.perf_counter() - began - (self.run.compile_seconds - compiled)
            done += some
            piece = max(1, min(int(some / max(seconds, 1e-6)), 20 * some))
            if keep is not None:
                keep(state, done)
        return state, done

    def _call(self, numbers: Settings, state: State, k: int, count: int) -> State:
        method = self.method
        traced = {name: jnp.asarray(value, jnp.float64) for name, value in numbers.items()}
        program = self.run.flat.program(
            _steps, type(method), tuple(sorted(method.counts.items())), self.settings, is_loop=True
        )
        return program(traced, state, jnp.asarray(k), jnp.asarray(count))


def _steps(
    flat: FlatProblem,
    kind: type[Iteration],
    counts: tuple[tuple[str, int], ...],
    settings: int,
    numbers: Numbers,
    state: State,
    first: Counter,
    count: Counter,
) -> State:
    """Iterations ``first``, ``first + 1``, ... of a method with one setting, or with several side by side."""
    method = kind({}, dict(counts))

    def several(numbers: Numbers, state: State) -> State:
        return jax.lax.fori_loop(0, count, lambda i, s: method.step(flat, numbers, s, first + i), state)

    return jax.vmap(several)(numbers, state) if settings else several(numbers, state)
