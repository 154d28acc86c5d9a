"""Inner oracles: solvers of "minimise s f(x, .) + gamma g(x, .) over Y(x)", one file each, one protocol."""

from __future__ import annotations
