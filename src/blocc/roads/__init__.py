"""Roads: where drivers go (traffic assignment), and which links to widen or to toll, with a proven gap.

Needs Numba (``pip install 'blocc[city]'``)::

    from blocc.roads import expand_network, read_road_network

    design = expand_network(read_road_network("sioux-falls"), candidates=[16, 19, 29], cost=100.0, exponent=2.0)
"""

from __future__ import annotations

from blocc.roads.assign import AssignmentCertificate, RoadAssignment, assign
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.estimate_demand import estimate_demand
from blocc.roads.expand_network import expand_network, second_best_tolls
from blocc.roads.files import read_road_network
from blocc.roads.network import RoadNetwork
from blocc.roads.road_design import RoadDesign

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
    "second_best_tolls",
]
