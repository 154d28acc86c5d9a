"""Which numbers of an answer's certificate hold, and what they mean."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from blocc.kit.checks import CertificateRow, judged

if TYPE_CHECKING:
    from blocc.power.power_design import PowerDesign

#: What may be lost or invented at a bus, or flow above a limit, relative to all demand.
BALANCED = 1e-6
#: By what two solvers may differ, relative to the larger figure.
AGREED = 1e-5

MEANINGS = {
    "market: balance": "The largest power that is lost or invented at a bus, relative to all demand.",
    "market: limits": "The largest violation of a limit of a generator or a line, relative to all demand.",
    "market: two solvers": "What the market minimises, computed by HiGHS from distribution factors and by "
    "Clarabel from angles: the difference, relative to the larger.",
    "decision: two solvers": "The same for what the leader wants. Where prices are not unique the two "
    "solvers may name different ones.",
    "decision: gain left": "How much exact values at decisions around the answer still gained. At 0 none nearby is "
    "better.",
    "decision: own limits": "By how much the decision breaks its own limits, relative to their range.",
}


def certificate_checks(design: PowerDesign) -> list[CertificateRow]:
    """The certificate, number by number."""
    certificate = design.certificate
    allowed = float(design.settings["tolerance"]) * (1.0 + abs(design.objective))
    rows = (
        ("market: balance", certificate.balance, BALANCED),
        ("market: limits", certificate.limits, BALANCED),
        ("market: two solvers", certificate.market_difference, AGREED),
        ("decision: two solvers", certificate.difference, AGREED),
        ("decision: gain left", certificate.gain_left, allowed),
        ("decision: own limits", certificate.violation, BALANCED),
    )
    return [judged(*row) for row in rows]


def relative(one: float, other: float) -> float:
    """The difference of two figures, relative to the larger; infinite where one is missing."""
    if not (np.isfinite(one) and np.isfinite(other)):
        return math.inf
    return abs(one - other) / max(1.0, abs(one), abs(other))
