"""The designs of several scenarios, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.result import Status
from blocc.transport.design.design_result import Indicators
from blocc.transport.design.scenario import Scenario
from blocc.transport.network.network import TransportNetwork


@dataclass(frozen=True)
class ScenarioDesign:
    """The design of one scenario, as its ``design.json`` holds it."""

    scenario: Scenario
    network: TransportNetwork  #: with the scenario's factors
    document: dict[str, Any]
    folder: Path | None = None  #: where its files are

    @property
    def name(self) -> str:
        """Of the scenario."""
        return self.scenario.name

    @property
    def summary(self) -> dict[str, Any]:
        """Utility, cost, indicators, certificate, assumptions."""
        return dict(self.document["summary"])

    @property
    def status(self) -> Status:
        """How the design ended."""
        return Status(self.summary["status"])

    @property
    def utility(self) -> float:
        """Revenue less construction cost."""
        return float(self.summary["utility"])

    @property
    def budget(self) -> float:
        """The most that construction could cost; infinite where nothing limits it."""
        given = self.summary["settings"].get("budget")
        return np.inf if given is None else float(given)

    @property
    def capacity(self) -> Float[NDArray, "links"]:
        """Of each link."""
        return np.array([row["capacity"] for row in self.document["links"]], dtype=float)

    @property
    def verdict(self) -> str:
        """The certificate in words."""
        checks = self.summary["checks"]
        failed = [check["name"] for check in checks if check["passed"] is False]
        if failed:
            return f"FAIL: {', '.join(failed)}"
        return "not measured" if any(check["verdict"] == "not measured" for check in checks) else "pass"

    def row(self) -> dict[str, Any]:
        """The figures that are compared."""
        summary = self.summary
        found = summary["indicators"] or dict.fromkeys(Indicators._fields)
        names = ("utility", "revenue", "construction_cost", "links_built")
        return {
            "scenario": self.name,
            "status": summary["status"],
            "certificate": self.verdict,
            "budget": self.budget if np.isfinite(self.budget) else None,
            **{name: summary[name] for name in names},
            "demand": summary["demand"],
            **{name: found[name] for name in Indicators._fields},
            "seconds": summary["seconds"].get("run"),
            "folder": None if self.folder is None else self.folder.name,
            "error": None,
        }


@dataclass(frozen=True)
class ScenarioDesigns:
    """The designs of all scenarios that have one, in the order in which the scenarios were given."""

    network: TransportNetwork  #: without any factor
    designs: tuple[ScenarioDesign, ...]
    failed: dict[str, str] = field(default_factory=dict)  #: why a scenario has no design
    interrupted: bool = False  #: whether Ctrl-C ended the run before all scenarios were done
    written: tuple[Path, ...] = ()  #: the page and the tables

    def __getitem__(self, name: str) -> ScenarioDesign:
        return {design.name: design for design in self.designs}[name]

    def __iter__(self) -> Iterator[ScenarioDesign]:
        return iter(self.designs)

    def __len__(self) -> int:
        return len(self.designs)

    @property
    def success(self) -> bool:
        """Whether every scenario has a design that converged."""
        done = not self.failed and not self.interrupted
        return done and all(design.status is Status.CONVERGED for design in self.designs)

    def rows(self) -> list[dict[str, Any]]:
        """A row for every scenario that was computed."""
        errors = [
            {"scenario": name, "status": "failed", "error": error.partition("\n")[0]}
            for name, error in self.failed.items()
        ]
        return [*(design.row() for design in self.designs), *errors]
