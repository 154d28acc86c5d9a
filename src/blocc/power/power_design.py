"""What bids, an expansion or a tariff return: the decision by name, the market before and after, and the proof."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocc._lib.notebook import Shown
from blocc.kit.checks import check_lines
from blocc.kit.records import Step
from blocc.power.case import PowerCase
from blocc.power.checks import certificate_checks
from blocc.power.dispatch import Dispatch
from blocc.power.search import Start
from blocc.result import Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from blocc.judge.verification import Verification

KINDS = {"bids": "Strategic bids", "expansion": "Line expansion", "tariff": "Network tariff"}


class Decision(NamedTuple):
    """One number that the leader decides."""

    name: str  #: "generator 3 at bus 3", "line 6 (4-5)", "zone all"
    number: int  #: of the generator or line in the file; of a zone its place
    value: float
    before: float  #: what it is without a decision
    low: float
    high: float


class PowerCertificate(NamedTuple):
    """Numbers that prove (or disprove) an answer."""

    balance: float
    limits: float
    market_difference: float
    difference: float
    gain_left: float
    violation: float


@dataclass(frozen=True, eq=False)
class PowerDesign(Shown):
    """An answer about a power system. ``print`` explains it; :meth:`save` writes it to files."""

    case: PowerCase
    kind: str  #: "bids", "expansion" or "tariff"
    unit: str  #: of the decisions
    decisions: tuple[Decision, ...]
    objective: float  #: what the leader wants, per hour, in the leader's own sense
    objective_before: float
    goal: str  #: what the objective is, in words
    figures: dict[str, float]  #: further sums by name, per hour
    before: Dispatch
    after: Dispatch
    status: Status
    message: str
    certificate: PowerCertificate
    starts: tuple[Start, ...]
    history: tuple[Step, ...]
    evaluations: int  #: of the penalty function
    cleared: int  #: markets cleared for exact values
    seconds: float
    price_range: dict[str, tuple[float, float]] = field(default_factory=dict)  #: where a price is not unique
    assumptions: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def success(self) -> bool:
        """Whether the run converged; nothing else counts as success."""
        return self.status is Status.CONVERGED

    @property
    def decision(self) -> dict[str, float]:
        """The decisions by name."""
        return {one.name: one.value for one in self.decisions}

    @property
    def prices(self) -> dict[int, float]:
        """Prices after the decision by the number of the bus, per MWh."""
        return dict(zip(self.case.bus_number.tolist(), self.after.price.tolist(), strict=True))

    @property
    def flows(self) -> dict[int, float]:
        """Flows after the decision by the number of the line, MW."""
        return dict(zip(self.case.line_number.tolist(), self.after.flow.tolist(), strict=True))

    @property
    def profits(self) -> dict[int, float]:
        """Profits after the decision by the number of the generator, per hour."""
        return dict(zip(self.case.generator_number.tolist(), self.after.profit().tolist(), strict=True))

    def verify(self, tolerance: float = 1e-4) -> Verification:
        """Recompute every claim from the case and the decision alone, by another solver."""
        from blocc.power.verify_power_design import verify_power_design  # which stands on this module

        return verify_power_design(self, tolerance)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the network with prices and flows, the prices before and after, and the decision; needs ``blocc[plot]``.

        Written when ``path`` is given (.png, .pdf, .svg).
        """
        from blocc.report.power_report import plot_design  # that room stands on this one

        return plot_design(self, path)

    def save(self, folder: str | Path) -> list[Path]:
        """Write everything about an answer into ``folder`` (created where missing) and return the paths.

        ``design.json`` holds it all, the case included; ``decisions.csv``, ``buses.csv``, ``generators.csv`` and
        ``lines.csv`` its tables, ``summary.csv`` its figures, certificate and assumptions, ``columns.csv`` what the
        columns mean, ``design.xlsx`` all of these in one workbook, ``design.npz`` the arrays, ``report.html`` the
        interactive page, ``design.png`` the picture. Each appears complete or not at all; needs ``blocc[plot]``.
        """
        from blocc.power.documents import DESIGN  # which stands on this module

        return DESIGN.write(self, folder)

    @staticmethod
    def load(path: str | Path) -> PowerDesign:
        """Read back what :meth:`save` wrote: its folder, or the ``design.json`` in it."""
        from blocc.power.documents import DESIGN

        return DESIGN.load(path)

    def __repr__(self) -> str:
        before, after = self.before, self.after
        lines = [
            f"{self.case.name}, {KINDS[self.kind].lower()}: {self.status.value}",
            f"  {self.message}",
            f"  {self.goal:<26} {self.objective:.8g} per hour   (before: {self.objective_before:.8g})",
            *(f"  {name:<26} {value:.8g}" for name, value in self.figures.items()),
            f"  {'cost of generation':<26} {after.cost:.8g} per hour   (before: {before.cost:.8g})",
            f"  {'prices':<26} {_range(after)} per MWh   (before: {_range(before)})",
            f"  {'congested lines':<26} {len(after.congested)} of {self.case.n_lines}   "
            f"(before: {len(before.congested)})",
            f"  decisions, {self.unit}",
            *(f"    {one.name:<24} {one.value:.6g}   (before: {one.before:.6g})" for one in self._shown()),
            "  certificate",
            *check_lines(certificate_checks(self)),
            f"  {len(self.starts)} {'start' if len(self.starts) == 1 else 'starts'}, {self.evaluations} evaluations, "
            f"{self.cleared} markets cleared, {self.seconds:.3g} s",
            "  assumed",
            *(f"    {one}" for one in (*self.assumptions, *self.case.assumptions)),
        ]
        return "\n".join(lines)

    def _shown(self, most: int = 12) -> list[Decision]:
        """The decisions that differ most from what was before."""
        order = np.argsort([-abs(one.value - one.before) for one in self.decisions], kind="stable")[:most]
        return [self.decisions[k] for k in sorted(order.tolist())]


def _range(dispatch: Dispatch) -> str:
    return f"{dispatch.price.min():.6g} to {dispatch.price.max():.6g}"
