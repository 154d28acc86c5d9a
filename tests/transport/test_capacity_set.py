"""The set of capacities: its projection against a quadratic program, and what a design asks of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import cvxpy as cp
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blocc.errors import OptionError
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.network.network import TransportNetwork
from transport_reference import three_nodes, tolerances

THREE = three_nodes()
LIMIT = np.array([0.6, 1.0, 0.9, np.inf, 0.0, 2.0])
COMBINATIONS = [
    {"limit": limit, "budget": budget, "symmetric": symmetric}
    for limit in (None, 0.8, LIMIT)
    for budget in (None, 3.0, 0.0)
    for symmetric in (False, True)
]
_sets: dict[str, CapacitySet] = {}
points = arrays(np.float64, 6, elements=st.floats(-3.0, 5.0).map(lambda value: round(value, 6)))


def capacities(**options: Any) -> CapacitySet:
    """The set on three nodes; its projection is compiled once."""
    key = repr(options)
    if key not in _sets:
        _sets[key] = CapacitySet(THREE, **options)
        _sets[key].project_flat = jax.jit(_sets[key].project_flat)  # type: ignore[method-assign]
    return _sets[key]


def one_way() -> TransportNetwork:
    """Links 1-2 and 2-1, and 2-3 without a way back."""
    return TransportNetwork.from_tables(
        [{"id": i, "x": i, "y": 0} for i in (1, 2, 3)],
        [{"from": i, "to": j, "time": 1.0, "cost": c} for i, j, c in ((1, 2, 1.0), (2, 3, 2.0), (2, 1, 3.0))],
        [{"origin": 1, "destination": 3, "demand": 1.0, "revenue": 2.0, "alternative_time": 3.0}],
    )


def nearest(point: np.ndarray, limit=None, budget=None, symmetric=False) -> np.ndarray:
    """The projection from Clarabel, out of the definition alone."""
    x = cp.Variable(6)
    constraints = [x >= 0]
    if limit is not None:
        most = np.broadcast_to(limit, 6)
        constraints.append(x[np.isfinite(most)] <= most[np.isfinite(most)])
    if budget is not None:
        constraints.append(THREE.cost @ x <= budget)
    if symmetric:
        constraints += [x[0] == x[2], x[1] == x[4], x[3] == x[5]]
    cp.Problem(cp.Minimize(cp.sum_squares(x - point)), constraints).solve(solver=cp.CLARABEL, **tolerances(1e-11, 1e-8))
    return np.asarray(x.value)


@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_projection_is_the_nearest_point(options: dict) -> None:
    chosen = capacities(**options)

    @settings(max_examples=4, deadline=None, derandomize=True)
    @given(points)
    def check(point: np.ndarray) -> None:
        np.testing.assert_allclose(chosen.project(point), nearest(point, **options), atol=2e-5)

    check()


@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_projection_is_firm(options: dict) -> None:
    """Idempotent, and nobody is moved further apart; the projected point keeps every limit."""
    chosen = capacities(**options)
    random = np.random.default_rng(0)
    for _ in range(4):
        first, second = random.uniform(-3, 5, (2, 6))
        here, there = chosen.project(first), chosen.project(second)
        np.testing.assert_allclose(chosen.project(here), here, atol=1e-12)
        assert np.linalg.norm(here - there) <= np.linalg.norm(first - second) + 1e-12
        assert (here >= 0).all()
        assert (here <= chosen.limit).all()
        assert THREE.cost @ here <= chosen.budget + 1e-9
        if chosen.symmetric:
            np.testing.assert_array_equal(here, here[THREE.reverse])


@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_members(options: dict) -> None:
    chosen = capacities(**options)
    for seed in range(3):
        assert chosen.contains(chosen.sample(seed))
    assert chosen.contains(chosen.interior_point())


def test_interior_point_is_inside() -> None:
    chosen = capacities(limit=0.8, budget=3.0, symmetric=True)
    inside = chosen.interior_point()
    assert (inside > 0).all()
    assert (inside < 0.8).all()
    assert THREE.cost @ inside < 3.0
    assert np.all(np.asarray(chosen.inequality_flat(inside)) < 0)
    np.testing.assert_array_equal(np.asarray(chosen.equality_flat(inside)), 0.0)


def test_functions_tell_outside_from_inside() -> None:
    chosen = CapacitySet(THREE, budget=3.0, symmetric=True)
    assert float(chosen.inequality_flat(np.ones(6))[0]) > 0
    np.testing.assert_allclose(np.asarray(chosen.equality_flat(np.arange(6.0))), [-2.0, -3.0, -2.0])
    assert not chosen.contains(np.ones(6))


@pytest.mark.parametrize(
    ("options", "is_box", "is_orthant"),
    [
        ({}, True, True),
        ({"budget": np.inf, "limit": np.inf}, True, True),
        ({"limit": 1.0}, True, False),
        ({"budget": 1.0}, False, False),
        ({"symmetric": True}, False, False),
    ],
    ids=str,
)
def test_knows_its_shape(options: dict, is_box: bool, is_orthant: bool) -> None:
    chosen = capacities(**options)
    assert (chosen.is_box, chosen.is_orthant) == (is_box, is_orthant)


# --- cover ---------------------------------------------------------------------------------------------------------
FLOW = np.array([0.5, 0.0, 0.3, 0.1, 0.2, 0.0])


def test_cover_is_the_flow_where_nothing_cuts() -> None:
    np.testing.assert_array_equal(CapacitySet(THREE).cover(FLOW), FLOW)
    np.testing.assert_array_equal(CapacitySet(THREE, limit=0.5, budget=100.0).cover(FLOW), FLOW)


def test_cover_of_tied_links_is_the_larger_flow() -> None:
    tied = CapacitySet(THREE, symmetric=True).cover(FLOW)
    np.testing.assert_array_equal(tied, [0.5, 0.2, 0.5, 0.1, 0.2, 0.1])


@pytest.mark.parametrize("options", COMBINATIONS, ids=str)
def test_cover_stays_inside(options: dict) -> None:
    chosen = capacities(**options)
    for flow in (FLOW, 10.0 * FLOW, np.zeros(6)):
        assert chosen.contains(chosen.cover(flow))


def test_ties_hold_only_where_both_directions_exist() -> None:
    chosen = CapacitySet(one_way(), symmetric=True, limit=[0.7, 2.0, 0.5])
    np.testing.assert_array_equal(chosen.limit, [0.5, 2.0, 0.5])
    np.testing.assert_array_equal(chosen.project(np.array([0.1, 1.5, 0.3])), [0.2, 1.5, 0.2])


# --- bad options ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": -1.0}, "max_capacity must be a number .* >= 0"),
        ({"limit": np.nan}, "max_capacity must be a number"),
        ({"limit": [1.0, 2.0]}, "max_capacity must be .* 6 links"),
        ({"limit": "much"}, "max_capacity must be a number"),
        ({"limit": np.ones((2, 6))}, "max_capacity must be a number"),
        ({"minimum": 1e15}, "min_capacity is beyond 1e\\+12"),
        ({"existing": 1e15}, "existing_capacity is beyond 1e\\+12"),
        ({"budget": -1.0}, "budget must be a number >= 0.*got -1.0"),
        ({"budget": np.nan}, "budget must be a number"),
        ({"budget": "lots"}, "budget must be a number, got 'lots'"),
        ({"budget": [1.0, 2.0]}, "budget must be a number"),
    ],
    ids=str,
)
def test_bad_options(options: dict, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        CapacitySet(THREE, **options)


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (
            {"existing_capacity": 5.0},
            {"limit": 2.0},
            'max_capacity of link 1 -> 2 is 2, less than the 5 it must have (the column "existing_capacity")',
        ),
        (
            {"max_capacity": 2.0},
            {"existing": [5.0, 0.0, 0.0, 0.0, 0.0, 0.0]},
            'the column "max_capacity" of link 1 -> 2 is 2, less than the 5 it must have (existing_capacity)',
        ),
        (
            {"max_capacity": 2.0},
            {"minimum": [0.0, 0.0, 5.0, 0.0, 0.0, 0.0], "symmetric": True},
            'the column "max_capacity" of link 1 -> 2 is 2, less than the 5 its other direction, link 2 -> 1, '
            "must have (min_capacity)",
        ),
        ({"min_capacity": 3.0}, {"budget": 1.0}, 'budget must be at least 3, which the column "min_capacity" costs'),
    ],
)
def test_contradictions_name_the_column_or_the_option(
    columns: dict[str, float], options: dict[str, Any], sentence: str
) -> None:
    """Only the first link has figures of its own in the network."""
    network = three_nodes()
    first = {name: np.where(np.arange(6) == 0, value, getattr(network, name)) for name, value in columns.items()}
    with pytest.raises(OptionError, match=re.escape(sentence)):
        CapacitySet(replace(network, **first), **options)
