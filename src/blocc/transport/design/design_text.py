"""A design in words, as a terminal shows it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from blocc.kit.checks import check_lines
from blocc.transport.design.checks import certificate_checks, withheld
from blocc.transport.design.indicators import indicators
from blocc.transport.network.plausibility import doubts

if TYPE_CHECKING:
    from blocc.transport.design.design_result import Design


def design_text(design: Design) -> str:
    """Status, money, passengers, the certificate with its verdicts, and what was assumed."""
    network, count = design.network, len(design.starts)
    missing = withheld(design)
    lines = [
        f"{network.name}: {design.status.value}",
        f"  {design.message}",
        *([f"  NOT CERTIFIED: {missing}"] if missing else []),
        f"  utility      {design.utility:.6f}   (revenue {design.follower.revenue:.6f}, "
        f"construction {design.follower.construction_cost:.6f}; at yF: {design.penalised.utility:.6f})",
        f"  links built  {int(design.built.sum())} of {network.n_links}, capacity {design.capacity.sum():.6g} in all",
        *([] if missing else _travellers(design)),
        f"  gamma        {design.gamma:g}",
        "  certificate",
        *check_lines(certificate_checks(design)),
        f"  {count} {'start' if count == 1 else 'starts'}, {sum(s.evaluations for s in design.starts)} evaluations, "
        f"{design.seconds.get('run', 0.0):.3g} s (and {design.seconds.get('compile', 0.0):.3g} s to compile)",
    ]
    for heading, sentences in (("why nothing is built", _reasons(design)), ("assumed", network.assumptions)):
        if sentences:
            lines += [f"  {heading}", *(f"    {sentence}" for sentence in sentences)]
    return "\n".join(lines)


def _travellers(design: Design) -> list[str]:
    total, found = float(design.network.demand.sum()), indicators(design)
    share = found.passengers / total if total else 0.0
    saved = f"{found.passenger_time_saved:.6g} (disutility)"
    if math.isfinite(found.passenger_hours_saved):
        saved = f"{found.passenger_hours_saved:.6g} passenger-hours"
    ratio = (
        f"{found.revenue_cost_ratio:.4g}" if math.isfinite(found.revenue_cost_ratio) else "none, nothing was paid for"
    )
    return [
        f"  demand       {found.passengers:.6g} of {total:.6g} travel on the new network ({share:.1%})",
        f"  time saved   {saved}; consumer surplus {found.consumer_surplus:.6g} (disutility)",
        f"  revenue/cost {ratio}",
    ]


def _reasons(design: Design) -> list[str]:
    return [] if design.built.any() else doubts(design.network)
