"""The front door of network design: from a network to a certified design."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc.errors import OptionError
from blocc.outer.monitor import Monitor, State, Stop, StopReason, interruptible
from blocc.result import Certificate, History, HistoryRow, Status
from blocc.run.conclude import versions
from blocc.solve import solve
from blocc.transport.design.capacity_descent import sweep
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.certificate import assignment, certify, probe
from blocc.transport.design.design_result import Design, Start
from blocc.transport.design.limited import Limited
from blocc.transport.design.model import DesignModel, Penalty
from blocc.transport.design.search import Search
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.oracle import structured_problem

#: gamma where the user leaves it open: the penalty then hides about 1e-4 of the utility.
AUTO_GAMMA = 1e4
METHODS = ("prices", "lbfgsb", "newton", "pgd")
#: The published settings: Algorithm 1 with this step, gamma 2, 3 or 4, one random start.
PAPER_STEP, PAPER_GAMMA, PAPER_ITERATIONS = 1.6e-4, 2.0, 20_000

_STOPPED = {
    StopReason.CALLBACK: Status.STOPPED,
    StopReason.TIME_LIMIT: Status.TIME_LIMIT,
    StopReason.INTERRUPTED: Status.INTERRUPTED,
}


def design_network(
    network: TransportNetwork,
    *,
    gamma: float | str = "auto",
    starts: int | None = None,
    seed: int = 0,
    x0: Any = None,
    budget: float | None = None,
    symmetric: bool = False,
    max_capacity: Any = None,
    method: str = "prices",
    preset: str = "default",
    tolerance: float = 1e-3,
    time_limit: float | None = None,
    max_iterations: int | None = None,
    callback: Callable[[State], Any] | None = None,
    report: Callable[[int, HistoryRow], None] | None = None,
    model: DesignModel | None = None,
) -> Design:
    """Choose the capacities that earn most, and return them with a certificate.

    ``gamma`` is the penalty, "auto" for one so large that it hides about 1e-4 of the utility. ``starts`` random starts
    are tried (5, or 1 with the paper's settings) and the best design is kept; ``x0`` gives the capacities of a single
    start instead. ``budget`` caps the construction cost, ``symmetric`` ties the two directions of a link,
    ``max_capacity`` limits each link.

    ``method`` is "prices" (the default), or "lbfgsb" or "newton" for descent in the capacities, or "pgd" for Algorithm
    1 as published, which ``preset="paper"`` chooses together with its step and gamma. ``tolerance`` is what the
    certificate's stationarity and penalty gap may amount to, relative to 1 + |utility|. ``callback`` stops the run by
    returning True, ``report`` sees every recorded iteration. A ``model`` from an earlier call saves compiling again.
    """
    if preset == "paper":
        method, gamma = "pgd", PAPER_GAMMA if gamma == "auto" else gamma
    starts = (1 if preset == "paper" else 5) if starts is None else starts
    level = _checked(network, gamma, starts, method, preset, tolerance, x0)
    _check_limits_of_the_run(seed, time_limit, max_iterations)
    if model is not None and model.network is not network:
        raise OptionError(f"model must belong to this network; it was made for another, {model.network.name!r}")
    limits = CapacitySet(network, limit=max_capacity, budget=budget, symmetric=symmetric)
    if method != "prices" and not limits.is_box:
        raise OptionError(f"method {method!r} knows no budget and no symmetry; use method='prices'")
    monitor = Monitor(lambda x: x, callback, report, time_limit)
    settings = {
        "gamma": gamma,
        "starts": starts if x0 is None else 1,
        "seed": seed,
        "budget": budget,
        "symmetric": symmetric,
        "max_capacity": None if max_capacity is None else np.asarray(max_capacity).tolist(),
        "method": method,
        "preset": preset,
        "tolerance": tolerance,
    }
    with double_precision(), single_blas_thread(), interruptible(monitor.request):
        run = _Run(model or DesignModel(network), limits, level, monitor, settings)
        return run.all(seed, starts, x0, max_iterations or PAPER_ITERATIONS)


class _Run:
    """One call: every start, the best of them, and its certificate."""

    def __init__(
        self, model: DesignModel, limits: CapacitySet, gamma: float, monitor: Monitor, settings: dict[str, Any]
    ) -> None:
        self.model, self.limits, self.gamma, self.monitor, self.settings = model, limits, gamma, monitor, settings
        self.compiled_before = model.compile_seconds
        self.compiled_elsewhere = 0.0

    def all(self, seed: int, count: int, x0: Any, max_iterations: int) -> Design:
        best: tuple[Search, list[HistoryRow]] | None = None
        done: list[Start] = []
        stopped: StopReason | None = None
        for index in range(1 if x0 is not None else count):
            self.monitor.rows = []
            began, compiled = self.monitor.elapsed(), self._compiled()
            search = Search(self.model, self.limits, self.gamma, self.monitor, self.settings["gamma"] != "auto")
            try:
                self._start(search, np.random.default_rng([seed, index]), x0, max_iterations)
                ended = Status.CONVERGED
            except Stop as stop:
                stopped, ended = stop.reason, _STOPPED[stop.reason]
                search.settle()
            seconds = self.monitor.elapsed() - began - (self._compiled() - compiled)
            capacity = search.best.capacity
            utility = float(self.model.capacities(capacity, self.gamma).utility)
            done.append(Start(utility, ended, int((capacity > 0).sum()), search.evaluations, seconds))
            if best is None or search.score > best[0].score:
                best = (search, list(self.monitor.rows))
            if stopped is not None:
                break
        assert best is not None
        return self._conclude(*best, done, stopped)

    def _compiled(self) -> float:
        return self.model.compile_seconds - self.compiled_before + self.compiled_elsewhere

    # --- one start --------------------------------------------------------------------------------------------------
    def _start(self, search: Search, random: np.random.Generator, x0: Any, max_iterations: int) -> None:
        network, method = self.model.network, self.settings["method"]
        if method == "prices":
            if x0 is None:
                prices = random.uniform(0.0, self.model.time_unit, network.n_links)
            else:
                prices = np.asarray(self.model.capacities(np.asarray(x0, float), self.gamma).follower.point.price)
            search.keep(Limited(np.zeros(network.n_links), 0.0))  # to build nothing is always possible
            search.run(prices)
            return
        low, high = network.start_range or network.usual_range
        start = np.asarray(x0, dtype=float) if x0 is not None else random.uniform(low, high, network.n_links)
        start = np.clip(start, 0.0, self.limits.limit)
        search.keep(Limited(start, 0.0))
        if method == "pgd":
            self._published(search, start, max_iterations)
            return
        capacity = sweep(self.model, start, self.limits.limit, method, self.gamma, search.watch)
        search.keep(Limited(capacity, 0.0))

    def _published(self, search: Search, start: np.ndarray, max_iterations: int) -> None:
        """Algorithm 1 with the published step; the structured oracle stands in for its inner loops."""
        problem = structured_problem(self.model.network, x_set=self.limits)
        self.monitor.check_time()
        result = solve(
            problem,
            start,
            preset="paper",
            inner="auto",
            gamma=self.gamma,
            step=PAPER_STEP,
            max_iterations=max_iterations,
            time_limit=None if self.monitor.time_limit is None else self.monitor.time_limit - self.monitor.elapsed(),
            callback=self._wants_to_stop,
            progress=False,
        )
        self.compiled_elsewhere += result.seconds["compile"]
        search.evaluations += result.counts["evaluations"]
        self.monitor.rows = list(result.history.rows())
        search.score = -np.inf  # the published method's answer is where it ends, not the best point on the way
        search.keep(Limited(np.asarray(result.x), 0.0))
        if result.status is Status.STOPPED:
            raise Stop(StopReason.INTERRUPTED if self.monitor.interrupted else StopReason.CALLBACK)
        if result.status is Status.TIME_LIMIT:
            raise Stop(StopReason.TIME_LIMIT)

    def _wants_to_stop(self, state: State) -> bool:
        """Whether Ctrl-C was pressed, which this run's monitor hears, or the user's callback says so."""
        callback = self.monitor.callback
        return self.monitor.interrupted or (callback is not None and bool(callback(state)))

    # --- the end ----------------------------------------------------------------------------------------------------
    def _conclude(
        self, search: Search, rows: list[HistoryRow], done: list[Start], stopped: StopReason | None
    ) -> Design:
        self.monitor.close()
        adopt = stopped is None and self.settings["method"] != "pgd"
        gain = probe(search, adopt, 0.1 * self._allowed(search.score))
        capacity = search.best.capacity
        found = search.solution or self.model.capacities(capacity, self.gamma)
        certificate, relative = certify(self.model, capacity, found, gain)
        status, message = self._judge(certificate, relative, found, stopped)
        finished = [start if start.status is not Status.CONVERGED else start._replace(status=status) for start in done]
        compiled = self._compiled()
        return Design(
            network=self.model.network,
            capacity=capacity,
            follower=assignment(self.model, found.follower, capacity, self.model.graph.alternative),
            penalised=assignment(
                self.model,
                found.penalised,
                capacity,
                self.model.graph.alternative + self.model.graph.revenue / self.gamma,
            ),
            gamma=self.gamma,
            status=status,
            message=message,
            certificate=certificate,
            history=History(rows),
            what_if=tuple(search.what_if),
            starts=tuple(finished),
            seconds={"compile": compiled, "run": self.monitor.elapsed() - compiled},
            settings=self.settings,
            versions=versions(),
        )

    def _allowed(self, utility: float) -> float:
        return float(self.settings["tolerance"]) * (1.0 + abs(utility))

    def _judge(
        self, certificate: Certificate, relative: float, found: Penalty, stopped: StopReason | None
    ) -> tuple[Status, str]:
        allowed = self._allowed(float(found.utility))
        if stopped is not None:
            return _STOPPED[stopped], "Stopped early; this is the best design so far."
        if relative > 1e-6:
            return Status.STALLED, f"The lower level is solved only to {relative:.1e} (relative); 1e-6 is wanted."
        if certificate.stationarity_x > allowed:
            return Status.STALLED, (
                f"The capacities are not stationary: a few steps lower F_gamma by {certificate.stationarity_x:.2g}, "
                f"wanted {allowed:.2g}."
            )
        if self.settings["gamma"] == "auto" and certificate.penalty_gap > allowed:
            return Status.STALLED, f"The penalty still hides {certificate.penalty_gap:.2g}, wanted {allowed:.2g}."
        return Status.CONVERGED, "The capacities are stationary for F_gamma, and the flows are the travellers' own."


def _checked(
    network: Any, gamma: float | str, starts: int, method: str, preset: str, tolerance: float, x0: Any
) -> float:
    """Reject impossible options; returns gamma as a number."""
    if not isinstance(network, TransportNetwork):
        raise OptionError(f"network must be a TransportNetwork, got {type(network).__name__}")
    if preset not in ("default", "paper"):
        raise OptionError(f"preset must be 'default' or 'paper', got {preset!r}")
    if method not in METHODS:
        raise OptionError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if isinstance(starts, bool) or not isinstance(starts, (int, np.integer)) or starts < 1:
        raise OptionError(f"starts must be an integer of at least 1, got {starts!r}")
    if not (isinstance(tolerance, (int, float)) and 0 < tolerance < 1):
        raise OptionError(f"tolerance must be a number between 0 and 1, got {tolerance!r}")
    if x0 is not None:
        try:
            point = np.asarray(x0, dtype=float)
        except (TypeError, ValueError):
            point = np.empty(0)
        if point.shape != (network.n_links,) or not np.isfinite(point).all() or (point < 0).any():
            raise OptionError(f"x0 must hold one finite capacity >= 0 for each of the {network.n_links} links")
    if gamma == "auto":
        return AUTO_GAMMA
    if not _is_positive(gamma):
        raise OptionError(f"gamma must be 'auto' or a positive number, got {gamma!r}")
    return float(gamma)


def _check_limits_of_the_run(seed: Any, time_limit: Any, max_iterations: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise OptionError(f"seed must be a whole number, got {seed!r}")
    if time_limit is not None and not _is_positive(time_limit):
        raise OptionError(f"time_limit must be a positive number of seconds, got {time_limit!r}")
    if max_iterations is not None and not (isinstance(max_iterations, (int, np.integer)) and max_iterations >= 1):
        raise OptionError(f"max_iterations must be an integer of at least 1, got {max_iterations!r}")


def _is_positive(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return bool(np.isfinite(value) and value > 0)
