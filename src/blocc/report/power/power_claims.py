"""A ``design.json`` about a power system, verified: what was loaded, and what the file says besides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blocc._lib.files import parse_json, read_limited
from blocc.power.case import PowerCase
from blocc.power.power_design import PowerDesign
from blocc.power.verify_power_design import verify_power_design
from blocc.report.claims import FileVerification, consistent, of_file
from blocc.report.power.power_files import design_document
from blocc.report.storage import MOST_DOCUMENT, StorageError

#: What is in the file and no check is about, and why.
UNCHECKED = {
    "version": "of the format",
    **dict.fromkeys(
        ("summary.evaluations", "summary.cleared", "summary.seconds", "summary.versions", "starts", "history"),
        "of the run",
    ),
    "summary.settings": "the question: limits and options are believed as they are stated",
    "summary.price_range": "prices that are not unique: others would do as well",
}
#: Held within a limit, since no other run leaves the same rounding.
BOUNDED = {
    f"summary.certificate.{name}": "held within its limit"
    for name in ("balance", "limits", "market_difference", "difference", "gain_left", "violation")
}


def verify_power_file(path: str | Path, design: PowerDesign, case: PowerCase, **given: Any) -> FileVerification:
    """Verify a file, and the ``design`` that was loaded out of it, about a case."""
    source = Path(path)
    source = source / "design.json" if source.is_dir() else source
    document = parse_json(read_limited(source, MOST_DOCUMENT, StorageError), str(source), StorageError)
    found = verify_power_design(design, case=case, **given)
    return of_file(found, UNCHECKED | BOUNDED, consistent(document, design_document(design), UNCHECKED))
