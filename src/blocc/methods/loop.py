"""Methods that are one step, repeated: the step is a pure function of arrays, and the loop is compiled.

The numbers of a method are traced, so that one compilation serves all their values, and several settings can run side
by side until one of them is chosen.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.compiled import compile_ahead
from blocc.methods.base import Array, Method, Numbers, State
from blocc.problem import FlatProblem

if TYPE_CHECKING:
    from blocc.methods.execute import MethodRun

#: Rows of the history that a full run leaves.
ROWS = 40
#: Share of the iterations that is spent on choosing among automatic numbers.
TRIAL = 0.1
#: Iterations of the first compiled call; the next ones are as long as about a second allows.
FIRST_PIECE = 20
#: How often, and how much, automatic step lengths are shortened when an iteration leaves the finite numbers.
SHORTENINGS = 5
SHORTER = 0.3


class Iteration(Method):
    """A method that is given by its start and its step."""

    lengths: ClassVar[tuple[str, ...]] = ("alpha", "eta")  #: which of its numbers are step lengths

    @abstractmethod
    def start(self, flat: FlatProblem, x: Array, y: Array) -> State:
        """The state before the first step."""

    @abstractmethod
    def step(self, flat: FlatProblem, numbers: Numbers, state: State, k: Array) -> State:
        """The state after step k (counted from 0)."""

    def answer(self, state: State) -> tuple[Array, Array]:
        """x and y of a state."""
        return state.x, state.y

    def drive(self, run: MethodRun, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Choose the numbers, then repeat the step."""
        return iterate(run, self, x, y)


class Progress(NamedTuple):
    """Everything that the loop needs in order to go on; kept in the journal after every compiled call."""

    state: Any  #: before the current chunk
    part: Any  #: within it
    k: int  #: iterations before the current chunk
    done: int  #: iterations of the current chunk
    chunk: int
    shortened: int
    numbers: dict[str, float]
    before: tuple[np.ndarray, np.ndarray]  #: the answer a chunk ago, NaN where there is none
    last: tuple[np.ndarray, np.ndarray]


def iterate(run: MethodRun, method: Iteration, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All iterations of the method; the last point."""
    limit = run.options.max_iterations
    candidates = run.candidates(x, y)
    now = _begin(run, method, candidates, x, y)
    run.numbers, run.last, run.iterations = now.numbers, now.last, now.k

    def keep(part: Any, done: int) -> None:
        run.monitor.journal.keep("iteration", now._replace(part=part, done=done), run.monitor.log())

    while now.k < limit:
        count = min(now.chunk, limit - now.k)
        new, done = _advance(run, method, run.numbers, now.part, now.k, count, already=now.done, keep=keep)
        x, y = (np.asarray(part) for part in method.answer(new))
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            if now.shortened == SHORTENINGS:
                run.broke = True
                return run.last
            # Numbers of our own choice were too bold: the same iterations again, with shorter steps.
            run.numbers = {key: value * (SHORTER if key in method.lengths else 1) for key, value in run.numbers.items()}
            now = now._replace(part=now.state, done=0, shortened=now.shortened + 1, numbers=run.numbers)
            continue
        run.iterations = now.k + done
        step = float(np.linalg.norm(x - run.last[0]))
        run.last = (x, y)  # before the record, which may end the run
        run.record(x, y, run.iterations, step)
        if _settled(run, now.before, (x, y)):
            break
        now = now._replace(state=new, part=new, k=run.iterations, done=0, before=(x, y), last=(x, y))
    return run.last


def _begin(
    run: MethodRun, method: Iteration, candidates: list[dict[str, float]], x: np.ndarray, y: np.ndarray
) -> Progress:
    """The numbers chosen and nothing done yet, or where an earlier sitting left off."""
    limit, unknown = run.options.max_iterations, (np.full_like(x, np.nan), np.full_like(y, np.nan))
    state = method.start(run.flat, jnp.asarray(x), jnp.asarray(y))
    first = Progress(state, state, 0, 0, 0, 0, dict(candidates[0]), unknown, (x, y))
    if (kept := run.monitor.journal.kept("iteration", first)) is not None:
        found, log = kept
        run.monitor.restore(log)
        whole = {name: int(getattr(found, name)) for name in ("k", "done", "chunk", "shortened")}
        numbers = {name: float(value) for name, value in found.numbers.items()}
        pairs = {name: tuple(map(np.asarray, getattr(found, name))) for name in ("before", "last")}
        return found._replace(**whole, **pairs, numbers=numbers)
    k = 0
    if len(candidates) == 1:
        run.numbers = candidates[0]
    else:
        state, k = _choose(run, method, candidates, x, y, max(int(TRIAL * limit), 1))
    shortened = 0 if len(candidates) > 1 else SHORTENINGS
    return Progress(state, state, k, 0, max((limit - k) // ROWS, 1), shortened, run.numbers, unknown, (x, y))


def _settled(run: MethodRun, before: tuple[np.ndarray, np.ndarray], now: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether a whole chunk moved x and y by less than a hundredth of the tolerance."""
    least = 1e-2 * run.options.tolerance
    return all(
        float(np.abs(new - old).max(initial=0.0)) <= least * (1.0 + float(np.abs(new).max(initial=0.0)))
        for old, new in zip(before, now, strict=True)
    )


def _choose(
    run: MethodRun, method: Iteration, candidates: list[dict[str, float]], x: np.ndarray, y: np.ndarray, count: int
) -> tuple[Any, int]:
    """Run all settings side by side for a while; go on with the one whose x is best at the exact lower level."""
    numbers = {name: np.array([c[name] for c in candidates]) for name in candidates[0]}
    state = method.start(run.flat, jnp.asarray(x), jnp.asarray(y))
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(candidates), *leaf.shape)), state)
    # With a time limit the trials may take a fifth of it.
    limit = run.monitor.time_limit
    until = np.inf if limit is None else run.monitor.elapsed() + 0.2 * max(limit - run.monitor.elapsed(), 0.0)
    states, count = _advance(run, method, numbers, states, 0, count, len(candidates), until)
    best, chosen = np.inf, 0
    for index in range(len(candidates)):
        point = np.asarray(method.answer(states)[0][index])
        if not np.isfinite(point).all():
            continue
        answer = run.follower(point)
        if float(np.max(np.stack(answer.residuals))) > 1e-3:
            continue
        value = run.upper(point, np.asarray(answer.y))
        if value < best:
            best, chosen = value, index
    run.numbers = candidates[chosen]
    if not np.isfinite(best):  # none of them works: the most cautious begins again
        run.numbers = candidates[-1]
        return state, 0
    return jax.tree.map(lambda leaf: leaf[chosen], states), count


