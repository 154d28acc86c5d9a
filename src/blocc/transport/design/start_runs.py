"""Starts of one design on an executor: each is followed to its end elsewhere, and comes back as plain data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from blocc._lib.version import __version__
from blocc.executors.work import Call, ExecutorError, Outcome, explain, worker_name
from blocc.outer.monitor import Monitor, StopReason
from blocc.result import HistoryRow
from blocc.transport.design.forecast import check_memory
from blocc.transport.design.model import DesignModel
from blocc.transport.design.options import DesignOptions
from blocc.transport.design.scenario import network_digest
from blocc.transport.design.search_state import SearchState
from blocc.transport.network.network import TransportNetwork


class FollowedStart(NamedTuple):
    """Where a start ended."""

    state: SearchState
    rows: list[HistoryRow]
    reason: StopReason | None  #: why it was stopped, if it was

    def portable(self) -> FollowedStart:
        """The same in NumPy's arrays: JAX's would lose precision where they are received."""
        plain = {name: jax.tree.map(_as_numpy, value) for name, value in vars(self.state).items()}
        return self._replace(state=SearchState(**plain))


#: Follows one start with a model that was made ready; the time limit is in the options.
Follow = Callable[[DesignModel, DesignOptions, int], FollowedStart]


class StartRuns:
    """The starts of a design as work for an executor."""

    name = "start"

    def __init__(self, follow: Follow, network: TransportNetwork, options: DesignOptions, monitor: Monitor) -> None:
        self._follow, self._network, self._options, self._monitor = follow, network, options, monitor

    def check(self) -> Call:
        """Workers must have this package."""
        return check_version, __version__

    def call(self, index: int) -> Call | None:
        """One start, unless the time is over."""
        limit = self._monitor.time_limit
        left = None if limit is None else limit - self._monitor.elapsed()
        if left is not None and left <= 0.0:
            return None
        return follow_start, self._follow, self._network, replace(self._options, time_limit=left), index


def check_version(version: str) -> None:
    """On a worker: refuse another version."""
    if version != __version__:
        raise ExecutorError(f"the designs are of blocc {version}, but {worker_name()} has blocc {__version__}")


#: What was compiled last here, by the engine.
_compiled: dict[str, DesignModel] = {}


def model_here(network: TransportNetwork, options: DesignOptions) -> DesignModel:
    """The network made ready, once for all work on it that comes in a row; refused where it would not fit."""
    engine = "dense" if options.method == "pgd" else options.engine
    known = _compiled.get(engine)
    if known is None or network_digest(known.network) != network_digest(network):
        check_memory(network, engine)
        known = DesignModel(network, options.engine)
        _compiled.clear()
        _compiled[engine] = known
    return known


def follow_start(follow: Follow, network: TransportNetwork, options: DesignOptions, index: int) -> Outcome:
    """One start, where it is computed; or why it could not be followed."""
    begun = time.perf_counter()
    value: FollowedStart | None = None
    failure: str | None = None
    try:
        value = follow(model_here(network, options), options, index).portable()
    except Exception as error:
        failure = explain(error)
    return Outcome(index, value, failure, time.perf_counter() - begun, worker_name())


def _as_numpy(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf
