"""Electricity markets: strategic bids, line expansion and tariffs over DC optimal power flow.

Needs ``pip install 'blocc[power]'``::

    from blocc.power import bid_generators, read_case

    bids = bid_generators(read_case("case5"), generators=[3])
"""

from blocc.power.bidding import bid_generators
from blocc.power.case import PowerCase
from blocc.power.dispatch import Dispatch
from blocc.power.expansion import expand_lines
from blocc.power.files import pglib_cases, read_case
from blocc.power.market import solve_opf
from blocc.power.power_design import PowerDesign
from blocc.power.tariff import set_tariff
from blocc.power.verify_power_design import verify_power_design

__all__ = [
    "Dispatch",
    "PowerCase",
    "PowerDesign",
    "bid_generators",
    "expand_lines",
    "pglib_cases",
    "read_case",
    "set_tariff",
    "solve_opf",
    "verify_power_design",
]
