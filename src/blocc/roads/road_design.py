"""What an expansion, tolls or an estimate returns: the decision by link, roads before and after, and the proof."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blocc._lib.arrays import Float, NDArray
from blocc.result import Status
from blocc.roads.assign import RoadAssignment
from blocc.roads.network import RoadNetwork
from blocc.roads.search import Start, Step


@dataclass(frozen=True, eq=False)
class RoadDesign:
    """An answer about roads. ``print`` explains it; :func:`blocc.roads.write_road_design` writes it to files."""

    network: RoadNetwork
    kind: str  #: "expansion" or "tolls"
    expansion: Float[NDArray, "links"]  #: capacity added to each link
    toll: Float[NDArray, "links"]  #: the toll of each link, what it had before included
    marginal_value: Float[NDArray, "links"]  #: what one more unit on a candidate link would save, its cost not counted
    objective: float  #: total travel time and construction, at the drivers' equilibrium
    cost: float  #: of construction
    bound: float | None  #: no decision has an objective below this; None where nothing is proven
    gap: float | None  #: what the answer can be above the best, relative to the answer
    before: RoadAssignment
    after: RoadAssignment
    status: Status
    message: str
    stationarity: float  #: what exact values at points around the answer still gained
    starts: tuple[Start, ...]
    history: tuple[Step, ...]
    evaluations: int
    seconds: float
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def success(self) -> bool:
        """Whether the run converged; nothing else counts as success."""
        return self.status is Status.CONVERGED

    @property
    def relative_gap(self) -> float:
        """Of the drivers' equilibrium in the answer."""
        return self.after.relative_gap

    def __repr__(self) -> str:
        before, after = self.before, self.after
        saved = before.total_travel_time - after.total_travel_time
        share = 100.0 * saved / before.total_travel_time if before.total_travel_time else 0.0
        lines = [
            f"{self.network.name}: {self.status.value}",
            f"  {self.message}",
            f"  objective          {self.objective:.10g}",
        ]
        if self.bound is not None and self.gap is not None:
            lines.append(f"  proven bound       {self.bound:.10g}   (at most {100.0 * self.gap:.2g}% could be gained)")
        lines += [
            f"  total travel time  {before.total_travel_time:.10g} before, {after.total_travel_time:.10g} after "
            f"({share:.3g}% saved)",
            f"  {self._decided()}",
            "  certificate",
            *("    " + line for line in str(after.certificate).splitlines()),
            f"    decisions around the answer gain {self.stationarity:.1e}",
            f"  {len(self.starts)} starts, {self.evaluations} evaluations, {self.seconds:.3g} s",
        ]
        return "\n".join(lines)

    def _decided(self) -> str:
        if self.kind == "tolls":
            tolled = int((self.toll > 1e-9).sum())
            return f"tolled links       {tolled}, revenue {self.after.revenue:.6g}"
        wider = int((self.expansion > 0.0).sum())
        return f"links widened      {wider}, capacity {self.expansion.sum():.6g}, cost {self.cost:.6g}"
