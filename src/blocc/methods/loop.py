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

from blocc._lib.arrays import Array, Float, NDArray, PyTree
from blocc._lib.precision import double_precision
from blocc.errors import OptionError
from blocc.flat_problem import FlatProblem
from blocc.methods.base import Counter, Iterate, Method, Numbers, VectorX, VectorY
from blocc.methods.execute import MethodRun
from blocc.outer.monitor import GRACE
from blocc.problem import BilevelProblem

State = Any  #: a method's own tuple of arrays, with x and y among them
Settings = Mapping[str, Float[Array, "*settings"] | float]  #: the numbers of one setting, or of several side by side

#: Rows of the history that a full run leaves; in a longer one, iterations between two rows grow with those made.
ROWS, FULL = 40, 20_000
#: Share of the iterations that is spent on choosing among automatic numbers, and share of a time limit.
TRIAL, TRIAL_TIME = 0.1, 0.2
#: Iterations of the first compiled call, and seconds that the next ones are to take.
FIRST_PIECE, SECONDS = 20, 0.5 * GRACE[0]
#: How often, and how much, automatic step lengths are shortened when an iteration leaves the finite numbers.
SHORTENINGS = 5
SHORTER = 0.3
#: Residual of the exact lower level beyond which a trial does not count.
UNSOLVED = 1e-3


