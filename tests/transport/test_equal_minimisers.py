"""Among minimisers of F_gamma of equal value the design is the one that is worth most once travellers choose freely."""

from __future__ import annotations

import numpy as np
import pytest

from blocc._lib.precision import double_precision
from blocc.transport import design_network, read_network
from blocc.transport.design.incumbent import lies_in_a_valley
from blocc.transport.design.model import DesignModel
from blocc.transport.design.options import DesignOptions

#: Another end of Algorithm 1 on three nodes at gamma = 2, where F_2 has a valley of minimisers.
ANOTHER = np.array([1.54657, 0.0, 1.54657, 1.0, 0.0, 1.0])


def test_three_nodes_at_a_small_gamma() -> None:
    design = design_network(read_network("three"), gamma=2.0, starts=1)
    value = -(design.utility + design.certificate.penalty_gap)
    assert value == pytest.approx(-1.807847, abs=1e-6)
    assert design.utility == pytest.approx(1.6749, abs=1e-3)
    model, limits = DesignModel(read_network("three")), DesignOptions.from_names({"gamma": 2.0}).capacity_set
    with double_precision():
        other = model.capacities(ANOTHER, 2.0)
        assert float(other.value) == pytest.approx(value, abs=1e-6)
        assert float(other.utility) == pytest.approx(0.2054, abs=1e-3)
        assert lies_in_a_valley(model, limits(model.network), ANOTHER, 2.0, lambda: False)
        # At gamma = 10 there is none.
        found = np.asarray(design_network(read_network("three"), gamma=10.0, starts=1).capacity)
        assert not lies_in_a_valley(model, limits(model.network), found, 10.0, lambda: False)
