"""Inner solutions of Algorithm 1 as a user writes and reads them: those it begins with, and its last ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree
from blocc.errors import OptionError
from blocc.lagrangian import InnerPairs, Multipliers
from blocc.penalty import Evaluation
from blocc.problem import BilevelProblem

KINDS = ("inequality", "equality")
ROUNDING = 1e-9  #: relative; by which what a projection returned may be outside


def pairs_of(evaluation: Evaluation) -> InnerPairs:
    """Both inner solutions of an evaluation, flat."""
    g, F = evaluation.follower, evaluation.penalised
    return InnerPairs(np.asarray(g.y), _flat(g.multipliers), np.asarray(F.y), _flat(F.multipliers))


def _flat(multipliers: Multipliers) -> Multipliers:
    return Multipliers(*map(np.asarray, multipliers))


def restored(problem: BilevelProblem, flat: InnerPairs) -> InnerPairs:
    """Flat pairs in the user's structures."""

    def multipliers(given: Multipliers) -> Multipliers:
        return Multipliers(*(problem.unravel_multipliers(kind, part) for kind, part in zip(KINDS, given, strict=True)))

    y_g, y_F = (jax.tree.map(np.asarray, problem.y_set.unravel(y)) for y in (flat.y_g, flat.y_F))
    return InnerPairs(y_g, multipliers(flat.mu_g), y_F, multipliers(flat.mu_F))


def flattened(problem: BilevelProblem, given: InnerPairs) -> InnerPairs:
    """Pairs of the user's as flat vectors; what is None begins in the middle of Y, or at zero.

    Multipliers are those of ``inequality`` where the problem has no ``equality``, or a pair for both.
    """
    y_g, y_F = (_point(problem, getattr(given, name), name) for name in ("y_g", "y_F"))
    mu_g, mu_F = (_multipliers(problem, getattr(given, name), name) for name in ("mu_g", "mu_F"))
    return InnerPairs(y_g, mu_g, y_F, mu_F)


def _point(problem: BilevelProblem, y: PyTree, name: str) -> Float[NDArray, "n_y"]:
    where = f"inner_start.{name}"
    found = problem.y_set.interior_flat() if y is None else problem.y_set.ravel(y, where)
    flat = _finite(np.asarray(found, dtype=np.float64), where)
    away = float(np.abs(flat - np.asarray(problem.y_set.project_flat(flat))).max(initial=0.0))
    if away > ROUNDING * (1.0 + float(np.abs(flat).max(initial=0.0))):
        raise OptionError(f"{where} must be in y_set; its nearest member is {away:.3g} away in one component")
    return flat


def _multipliers(problem: BilevelProblem, given: Any, name: str) -> Multipliers:
    sizes, where = (problem.flat.n_inequality, problem.flat.n_equality), f"inner_start.{name}"
    parts = [None, None] if given is None else [*given] if isinstance(given, Multipliers) else [given, None]
    found = []
    for part, size, kind in zip(parts, sizes, KINDS, strict=True):
        leaves = [np.ravel(np.asarray(leaf, dtype=np.float64)) for leaf in jax.tree.leaves(part)]
        flat = np.concatenate(leaves) if leaves else np.zeros(size)
        if flat.size != size:
            raise OptionError(f"{where} needs {size} multipliers of {kind}, got {flat.size}")
        found.append(_finite(flat, where))
    if (found[0] < 0.0).any():
        raise OptionError(f"{where}: multipliers of inequality are not negative")
    return Multipliers(*found)


def _finite(vector: Float[NDArray, "n"], where: str) -> Float[NDArray, "n"]:
    if not np.isfinite(vector).all():
        raise OptionError(f"{where} must be finite")
    return vector
