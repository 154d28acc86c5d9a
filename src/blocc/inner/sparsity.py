"""Which entries of a Jacobian can differ from zero: read from the program of a function, operation by operation.

Every array in the program of the directional derivative carries the variables that its entries depend on. What single
operations do to them is told in :mod:`blocc.inner.dependencies`; here calls, branches and loops are followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp
from jax.extend.core import ClosedJaxpr

from blocc._lib.arrays import Array
from blocc._lib.jaxprs import is_literal
from blocc.inner.dependencies import Known, Operations

#: Longest loop that is followed step by step.
_UNROLLED = 64


def jacobian_pattern(function: Callable[[Array], Array], size: int, limit: int) -> sp.csr_array:
    """Where the Jacobian of ``function``, from ``size`` numbers to a vector, can differ from zero.

    What is followed is the program of its directional derivative, which is linear in the direction.

    :raises TooDense: where there would be more than ``limit`` entries, in the pattern or on the way to it
    """

    def derivative(point: Array, direction: Array) -> Array:
        return jax.jvp(function, (point,), (direction,))[1]

    vector = jax.ShapeDtypeStruct((size,), np.float64)
    program = jax.make_jaxpr(derivative)(vector, vector)
    inputs = [Known(None, None), Known(None, sp.eye_array(size, dtype=bool, format="csr"))]
    with jax.ensure_compile_time_eval():
        found = _Tracer(size, limit).run(program, inputs)[0].pattern
    return sp.csr_array((program.out_avals[0].shape[0], size), dtype=bool) if found is None else found


class _NotFollowedError(Exception):
    """A loop that is too long to be followed step by step."""


class _Tracer:
    """Follows a program with ``size`` variables; no pattern may have more than ``limit`` entries."""

    def __init__(self, size: int, limit: int) -> None:
        self.operations = Operations(size, limit)

    def run(self, program: ClosedJaxpr, inputs: Sequence[Known]) -> list[Known]:
        inner = program.jaxpr
        known: dict[Any, Known] = dict(zip(inner.invars, inputs, strict=True))
        for variable, constant in zip(inner.constvars, program.consts, strict=True):
            numbers = None if isinstance(constant, jax.core.Tracer) else np.asarray(constant)
            known[variable] = Known(numbers, None)

        def read(atom: Any) -> Known:
            return Known(np.asarray(atom.val), None) if is_literal(atom) else known[atom]

        for equation in inner.eqns:
            given = [read(atom) for atom in equation.invars]
            for variable, found in zip(equation.outvars, self.apply(equation, given), strict=True):
                smooth = np.issubdtype(variable.aval.dtype, np.floating)
                known[variable] = found if smooth else Known(found.value, None)
        return [read(atom) for atom in inner.outvars]

    def apply(self, equation: Any, given: list[Known]) -> list[Known]:
        """What is known of the outputs of one operation."""
        name, count = equation.primitive.name, len(equation.outvars)
        inner = self._inner(equation)
        if all(each.value is not None for each in given) and inner is None and not equation.effects:
            return self._computed(equation, given)
        if inner is not None:
            return self.run(inner, given)
        if name in ("cond", "scan", "while"):
            return self._controlled(name, equation, given)
        if all(each.pattern is None for each in given):
            return [Known(None, None)] * count
        return self.operations.apply(equation, given)

    def _controlled(self, name: str, equation: Any, given: list[Known]) -> list[Known]:
        """Branches and loops; what another version of JAX tells in other words counts as dense."""
        try:
            return list(getattr(self, "_" + name)(equation, given))
        except (_NotFollowedError, KeyError):
            known = all(each.pattern is None for each in given)
            return [Known(None, None)] * len(equation.outvars) if known else self.operations.everything(equation, given)

    def _inner(self, equation: Any) -> ClosedJaxpr | None:
        """The program that an operation merely calls."""
        if equation.primitive.name in ("cond", "scan", "while"):
            return None
        for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            found = equation.params.get(name)
            if found is not None:
                closed = found if hasattr(found, "consts") else ClosedJaxpr(found, ())
                return closed if len(closed.jaxpr.invars) == len(equation.invars) else None
        return None

    def _computed(self, equation: Any, given: list[Known]) -> list[Known]:
        values = [each.value for each in given]
        try:
            found = equation.primitive.bind(*values, **equation.params)
        except Exception:  # an operation that needs more than its numbers: nothing is known of the result
            return [Known(None, None)] * len(equation.outvars)
        outputs = found if equation.primitive.multiple_results else [found]
        return [Known(np.asarray(output), None) for output in outputs]

    def _cond(self, equation: Any, given: list[Known]) -> list[Known]:
        branches = equation.params["branches"]
        choice = given[0].value
        if choice is not None:
            return self.run(branches[int(np.clip(int(choice), 0, len(branches) - 1))], given[1:])
        return self._either([self.run(branch, given[1:]) for branch in branches])

    def _either(self, cases: list[list[Known]]) -> list[Known]:
        joined = []
        for several in zip(*cases, strict=True):
            patterns = [each.pattern for each in several if each.pattern is not None]
            joined.append(Known(None, self.operations.union(patterns) if patterns else None))
        return joined

    def _scan(self, equation: Any, given: list[Known]) -> list[Known]:
        p = equation.params
        n_consts, n_carry, length = p["num_consts"], p["num_carry"], p["length"]
        if length > _UNROLLED:
            raise _NotFollowedError
        consts, carry, over = given[:n_consts], given[n_consts : n_consts + n_carry], given[n_consts + n_carry :]
        stacked: list[list[Known]] = [[] for _ in equation.outvars[n_carry:]]
        for step in range(length)[:: -1 if p["reverse"] else 1]:
            slices = [
                Known(None if e.value is None else e.value[step], self._step(e.pattern, step, length)) for e in over
            ]
            found = self.run(p["jaxpr"], [*consts, *carry, *slices])
            carry = found[:n_carry]
            for rows, output in zip(stacked, found[n_carry:], strict=True):
                rows.append(output)
        outputs = []
        for rows, variable in zip(stacked, equation.outvars[n_carry:], strict=True):
            ordered = rows[::-1] if p["reverse"] else rows
            size = math.prod(variable.aval.shape[1:])
            pieces = [self.operations.pattern(row, size) for row in ordered]
            pattern = sp.csr_array(sp.vstack(pieces, format="csr", dtype=bool)) if pieces else None
            outputs.append(Known(None, pattern))
        return [*carry, *outputs]

    def _step(self, pattern: sp.csr_array | None, step: int, length: int) -> sp.csr_array | None:
        if pattern is None:
            return None
        size = pattern.shape[0] // length
        return pattern[step * size : (step + 1) * size]

    def _while(self, equation: Any, given: list[Known]) -> list[Known]:
        """Repeat the body until no entry gains a dependency; no number that changes is known."""
        p = equation.params
        n_cond, n_body = p["cond_nconsts"], p["body_nconsts"]
        consts, carry = given[n_cond : n_cond + n_body], [Known(None, e.pattern) for e in given[n_cond + n_body :]]
        for _ in range(_UNROLLED):
            new = self._either([carry, self.run(p["body_jaxpr"], [*consts, *carry])])
            count = [[0 if e.pattern is None else e.pattern.nnz for e in each] for each in (carry, new)]
            carry = new
            if count[0] == count[1]:
                return carry
        return self.operations.everything(equation, given)
