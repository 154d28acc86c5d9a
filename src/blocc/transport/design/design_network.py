"""The front door of network design: from a network to a certified design."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.compiled import compile_seconds
from blocc._lib.log import log_answer
from blocc._lib.precision import double_precision
from blocc._lib.rounding import KEPT
from blocc._lib.threads import single_blas_thread
from blocc.errors import OptionError
from blocc.executors.choice import choose_executor
from blocc.executors.work import Executor, arriving
from blocc.outer.monitor import Monitor, State, Stop, StopReason, StopRequest, interruptible
from blocc.problem import BilevelProblem
from blocc.result import Certificate, History, HistoryRow, Status
from blocc.resume.file import open_recording
from blocc.resume.recorded import RecordedMonitor
from blocc.resume.recording import CheckpointError
from blocc.run.conclude import versions
from blocc.solve import solve
from blocc.transport.design.capacity_descent import evaluate
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.certificate import assignment, certify, measured_prices, remaining_gain
from blocc.transport.design.design_result import Design, Start
from blocc.transport.design.forecast import check_memory
from blocc.transport.design.model import CapacityPenalty, DesignModel
from blocc.transport.design.options import DesignOptions
from blocc.transport.design.search import Search, is_begun, keep_search, restore_search
from blocc.transport.design.start_runs import FollowedStart, StartRuns
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.formulation import structured_problem

#: Relative residuals up to which the lower level counts as solved.
_PROVED = 1e-6
_STOPPED = {
    StopReason.CALLBACK: Status.STOPPED,
    StopReason.TIME_LIMIT: Status.TIME_LIMIT,
    StopReason.INTERRUPTED: Status.INTERRUPTED,
}


def design_network(
    network: TransportNetwork,
    *,
    x0: Any = None,
    callback: Callable[[State], Any] | None = None,
    report: Callable[[int, HistoryRow], None] | None = None,
    model: DesignModel | None = None,
    checkpoint: str | Path | None = None,
    resume: str | Path | None = None,
    checkpoint_seconds: float = 5.0,
    executor: Any = None,
    **options: Any,
) -> Design:
    """Choose the capacities that earn most, and return them with a certificate.

    ``options`` are the fields of :class:`~blocc.transport.design.options.DesignOptions`: the penalty ``gamma``; how
    many random ``starts`` are tried, with which ``seed``; limits by ``budget``, ``symmetric``, ``max_capacity``,
    ``min_capacity`` and ``existing_capacity``; the ``method`` or ``preset``; the ``engine``; the ``tolerance`` of the
    certificate; ``time_limit`` and ``max_iterations``. A time limit counts everything from the call on, compilation
    included. After it, or after Ctrl-C or SIGTERM, the best design so far is solved exactly once more and returned.
    A design that would not fit into memory is refused before it begins.

    :param x0: the capacities of a single start, in place of random ones; where they keep the limits, the design is no
        worse
    :param callback: sees every recorded iteration, and stops the run by returning True
    :param report: sees every recorded iteration
    :param model: of an earlier call, to save compiling again
    :param checkpoint: a file that the run keeps itself in, after a stage of a start and every ``checkpoint_seconds`` at
        most, and at its end
    :param resume: such a file to go on from, with the same network and options (``time_limit`` may differ and counts
        anew, ``starts`` may be more, but not fewer than the file holds); the run keeps itself in it as well unless
        ``checkpoint`` names another
    :param executor: who computes the starts: ``"serial"`` (here), ``"processes"``, ``"dask"``, an executor of
        :mod:`blocc.executors`, or a Dask client or cluster. The design is the same; ``report`` then sees the last
        iteration of each start. A finished start is in the checkpoint at once.
    """
    request = StopRequest()  # what the user waits for begins here
    if not isinstance(network, TransportNetwork):
        raise OptionError(f"network must be a TransportNetwork, got {type(network).__name__}")
    settings = DesignOptions.from_names(options)
    if model is not None and model.network is not network:
        raise OptionError(f"model must belong to this network; it was made for another, {model.network.name!r}")
    computing = choose_executor(executor)
    if callback is not None and computing.name != "serial":
        raise OptionError("callback needs starts that run in this process: leave out executor")
    if model is None:
        check_memory(network, "dense" if settings.method == "pgd" else settings.engine)
    start = None if x0 is None else _capacities(network, x0)
    settings = settings if start is None else replace(settings, starts=1)
    limits = settings.capacity_set(network)
    problem = structured_problem(network, x_set=limits)
    point = np.zeros(0) if start is None else start
    recording = open_recording(problem, settings.identity(), point, checkpoint, resume, checkpoint_seconds)
    if resume is not None and (begun := len(recording.recorded.kept)) > (settings.starts or 1):
        raise CheckpointError(
            f"{resume} holds {begun} starts, this run would have {settings.starts}: give starts={begun} or more"
        )
    with double_precision(), single_blas_thread(), closing(recording):
        limit = settings.time_limit
        monitor = RecordedMonitor(
            recording, lambda x: x, callback, report, limit, started=request.started, request=request
        )
        run = _Run(model or DesignModel(network, settings.engine), problem, limits, settings, monitor)
        with interruptible(monitor.request):
            if computing.name != "serial" and start is None:
                run.elsewhere(computing)
            design = run.all(start)
    return log_answer(replace(design, message=design.message + recording.remark()), f"utility {design.utility:.10g}")


def _capacities(network: TransportNetwork, x0: Any) -> Float[NDArray, "links"]:
    try:
        point = np.asarray(x0, dtype=float)
    except (TypeError, ValueError):
        point = np.empty(0)
    if point.shape != (network.n_links,) or not np.isfinite(point).all() or (point < 0).any():
        raise OptionError(f"x0 must hold one finite capacity >= 0 for each of the {network.n_links} links")
    return point


def _follow_here(model: DesignModel, options: DesignOptions, index: int) -> FollowedStart:
    """On a worker: one start of a design."""
    network = model.network
    with double_precision(), single_blas_thread():
        limits = options.capacity_set(network)
        monitor = Monitor(lambda x: x, time_limit=options.time_limit)
        run = _Run(model, structured_problem(network, x_set=limits), limits, options, monitor)
        search, reason = run.follow(index, None)
        search.answer()
        return FollowedStart(search.state, monitor.rows, reason)


class _Run:
    """One call: every start, the best of them, and its certificate."""

    def __init__(
        self,
        model: DesignModel,
        problem: BilevelProblem,
        limits: CapacitySet,
        options: DesignOptions,
        monitor: Monitor,
    ) -> None:
        self.model, self.problem, self.limits = model, problem, limits
        self.options, self.monitor = options, monitor
        self.gamma, self.compiled_before = options.penalty(model.network), compile_seconds()
        self.followed: dict[int, FollowedStart] = {}  #: starts that an executor has followed

    def all(self, x0: Float[NDArray, "links"] | None) -> Design:
        best: tuple[Search, list[HistoryRow]] | None = None
        done: list[Start] = []
        stopped: StopReason | None = None
        for index in range(self.options.starts or 1):
            if stopped is not None and index not in self.followed:
                continue
            search, reason = self.follow(index, x0)
            if reason is None:  # the table of starts counts links as the design does
                search.trim(self.monitor.is_over)
            found, state = search.answer(), search.state
            status = self._own_status(found) if reason is None else _STOPPED[reason]
            built = int((state.best > 0).sum())
            done.append(Start(float(found.utility), status, built, state.evaluations, state.seconds))
            if best is None or search.is_better_than(best[0]):
                best = (search, list(self.monitor.rows))
            stopped = stopped or reason
        assert best is not None
        try:
            return self._conclude(*best, done, stopped)
        except KeyboardInterrupt:
            return self._conclude(*best, done, StopReason.INTERRUPTED)

    def elsewhere(self, executor: Executor) -> None:
        """Have the starts that nobody has begun followed by an executor; what fails there is done here.

        Ctrl-C ends the wait: the starts that are there count, and the next one is stopped at once.
        """
        waiting = [index for index in range(self.options.starts or 1) if not is_begun(self.monitor, index)]
        work = StartRuns(_follow_here, self.model.network, self.options, self.monitor)
        try:
            with arriving(executor, work, waiting) as followed:
                for outcome in followed:
                    if outcome.error is None:
                        self.followed[outcome.index] = outcome.value
                        self._keep_followed(outcome.index)
        except KeyboardInterrupt:
            self.monitor.request.reason = StopReason.INTERRUPTED

    def _keep_followed(self, index: int) -> None:
        """Keep a start that was followed to its end, and report it."""
        search, reason = self.follow(index, None)
        if reason is None:
            keep_search(search, index)
        if self.monitor.report is not None and self.monitor.rows:
            last = self.monitor.rows[-1]._replace(upper_value=-float(search.answer().utility))
            self.monitor.report(len(self.monitor.rows), last)

    def follow(self, index: int, x0: Float[NDArray, "links"] | None) -> tuple[Search, StopReason | None]:
        """One start, to its end or until it is stopped; the monitor has its history."""
        self.monitor.rows = []
        search = Search(self.model, self.limits, self.gamma, self.monitor, fixed=self.options.has_fixed_gamma)
        if index in self.followed:
            search.state, self.monitor.rows, reason = self.followed[index]
            self.monitor.iterations, self.monitor.position = len(self.monitor.rows), search.state.best
            return search, reason
        try:
            self._start(search, index, x0)
        except (Stop, KeyboardInterrupt) as stop:  # Ctrl-C once more, before the first one was heeded, is one too
            with suppress(KeyboardInterrupt):
                search.settle()
            return search, stop.reason if isinstance(stop, Stop) else StopReason.INTERRUPTED
        return search, None

    def _own_status(self, found: CapacityPenalty) -> Status:
        """Of a start that ran to its end; only the best one is also tried for what it leaves to be gained."""
        gap, allowed = float(-found.utility - found.value), self.options.allowed_gain(float(found.utility))
        hides = gap > allowed and not self.options.has_fixed_gamma
        return Status.STALLED if hides or found.error > KEPT else Status.CONVERGED

    # --- one start --------------------------------------------------------------------------------------------------
    def _start(self, search: Search, index: int, x0: Float[NDArray, "links"] | None) -> None:
        is_resumed = restore_search(search, index)
        earlier, began = search.state.seconds, self.monitor.elapsed()

        def count_seconds() -> None:
            search.state.seconds = earlier + self.monitor.elapsed() - began

        def after_stage() -> None:
            count_seconds()
            keep_search(search, index)

        random, network = np.random.default_rng([self.options.seed, index]), self.model.network
        try:
            if self.options.method == "pgd":
                start = random.uniform(*(network.start_range or network.usual_range), network.n_links)
                start = np.clip(start if x0 is None else x0, *self.limits.bounds_flat())
                search.run([partial(self._published, search, start)], after_stage)
                return
            if not is_resumed:
                prices = random.uniform(0.0, self.model.time_unit, network.n_links)
                if x0 is not None:
                    prices = np.asarray(self.model.capacities(x0, self.gamma).follower.point.price)
                search.begin(prices)
                if x0 is not None:
                    search.keep(self.limits.cover(x0))
            search.run(search.stages(), after_stage)
            search.judge_known(self.monitor.is_over)
            after_stage()
        finally:
            count_seconds()

    def _published(self, search: Search, start: Float[NDArray, "links"]) -> None:
        """Algorithm 1 with the published step; the structured oracle stands in for its inner loops."""
        search.keep(start)
        self.monitor.check_time()
        result = solve(
            self.problem,
            start,
            outer="pgd",
            inner="auto",
            gamma=self.gamma,
            step=self.options.step,
            max_iterations=self.options.max_iterations,
            time_limit=None if self.monitor.time_limit is None else self.monitor.time_limit - self.monitor.elapsed(),
            callback=self.monitor.callback,
            progress=False,
        )
        search.state.evaluations += result.counts["evaluations"]
        self.monitor.rows = list(result.history.rows())
        search.state.score = -np.inf  # the published method's answer is where it ends, not the best point on the way
        search.keep(np.asarray(result.x))
        for reason, status in _STOPPED.items():
            if result.status is status:
                raise Stop(reason)

    # --- the end ----------------------------------------------------------------------------------------------------
    def _conclude(
        self, search: Search, rows: list[HistoryRow], done: list[Start], stopped: StopReason | None
    ) -> Design:
        gain, prices, unit = np.nan, np.full(self.model.network.n_links, np.nan), 0.0
        if stopped is None:
            try:
                search.trim(self.monitor.is_over)
                self.monitor.check_time()
                adopt = self.options.method != "pgd"
                gain, warm = remaining_gain(search, adopt, 0.1 * self.options.allowed_gain(search.state.score))
                ended = search.state.best, search.answer()
                prices, unit = measured_prices(self.model, *ended, self.gamma, warm, self.monitor)
            except Stop as stop:
                stopped = stop.reason
        self.monitor.close()
        capacity, found = search.state.best, search.answer()
        found, certificate, relative = self._proved(capacity, found, gain)
        # What the best start still gained is part of its row.
        first = max(range(len(done)), key=lambda index: done[index].utility)
        own = done[first]._replace(utility=float(found.utility), links_built=int((capacity > 0).sum()))
        done = [*done[:first], own, *done[first + 1 :]]
        status, message = self._judge(certificate, relative, found, stopped)
        if stopped is not None and search.is_idle:
            message = "Stopped early; nothing met on the way is certified to earn more than no new capacity at all."
        compiling = compile_seconds() - self.compiled_before
        graph, existing = self.model.graph, self.limits.existing
        penalised_alternative = graph.alternative + graph.revenue / self.gamma
        follower = assignment(self.model, found.follower, capacity, graph.alternative, existing)
        penalised = assignment(self.model, found.penalised, capacity, penalised_alternative, existing)
        if np.isnan(certificate.distance):
            penalised = penalised._replace(utility=np.nan)
        return Design(
            network=self.model.network,
            capacity=capacity,
            follower=follower._replace(price=np.where(capacity > 0, follower.price, prices)),
            penalised=penalised,
            gamma=self.gamma,
            status=status,
            message=message,
            certificate=certificate,
            history=History(rows),
            what_if=tuple(search.state.what_if),
            starts=tuple(done),
            seconds={"compile": compiling, "run": self.monitor.elapsed() - compiling},
            settings=self.options.settings(),
            versions=versions(),
            lower_level_error=relative,
            price_unit=unit,
        )

    def _proved(
        self, capacity: Float[NDArray, "links"], found: CapacityPenalty, gain: float
    ) -> tuple[CapacityPenalty, Certificate, float]:
        """The answers at the best capacities with what proves them.

        Warm starts of the interior point may end short of it where links are next to closed; it is then begun anew, and
        after that the answer is looked for on paths.
        """
        certificate, relative = certify(self.model, capacity, found, gain)
        for engine in ("dense", "paths") if self.model.engine == "dense" else ():
            if relative <= _PROVED or (engine == "paths" and find_spec("numba") is None):
                break
            model = self.model if engine == "dense" else DesignModel(self.model.network, engine)
            again = evaluate(model, self.limits, capacity, self.gamma)
            proof, better = certify(self.model, capacity, again, gain)
            if better < relative:
                found, certificate, relative = again, proof, better
        return found, certificate, relative

    def _judge(
        self, certificate: Certificate, relative: float, found: CapacityPenalty, stopped: StopReason | None
    ) -> tuple[Status, str]:
        allowed = self.options.allowed_gain(float(found.utility))
        if stopped is not None:
            return _STOPPED[stopped], "Stopped early; this is the best design so far."
        if relative > _PROVED:
            return (
                Status.STALLED,
                f"The lower level is solved only to {relative:.1e} (relative); {_PROVED:.0e} is wanted.",
            )
        if certificate.stationarity_x > allowed:
            return Status.STALLED, (
                f"The capacities are not stationary: a few steps lower F_gamma by {certificate.stationarity_x:.2g}, "
                f"wanted {allowed:.2g}."
            )
        if not self.options.has_fixed_gamma and certificate.penalty_gap > allowed:
            return Status.STALLED, f"The penalty still hides {certificate.penalty_gap:.2g}, wanted {allowed:.2g}."
        return Status.CONVERGED, "The capacities are stationary for F_gamma, and the flows are the travellers' own."