class Iteration(Method):
    """A method that is given by its start and its step."""

    lengths: ClassVar[tuple[str, ...]] = ("alpha", "eta")  #: which of its numbers are step lengths

    @property
    def calls(self) -> int:
        """How often one step differentiates the lower level; a state that counts them itself has a field ``calls``."""
        return 1

    @property
    def traced(self) -> dict[str, float]:
        """Further numbers that a step is given, and that nobody chooses."""
        return {}

    @abstractmethod
    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> State:
        """The state before the first step."""

    @abstractmethod
    def step(self, flat: FlatProblem, numbers: Numbers, state: State, k: Counter) -> State:
        """The state after step k (counted from 0)."""

    def first(self, flat: FlatProblem, x: VectorX, y: VectorY) -> State:
        """The start as the loop carries it."""
        return self.start(flat, x, y)

    def advance(self, flat: FlatProblem, numbers: Numbers, state: State, first: Counter, count: Counter) -> State:
        """Steps ``first``, ``first + 1``, ... in one compiled loop."""
        return jax.lax.fori_loop(0, count, lambda i, s: self.step(flat, numbers, s, first + i), state)

    def limit(self, run: MethodRun) -> int:
        """How many steps a run makes at most."""
        return run.options.max_iterations

    def stretch(self, run: MethodRun, chunk: int, k: int) -> int:
        """Steps from the k-th on to the next row of the history."""
        every = run.options.judge_every
        return max(chunk, k // ROWS) if every is None else every - k % every

    def settled(self, run: MethodRun, before: Iterate, now: Iterate) -> bool:
        """Whether the run is over: a whole stretch moved x and y by less than a hundredth of the tolerance."""
        least = 1e-2 * run.options.tolerance
        return all(
            float(np.abs(new - old).max(initial=0.0)) <= least * (1.0 + float(np.abs(new).max(initial=0.0)))
            for old, new in zip(before, now, strict=True)
        )

    def drive(self, run: MethodRun, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"]) -> Iterate:
        """Choose the numbers, then repeat the step; the last point."""
        limit = self.limit(run)
        steps = CompiledSteps(run, self)
        now = _begin(run, self, x, y, limit)
        run.state, run.numbers, run.last = now.state, now.numbers, now.last
        run.iterations, run.calls = now.k, now.calls

        def keep(part: State, done: int) -> None:
            run.monitor.keep("iteration", now._replace(part=part, done=done))

        while now.k < limit:
            count = min(self.stretch(run, now.chunk, now.k), limit - now.k)
            state, done = steps.advance(run.numbers, now.part, now.k, count, done=now.done, keep=keep)
            x, y = np.asarray(state.x, np.float64), np.asarray(state.y, np.float64)
            run.calls = now.calls + _calls(self, now.state, state, done)
            if not (np.isfinite(x).all() and np.isfinite(y).all()):
                if now.shortened == SHORTENINGS:
                    run.diverged = True
                    break
                # Automatic steps were too long: the same iterations again, with shorter steps.
                mine = set(self.lengths) - set(self.given)
                run.numbers = {name: v * (SHORTER if name in mine else 1) for name, v in run.numbers.items()}
                now = now._replace(part=now.state, done=0, shortened=now.shortened + 1, numbers=run.numbers)
                now = now._replace(calls=run.calls)
                continue
            run.iterations = now.k + done
            step = float(np.linalg.norm(x - run.last[0]))
            run.state, run.last = state, (x, y)  # before the record, which may end the run
            run.record(x, y, step)
            if self.settled(run, now.before, (x, y)):
                break
            now = now._replace(state=state, part=state, k=run.iterations, done=0, before=(x, y), last=(x, y))
            now = now._replace(calls=run.calls, cost=run.cost)
        return run.last


def _calls(method: Iteration, before: State, after: State, steps: int) -> int:
    """Derivatives of the lower level between two states."""
    counted = getattr(after, "calls", None)
    return method.calls * steps if counted is None else int(np.sum(np.asarray(counted) - np.asarray(before.calls)))


class LoopState(NamedTuple):
    """Everything that the loop needs in order to go on; kept after every compiled call."""

    state: State  #: before the current chunk
    part: State  #: within it
    k: int  #: iterations before the current chunk
    done: int  #: iterations of the current chunk
    chunk: int
    shortened: int
    calls: int  #: derivatives of the lower level before the current chunk
    numbers: dict[str, float]
    before: Iterate  #: the point a chunk ago, NaN where there is none
    last: Iterate
    cost: int = 0  #: derivatives that the last row of the history took


def _begin(
    run: MethodRun, method: Iteration, x: Float[NDArray, "n_x"], y: Float[NDArray, "n_y"], limit: int
) -> LoopState:
    """The numbers chosen and nothing done yet, or where an earlier run left off."""
    limit, unknown = min(limit, FULL), (np.full_like(x, np.nan), np.full_like(y, np.nan))
    candidates = run.candidates(x, y)
    state = method.first(run.flat, jnp.asarray(x), jnp.asarray(y))
    first = LoopState(state, state, 0, 0, 0, 0, 0, dict(candidates[0]), unknown, (x, y))
    if (found := run.monitor.begin("iteration", first)) is not first:
        k, done, chunk, shortened, calls = (int(number) for number in found[2:7])
        numbers = {name: float(value) for name, value in found.numbers.items()}
        before, last = ((np.asarray(point[0]), np.asarray(point[1])) for point in (found.before, found.last))
        run.cost = int(found.cost)
        return LoopState(found.state, found.part, k, done, chunk, shortened, calls, numbers, before, last, run.cost)
    numbers, k, calls = candidates[0], 0, 0
    if len(candidates) > 1:
        numbers, state, k, calls = _choose(run, method, candidates, state, max(int(TRIAL * limit), 1))
    shortened = SHORTENINGS if set(method.names) <= set(method.given) else 0
    return LoopState(state, state, k, 0, max((limit - k) // ROWS, 1), shortened, calls, numbers, unknown, (x, y))


def _choose(
    run: MethodRun, method: Iteration, candidates: list[dict[str, float]], start: State, count: int
) -> tuple[dict[str, float], State, int, int]:
    """Run all settings side by side for a while; go on with the one whose x is best at the exact lower level."""
    numbers = {name: jnp.asarray([setting[name] for setting in candidates]) for name in candidates[0]}
    first = states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(candidates), *leaf.shape)), start)
    now, limit = run.monitor.elapsed(), run.monitor.time_limit
    until = np.inf if limit is None else now + TRIAL_TIME * max(limit - now, 0.0)
    steps = CompiledSteps(run, method, len(candidates))
    states, count = steps.advance(numbers, states, 0, count, until=until)
    calls = _calls(method, first, states, count * len(candidates))  # those of the settings that are not chosen, too
    values = [_exact_value(run, point) for point in np.asarray(states.x)]
    if not np.isfinite(values).any():  # none of them works: the shortest steps begin again
        return candidates[-1], start, 0, calls
    best = int(np.argmin(values))
    return candidates[best], jax.tree.map(lambda leaf: leaf[best], states), count, calls


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
        """Up to ``count`` iterations from k on, in calls of about half a second, so that limits are kept.

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
            piece = max(1, min(int(some * SECONDS / max(seconds, 1e-6)), 20 * some))
            if keep is not None:
                keep(state, done)
        return state, done

    def _call(self, numbers: Settings, state: State, k: int, count: int) -> State:
        traced = _traced(self.method, numbers, self.settings)
        program = _program(self.run.flat, self.method, self.settings)
        return program(traced, state, jnp.asarray(k), jnp.asarray(count))


def _traced(method: Iteration, numbers: Settings, settings: int = 0) -> dict[str, Array]:
    """The numbers as arguments of a compiled program."""
    further = {name: np.full((settings,) if settings else (), value) for name, value in method.traced.items()}
    return {name: jnp.asarray(value, jnp.float64) for name, value in {**numbers, **further}.items()}


def _program(flat: FlatProblem, method: Iteration, settings: int = 0) -> Callable[..., State]:
    counts = tuple(sorted(method.counts.items()))
    return flat.program(_steps, type(method), counts, method.own_fields, settings, is_loop=True)


def _steps(
    flat: FlatProblem,
    kind: type[Iteration],
    counts: tuple[tuple[str, int], ...],
    own_fields: tuple[tuple[str, Any], ...],
    settings: int,
    numbers: Numbers,
    state: State,
    first: Counter,
    count: Counter,
) -> State:
    """Iterations ``first``, ``first + 1``, ... of a method with one setting, or with several side by side."""
    method = kind({}, dict(counts), **dict(own_fields))

    def several(numbers: Numbers, state: State) -> State:
        return method.advance(flat, numbers, state, first, count)

    return jax.vmap(several)(numbers, state) if settings else several(numbers, state)


def steps_of(problem: BilevelProblem, method: Iteration, x: PyTree, y: PyTree, count: int) -> list[State]:
    """The states after each of ``count`` steps from (x, y), with flat arrays in NumPy.

    For tests of a method against another implementation: nothing is chosen, judged or shortened, so that every number
    of the method has to be given.
    """
    if missing := [name for name in method.names if name not in method.given]:
        raise OptionError(f"method {method.name!r} needs all of its numbers here; {', '.join(missing)} are missing")
    flat = problem.flat
    states: list[State] = []
    with double_precision():
        state = method.first(flat, jnp.asarray(problem.x_set.ravel(x)), jnp.asarray(problem.y_set.ravel(y)))
        program = _program(flat, method)
        numbers = _traced(method, method.given)
        for k in range(count):
            state = program(numbers, state, jnp.asarray(k), jnp.asarray(1))
            states.append(jax.tree.map(np.asarray, state))
    return states
