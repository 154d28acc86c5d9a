"""blocc: bilevel optimization with coupled constraints, without tuning, with a certificate.

>>> import jax.numpy as jnp
>>> from blocc import BilevelProblem, Box, Reals, solve
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from blocc._lib.compilation_cache import cache_compilations
from blocc._lib.version import __version__
from blocc.errors import BloccError, ForkError, OptionError, ProblemError, SensitivityError
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.maxmin import MaxMin
from blocc.inner.newton_cg import NewtonCG
from blocc.inner.pdhg import PrimalDualHybridGradient
from blocc.inner.protocol import InnerOracle
from blocc.lagrangian import InnerPairs
from blocc.multi_result import MultiResult
from blocc.options import Options
from blocc.outer.monitor import State
from blocc.problem import BilevelProblem
from blocc.result import Certificate, History, Result, Status
from blocc.sets import Box, ConvexSet, Product, Reals
from blocc.simple_sets import AffineSubspace, Ball, Halfspace, Simplex
from blocc.solve import solve
from blocc.solve_many import solve_many
from blocc.terms import L1, GroupL2

if TYPE_CHECKING:
    from blocc.derivatives.lower_level import LowerLevel, lower_level
    from blocc.derivatives.sensitivity import Sensitivity
    from blocc.derivatives.solve_differentiable import DifferentiableAnswer, solve_differentiable
    from blocc.global_search.solve_global import solve_global
    from blocc.inner.sparse_interior_point import SparseInteriorPoint
    from blocc.judge.check import check
    from blocc.judge.suggest import Suggestion, suggest
    from blocc.judge.theory import Theory, theory
    from blocc.judge.verify import verify
    from blocc.methods.batches import Batches
    from blocc.methods.compare import compare
    from blocc.multipliers import with_multipliers

__all__ = [
    "L1",
    "AffineSubspace",
    "Ball",
    "Batches",
    "BilevelProblem",
    "BloccError",
    "Box",
    "Certificate",
    "ConvexSet",
    "DifferentiableAnswer",
    "ForkError",
    "GroupL2",
    "Halfspace",
    "History",
    "InnerOracle",
    "InnerPairs",
    "InteriorPoint",
    "LowerLevel",
    "MaxMin",
    "MultiResult",
    "NewtonCG",
    "OptionError",
    "Options",
    "PrimalDualHybridGradient",
    "ProblemError",
    "Product",
    "Reals",
    "Result",
    "Sensitivity",
    "SensitivityError",
    "Simplex",
    "SparseInteriorPoint",
    "State",
    "Status",
    "Suggestion",
    "Theory",
    "__version__",
    "cache_compilations",
    "check",
    "compare",
    "lower_level",
    "solve",
    "solve_differentiable",
    "solve_global",
    "solve_many",
    "suggest",
    "theory",
    "verify",
    "with_multipliers",
]

#: Names that are loaded when they are first asked for: whoever solves a problem need not wait for the rest.
_LATER = {
    "LowerLevel": "blocc.derivatives.lower_level",
    "lower_level": "blocc.derivatives.lower_level",
    "Sensitivity": "blocc.derivatives.sensitivity",
    "DifferentiableAnswer": "blocc.derivatives.solve_differentiable",
    "solve_differentiable": "blocc.derivatives.solve_differentiable",
    "solve_global": "blocc.global_search.solve_global",
    "SparseInteriorPoint": "blocc.inner.sparse_interior_point",
    "check": "blocc.judge.check",
    "Suggestion": "blocc.judge.suggest",
    "suggest": "blocc.judge.suggest",
    "Theory": "blocc.judge.theory",
    "theory": "blocc.judge.theory",
    "verify": "blocc.judge.verify",
    "Batches": "blocc.methods.batches",
    "compare": "blocc.methods.compare",
    "with_multipliers": "blocc.multipliers",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'blocc' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
