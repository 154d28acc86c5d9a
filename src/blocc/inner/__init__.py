"""Inner oracles: solvers of "minimise s f(x, .) + gamma g(x, .) over Y(x)", one file each, one protocol.

An oracle of your own extends :class:`InnerOracle` and ends with :func:`finish`.
"""

from __future__ import annotations

from blocc.inner.protocol import InnerCode, InnerOracle, InnerSolution, finish
from blocc.lagrangian import Multipliers, Weights

__all__ = ["InnerCode", "InnerOracle", "InnerSolution", "Multipliers", "Weights", "finish"]
