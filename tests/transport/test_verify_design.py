"""Designs that are what they claim to be verify, and whatever is changed in one is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from blocc._lib.digests import sealed
from blocc.cli.commands import build_app
from blocc.errors import OptionError
from blocc.judge.verification import Verification
from blocc.result import Status
from blocc.transport import Design, TransportNetwork, design_network, read_network, verify_design, write_network
from blocc.transport.design.documents import DESIGN
from selections import few
from transport_reference import solve_lower_level, three_nodes


@pytest.fixture(scope="module")
def network() -> TransportNetwork:
    return three_nodes()


@pytest.fixture(scope="module")
def honest(network: TransportNetwork) -> Design:
    design = design_network(network, starts=1)
    assert design.success
    return design


def names(verification: Verification) -> set[str]:
    return {check.name for check in verification.failed}


def test_a_genuine_design_verifies(network: TransportNetwork, honest: Design) -> None:
    verification = verify_design(network, honest)
    assert verification.ok, str(verification)
    document = json.loads(json.dumps(DESIGN.document(honest)))
    assert verify_design(network, document).ok
    reference = solve_lower_level(network, honest.capacity)
    np.testing.assert_allclose(honest.follower.share, reference.share, atol=1e-5)


def of_follower(**changes: Any) -> Callable[[Design], Design]:
    return lambda d: replace(d, follower=d.follower._replace(**{name: f(d) for name, f in changes.items()}))


def of_certificate(**changes: float) -> Callable[[Design], Design]:
    return lambda d: replace(d, certificate=replace(d.certificate, **changes))


FORGED: dict[str, tuple[Callable[[Design], Design], str]] = {
    "capacity": (lambda d: replace(d, capacity=d.capacity + 0.01), "construction cost"),
    "negative capacity": (lambda d: replace(d, capacity=d.capacity - 0.01), "capacities"),
    "limits": (lambda d: replace(d, settings={**d.settings, "max_capacity": 0.1}), "limits"),
    "utility": (of_follower(utility=lambda d: d.utility + 1e-3), "utility"),
    "flow": (of_follower(flow=lambda d: d.follower.flow + 1e-3 * (d.capacity > 0)), "flows"),
    "share": (of_follower(share=lambda d: 0.999 * d.follower.share), "shares"),
    "price": (of_follower(price=lambda d: d.follower.price + 0.1), "prices of built links"),
    "gap": (of_certificate(penalty_gap=0.5), "penalty gap"),
    "distance": (of_certificate(distance=0.5), "||yF - y||"),
    "unsolved": (of_certificate(stationarity=np.nan), "lower level: stationarity"),
    "gamma": (lambda d: replace(d, gamma=np.nan), "gamma"),
}


@pytest.mark.parametrize("change", few(FORGED, *list(FORGED)[::2]))
def test_forged_designs_are_noticed(network: TransportNetwork, honest: Design, change: str) -> None:
    forge, expected = FORGED[change]
    assert {expected, "status"} <= names(verify_design(network, forge(honest)))


@pytest.mark.slow
def test_residuals_are_judged_relative_to_the_passengers(network: TransportNetwork) -> None:
    """Millions of them leave larger residuals; what is too large for so many is still noticed."""
    many = replace(network, demand=1e8 * network.demand)
    design = design_network(many, starts=1)
    residual = 1e-6 * float(np.max(design.follower.flow))
    assert verify_design(many, of_certificate(feasibility=residual)(design)).ok
    forged = of_certificate(feasibility=100.0 * residual)(design)
    assert names(verify_design(many, forged)) == {"lower level: feasibility", "status"}


@pytest.mark.slow
def test_capacities_that_are_not_stationary(network: TransportNetwork, honest: Design) -> None:
    """An honest design of half the budget, which says that it is the best of all."""
    half = design_network(network, starts=1, budget=0.5 * honest.follower.construction_cost)
    assert verify_design(network, half).ok
    forged = replace(half, settings={**half.settings, "budget": None})
    assert "gain left" in names(verify_design(network, forged))
    stopped = replace(forged, status=Status.STOPPED)
    assert verify_design(network, stopped).ok


def test_a_design_of_another_network(honest: Design) -> None:
    assert names(verify_design(read_network("nine"), honest)) == {"network", "status"}


def test_bad_arguments(network: TransportNetwork, honest: Design) -> None:
    with pytest.raises(OptionError, match="network must be a TransportNetwork, got str"):
        verify_design("three", honest)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"design must be a Design or the content of design\.json, got int"):
        verify_design(network, 3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="tolerance must be a positive number"):
        verify_design(network, honest, tolerance=0.0)
    with pytest.raises(OptionError, match="design is damaged: KeyError"):
        verify_design(network, {"summary": {}})


def test_the_command_line(network: TransportNetwork, honest: Design, tmp_path: Path) -> None:
    kept, built = tmp_path / "design.json", write_network(network, tmp_path / "network.json")

    def verify(*arguments: object) -> tuple[int, str]:
        found = CliRunner().invoke(build_app(), ["verify", str(kept), *map(str, arguments)])
        return found.exit_code, found.output

    document = DESIGN.document(honest)
    kept.write_text(json.dumps(document))
    assert verify(built)[0] == 0
    document["summary"]["utility"] += 1.0
    kept.write_text(json.dumps(document))
    code, output = verify(built)
    assert code == 6
    assert "was changed after it was saved" in output
    kept.write_text(json.dumps(sealed(document)))
    code, output = verify(built)
    assert code == 6
    assert "FAILS" in output
    assert "unchecked (of the run): summary.seconds" in " ".join(output.split())
    assert verify(tmp_path / "nowhere")[0] == 2
