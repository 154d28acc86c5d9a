"""The front doors of road design: which links to widen, and what to charge on some of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.errors import OptionError
from blocc.roads.assign import assign, check_network, road_assignment
from blocc.roads.expansion import Expansion
from blocc.roads.leader import Budget, Question
from blocc.roads.network import RoadNetwork
from blocc.roads.road_design import RoadDesign
from blocc.roads.search import Search, Step, judged, search
from blocc.roads.tolls import Tolling
from blocc.run.conclude import versions


def expand_network(
    network: RoadNetwork,
    *,
    candidates: Any = None,
    cost: Any = 1.0,
    exponent: Any = 1.0,
    max_expansion: Any = None,
    budget: float | None = None,
    starts: int = 3,
    seed: int = 0,
    tolerance: float = 1e-6,
    time_limit: float | None = None,
    report: Callable[[Step], None] | None = None,
) -> RoadDesign:
    """Choose how much to widen each candidate link so that travel time and construction together are least.

    The leader minimises ``total travel time + sum cost x^exponent``, drivers answer with a user equilibrium. The answer
    carries a bound that no expansion can beat.

    :param candidates: links that may be widened, by their ``link_ids``, or True and False for every link; None: all
    :param cost: coefficient of each candidate's cost, or one for all
    :param exponent: 1 for costs in proportion, 2 for quadratic ones; at least 1
    :param max_expansion: the most that may be added to each, or one for all; None: no more than could ever pay
    :param budget: the most that all construction may cost
    :param starts: the first begins with nothing, the others at random
    :param tolerance: relative to the objective, what decisions around the answer may still gain
    :param time_limit: seconds, after which the best answer so far comes back
    :param report: called with every evaluation
    """
    check_network(network)
    chosen = _candidates(network, candidates)
    figures = {name: _figures(name, value, len(chosen)) for name, value in (("cost", cost), ("exponent", exponent))}
    if (figures["exponent"] < 1.0).any():
        raise OptionError("exponent must be at least 1: construction that gets cheaper with size has no proven bound")
    _check(budget=budget, tolerance=tolerance, time_limit=time_limit, starts=starts, seed=seed)
    if (network.b[chosen] <= 0.0).any():
        link = network.link_ids[int(chosen[np.argmax(network.b[chosen] <= 0.0)])]
        raise OptionError(f"candidates: link {link!r} has b = 0, so that more capacity saves no time")
    began = time.perf_counter()
    before = assign(network)
    upper = _most(network, before.total_travel_time, chosen, figures, max_expansion)
    question = Expansion(network, chosen, np.zeros(len(chosen)), upper, **figures)
    limit = None if budget is None else Budget(question.own, float(budget))
    found = search(
        question,
        _starts(question, starts, seed),
        budget=limit,
        is_convex=True,
        time_limit=time_limit,
        tolerance=tolerance,
        report=report,
    )
    assert found.best is not None
    x = found.best.x
    added = np.zeros(network.n_links)
    added[chosen] = x
    after = road_assignment(
        network, found.best.answer, question.follower_costs(x), network.capacity + added, network.toll
    )
    worth = np.full(network.n_links, np.nan)
    worth[chosen] = question.own(x)[1] - found.best.slope
    decided = {"expansion": added, "toll": network.toll, "marginal_value": worth, "cost": question.own(x)[0]}
    settings = {"starts": starts, "seed": seed, "tolerance": tolerance, "budget": budget}
    return _design(network, "expansion", found, tolerance, before, after, decided, settings, began)


def second_best_tolls(
    network: RoadNetwork,
    *,
    candidates: Any = None,
    max_toll: Any = None,
    starts: int = 2,
    seed: int = 0,
    tolerance: float = 1e-6,
    time_limit: float | None = None,
    report: Callable[[Step], None] | None = None,
) -> RoadDesign:
    """Choose tolls on some links so that drivers, who pay them on top of their time, lose least time in all.

    Tolls are transfers: only time counts. The bound is the system optimum, which tolls on all links reach.

    :param candidates: links that may be tolled, by their ``link_ids``, or True and False for every link; None: all
    :param max_toll: the most that each may charge, in units of time; None: three times the largest marginal cost toll
    :param starts: the first begins at the tolls that would be right if all links were tolled, then none, then random
    """
    check_network(network)
    chosen = _candidates(network, candidates)
    _check(tolerance=tolerance, time_limit=time_limit, starts=starts, seed=seed)
    began = time.perf_counter()
    before, optimum = assign(network), assign(network, principle="system optimum")
    right = network.bpr(factor=1.0 + network.power).at(optimum.flow) - network.travel_times(optimum.flow)
    upper = np.full(len(chosen), 3.0 * float(right.max()) + 1e-12) if max_toll is None else None
    upper = _figures("max_toll", max_toll, len(chosen)) if upper is None else upper
    question = Tolling(network, chosen, np.zeros(len(chosen)), upper)
    first = [np.minimum(right[chosen], upper), *_starts(question, starts, seed)][:starts]
    found = search(
        question, first, budget=None, is_convex=False, time_limit=time_limit, tolerance=tolerance, report=report
    )
    found.bound = optimum.total_travel_time * (1.0 - optimum.relative_gap)
    assert found.best is not None
    x = found.best.x
    after = road_assignment(network, found.best.answer, question.follower_costs(x), network.capacity, question.toll(x))
    worth = np.full(network.n_links, np.nan)
    worth[chosen] = -found.best.slope
    decided = {
        "expansion": np.zeros(network.n_links),
        "toll": question.toll(x),
        "marginal_value": worth,
        "cost": 0.0,
    }
    settings = {"starts": starts, "seed": seed, "tolerance": tolerance}
    return _design(network, "tolls", found, tolerance, before, after, decided, settings, began)


def _design(
    network: RoadNetwork,
    kind: str,
    found: Search,
    tolerance: float,
    before: Any,
    after: Any,
    decided: dict[str, Any],
    settings: dict[str, Any],
    began: float,
) -> RoadDesign:
    assert found.best is not None
    status, message = judged(found, tolerance)
    bound = float(found.bound) if np.isfinite(found.bound) else None
    objective = found.best.value
    return RoadDesign(
        network=network,
        kind=kind,
        objective=objective,
        bound=bound,
        gap=None if bound is None else max(0.0, objective - bound) / max(abs(objective), 1e-300),
        before=before,
        after=after,
        status=status,
        message=message,
        stationarity=found.improvement,
        starts=tuple(found.starts),
        history=tuple(found.steps),
        evaluations=found.evaluations,
        seconds=time.perf_counter() - began,
        settings=settings,
        versions=versions(),
        **decided,
    )


# --- arguments -----------------------------------------------------------------------------------------------------
def _candidates(network: RoadNetwork, given: Any) -> Int[NDArray, "n"]:
    """Positions of the links that may change."""
    if given is None:
        return np.arange(network.n_links)
    try:
        items = list(given)
    except TypeError:
        raise OptionError(f"candidates must be a list of link ids, got {given!r}") from None
    if len(items) == network.n_links and all(isinstance(item, (bool, np.bool_)) for item in items):
        chosen = np.flatnonzero(np.asarray(items))
    else:
        place = {key: position for position, key in enumerate(network.link_ids)}
        unknown = [item for item in items if item not in place]
        if unknown:
            raise OptionError(f"candidates: there is no link {unknown[0]!r}; link_ids of the network name its links")
        chosen = np.array([place[item] for item in items], dtype=np.int64)
    if not len(chosen) or len(set(chosen.tolist())) < len(chosen):
        raise OptionError("candidates must name at least one link, and none twice")
    return chosen


def _figures(name: str, value: Any, count: int) -> Float[NDArray, "n"]:
    try:
        spread = np.broadcast_to(np.asarray(value, dtype=float), (count,)).astype(float)
    except (TypeError, ValueError):
        spread = np.full(1, np.nan)
    if not np.isfinite(spread).all() or (spread < 0.0).any():
        raise OptionError(f"{name} must be a number or one for each of the {count} candidates, finite and >= 0")
    return spread


def _most(
    network: RoadNetwork,
    total: float,
    chosen: Int[NDArray, "n"],
    figures: dict[str, Float[NDArray, "n"]],
    given: Any,
) -> Float[NDArray, "n"]:
    """The most that each candidate may get: given, or so much that it would cost all the time there is to save."""
    if given is not None:
        return _figures("max_expansion", given, len(chosen))
    if (figures["cost"] <= 0.0).any():
        link = network.link_ids[int(chosen[np.argmax(figures["cost"] <= 0.0)])]
        raise OptionError(f"link {link!r} costs nothing: give max_expansion, or nothing would limit it")
    return (total / figures["cost"]) ** (1.0 / figures["exponent"])


def _starts(question: Question, count: int, seed: int) -> list[Float[NDArray, "n"]]:
    """Nothing at first, then random decisions, more of them small than large: limits may be far away."""
    random, width = np.random.default_rng(seed), question.upper - question.lower
    return [question.lower] + [question.lower + width * random.random(len(width)) ** 3 for _ in range(count - 1)]


def _check(**given: Any) -> None:
    for name, value in given.items():
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if name in ("starts", "seed"):
            least = 1 if name == "starts" else 0
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise OptionError(f"{name} must be an integer of at least {least}, got {value!r}")
        elif not (value is None and name != "tolerance") and not (is_number and 0 < value < np.inf):
            raise OptionError(f"{name} must be a positive number, got {value!r}")
