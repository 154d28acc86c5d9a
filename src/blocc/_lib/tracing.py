"""What a function computes, as JAX sees it: the shapes it returns, and a digest of the program with all its numbers.

Two functions with the same digest do the same operations in the same order on the same constants, wherever their
arguments lie. The digest is the same in every process that uses the same version of JAX: names of variables, places in
memory and lines of source are no part of it. What Python runs by itself (``jax.pure_callback``, rules of
``custom_vjp``) counts by its name alone.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import DynamicJaxprTracer

from blocc._lib.arrays import PyTree
from blocc._lib.compiled import Store
from blocc._lib.jaxprs import is_literal, is_program
from blocc._lib.precision import double_precision
from blocc.errors import ProblemError

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr

#: Parameters of operations that change no number: names of functions, and where they are to be computed.
_IDLE = {"name", "ctx_mesh"}
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


class KeptNumbersError(Exception):
    """A function keeps what JAX put in the place of numbers in an earlier call: a key of ``jax.random``, a counter."""


class Traced(NamedTuple):
    """A function that was traced."""

    output: PyTree  #: shapes and dtypes of what it returns
    digest: str
    operations: frozenset[str] = frozenset()  #: the names of all operations in the program
    narrow: frozenset[str] = frozenset()  #: types of its numbers, arrays from outside too, of fewer digits than doubles
    captured: frozenset[str] = frozenset()  #: those of arrays from outside alone


def holds_tracers(*trees: PyTree) -> bool:
    """Whether any leaf is a stand-in that ``jax.jit``, ``grad`` or ``vmap`` has put in the place of numbers."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def is_traced(*trees: PyTree) -> bool:
    """The same, and True wherever JAX is recording operations instead of computing: all numbers become stand-ins."""
    return holds_tracers(*trees, jax.device_put(np.zeros(())))


def tracer() -> str:
    """By what a program was traced: digests are to be compared only where this is the same."""
    return f"jax {jax.__version__}, numpy {np.__version__}, {platform.machine()}"


def trace(function: Callable[..., Any], *arguments: PyTree) -> Traced:
    """Trace ``function`` in double precision, for arguments of these shapes.

    JAX remembers functions that it has traced. This traces again, so that values which the function takes from its
    surroundings are those of now; functions inside it that ``jax.jit`` wraps stay as JAX remembers them.
    """
    with double_precision():
        anew = lambda *given: function(*given)  # noqa: E731 - JAX has never seen this one
        program, output = jax.make_jaxpr(anew, return_shape=True)(*arguments)
    kept = [leaf for leaf in jax.tree.leaves(program.consts) if isinstance(leaf, jax.core.Tracer)]
    if kept:
        if not is_traced() and all(isinstance(leaf, DynamicJaxprTracer) for leaf in kept):
            raise KeptNumbersError  # stand-ins of a program that was recorded before, and nothing is recorded now
        raise ProblemError(
            "it uses numbers from its surroundings that JAX is tracing (jax.grad, jax.jit or jax.vmap): make them data "
            "of the problem, and give the traced ones to blocc.solve_differentiable(problem, data)"
        )
    writer = _Writer()
    writer.put(_described(jax.tree.structure((arguments, output))))
    writer.program(program)
    return Traced(output, writer.digest(), *map(frozenset, (writer.operations, writer.narrow, writer.captured)))


def digest_of_arrays(tree: PyTree) -> str:
    """A digest of the structure of a pytree of arrays and of every bit in it."""
    writer = _Writer()
    leaves, structure = jax.tree.flatten(tree)
    writer.put(_described(structure))
    for leaf in leaves:
        writer.array(leaf)
    return writer.digest()


class _Writer:
    """Puts programs into one running hash, piece by piece."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.operations: set[str] = set()
        self.narrow: set[str] = set()
        self.captured: set[str] = set()

    def digest(self) -> str:
        return self._hash.hexdigest()

    def put(self, text: str) -> None:
        """One piece of text; its length tells it from its neighbours."""
        content = text.encode("utf-8", "backslashreplace")
        self._hash.update(b"%d:" % len(content))
        self._hash.update(content)

    def array(self, value: Any) -> None:
        if jnp.issubdtype(getattr(value, "dtype", np.float64), jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.ascontiguousarray(np.asarray(value))
        self.put(f"{array.dtype.str} {np.shape(value)}")
        self._hash.update(array.reshape(-1).view(np.uint8).data)

    def program(self, closed: ClosedJaxpr | Jaxpr) -> None:
        """A program: its constants, then its operations, with variables numbered in the order of their appearance."""
        inner: Any = getattr(closed, "jaxpr", closed)
        numbers: dict[Any, int] = {}

        def variable(atom: Any) -> None:
            if is_literal(atom):
                self.put(f"literal {atom.aval}")
                self.array(atom.val)
            else:
                self.put(f"{numbers.setdefault(atom, len(numbers))} {atom.aval}")

        def number(atom: Any, *also: set[str]) -> None:
            variable(atom)
            kind = getattr(atom.aval, "dtype", np.dtype(float))
            if jnp.issubdtype(kind, jnp.floating) and kind.itemsize < np.dtype(float).itemsize:
                for found in (self.narrow, *also):
                    found.add(str(kind))

        self.put("program")
        for atom in inner.constvars:
            number(atom, self.captured)
        for atom in inner.invars:
            number(atom)
        for constant in getattr(closed, "consts", ()):
            self.array(constant)
        for equation in inner.eqns:
            self.put(equation.primitive.name)
            self.operations.add(equation.primitive.name)
            for atom in equation.invars:
                variable(atom)
            for atom in equation.outvars:
                number(atom)
            for name in sorted(equation.params):
                if name not in _IDLE:
                    self.put(name)
                    self.parameter(equation.params[name])
        self.put("returns")
        for atom in inner.outvars:
            variable(atom)

    def parameter(self, value: Any) -> None:
        """Anything that an operation may be told."""
        if is_program(value):
            self.program(value)
        elif isinstance(value, (tuple, list)):
            self.put(f"{len(value)} items")
            for item in value:
                self.parameter(item)
        elif isinstance(value, Mapping):
            self.parameter(sorted(value.items(), key=lambda item: repr(item[0])))
        elif isinstance(value, (set, frozenset)):
            self.put(str(sorted(map(_described, value))))
        elif isinstance(value, (np.ndarray, np.generic, jax.Array)):
            self.array(value)
        else:
            self.put(_described(value))


def _described(value: Any) -> str:
    """An object as text that is the same in every process."""
    if callable(value) and not isinstance(value, type):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    return _ADDRESS.sub("0x", repr(value))


class Shared:
    """What problems that differ only in their data have in common."""

    def __init__(self, traced: dict[str, Traced]) -> None:
        self.traced = traced  #: the user's functions as they were last traced
        self.store = Store()
        self.successor: Shared | None = None  #: what takes its place when the functions have changed

    def digests(self) -> dict[str, str]:
        """For each function a text that changes with any operation or number in it."""
        return {name: found.digest for name, found in self.traced.items()}
