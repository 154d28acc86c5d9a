"""Roads: where drivers go (traffic assignment), and which links to widen or to toll, with a proven gap.

Needs Numba (``pip install 'blocc[city]'``)::

    from blocc.roads import expand_network, read_road_network

    design = expand_network(read_road_network("sioux-falls"), candidates=[16, 19, 29], cost=100.0, exponent=2.0)
"""

from __future__ import annotations

from pathlib import Path

from blocc.roads.assign import AssignmentCertificate, RoadAssignment, assign
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.documents import ASSIGNMENT, DESIGN, ESTIMATE
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
    """Write everything about a design into ``folder`` (created where missing) and return the paths.

    ``design.json`` holds it all, ``network.json`` the network as it was designed, ``links.csv`` and ``trips.csv`` its
    tables, ``summary.csv`` its figures, certificate and assumptions, ``columns.csv`` what the columns mean,
    ``design.xlsx`` all of these in one workbook, ``report.html`` the interactive page, ``design.png`` the picture; and
    where the nodes have places ``design.geojson`` and ``design.gpkg`` for a GIS. Each file appears complete or not at
    all; needs ``blocc[plot]``.
    """
    return DESIGN.write(design, folder)


def write_road_assignment(assignment: RoadAssignment, folder: str | Path) -> list[Path]:
    """Write everything about an assignment into ``folder`` (created where missing) and return the paths.

    The same files as of a design, called ``assignment``, without the page; needs ``blocc[plot]``.
    """
    return ASSIGNMENT.write(assignment, folder)


def write_demand_estimate(estimate: DemandEstimate, folder: str | Path) -> list[Path]:
    """Write an estimate into ``folder`` (created where missing) and return the paths.

    ``estimate.json`` holds it all, ``network.json`` the network with the estimated trips, ``trips.csv`` prior and
    estimated trips of every pair, ``counts.csv`` every count with volumes before and after, ``links.csv`` every link
    likewise, and the other files those of a design, called ``estimate``. Needs ``blocc[plot]``.
    """
    return ESTIMATE.write(estimate, folder)
