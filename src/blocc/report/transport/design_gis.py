"""A design as layers for a GIS: nodes, and all candidate links with their figures."""

from __future__ import annotations

from blocc.kit.gis import Layers
from blocc.report.transport.design_series import link_rows
from blocc.transport.design.design_result import Design
from blocc.transport.network.network import TransportNetwork


def design_layers(design: Design) -> Layers:
    """What a GIS is told about a design."""
    network = design.network
    names = zip(network.nodes, network.labels, network.zone_ids, strict=True)
    return Layers(
        name=network.name,
        places=network.coordinates,
        geographic=network.geographic,
        crs=network.crs,
        nodes=[{"id": key, "name": label, "zone_id": zone} for key, label, zone in names],
        links=link_rows(design),
        lines=_lines(network),
        assumptions=network.assumptions,
        units=network.units._asdict(),
    )


def _lines(network: TransportNetwork) -> list[list[list[float]]]:
    """The points of every link, straight from node to node where its line is not known."""
    places = network.coordinates.tolist()
    ends = zip(network.tail.tolist(), network.head.tolist(), network.geometry, strict=True)
    return [[places[i], places[j]] if line is None else line.tolist() for i, j, line in ends]
