"""A ``design.json`` or ``estimate.json`` of roads, verified: what was loaded, and what the file says besides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from blocc._lib.files import parse_json, read_limited
from blocc.judge.verification import Verification
from blocc.report.claims import FileVerification, consistent, of_file
from blocc.report.roads.estimate_files import estimate_document, load_estimate
from blocc.report.roads.road_files import design_document, load_design
from blocc.report.storage import MOST_DOCUMENT, StorageError
from blocc.roads.network import RoadNetwork
from blocc.roads.verify_demand_estimate import verify_demand_estimate
from blocc.roads.verify_road_design import verify_road_design

#: What is in the files and no check is about, and why.
UNCHECKED = {
    "version": "of the format",
    "summary.evaluations": "of the run",
    "summary.seconds": "of the run",
    "summary.settings": "the question: limits and options are believed as they are stated",
    "summary.versions": "of the run",
    "starts": "of the run",
    "history": "of the run",
    **{
        f"{when}.{name}": reason
        for when in ("before", "after")
        for name, reason in {
            **dict.fromkeys(("iterations", "n_paths", "seconds", "gaps"), "of the run"),
            "wanted_gap": "the question",
            "certificate.complementarity": "of paths, which are not in the file",
        }.items()
    },
    "links.bound_expansion": "a witness: the bound is proven anew at it, whatever it is",
}
#: Held within a limit, since no other run leaves the same rounding.
BOUNDED = {
    "summary.stationarity": "held within its limit",
    "links.marginal_value": "held within a thousandth of the largest",
    **{
        f"{when}.{name}": "held within its limit"
        for when in ("before", "after")
        for name in ("relative_gap", "certificate")
    },
}


def verify_road_file(path: str | Path, network: RoadNetwork, **given: Any) -> FileVerification:
    """Verify what :func:`blocc.roads.write_road_design` wrote about a network."""
    design = load_design(path, network)
    return _with_file(path, verify_road_design(network, design, **given), lambda: design_document(design))


def verify_estimate_file(path: str | Path, network: RoadNetwork, **given: Any) -> FileVerification:
    """Verify what :func:`blocc.roads.write_demand_estimate` wrote about a network with the prior trips."""
    estimate = load_estimate(path, network)
    return _with_file(path, verify_demand_estimate(network, estimate, **given), lambda: estimate_document(estimate))


def _with_file(path: str | Path, found: Verification, anew: Callable[[], dict[str, Any]]) -> FileVerification:
    document = parse_json(read_limited(Path(path), MOST_DOCUMENT, StorageError), str(path), StorageError)
    return of_file(found, UNCHECKED | BOUNDED, consistent(document, anew(), UNCHECKED))
