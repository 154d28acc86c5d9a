"""Scenarios on disk: a folder for each design, kept as it finishes, and what puts all of them side by side.

A run that was killed is called again: designs that are there are read, the one that was under way goes on from its last
stage, and the others are begun. By its fingerprint a kept design is known to belong to the same network and options.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from blocc._lib.digests import sealed
from blocc._lib.files import json_bytes
from blocc._lib.tables import csv_bytes
from blocc.executors.choice import choose_executor
from blocc.kit.storage import StorageError, read_document, write_files
from blocc.kit.text import duration
from blocc.outer.monitor import StopReason, StopRequest, interruptible
from blocc.result import Status
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import DESIGN, read_design_json
from blocc.transport.design.options import DesignOptions
from blocc.transport.design.scenario import FACTORS, Case, cases_of
from blocc.transport.design.scenario_result import ScenarioDesign, ScenarioDesigns
from blocc.transport.design.scenario_runs import Report, ScenarioRuns
from blocc.transport.network.network import TransportNetwork

FORMAT = "blocc-scenario"
VERSION = 2  #: from 2 on with a digest
MANIFEST = "scenario.json"
_MOST_BYTES = 2**20  #: of a manifest
_ROUNDING = 1e-6  #: of a utility, relative: the travellers' answer to the same capacities is found anew
_STOPPED = (Status.INTERRUPTED, Status.STOPPED)

#: Sees the name of a scenario, and what has become of it in words.
Tell = Callable[[str, str], None]


def design_scenarios(
    network: TransportNetwork,
    scenarios: Any,
    *,
    executor: Any = None,
    workers: int | None = None,
    scheduler: str | None = None,
    out: str | Path | None = None,
    on_progress: Tell | None = None,
    report: Report | None = None,
    **options: Any,
) -> ScenarioDesigns:
    """Design a network in several scenarios; see :func:`blocc.transport.design_scenarios`."""
    chosen = choose_executor(executor, workers, scheduler)
    run = _Run(cases_of(network, scenarios, options), _Store(out), on_progress or (lambda name, words: None), report)
    with interruptible(run.request):
        try:
            run.compute(chosen)
        except KeyboardInterrupt:
            run.request.reason = StopReason.INTERRUPTED
        return _side_by_side(run.result(network), out)


class _Store:
    """The folder of a run, if it has one."""

    def __init__(self, folder: str | Path | None) -> None:
        self._root = None if folder is None else Path(folder)
        self._names: dict[str, str] = {}  # folders, by the scenarios' names

    def folder(self, case: Case) -> Path | None:
        """Of one scenario: its name without what a file system may dislike."""
        if self._root is None:
            return None
        name = case.scenario.name
        if name not in self._names:
            plain = re.sub(r"[^\w.=-]+", "-", name).strip(".-") or "scenario"
            taken = {given.casefold() for given in self._names.values()}
            tries = (plain if count == 1 else f"{plain}-{count}" for count in range(1, len(taken) + 2))
            self._names[name] = next(each for each in tries if each.casefold() not in taken)
        return self._root / self._names[name]

    def prepared(self, case: Case) -> Case:
        """The case with the file in which its run is kept."""
        folder = self.folder(case)
        if folder is None:
            return case
        write_files(folder, {}, "the scenario")
        return replace(case, checkpoint=folder / f"run-{case.fingerprint()[:16]}.npz")

    def kept(self, case: Case) -> ScenarioDesign | None:
        """The design of an earlier run, if it belongs to this case."""
        folder = self.folder(case)
        if folder is None or not (folder / MANIFEST).is_file():
            return None
        try:
            manifest = read_document(
                folder / MANIFEST, FORMAT, VERSION, "design_scenarios", digest_from=2, most=_MOST_BYTES
            )
            if not manifest.get("finished") or manifest.get("fingerprint") != case.fingerprint():
                return None
            return ScenarioDesign(case.scenario, case.network, read_design_json(folder / "design.json"), folder)
        except StorageError:  # it is computed again
            return None

    def keep(self, case: Case, design: Design) -> ScenarioDesign:
        """Write a design, and last of all the file that says that it is complete."""
        folder = self.folder(case)
        if folder is not None:
            (folder / MANIFEST).unlink(missing_ok=True)
            DESIGN.write(design, folder)
            finished = design.status not in _STOPPED
            said = {"format": FORMAT, "version": VERSION, "name": case.scenario.name, "changes": case.scenario.changes}
            said |= {"fingerprint": case.fingerprint(), "finished": finished}
            write_files(folder, {MANIFEST: json_bytes(sealed(said))}, "the scenario")
            for file in folder.glob("run-*.npz") if finished else ():
                file.unlink(missing_ok=True)
        return ScenarioDesign(case.scenario, case.network, DESIGN.document(design), folder)


class _Run:
    """One call: what is kept already, what is computed, and what failed."""

    def __init__(self, cases: list[Case], store: _Store, tell: Tell, report: Report | None) -> None:
        self.cases, self.store, self.tell, self.report = cases, store, tell, report
        self.designs: dict[str, ScenarioDesign] = {}
        self.failed: dict[str, str] = {}
        self.request = StopRequest()

    def compute(self, executor: Any) -> None:
        for case in self.cases:
            kept = self.store.kept(case)
            if kept is not None:
                self.designs[case.scenario.name] = kept
                self.tell(case.scenario.name, f"kept from an earlier run: {_words(kept)}")
        missing = [case for case in self.cases if case.scenario.name not in self.designs]
        self._run([self.store.prepared(case) for case in missing], executor)
        for smaller, larger in _budget_pairs(self.cases):
            if self.request.reason is None and self._is_worse(larger, smaller):
                start = self.designs[smaller.scenario.name].capacity
                self.tell(larger.scenario.name, f"earned less than {smaller.scenario.name!r}, begun again from there")
                self._run([replace(larger, x0=start)], executor)

    def _is_worse(self, larger: Case, smaller: Case) -> bool:
        """Whether a design earns less than another one, which would fit into its budget, by more than rounding."""
        one, other = (self.designs.get(case.scenario.name) for case in (larger, smaller))
        if one is None or other is None or other.summary["withheld"]:
            return False
        return one.utility < other.utility - _ROUNDING * (1.0 + abs(other.utility))

    def _run(self, cases: list[Case], executor: Any) -> None:
        if not cases:
            return
        begun = lambda case: self.tell(case.scenario.name, "begun")  # noqa: E731
        for outcome in ScenarioRuns(cases, begun, self.report, executor, self.request).outcomes():
            case = cases[outcome.index]
            if outcome.error is None:
                self._take(case, outcome.value)
            else:
                self.failed[case.scenario.name] = outcome.error
                self.tell(case.scenario.name, f"failed: {outcome.error.partition(chr(10))[0]}")

    def _take(self, case: Case, design: Design) -> None:
        name = case.scenario.name
        before = self.designs.get(name)
        if before is not None and design.utility <= before.utility:
            return
        if case.x0 is not None:
            design = replace(design, message=design.message + " Begun at the design of a smaller budget.")
        self.designs[name] = self.store.keep(case, design)
        self.tell(name, _words(self.designs[name]))

    def result(self, network: TransportNetwork) -> ScenarioDesigns:
        order = [case.scenario.name for case in self.cases]
        found = tuple(self.designs[name] for name in order if name in self.designs)
        return ScenarioDesigns(network, found, self.failed, self.request.reason is not None)


def _words(design: ScenarioDesign) -> str:
    summary = design.summary
    certified = ", NOT CERTIFIED" if summary["withheld"] else ""
    return f"{summary['status']}, utility {design.utility:.6g}{certified}, {duration(summary['seconds']['run'])}"


def _budget_pairs(cases: list[Case]) -> list[tuple[Case, Case]]:
    """Pairs of neighbours, from the smallest budget on, among cases that differ in the budget alone.

    What fits into a smaller budget fits into a larger one, so more money never earns less. With a gamma of the user's
    something else than the utility is maximised.
    """
    groups: dict[bytes, list[Case]] = {}
    for case in cases:
        if not DesignOptions.from_names(case.options).has_fixed_gamma:
            factors = {name: value for name, value in case.scenario.changes.items() if name in FACTORS}
            others = DesignOptions.from_names(case.options).settings() | {"budget": None}
            groups.setdefault(json_bytes([sorted(factors.items()), others]), []).append(case)
    pairs = []
    for group in groups.values():
        pairs += list(pairwise(sorted(group, key=lambda case: case.budget)))
    return pairs


def _side_by_side(result: ScenarioDesigns, out: str | Path | None) -> ScenarioDesigns:
    """Write the page and the tables, where there is a folder for them."""
    if out is None:
        return result
    from blocc.report.transport.scenario_page import scenario_page

    document = {"format": "blocc-scenarios", "version": VERSION, "network": result.network.name}
    document |= {"interrupted": result.interrupted, "scenarios": result.rows()}
    changes = {design.name: dict(design.scenario.changes) for design in result}
    files = {
        "scenarios.json": json_bytes(sealed(document | {"changes": changes})),
        "scenarios.csv": csv_bytes(result.rows()),
        "scenarios.html": scenario_page(result).encode(errors="replace"),
    }
    return replace(result, written=tuple(write_files(out, files, "the scenarios")))
