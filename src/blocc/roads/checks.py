"""Which numbers of an assignment's or a design's certificate hold, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocc.kit.checks import CertificateRow, judged

if TYPE_CHECKING:
    from blocc.roads.assign import RoadAssignment
    from blocc.roads.demand_estimate import DemandEstimate
    from blocc.roads.road_design import RoadDesign

#: What trips may be lost or invented at a node, relative to all trips.
CONSERVED = 1e-9

MEANINGS = {
    "drivers: relative gap": "What drivers pay above their cheapest paths, relative to all they pay. At 0 nobody has a "
    "cheaper path.",
    "drivers: average excess cost": "The same for one trip, in units of time.",
    "drivers: conservation": "The largest number of trips lost or invented at a node, relative to all trips.",
    "drivers: complementarity": "The largest excess cost of a path in use, relative to the cheapest of its pair.",
    "decision: gain left": "How much exact values at decisions around the answer still gained. At 0 none nearby is "
    "better.",
    "decision: over the budget": "What construction costs beyond the budget, relative to it.",
}


def assignment_checks(assignment: RoadAssignment) -> list[CertificateRow]:
    """The certificate of an assignment, number by number."""
    found = assignment.certificate
    rows = (
        ("drivers: relative gap", found.relative_gap, assignment.wanted_gap),
        ("drivers: average excess cost", found.average_excess_cost, None),
        ("drivers: conservation", found.conservation, CONSERVED),
        ("drivers: complementarity", found.complementarity, None),
    )
    return [judged(*row) for row in rows]


def answer_checks(answer: RoadDesign | DemandEstimate) -> list[CertificateRow]:
    """The certificate of the drivers' answer, and what is left to gain."""
    allowed = float(answer.settings["tolerance"]) * answer.size
    return [*assignment_checks(answer.after), judged("decision: gain left", answer.stationarity, allowed)]


def certificate_checks(design: RoadDesign) -> list[CertificateRow]:
    """The certificate of a design, number by number."""
    rows = answer_checks(design)
    if (budget := design.settings.get("budget")) is not None:
        over = max(0.0, design.cost - budget) / (budget or 1.0)
        rows.append(judged("decision: over the budget", over, 1e-9))
    return rows
