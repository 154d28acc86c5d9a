"""Which numbers of a design's certificate hold, and whether the travellers' answer may be shown as theirs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from blocc.kit.checks import CertificateRow, judged

if TYPE_CHECKING:
    from blocc.transport.design.design_result import Design

#: The travellers' answer counts as solved below this residual, relative to the answer's size.
SOLVED = 1e-6


def certificate_checks(design: Design) -> list[CertificateRow]:
    """The certificate, number by number."""
    certificate, largest = design.certificate, _largest(design)
    # The same test as for the status: relative to the size of the answer, which the two errors tell.
    follower = SOLVED * largest / design.lower_level_error if design.lower_level_error > 0 else SOLVED
    tolerance = design.settings.get("tolerance")
    known = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
    gain = float(tolerance) * (1.0 + abs(design.utility)) if known else None  # type: ignore[arg-type]
    has_fixed_gamma = not isinstance(design.settings.get("gamma", "auto"), str)
    rows = [
        ("travellers: stationarity", certificate.stationarity, follower),
        ("travellers: feasibility", certificate.feasibility, follower),
        ("travellers: complementarity", certificate.complementarity, follower),
        ("penalty gap", certificate.penalty_gap, None if has_fixed_gamma else gain),
        ("distance of yF to y", certificate.distance, None),
        ("capacities: gain left", certificate.stationarity_x, gain),
    ]
    if certificate.leader_violation:
        rows.append(("operator's own limits", certificate.leader_violation, gain))
    return [judged(*row) for row in rows]


def withheld(design: Design) -> str:
    """Why flows, prices and shares of a design are not shown; empty where they are the travellers' own."""
    if design.lower_level_error <= SOLVED and math.isfinite(_largest(design)):
        return ""
    return (
        f"The travellers' answer is solved only to {design.lower_level_error:.1e} (relative; {SOLVED:.0e} is wanted). "
        "Flows, prices, shares, times and what follows from them are not the travellers' own and are left out; "
        "utility and revenue are not certified."
    )


def _largest(design: Design) -> float:
    certificate = design.certificate
    residuals = (certificate.stationarity, certificate.feasibility, certificate.complementarity)
    return math.nan if any(map(math.isnan, residuals)) else max(residuals)
