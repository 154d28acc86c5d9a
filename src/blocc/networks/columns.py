"""Columns: the paths that markets are known to use, as compact arrays.

The paths of one market follow each other; of each the links are known, in ascending order, because only sums over them
are ever asked for. Memory grows with the paths in use, not with origins, nodes and links.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.networks.kernels import kernel
from blocc.networks.shortest_paths import Streets, Trees


@dataclass(frozen=True, eq=False)
class Columns:
    """Paths in the order of their markets."""

    market: Int[NDArray, "paths"]
    first: Int[NDArray, "paths_and_one"]  #: where the links of each path begin
    links: Int[NDArray, "entries"]
    n_markets: int
    n_links: int

    def __len__(self) -> int:
        return len(self.market)

    @cached_property
    def of_market(self) -> Int[NDArray, "markets_and_one"]:
        """Where the paths of each market begin."""
        return np.concatenate(([0], np.cumsum(np.bincount(self.market, minlength=self.n_markets))))

    def costs(self, values: Float[NDArray, "links"]) -> Float[NDArray, "paths"]:
        """Sum of the links' values along each path."""
        found = np.empty(len(self))
        _along(values, self.first, self.links, found)
        return found

    def loads(self, flow: Float[NDArray, "paths"]) -> Float[NDArray, "links"]:
        """Sum of the flows of the paths over each link."""
        found = np.zeros(self.n_links)
        _across(flow, self.first, self.links, found)
        return found

    def totals(self, values: Float[NDArray, "paths"]) -> Float[NDArray, "markets"]:
        """Sum over the paths of each market."""
        return np.bincount(self.market, values, self.n_markets)

    def least(self, values: Float[NDArray, "paths"]) -> Float[NDArray, "markets"]:
        """The least value of each market's paths, infinite where it has none."""
        found = np.full(self.n_markets, np.inf)
        if len(self):
            has_some = np.diff(self.of_market) > 0
            found[has_some] = np.minimum.reduceat(values, self.of_market[:-1][has_some])
        return found

    def take(self, which: Int[NDArray, "chosen"]) -> Columns:
        """These paths, which must come in the order of their markets."""
        first = _bounds(np.diff(self.first)[which])
        links = np.empty(first[-1], dtype=self.links.dtype)
        _gather(self.first, self.links, which, first, links)
        return Columns(self.market[which], first, links, self.n_markets, self.n_links)

    def joined(self, other: Columns) -> tuple[Columns, Int[NDArray, "all_paths"]]:
        """The paths of both, and where each comes from in the sequence of one after the other."""
        order = np.argsort(np.concatenate((self.market, other.market)), kind="stable")
        first = np.concatenate((self.first, self.first[-1] + other.first[1:]))
        one_after_the_other = Columns(
            np.concatenate((self.market, other.market)),
            first,
            np.concatenate((self.links, other.links)),
            self.n_markets,
            self.n_links,
        )
        return one_after_the_other.take(order), order


def cheapest_columns(
    streets: Streets,
    trees: Trees,
    row: Int[NDArray, "markets"],
    destination: Int[NDArray, "markets"],
    which: Int[NDArray, "chosen"],
) -> Columns:
    """The cheapest paths of these markets, read from the trees; all of them must have one."""
    rows, ends = row[which], destination[which]
    lengths = np.empty(len(which), dtype=np.int64)
    _lengths(rows, ends, trees.link, streets.tail, streets.origin, lengths)
    first = _bounds(lengths)
    links = np.empty(first[-1], dtype=np.int32)
    _paths(rows, ends, trees.link, streets.tail, streets.origin, first, links)
    return Columns(which, first, links, len(row), len(streets.tail))


def _bounds(lengths: Int[NDArray, "paths"]) -> Int[NDArray, "bounds"]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


# --- compiled ------------------------------------------------------------------------------------------------------
@kernel
def _along(values, first, links, found):  # type: ignore[no-untyped-def]
    for path in range(len(first) - 1):
        total = 0.0
        for position in range(first[path], first[path + 1]):
            total += values[links[position]]
        found[path] = total


@kernel
def _across(flow, first, links, found):  # type: ignore[no-untyped-def]
    for path in range(len(first) - 1):
        for position in range(first[path], first[path + 1]):
            found[links[position]] += flow[path]


@kernel
def _gather(first, links, which, new_first, found):  # type: ignore[no-untyped-def]
    for i in range(len(which)):
        begin, end = first[which[i]], first[which[i] + 1]
        found[new_first[i] : new_first[i + 1]] = links[begin:end]


@kernel
def _lengths(rows, ends, link, tail, origin, lengths):  # type: ignore[no-untyped-def]
    for i in range(len(rows)):
        node, count = ends[i], 0
        while node != origin[rows[i]]:
            node = tail[link[rows[i], node]]
            count += 1
        lengths[i] = count


@kernel
def _paths(rows, ends, link, tail, origin, first, links):  # type: ignore[no-untyped-def]
    for i in range(len(rows)):
        node = ends[i]
        for position in range(first[i], first[i + 1]):
            links[position] = link[rows[i], node]
            node = tail[links[position]]
        links[first[i] : first[i + 1]].sort()
