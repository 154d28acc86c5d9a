"""Transport network design: which links to build, when every traveller may still choose the existing network.

Read or build a network, design it, and write what came out::

    from blocc.transport import design_network, read_network, write_design

    design = design_network(read_network("seville"))
    write_design(design, "runs/seville")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blocc.networks.checked_rows import NetworkError
from blocc.networks.model import Units
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.design_network import design_network
from blocc.transport.design.design_result import Assignment, Design, Start, WhatIf
from blocc.transport.design.documents import DESIGN
from blocc.transport.design.model import DesignModel
from blocc.transport.design.options import DesignOptions
from blocc.transport.design.scenario import Scenario
from blocc.transport.design.scenario_result import ScenarioDesign, ScenarioDesigns
from blocc.transport.design.verify_design import verify_design
from blocc.transport.network.files import BUILT_IN, read_network, write_network
from blocc.transport.network.generators import city_network, grid_network
from blocc.transport.network.network import TransportNetwork
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
    "Scenario",
    "ScenarioDesign",
    "ScenarioDesigns",
    "Start",
    "TransportNetwork",
    "Units",
    "WhatIf",
    "aggregated_problem",
    "city_network",
    "design_network",
    "design_scenarios",
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
    """Write everything about a design into ``folder`` (created where missing) and return the paths.

    ``design.json`` holds it all, ``network.json`` the network as it was designed, ``links.csv`` and ``markets.csv`` its
    tables, ``summary.csv`` its figures, certificate and assumptions, ``columns.csv`` what the columns mean,
    ``design.xlsx`` all of these in one workbook, ``design.geojson`` and ``design.gpkg`` the network for a GIS,
    ``report.html`` the interactive page, ``report.pdf`` the same for print, ``map.png``, ``demand.png`` and
    ``convergence.png`` the pictures. Each file appears complete or not at all; needs ``blocc[plot]``.
    """
    return DESIGN.write(design, folder)


def design_scenarios(network: TransportNetwork, scenarios: Any, **options: Any) -> ScenarioDesigns:
    """Design a network in several scenarios, each kept as it finishes, and put them side by side.

    A scenario has a name and changes: factors of ``time``, ``cost``, ``demand``, ``revenue`` or ``alternative_time``,
    and options of :func:`design_network`. ``scenarios`` holds the changes by the names, or is a sequence of
    :class:`Scenario` or of lines such as ``"growth: budget=100, demand=1.1"``. Among scenarios that differ in the
    budget alone more money never earns less: where the search finds less, it begins again from the smaller budget's
    design. Options for all scenarios, beside those of :func:`design_network`:

    - ``executor``: ``"serial"`` (here), ``"processes"``, ``"dask"``, an executor of :mod:`blocc.executors`, or a Dask
      client or cluster; ``workers`` and ``scheduler`` as in ``blocc sweep``
    - ``out``: a folder for a folder of files for each scenario, ``scenarios.html``, ``scenarios.csv`` and
      ``scenarios.json``. Called again after a kill, with the same network and options, what is finished is read from
      there, and what was under way goes on.
    - ``on_progress``: called with a scenario's name and a sentence; ``report``: with the name, an iteration and its
      row, where the designs are computed in this process

    ``time_limit`` is for each scenario. Ctrl-C keeps what is there. Files need ``blocc[plot]``.
    """
    from blocc.report.transport.scenario_files import design_scenarios as run  # that room stands on this one

    return run(network, scenarios, **options)
