"""Roads: where drivers go (traffic assignment), and which links to widen or to toll, with a proven gap.

Needs Numba (``pip install 'blocc[city]'``)::

    from blocc.roads import expand_network, read_road_network

    design = expand_network(read_road_network("sioux-falls"), candidates=[16, 19, 29], cost=100.0, exponent=2.0)
"""

from __future__ import annotations

from pathlib import Path

from blocc.roads.assign import AssignmentCertificate, RoadAssignment, assign
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.estimate_demand import estimate_demand
from blocc.roads.expand_network import expand_network, second_best_tolls
from blocc.roads.files import read_road_network
from blocc.roads.network import RoadNetwork
from blocc.roads.road_design import RoadDesign
from blocc.roads.road_problem import road_problem
from blocc.roads.verify_demand_estimate import verify_demand_estimate
from blocc.roads.verify_road_design import verify_road_design

__all__ = [
    "AssignmentCertificate",
    "DemandEstimate",
    "RoadAssignment",
    "RoadDesign",
    "RoadNetwork",
    "assign",
    "estimate_demand",
    "expand_network",
    "read_road_network",
    "road_problem",
    "second_best_tolls",
    "verify_demand_estimate",
    "verify_road_design",
    "write_demand_estimate",
    "write_road_assignment",
    "write_road_design",
]


def write_road_design(design: RoadDesign, folder: str | Path) -> list[Path]:
    """Write tables, layers for a GIS, a picture and a page about a design into ``folder`` and return the paths.

    See :func:`blocc.report.roads.road_files.write_road_design`, which needs ``blocc[plot]``.
    """
    from blocc.report.roads.road_files import write_road_design as write  # that room stands on this one

    return write(design, folder)


def write_road_assignment(assignment: RoadAssignment, folder: str | Path) -> list[Path]:
    """Write tables, layers for a GIS and a picture of an assignment into ``folder`` and return the paths.

    See :func:`blocc.report.roads.road_files.write_road_assignment`, which needs ``blocc[plot]``.
    """
    from blocc.report.roads.road_files import write_road_assignment as write

    return write(assignment, folder)


def write_demand_estimate(estimate: DemandEstimate, folder: str | Path) -> list[Path]:
    """Write tables, a picture and a page about an estimate, and the network that carries its trips, into ``folder``.

    Returns the paths. See :func:`blocc.report.roads.estimate_files.write_demand_estimate`, which needs ``blocc[plot]``.
    """
    from blocc.report.roads.estimate_files import write_demand_estimate as write

    return write(estimate, folder)
