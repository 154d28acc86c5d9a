"""What a solve from many starts returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocc._lib.arrays import PyTree
from blocc.errors import OptionError
from blocc.result import Result

#: Values of many starts that differ by less than this share of their spread are the same.
_TIE = 1e-6


@dataclass(frozen=True)
class MultiResult:
    """Many starts: every result, the best one, and where they ended."""

    results: tuple[Result, ...]
    seconds: dict[str, float]

    @property
    def best(self) -> Result:
        """The smallest upper value among results that are feasible at both levels, successful ones first where it ties.

        Its status says how far it got. Where no result is feasible at both levels, the smallest of all.
        """
        if not self.results:
            raise OptionError("there is no result to choose from")
        feasible = [r for r in self.results if r.certificate.exact]
        pool = feasible or list(self.results)
        least = min(np.nan_to_num(r.upper_value, nan=np.inf) for r in pool)
        spread = max((abs(r.upper_value - least) for r in feasible if np.isfinite(r.upper_value)), default=0.0)
        ties = [r for r in pool if r.upper_value <= least + _TIE * spread]
        return min(ties or pool, key=lambda r: (not r.success, np.nan_to_num(r.upper_value, nan=np.inf)))

    @property
    def x(self) -> np.ndarray | list[PyTree]:
        """All end points: one array where x is a bare array, otherwise a list."""
        points = [result.x for result in self.results]
        return np.stack(points) if points and isinstance(points[0], np.ndarray) else points

    @property
    def upper_values(self) -> np.ndarray:
        """f at every end point."""
        return np.array([result.upper_value for result in self.results])

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
            f"(and {self.seconds.get('compile', 0.0):.3g} s to compile)\nbest:\n{self.best!r}"
        )
