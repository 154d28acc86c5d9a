"""A function with kinks as its pieces: with one of them, or any other numbers, in the place of each kink.

And what must hold before its pieces can stand for it: more of a kink is never better, and how many kinks a row has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, NDArray, PyTree
from blocc._lib.rounding import ROUNDED
from blocc.corners import Kink, Site, program_of, run, sites_of
from blocc.problem import BilevelProblem

_SAMPLES = 8
#: Entries of the matrix that tells how rows depend on kinks, for each of them.
_MOST_FOR_EACH = 200


class Raised(NamedTuple):
    """A function with numbers in the place of its kinks."""

    output: PyTree
    pieces: list[tuple[Array, Array]]  #: of each kink, flat; negative for "min", so that the larger one counts
    heights: list[Array]  #: the kinks themselves, flat


class Kinked:
    """One of the user's functions, and the kinks of it that y crosses."""

    def __init__(self, problem: BilevelProblem, name: str) -> None:
        self._program, self._sites = program_of(problem, name), sites_of(problem)[name]
        crossed = [site for site in self._sites if site.crossed]
        sizes = [int(np.prod(site.shape, dtype=int)) for site in crossed]
        self.ends = np.cumsum([0, *sizes]).tolist()  #: where each of them begins and ends among all, flat
        self.size = sum(sizes)
        self.signs = np.repeat([-1.0 if site.kind == "min" else 1.0 for site in crossed], sizes)

    def _with(self, value: Callable[[int, Site, Kink], AnyArray], arguments: tuple[PyTree, ...]) -> Raised:
        sites, found = iter(self._sites), Raised(None, [], [])

        def corner(kink: Kink) -> AnyArray | None:
            site = next(sites)
            if not site.crossed:
                return None
            flat = [jnp.broadcast_to(piece, site.shape).ravel() for piece in kink.pieces]
            sign, larger = (-1.0, jnp.minimum) if site.kind == "min" else (1.0, jnp.maximum)
            found.pieces.append((sign * flat[0], sign * flat[1]))
            found.heights.append(larger(*flat))
            return jnp.reshape(value(len(found.pieces) - 1, site, kink), site.shape)

        return found._replace(output=run(self._program, corner, *arguments))

    def at_heights(self, heights: AnyArray, *arguments: PyTree) -> Raised:
        """With further variables in the place of kinks."""
        return self._with(lambda index, *_: heights[self.ends[index] : self.ends[index + 1]], arguments)

    def on_piece(self, index: int, *arguments: PyTree) -> PyTree:
        """With the first or the second piece of every kink in its place."""
        return self._with(lambda _, site, kink: jnp.broadcast_to(kink.pieces[index], site.shape), arguments).output

    def heights(self, *arguments: PyTree) -> Array:
        """The kinks themselves."""

        def exact(_: int, site: Site, kink: Kink) -> AnyArray:
            larger = jnp.minimum if site.kind == "min" else jnp.maximum
            return jnp.broadcast_to(larger(*kink.pieces), site.shape)

        return joined(self._with(exact, arguments).heights)

    def response(self, heights: AnyArray, *arguments: PyTree) -> tuple[Array, Array]:
        """Everything that depends on the heights: what the function returns, and the pieces."""
        found = self.at_heights(heights, *arguments)
        return joined(jax.tree.leaves(found.output)), joined([piece for pair in found.pieces for piece in pair])


def rises(problem: BilevelProblem, function: Kinked) -> bool:
    """Whether more of any kink is never better, at random places: only then its pieces can stand for it."""

    def change(x: Array, y: Array, more: Array) -> Array:
        last = () if problem.data is None else (problem.data,)
        at = (problem.x_set.unravel(x), problem.y_set.unravel(y), *last)
        heights = function.heights(*at)
        before, after = (joined(function.response(h, *at)) for h in (heights, heights + function.signs * more))
        return jnp.min(after - before + ROUNDED * (1.0 + jnp.abs(before) + jnp.abs(after)))

    generator, flat = np.random.default_rng(0), problem.flat
    places = [(flat.x_set.interior_flat(), flat.y_set.interior_flat())]
    places += [(flat.x_set.sample_flat(generator), flat.y_set.sample_flat(generator)) for _ in range(_SAMPLES)]
    x, y = (jnp.asarray(np.array(part)) for part in zip(*places, strict=True))
    size = (len(places), function.size)
    more = generator.exponential(size=size) * (generator.uniform(size=size) < 0.5)
    return bool((jax.jit(jax.vmap(change))(x, y, jnp.asarray(more)) >= 0.0).all())


def rows_to_split(problem: BilevelProblem, function: Kinked) -> NDArray | None:
    """Rows with one kink; None where a row has several, or a kink another one inside."""
    from blocc.inner.dependencies import TooDense  # SciPy's sparse matrices, which few runs need
    from blocc.inner.sparsity import jacobian_pattern

    counts: list[NDArray] = []

    def look(x: PyTree, y: PyTree, *data: PyTree) -> None:
        for index in range(2):
            response = lambda heights, part=index: function.response(heights, x, y, *data)[part]  # noqa: E731
            limit = _MOST_FOR_EACH * (function.size + problem.flat.n_inequality)
            counts.append(np.diff(jacobian_pattern(response, function.size, limit).indptr))

    last = () if problem.data is None else (problem.data,)
    try:  # traced, so that neither x nor y nor data are numbers from which zeros could be read
        as_shape = lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.float64)  # noqa: E731
        jax.eval_shape(look, *(jax.tree.map(as_shape, s.template) for s in (problem.x_set, problem.y_set)), *last)
    except TooDense:
        return None
    rows, pieces = counts
    return None if (rows > 1).any() or (pieces > 0).any() else np.flatnonzero(rows)


def joined(parts: Iterable[AnyArray]) -> Array:
    """All numbers in one row."""
    flat = [jnp.ravel(jnp.asarray(part, dtype=jnp.float64)) for part in parts]
    return jnp.concatenate(flat) if flat else jnp.zeros(0)
