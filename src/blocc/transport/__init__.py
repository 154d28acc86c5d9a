"""Transport network design: which links to build, when every traveller may still choose the existing network.

Read or build a network, design it, and write what came out::

    from blocc.transport import design_network, read_network, write_design

    design = design_network(read_network("seville"))
    write_design(design, "runs/seville")
"""

from __future__ import annotations

from pathlib import Path

from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.design_network import design_network
from blocc.transport.design.design_result import Assignment, Design, Start, WhatIf
from blocc.transport.design.model import DesignModel
from blocc.transport.design.options import DesignOptions
from blocc.transport.design.verify_design import verify_design
from blocc.transport.network.checked_rows import NetworkError
from blocc.transport.network.files import BUILT_IN, read_network, write_network
from blocc.transport.network.generators import grid_network
from blocc.transport.network.network import TransportNetwork, Units
from blocc.transport.network.readers.rules import FillRules
from blocc.transport.travellers.flows import market_flows
from blocc.transport.travellers.formulation import aggregated_problem, full_problem, structured_problem

__all__ = [
    "BUILT_IN",
    "Assignment",
    "CapacitySet",
    "Design",
    "DesignModel",
    "DesignOptions",
    "FillRules",
    "NetworkError",
    "Start",
    "TransportNetwork",
    "Units",
    "WhatIf",
    "aggregated_problem",
    "design_network",
    "full_problem",
    "grid_network",
    "market_flows",
    "read_network",
    "structured_problem",
    "verify_design",
    "write_design",
    "write_network",
]


def write_design(design: Design, folder: str | Path) -> list[Path]:
    """Write tables, maps, pictures and a page about a design into ``folder`` and return the paths.

    See :func:`blocc.report.transport.design_tables.write_design`, which needs ``blocc[plot]``.
    """
    from blocc.report.transport.design_tables import write_design as write  # that room stands on this one

    return write(design, folder)
