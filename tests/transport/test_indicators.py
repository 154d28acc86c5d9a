"""Indicators of a design, by hand and against the value of the lower level; and what speaks against a design."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from blocc.networks.model import Units
from blocc.result import Certificate
from blocc.transport import DesignModel, design_network, read_network
from blocc.transport.design.checks import certificate_checks, withheld
from blocc.transport.network.plausibility import doubts
from transport_designs import fake_design, one_market


def test_one_market_by_hand() -> None:
    """Five people, 1 on the new line and 2 on the existing one: sigmoid(1) of them come and save 1 each."""
    share = 1.0 / (1.0 + math.exp(-1.0))
    network = replace(one_market(), units=Units("min", 0.1))
    design = fake_design(network)
    capacity = float(design.capacity[0])
    design = replace(design, follower=design.follower._replace(price=np.zeros(1), path_cost=np.ones(1)))
    found = design.indicators
    assert found.passengers == pytest.approx(5 * share)
    assert found.passenger_time_saved == pytest.approx(5 * share)
    assert found.passenger_hours_saved == pytest.approx(5 * share * 10 / 60)  # a disutility of 1 is ten minutes
    assert found.consumer_surplus == pytest.approx(5 * math.log(1 + math.e))
    assert found.revenue_cost_ratio == pytest.approx(2 * 5 * share / (0.5 * capacity))
    assert math.isnan(fake_design(one_market()).indicators.passenger_hours_saved)


def test_nothing_built_is_worth_nothing() -> None:
    found = fake_design(one_market(), build=False).indicators
    assert found[:2] == (0.0, 0.0)
    assert found.consumer_surplus == 0.0
    assert math.isnan(found.revenue_cost_ratio)


@pytest.mark.slow
def test_surplus_and_rents_are_what_the_lower_level_saves() -> None:
    """Duality: the travellers' cost without the network less that with it is the surplus and the rent of full links."""
    network = read_network("three")
    model = DesignModel(network)
    design = design_network(network, starts=1, model=model)
    lower = model.capacities(design.capacity, 1e4).follower
    rent = float(np.nansum(np.where(design.built, design.follower.price, 0.0) * design.capacity))
    without = float(network.demand @ (network.alternative_time - 1.0))
    assert design.indicators.consumer_surplus + rent == pytest.approx(without - float(lower.value), rel=1e-6)
    assert [check.verdict for check in certificate_checks(design)] == ["pass"] * 4 + ["no limit", "pass"]
    assert withheld(design) == ""


def test_limits_are_those_of_the_status() -> None:
    """Residuals are judged relative to the answer's size, which the error tells; a fixed gamma leaves the gap open."""
    certificate = Certificate(5e-6, 1e-9, 1e-9, 1.0, 1.0, 1.0)
    design = fake_design(certificate=certificate, lower_level_error=5e-7, settings={"tolerance": 1e-3, "gamma": 2.0})
    found = {check.name: check for check in certificate_checks(design)}
    assert found["travellers: stationarity"].limit == pytest.approx(1e-5)
    assert found["travellers: stationarity"].passed
    assert found["penalty gap"].limit is None
    assert not found["capacities: gain left"].passed
    assert not withheld(design)
    assert withheld(replace(design, lower_level_error=2e-6))
    assert withheld(replace(design, certificate=replace(certificate, feasibility=math.nan)))


def test_doubts_name_the_figure_that_is_off() -> None:
    assert doubts(read_network("seville")) == []
    dear = replace(one_market(), cost=np.array([7.0]))
    (line,) = doubts(dear)
    assert "a to b comes closest, with a revenue of 2 a passenger" in line
    assert "cheapest path costs 7" in line
    assert "by a factor of 3.5" in line
    (line,) = doubts(replace(one_market(), alternative_time=np.array([0.0]), time=np.array([60.0])))
    assert "Nobody would come" in line
    assert doubts(one_market(demand=0.0)) == ["No market brings any revenue: all demand or all revenue is 0."]
    assert doubts(replace(dear, existing_capacity=np.array([1.0]))) == []
    assert "why nothing is built" in repr(fake_design(dear, build=False))