def _advance(
    run: MethodRun,
    method: Iteration,
    numbers: Any,
    state: Any,
    k: int,
    count: int,
    batch: int = 0,
    until: float = np.inf,
    already: int = 0,
    keep: Callable[[Any, int], None] | None = None,
) -> tuple[Any, int]:
    """Up to ``count`` iterations from k on, in calls of about a second, so that limits are kept.

    ``already`` of them are done; ``keep(state, done)`` hears of every call.
    """
    done, piece = already, FIRST_PIECE
    while done < count and (done == 0 or run.monitor.elapsed() < until):
        run.monitor.check_time()
        some = min(piece, count - done)
        begun = time.perf_counter()
        compiled = run.compile_seconds
        state = jax.block_until_ready(_chunk(run, method, numbers, state, k + done, some, batch))
        seconds = time.perf_counter() - begun - (run.compile_seconds - compiled)
        done += some
        piece = max(1, min(int(some / max(seconds, 1e-6)), 20 * some))
        if keep is not None:
            keep(state, done)
    return state, done


def _chunk(run: MethodRun, method: Iteration, numbers: Any, state: Any, k: int, count: int, batch: int = 0) -> Any:
    """Some iterations in one compiled call."""

    def several(data: Any, numbers: Any, state: Any, first: Array, count: Array) -> Any:
        flat = run.flat.bind(data)
        step = lambda i, s: method.step(flat, numbers, s, first + i)  # noqa: E731
        return jax.lax.fori_loop(0, count, step, state)

    function = jax.vmap(several, in_axes=(None, 0, 0, None, None)) if batch else several
    arguments = (
        run.flat.data,
        jax.tree.map(lambda value: jnp.asarray(value, jnp.float64), dict(numbers)),
        state,
        jnp.asarray(k),
        jnp.asarray(count),
    )
    key = ("method", method.name, tuple(sorted(method.counts.items())), batch)
    if key not in run.flat.shared:
        run.flat.shared[key], seconds = compile_ahead(function, *arguments)
        run.compile_seconds += seconds
    return run.flat.shared[key](*arguments)
