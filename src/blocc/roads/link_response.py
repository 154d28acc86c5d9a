"""How the volumes of an equilibrium answer to changes of costs, link by link, from one factorised matrix.

With A the links' changes of volume for shifts between the paths in use and S the slopes of the links' costs, shifts s
answer to changes of costs by A'SA s = -A' change. There are many more paths than links, so that the matrix is made for
the links: with weights W of the paths and K = S^(1/2) A,

    change of volumes = -S^(-1/2) (K W K' + e)^(-1) K W (A' change),

which differs by the order of e alone from the answer, and by nothing after a few refinements. One factor serves all
right-hand sides, where conjugate gradients begin anew with each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from blocc._lib.arrays import Float, Int, NDArray
from blocc.networks.kernels import kernel
from blocc.roads.equilibrium import ROUNDING, Equilibrium, Moves, moves_of
from blocc.roads.link_costs import LinkCosts, evaluate
from blocc.roads.path_shifts import gather, spread

#: Beyond so many links the matrix takes longer than conjugate gradients, and much memory.
MOST_LINKS = 6000
#: What is added to the diagonal, relative to its mean.
_ADDED = 1e-9
#: Refinements, and what they may leave undone, relative to the right-hand side.
_REFINEMENTS, _UNDONE = 6, 1e-11


@dataclass(frozen=True, eq=False)
class LinkResponse:
    """Changes of volumes that answer to changes of costs; on links whose cost does not grow they are left out."""

    moves: Moves
    easing: Float[NDArray, "moves"]
    slope: Float[NDArray, "links"]
    rising: Int[NDArray, "rising"]  #: links whose cost grows with the volume
    factor: Float[NDArray, "rising rising"]  #: by Cholesky, of K W K' + e

    def to_changes(self, change: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """How the volumes answer to a change of the links' costs, to nearly all digits."""
        found, step = np.zeros(len(change)), np.empty(len(change))
        wanted, left = np.empty(len(self.moves.path)), change
        first = 0.0
        for _ in range(_REFINEMENTS):
            gather(*self.moves.table, left, wanted)
            size = float(np.max(np.abs(wanted), initial=0.0))
            first = first or size
            if size <= max(_UNDONE * first, ROUNDING * float(np.max(np.abs(change), initial=0.0))):
                break
            spread(*self.moves.table, self.easing * wanted, step)
            root = np.sqrt(self.slope[self.rising])
            found[self.rising] -= cho_solve((self.factor, True), root * step[self.rising]) / root
            left = change + self.slope * found
        return found

    def to_links(self, links: Int[NDArray, "n"]) -> Float[NDArray, "rising n"]:
        """How the volumes of all rising links answer to one unit of cost on each of these; none where it is not rising.

        The row of a link is its place in ``rising``.
        """
        place = np.full(len(self.slope), -1)
        place[self.rising] = np.arange(len(self.rising))
        rows, columns = place[links], np.arange(len(links))
        root = np.sqrt(self.slope[self.rising])
        unit = np.zeros((len(self.rising), len(links)))
        known = rows >= 0
        unit[rows[known], columns[known]] = 1.0 / root[rows[known]]
        # G (G + e)^(-1) is 1 - e (G + e)^(-1)
        unit -= self.added * cho_solve((self.factor, True), unit)
        return -unit / root[:, None]

    @property
    def added(self) -> float:
        """What was added to the diagonal."""
        return _ADDED * max(len(self.moves.path), 1) / max(len(self.rising), 1)


def link_response(found: Equilibrium, costs: LinkCosts) -> LinkResponse:
    """The answer of an equilibrium's volumes, with the paths in use kept."""
    columns, flow = found.paths
    cost, slope = np.empty_like(found.volume), np.empty_like(found.volume)
    evaluate(costs, found.volume, cost, slope)
    moves = moves_of(columns, flow)
    slope[slope <= 1e-14 * float(np.max(slope, initial=0.0))] = 0.0
    rising = np.flatnonzero(slope)
    easing = moves.easing(slope)
    place = np.full(len(slope), -1)
    place[rising] = np.arange(len(rising))
    matrix = np.zeros((len(rising), len(rising)))
    _products(*moves.table, easing, np.sqrt(slope), place, matrix)
    response = LinkResponse(moves, easing, slope, rising, matrix)
    matrix[np.diag_indices(len(rising))] += response.added
    if len(rising):
        # The lower half of rows is the upper half of columns, so that LAPACK works in place.
        factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)[0]
        return LinkResponse(moves, easing, slope, rising, factor)
    return response


@kernel
def _products(begin, middle, links, weight, root, place, matrix):  # type: ignore[no-untyped-def]
    """The lower half of the sum over paths of weight times the product of what they change on two rising links."""
    for i in range(len(middle)):
        for p in range(begin[i], begin[i + 1]):
            row = place[links[p]]
            if row < 0:
                continue
            own = weight[i] * root[links[p]] * (1.0 if p < middle[i] else -1.0)
            for q in range(begin[i], begin[i + 1]):
                column = place[links[q]]
                if 0 <= column <= row:
                    matrix[row, column] += own * root[links[q]] * (1.0 if q < middle[i] else -1.0)
