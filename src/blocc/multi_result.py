"""What a solve from many starts returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from blocc._lib.arrays import PyTree
from blocc._lib.notebook import Shown
from blocc._lib.trees import flattened
from blocc.errors import OptionError
from blocc.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Values of many starts that differ by less than this share of their spread are the same.
_TIE = 1e-6
#: Ends that differ by less than this, relative to their size, are one.
_SAME = 1e-4


@dataclass(frozen=True)
class Basin:
    """One place where starts ended with the follower's exact answer."""

    value: float  #: f there, of the best of them
    x: PyTree
    starts: tuple[int, ...]  #: which starts ended there
    result: Result  #: the best of them

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class MultiResult(Shown):
    """Many starts: every result, the best one, and where they ended."""

    results: tuple[Result, ...]
    seconds: dict[str, float]
    sign: float = 1.0  #: -1 where the leader maximises: the largest upper value is the best one then

    @property
    def best(self) -> Result:
        """The smallest upper value among results that are feasible at both levels, successful ones first where it ties.

        Its status says how far it got. Where no result is feasible at both levels, the smallest of all.
        """
        if not self.results:
            raise OptionError("there is no result to choose from")
        feasible = [r for r in self.results if r.certificate.exact]
        pool = feasible or list(self.results)

        def value(result: Result) -> float:
            return float(np.nan_to_num(self.sign * result.upper_value, nan=np.inf))

        least = min(map(value, pool))
        spread = max((abs(value(r) - least) for r in feasible if np.isfinite(r.upper_value)), default=0.0)
        ties = [r for r in pool if value(r) <= least + _TIE * spread]
        return min(ties or pool, key=lambda r: (not r.success, value(r)))

    @property
    def basins(self) -> list[Basin]:
        """The places where starts ended with the follower's exact answer, by value; other ends are in none."""
        groups: list[list[int]] = []
        flat = [tuple(flattened(tree) for tree in (result.x, result.y)) for result in self.results]

        def rank(index: int) -> tuple[bool, float]:
            result = self.results[index]
            return not result.success, self.sign * result.upper_value

        def one(index: int, other: int) -> bool:
            if near(flat[index][0], flat[other][0]):
                return True
            # Along a plateau x differs, and nothing else does.
            values = np.array([self.results[i].upper_value for i in (index, other)])
            return near(flat[index][1], flat[other][1]) and near(values[:1], values[1:])

        for index in sorted((i for i, r in enumerate(self.results) if _answered(r)), key=rank):
            home = next((group for group in groups if one(index, group[0])), None)
            if home is None:
                groups.append([index])
            else:
                home.append(index)
        found = [
            Basin(self.results[g[0]].upper_value, self.results[g[0]].x, tuple(sorted(g)), self.results[g[0]])
            for g in groups
        ]
        return sorted(found, key=lambda basin: self.sign * basin.value)

    @property
    def counts(self) -> dict[str, int]:
        """What was done for all starts together.

        ``merged`` starts of Algorithm 1 ended where an earlier one had, and share its verdict. ``unanswered`` ones
        ended where the follower has no response, or none that is exact.
        """
        names = ("evaluations", "merged")
        told = {name: sum(r.counts.get(name, 0) for r in self.results) for name in names}
        return {"starts": len(self), **told, "unanswered": sum(not _answered(r) for r in self.results)}

    @property
    def x(self) -> np.ndarray | list[PyTree]:
        """All end points: one array where x is a bare array, otherwise a list."""
        points = [result.x for result in self.results]
        return np.stack(points) if points and isinstance(points[0], np.ndarray) else points

    @property
    def upper_values(self) -> np.ndarray:
        """f at every end point."""
        return np.array([result.upper_value for result in self.results])

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the upper value of every start, the best first, coloured by where it ended; needs ``blocc[plot]``.

        Written when ``path`` is given (.png, .pdf, .svg).
        """
        from blocc.report.plots import plot_starts  # that room stands on this one

        return plot_starts(self, path)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Result:
        return self.results[index]

    def __repr__(self) -> str:
        solved = sum(result.success for result in self.results)
        values = self.upper_values
        return (
            f"{len(self)} starts, {solved} converged; upper values from {np.nanmin(values):.10g} to "
            f"{np.nanmax(values):.10g}; {self.seconds.get('run', 0.0):.3g} s "
            f"(and {self.seconds.get('compile', 0.0):.3g} s to compile)\n{self._places()}best:\n{self.best!r}"
        )

    def _places(self) -> str:
        """The basins in a few lines."""
        basins, most = self.basins, 5
        lines = [
            f"  f = {basin.value:.10g} from {len(basin)} start{'s' * (len(basin) > 1)} ({basin.result.status.value})\n"
            for basin in basins[:most]
        ]
        if len(basins) > most:
            lines.append(f"  and {len(basins) - most} more\n")
        counts = self.counts
        spared = f"; {counts['merged']} merged with earlier ones" if counts["merged"] else ""
        spared += f"; {counts['unanswered']} without an answer of the follower" if counts["unanswered"] else ""
        return f"ends in {len(basins)} place{'s' * (len(basins) != 1)}{spared}:\n" + "".join(lines)


def _answered(result: Result) -> bool:
    """Whether a run ended with the follower's exact answer."""
    return result.certificate.exact and bool(np.isfinite(result.upper_value))


def near(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two ends are one place."""
    size = 1.0 + float(np.max(np.abs(one), initial=0.0))
    return bool(np.max(np.abs(one - other), initial=0.0) <= _SAME * size)
