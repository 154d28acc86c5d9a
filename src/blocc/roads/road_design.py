"""What an expansion, tolls or an estimate returns: the decision by link, roads before and after, and the proof."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.log import log_answer
from blocc._lib.notebook import Shown
from blocc._lib.rounding import EXACT
from blocc.kit.checks import assumed_lines, check_lines
from blocc.kit.records import Step
from blocc.result import Status
from blocc.roads.assign import RoadAssignment
from blocc.roads.checks import certificate_checks
from blocc.roads.network import RoadNetwork
from blocc.roads.road_options import chosen_links
from blocc.roads.search import Start

if TYPE_CHECKING:
    from matplotlib.figure import Figure


KINDS = ("expansion", "tolls")


@dataclass(frozen=True, eq=False)
class RoadDesign(Shown):
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
    stationarity: float  #: what exact values at points around the answer still gained; NaN: not measured
    starts: tuple[Start, ...]
    history: tuple[Step, ...]
    evaluations: int
    seconds: float
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    #: What would be best if drivers did what suits the planner: its slopes prove the bound. None for tolls.
    bound_expansion: Float[NDArray, "links"] | None = None

    @property
    def success(self) -> bool:
        """Whether the run converged; nothing else counts as success."""
        return self.status is Status.CONVERGED

    @property
    def size(self) -> float:
        """What gains are compared with: the objective."""
        return abs(self.objective)

    @property
    def relative_gap(self) -> float:
        """Of the drivers' equilibrium in the answer."""
        return self.after.relative_gap

    @property
    def cost_by_link(self) -> Float[NDArray, "links"]:
        """What the construction of each link costs."""
        costs = np.zeros(self.network.n_links)
        if self.kind == "expansion":
            chosen = chosen_links(self.network, self.settings["candidates"])
            cost, exponent = (np.asarray(self.settings[name], dtype=float) for name in ("cost", "exponent"))
            costs[chosen] = cost * self.expansion[chosen] ** exponent
        return costs

    def finished(self, remark: str, seconds: float) -> RoadDesign:
        """The same with a remark about its checkpoint, and what it took in all."""
        told = replace(self, message=self.message + remark, seconds=seconds)
        return log_answer(told, f"objective {self.objective:.10g}", f"{seconds:.3g} s")

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw volume over capacity before and after, the difference, and the way to the answer; needs ``blocc[plot]``.

        Written when ``path`` is given (.png, .pdf, .svg).
        """
        from blocc.report.road_report import plot_design  # that room stands on this one

        return plot_design(self, path)

    @staticmethod
    def load(path: str | Path) -> RoadDesign:
        """Read back what :func:`blocc.roads.write_road_design` wrote: its folder, or the ``design.json`` in it."""
        from blocc.roads.documents import DESIGN  # which stands on this module

        return DESIGN.load(path)

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
            *check_lines(certificate_checks(self)),
            f"  {len(self.starts)} {'start' if len(self.starts) == 1 else 'starts'}, {self.evaluations} evaluations, "
            f"{self.seconds:.3g} s",
            *assumed_lines(self.network.assumptions),
        ]
        return "\n".join(lines)

    def _decided(self) -> str:
        if self.kind == "tolls":
            tolled = int((self.toll > EXACT).sum())
            return f"tolled links       {tolled}, revenue {self.after.revenue:.6g}"
        wider = int((self.expansion > 0.0).sum())
        return f"links widened      {wider}, capacity {self.expansion.sum():.6g}, cost {self.cost:.6g}"
