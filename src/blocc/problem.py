"""What a user writes: the functions, the sets and their shapes.

A :class:`BilevelProblem` knows nothing of algorithms. It checks that its parts fit together when it is built, and
offers itself to the solvers as a :class:`~blocc.flat_problem.FlatProblem`, the same functions over flat vectors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, PyTree
from blocc._lib.checks import as_data, check_taken
from blocc._lib.functions import CALLBACKS, DOUBTFUL, changing, check_callbacks, check_differentiable
from blocc._lib.notebook import Shown
from blocc._lib.operations import joined
from blocc._lib.tracing import KeptNumbersError, Shared, Traced, digest_of_arrays, trace
from blocc._lib.warning import warn_maker
from blocc.corners import EXTREMES, ROOTS, steady
from blocc.errors import ForkError, ProblemError
from blocc.flat_problem import FlatProblem
from blocc.lifting import Lifted
from blocc.sets import ConvexSet
from blocc.terms import FlatFunction, Term, Terms

if TYPE_CHECKING:
    from blocc.judge.check import CheckReport

Function = Callable[..., Any]

#: What a user may write.
FUNCTIONS = ("upper", "lower", "inequality", "equality", "upper_inequality", "joint_projection")


class _Hidden:
    """Attributes of a problem that are no fields of it."""

    shared: Shared
    _given: tuple[Any, ...] = ()  #: the leaves of the data as the user gave them
    _terms: Terms | None = None  #: the simple terms over flat vectors


@dataclass(frozen=True, kw_only=True, eq=False)
class BilevelProblem(_Hidden, Shown):
    """A leader's problem over x whose follower answers with y.

    minimise ``upper(x, y)`` over x in ``x_set``, subject to ``upper_inequality(x, y) <= 0``, where y minimises
    ``lower(x, y)`` over y in ``y_set`` subject to ``inequality(x, y) <= 0`` and ``equality(x, y) == 0``.

    All functions are plain ``jax.numpy`` code of (x, y), where x and y have the structure of their sets (a bare array
    for every set but :class:`~blocc.sets.Product`). ``upper`` and ``lower`` return a number; the constraint functions
    return an array or a pytree of arrays, and their multipliers come back in that structure. ``lower`` and
    ``inequality`` should be convex in y and ``equality`` affine in y; :meth:`check` tells whether they are.

    With ``data`` (a pytree of numbers and arrays) every function is called with it as a third argument, and
    :meth:`with_data` gives the same problem with other numbers, for which nothing is compiled again. The arrays are
    copied, and the copies cannot be written to. Numbers that functions take from their surroundings are compiled in
    instead; :meth:`renew` looks whether they have changed.

    ``lower_terms`` are norms that are added to ``lower``, with weights that may depend on x (:mod:`blocc.terms`): their
    kinks are handled exactly.

    ``oracle`` may hold an inner solver that knows this problem's structure; by default blocc chooses one.
    ``joint_projection(x, y)`` may return the nearest (x, y) in both sets that satisfies ``inequality`` and
    ``equality``, where that is known; methods that project jointly use it.
    """

    upper: Function
    lower: Function
    x_set: ConvexSet
    y_set: ConvexSet
    inequality: Function | None = None
    equality: Function | None = None
    upper_inequality: Function | None = None
    oracle: Any = None
    joint_projection: Function | None = None
    lower_terms: Sequence[Term] = ()
    data: PyTree = None
    name: str = "bilevel problem"

    def __post_init__(self) -> None:
        if self.data is not None:
            object.__setattr__(self, "_given", tuple(jax.tree.leaves(self.data)))
            object.__setattr__(self, "data", jax.tree.map(as_data, self.data))
        for name in ("x_set", "y_set"):
            if not isinstance(getattr(self, name), ConvexSet):
                raise ProblemError(
                    f"{name} must be a set such as Box(0, 1), Reals(3) or Product({{...}}), "
                    f"got {type(getattr(self, name)).__name__}"
                )
            if getattr(self, name).size == 0:
                raise ProblemError(f"{name} has no variable: its members must hold at least one number")
        for name in ("upper", "lower"):
            if not callable(getattr(self, name)):
                raise ProblemError(f"{name} must be a function of (x, y), got {type(getattr(self, name)).__name__}")
        for name in ("inequality", "equality", "upper_inequality", "joint_projection"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ProblemError(f"{name} must be a function of (x, y) or None, got {type(function).__name__}")
        if not isinstance(self.name, str):
            raise ProblemError(f"name must be a text, got {type(self.name).__name__}")
        if isinstance(self.y_set, Lifted):  # from a problem that this one is a changed copy of
            object.__setattr__(self, "y_set", self.y_set.within)
        if self.lower_terms:
            terms = Terms(self.lower_terms, self.y_set)
            object.__setattr__(self, "_terms", terms)
            if self.oracle is not None:
                raise ProblemError("lower_terms needs a problem without oracle: no oracle of your own knows the norms")
            if self.inequality is not None or self.equality is not None:
                object.__setattr__(self, "y_set", Lifted(self.y_set, terms))
        object.__setattr__(self, "shared", Shared(self._trace_all()))
        self._check_functions(self.shared.traced)
        if few := self.single_precision("captured"):
            warn_maker(f"{self.name}: {few}", UserWarning, __name__)

    def single_precision(self, where: str = "narrow") -> str:
        """Which functions compute with fewer digits than doubles have, in a sentence; empty where none does.

        ``where`` is "captured" for arrays from outside alone.
        """
        narrow = {name: kinds for name, found in self.shared.traced.items() if (kinds := getattr(found, where))}
        if not narrow:
            return ""
        kinds = ", ".join(sorted(frozenset().union(*narrow.values())))
        names = ", ".join(narrow)
        return f"{names} use {kinds} numbers; build the data with numpy, and cast none, to keep double precision"

    def __str__(self) -> str:
        """What each level decides and what binds it."""

        def count(number: int, what: str) -> str:
            return f"{number} {what}{'s' * (number != 1)}"

        rows = {
            "leader decides": f"{count(self.x_set.size, 'number')} in {self.x_set!r}",
            "follower answers": f"{count(self.y_set.size, 'number')} in {self.y_set!r}",
        }
        bound = {"inequality": "gc(x, y) <= 0", "equality": "h(x, y) = 0", "upper_inequality": "G(x, y) <= 0 (leader)"}
        rows |= {words: count(self._count(name), "row") for name, words in bound.items() if self._count(name)}
        if self.lower_terms:
            rows["norms"] = ", ".join(type(term).__name__ for term in self.lower_terms)
        return "\n".join([f"{self.name}: bilevel problem", *(f"  {name:<22}  {text}" for name, text in rows.items())])

    @property
    def lifted(self) -> BilevelProblem:
        """The same problem as every solver can take it: norms are written by further variables that nobody sees.

        A follower with ``inequality`` or ``equality`` is so from the beginning. Without them the norms are left to the
        one oracle that knows proximal operators.
        """
        if self._terms is None or isinstance(self.y_set, Lifted):
            return self
        other = copy.copy(self)
        other.__dict__.pop("flat", None)
        object.__setattr__(other, "y_set", Lifted(self.y_set, self._terms))
        object.__setattr__(other, "shared", self.shared.store.get((Lifted,), lambda: Shared(self.shared.traced)))
        return other

    def _trace_all(self) -> dict[str, Traced]:
        """Every function of the user, traced as it is now; a misfit is reported."""
        used = [name for name in FUNCTIONS if getattr(self, name) is not None]
        return {name: self._trace(name) for name in used + ["lower_terms"] * (self._terms is not None)}

    def _check_functions(self, traced: dict[str, Traced]) -> None:
        """Refuse what changes between two tracings, and what has no gradient."""
        for name, found in traced.items():
            if self._trace(name).digest != found.digest:
                raise changing(name, "traced twice, it gave two programs")
            if name != "joint_projection" and found.operations & DOUBTFUL:
                function = self.lower if name == "lower_terms" else getattr(self, name)
                check_differentiable(name, function, self._arguments)
                if found.operations & CALLBACKS:
                    check_callbacks(name, function, self._arguments)

    @property
    def _arguments(self) -> tuple[PyTree, ...]:
        """What the functions can be called with."""
        x, y = (within.unravel(within.interior_flat()) for within in (self.x_set, self.y_set))
        return (x, y) if self.data is None else (x, y, self.data)

    def _output(self, name: str) -> Any:
        """Shapes that a user function returns."""
        return self.shared.traced[name].output if name in self.shared.traced else ()

    def _trace(self, name: str) -> Traced:
        try:
            as_shape = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, np.float64)  # noqa: E731
            x, y = jax.tree.map(as_shape, self.x_set.template), jax.tree.map(as_shape, self.y_set.template)
            norms = self._terms if name == "lower_terms" else None
            function = getattr(self, name) if norms is None else norms.at
            traced = trace(function, *((x, y) if self.data is None else (x, y, self.data)))
            output = traced.output
        except (KeptNumbersError, jax.errors.UnexpectedTracerError) as error:
            raise changing(name, "it keeps what an earlier call of it made") from error
        except jax.errors.JAXTypeError as error:
            raise ProblemError(
                f"{name}(x, y) cannot be traced by JAX; write it with jax.numpy and without Python branches on the "
                f"values of x or y. JAX says: {str(error).splitlines()[0]}"
            ) from error
        except ForkError:
            raise
        except Exception as error:  # whatever the user's code raises is the message; we add where it came from
            check_taken(name, getattr(self, name, None), 2 if self.data is None else 3)
            shapes = ", ".join(
                f"{label} of shape {jax.tree.map(lambda leaf: leaf.shape, template)}"
                for label, template in (("x", self.x_set.template), ("y", self.y_set.template))
            )
            raise ProblemError(f"{name}(x, y) fails for {shapes}: {type(error).__name__}: {error}") from error
        if output is None:
            raise ProblemError(f"{name}(x, y) returns nothing; is a return missing?")
        if name in ("upper", "lower", "lower_terms") and (not hasattr(output, "shape") or output.shape != ()):
            found = jax.tree.map(lambda leaf: leaf.shape, output)
            raise ProblemError(f"{name}(x, y) must return one number (shape ()), got shape {found}")
        for leaf in jax.tree.leaves(output):
            if not jnp.issubdtype(leaf.dtype, jnp.floating) and not jnp.issubdtype(leaf.dtype, jnp.integer):
                raise ProblemError(f"{name}(x, y) must return real numbers, got dtype {leaf.dtype}")
        return traced

    def digests(self) -> dict[str, str]:
        """For each function, and for the data, a text that changes with any operation or number in it."""
        found = self.shared.digests()
        return found if self.data is None else {**found, "data": digest_of_arrays(self.data)}

    def renew(self) -> bool:
        """See whether the functions still compute what they did when they were last traced; True where they do not.

        Numbers that a function takes from its surroundings (globals, closures, attributes) are compiled in. Where any
        of them has changed, everything compiled is dropped, and the next solve uses the new ones. Functions that
        ``jax.jit`` wraps are remembered by JAX itself, old numbers and all: change what they are given instead.

        :raises ProblemError: where arrays that were given as ``data`` were changed in place
        """
        for given, copied in zip(self._given, jax.tree.leaves(self.data), strict=True):
            if isinstance(given, jax.Array):  # never changes, and may lie on another device
                continue
            now = np.asarray(given, dtype=copied.dtype)
            if not (np.array_equal(now, copied) or np.array_equal(now, copied, equal_nan=True)):  # the latter is slow
                raise ProblemError(
                    "the arrays given as data were changed in place, and the problem has the old numbers; use "
                    "problem.with_data(...) for the new ones"
                )
        old, fresh = self.shared, Shared(self._trace_all())
        if fresh.digests() == old.digests():
            return False
        self._check_functions(fresh.traced)
        # Problems that differ only in their data change together. Those that are being solved keep what they have.
        if old.successor is None or old.successor.digests() != fresh.digests():
            old.successor = fresh
        object.__setattr__(self, "shared", old.successor)
        self.__dict__.pop("flat", None)
        return True

    @cached_property
    def flat(self) -> FlatProblem:
        """The same problem over flat vectors, for the solvers."""
        return self._flat_over(self.data)

    def _flat_over(self, data: PyTree) -> FlatProblem:
        last = () if self.data is None else (data,)

        def scalar(function: Function) -> FlatFunction:
            def flat_function(x: AnyArray, y: AnyArray) -> Array:
                value = function(self.x_set.unravel(x), self.y_set.unravel(y), *last)
                return jnp.asarray(value, dtype=jnp.result_type(y))

            return flat_function

        def vector(function: Function | None) -> FlatFunction:
            def flat_function(x: AnyArray, y: AnyArray) -> Array:
                if function is None:
                    return jnp.zeros(0, dtype=jnp.result_type(y))
                leaves = jax.tree.leaves(function(self.x_set.unravel(x), self.y_set.unravel(y), *last))
                if not leaves:
                    return jnp.zeros(0, dtype=jnp.result_type(y))
                parts = [jnp.asarray(leaf, dtype=jnp.result_type(y)) for leaf in leaves]
                return joined(*(part if part.ndim == 1 else part.ravel() for part in parts))

            return flat_function

        def own(name: str) -> Any:
            traced = self.shared.traced.get(name)
            picks = traced is not None and bool(traced.operations & (EXTREMES | ROOTS))
            return steady(getattr(self, name)) if picks else getattr(self, name)

        lower, norms = scalar(own("lower")), self._terms
        simple: dict[str, Any] = {}
        if isinstance(self.y_set, Lifted):
            lower = self.y_set.added_to(lower, self.x_set, *last)
        elif norms is not None:
            simple = {"prox": norms.prox_over(self.x_set, *last), "catch": norms.catch}
            lower = norms.added_to(lower, self.x_set, *last)

        def project_jointly(x: AnyArray, y: AnyArray) -> tuple[Array, Array]:
            assert self.joint_projection is not None
            new_x, new_y = self.joint_projection(self.x_set.unravel(x), self.y_set.unravel(y), *last)
            join = lambda tree: jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])  # noqa: E731
            return join(new_x), self.y_set.lift_flat(join(new_y))

        return FlatProblem(
            upper=scalar(own("upper")),
            lower=lower,
            inequality=vector(own("inequality")),
            equality=vector(own("equality")),
            upper_inequality=vector(own("upper_inequality")),
            x_set=self.x_set,
            y_set=self.y_set,
            n_inequality=self._count("inequality"),
            n_equality=self._count("equality"),
            n_upper_inequality=self._count("upper_inequality"),
            joint_projection=None if self.joint_projection is None else project_jointly,
            data=data if self.data is not None else (),
            store=self.shared.store,
            rebind=None if self.data is None else self._flat_over,
            **simple,
        )

    def with_data(self, data: PyTree) -> BilevelProblem:
        """The same problem with other numbers, of the same structure and shapes; compiled solvers are shared."""
        if self.data is None:
            raise ProblemError("with_data needs a problem built with data=...: its functions take (x, y, data)")
        describe = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype.name), tree)  # noqa: E731
        new = jax.tree.map(as_data, data)
        same = jax.tree.structure(new) == jax.tree.structure(self.data)  # type: ignore[operator]
        if same:  # whole numbers are real numbers too
            new = jax.tree.map(lambda leaf, old: as_data(leaf, real=old.dtype.kind == "f"), new, self.data)
        if not same or describe(new) != describe(self.data):
            raise ProblemError(
                f"data must have the structure, shapes and dtypes {describe(self.data)}, got {describe(new)}"
            )
        other = copy.copy(self)  # dataclasses.replace makes a problem that shares nothing: it may change functions
        other.__dict__.pop("flat", None)
        for name, value in (("data", new), ("_given", tuple(jax.tree.leaves(data)))):
            object.__setattr__(other, name, value)
        return other

    def _count(self, name: str) -> int:
        return int(sum(np.prod(leaf.shape, dtype=int) for leaf in jax.tree.leaves(self._output(name))))

    def unravel_multipliers(self, name: str, flat: Float[AnyArray, " rows"]) -> PyTree:
        """Give a flat vector of multipliers the structure that the constraint function ``name`` returns. Traceable."""
        leaves, structure = jax.tree.flatten(self._output(name))
        if not leaves:
            return np.zeros(0)
        ends = np.cumsum([int(np.prod(leaf.shape, dtype=int)) for leaf in leaves]).tolist()
        begins = [0, *ends[:-1]]
        pieces = [flat[a:b].reshape(leaf.shape) for a, b, leaf in zip(begins, ends, leaves, strict=True)]
        return jax.tree.unflatten(structure, pieces)

    def check(self, x: PyTree | None = None, seed: int = 0) -> CheckReport:
        """Probe numerically, near ``x``, whether the method's assumptions hold, and report it in words.

        A convenience for :func:`blocc.judge.check.check`, which stands further down the line of rooms.
        """
        from blocc.judge.check import check

        self.renew()
        return check(self, x, seed=seed)
