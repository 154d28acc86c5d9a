"""Designs of several scenarios on an executor: here one by one, in worker processes, or on a Dask cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from blocc._lib.version import __version__
from blocc.executors.work import Call, Executor, Outcome, arriving, explain, worker_name
from blocc.outer.monitor import StopRequest
from blocc.result import HistoryRow
from blocc.transport.design.design_network import design_network
from blocc.transport.design.options import DesignOptions
from blocc.transport.design.scenario import Case
from blocc.transport.design.start_runs import check_version, model_here

#: Sees every recorded iteration, with the scenario's name.
Report = Callable[[str, int, HistoryRow], None]


class ScenarioRuns:
    """The designs of some cases as work for an executor; none is begun after a request to stop."""

    name = "scenario"

    def __init__(
        self,
        cases: Sequence[Case],
        begun: Callable[[Case], None],
        report: Report | None,
        executor: Executor,
        request: StopRequest,
    ) -> None:
        self.cases, self.executor, self.request = cases, executor, request
        self._begun = begun
        self._report = report if executor.name == "serial" else None  # a call back does not travel

    def check(self) -> Call:
        """Workers must have this package."""
        return check_version, __version__

    def call(self, index: int) -> Call | None:
        """One design, unless the run is to stop."""
        if self.request.reason is not None:
            return None
        case = self.cases[index]
        self._begun(case)
        # On a cluster nobody knows which files a worker sees.
        kept = case if self.executor.name != "dask" else replace(case, checkpoint=None)
        return _design, kept, index, self._report

    def outcomes(self) -> Iterator[Outcome]:
        """What became of each case, as soon as it is known."""
        with arriving(self.executor, self, range(len(self.cases))) as outcomes:
            yield from outcomes


def _design(case: Case, index: int, report: Report | None) -> Outcome:
    """One design, where it is computed; or why there is none."""
    begun = time.perf_counter()
    value: Any = None
    failure: str | None = None

    def tell(iteration: int, row: HistoryRow) -> None:
        assert report is not None
        report(case.scenario.name, iteration, row)

    try:
        model = model_here(case.network, DesignOptions.from_names(case.options))
        file = case.checkpoint
        going_on = file if file is not None and file.exists() else None
        value = design_network(
            model.network,
            x0=case.x0,
            model=model,
            report=None if report is None else tell,
            checkpoint=file,
            resume=going_on,
            **case.options,
        )
    except Exception as error:
        failure = explain(error)
    return Outcome(index, value, failure, time.perf_counter() - begun, worker_name())
