"""Models of networks with the same links share what was compiled, and each answers for its own figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blocc._lib.compiled import compile_seconds
from blocc.transport import DesignModel, read_network
from blocc.transport.network.network import TransportNetwork
from transport_compiled import lower_level

CHANGED = ("time", "cost", "demand", "revenue", "alternative_time")


def changed(network: TransportNetwork, name: str) -> TransportNetwork:
    return replace(network, **{name: 1.3 * np.asarray(getattr(network, name))})


def asked(model: DesignModel) -> tuple[float, float, np.ndarray]:
    """Both penalty functions, and the travellers' prices."""
    network = model.network
    prices, is_open = np.full(network.n_links, 0.2), np.ones(network.n_links, dtype=bool)
    in_prices = model.prices(prices, 5.0, is_open, 0.05, network.cost)
    in_capacities = model.capacities(np.full(network.n_links, 0.4), 5.0)
    return float(in_prices.value), float(in_capacities.value), np.asarray(in_capacities.follower.point.price)


def test_other_figures_compile_nothing_and_count() -> None:
    network = read_network("three")
    own = asked(DesignModel(network, "dense"))
    for name in CHANGED:
        other = changed(network, name)
        model, before = DesignModel(other, "dense"), compile_seconds()
        found = asked(model)
        assert compile_seconds() - before < 0.05, f"{name} compiles the programs again"
        assert found[:2] != own[:2], f"{name} is not heeded"
        expected = lower_level(other, np.full(network.n_links, 0.4)).point.price
        np.testing.assert_allclose(found[2], expected, atol=1e-7)


def test_other_links_have_programs_of_their_own() -> None:
    network = read_network("three")
    moved = replace(network, tail=np.roll(network.tail, 1), head=np.roll(network.head, 1))
    one, other = (asked(DesignModel(each, "dense"))[2] for each in (network, moved))
    np.testing.assert_allclose(other, lower_level(moved, np.full(network.n_links, 0.4)).point.price, atol=1e-7)
    assert not np.allclose(one, other)
