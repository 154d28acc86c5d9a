"""Is a quadratic form nonnegative on a cone? By its eigenvalues where they say so, else by an integer program.

    v @ form @ v >= 0   for all v with   rows @ v <= 0,   of each of the pairs of rows at least one zero

In general that is NP-hard (Murty and Kabadi, Mathematical Programming 39, 1987). With s = -rows @ v >= 0 and the
directions in which no row changes minimised out, the form is copositive on the orthant of s, or it is not. It is not if
and only if some s >= 0, other than zero, has ``form @ s < 0`` in every entry that s uses: one mixed-integer linear
program (Anstreicher, Linear Algebra and its Applications 609, 2021), which HiGHS decides for tens of rows. A pair of
rows is one more constraint between two of its binary variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from blocc._lib.arrays import Float, NDArray
from blocc.local.fit import lengths_of

#: Nodes of branch and bound: a count, so that the answer does not depend on the machine.
_NODES = 10_000
_RANK = float(np.finfo(float).eps) ** 0.5  #: singular values below this share of the largest are none


class Curved(NamedTuple):
    """What is known of a form on a cone."""

    down: Float[NDArray, "n"] | None = None  #: a direction of the cone along which the form is negative
    decided: bool = True  #: whether the form is nonnegative if there is none


def curved_down(
    form: Float[NDArray, "n n"],
    rows: Float[NDArray, "rows n"],
    resolution: float,
    pairs: Sequence[tuple[int, int]] = (),
) -> Curved:
    """A direction in the cone along which the form falls by more than its ``resolution``, a share of its entries."""
    values, vectors = np.linalg.eigh(form)
    least = resolution * float(np.max(np.abs(values), initial=0.0))
    if not len(values) or values[0] >= -least:
        return Curved()
    lengths = lengths_of(rows) if len(rows) else np.zeros(0)
    real = lengths > _RANK * np.max(lengths, initial=0.0)
    if not real.any():
        return Curved(vectors[:, 0])
    rows, place = rows[real] / lengths[real, None], np.cumsum(real) - 1
    pairs = [(int(place[one]), int(place[other])) for one, other in pairs if real[one] and real[other]]
    if len(values) == 1:
        inside = [sign * vectors[:, 0] for sign in (1.0, -1.0) if (sign * rows @ vectors[:, 0] <= 0.0).all()]
        return Curved(inside[0] if inside else None)
    left, singular, right = np.linalg.svd(rows)
    rank = int((singular > _RANK * singular[0]).sum())
    free = right[rank:].T
    bent, axes = np.linalg.eigh(free.T @ form @ free)
    if len(bent) and bent[0] < -least:
        return Curved(free @ axes[:, 0])
    if rank < len(rows):
        return Curved(decided=False)
    onto = -(right[:rank].T / singular) @ left.T
    # Where the form is zero along a free direction and couples with a row, it falls without end: a steep entry below.
    across = -(axes / np.maximum(bent, least)) @ axes.T @ free.T @ form @ onto
    onto = onto + free @ across
    reduced = onto.T @ form @ onto
    size = np.sqrt(np.abs(np.diag(reduced)))
    unit = np.where(size > _RANK * np.max(size), size, np.max(np.abs(reduced)) ** 0.5)
    found = _uses(reduced / np.outer(unit, unit), resolution, pairs)
    return found if found.down is None else found._replace(down=onto @ (found.down / unit))


def _uses(form: np.ndarray, resolution: float, pairs: Sequence[tuple[int, int]]) -> Curved:
    """Anstreicher's program: s, which of its entries are used, and by how much ``form @ s`` is negative there."""
    k = len(form)
    form = form / float(np.max(np.abs(form)))
    identity, nothing = np.eye(k), np.zeros((k, 1))
    most = np.maximum(np.max(form, axis=1), 0.0) + 1.0
    both = np.zeros((len(pairs), 2 * k + 1))
    for row, pair in zip(both, pairs, strict=True):
        row[k + np.array(pair)] = 1.0
    constraints = (
        (np.concatenate([form, np.diag(most), np.ones((k, 1))], axis=1), -np.inf, most),
        (np.concatenate([identity, -identity, nothing], axis=1), -np.inf, 0.0),
        (np.concatenate([np.ones((1, k)), np.zeros((1, k + 1))], axis=1), 1.0, 1.0),
        (both, -np.inf, 1.0),
    )
    found = scipy.optimize.milp(
        np.concatenate([np.zeros(2 * k), [-1.0]]),
        integrality=np.concatenate([np.zeros(k), np.ones(k), [0.0]]),
        bounds=scipy.optimize.Bounds(np.concatenate([np.zeros(2 * k), [resolution]]), 1.0),
        constraints=[scipy.optimize.LinearConstraint(*one) for one in constraints if len(one[0])],
        options={"node_limit": _NODES, "mip_rel_gap": 1.0, "presolve": False},  # which would print
    )
    if found.x is not None and found.x[:k] @ form @ found.x[:k] < 0.0:
        return Curved(np.maximum(found.x[:k], 0.0))
    return Curved(decided=found.status == 2)  # infeasible: proved
