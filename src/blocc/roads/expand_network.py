"""The front doors of road design: which links to widen, and what to charge on some of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.compiled import clock
from blocc._lib.files import plain
from blocc._lib.rounding import TINY
from blocc._lib.signals import Shield, listening
from blocc._lib.threads import single_blas_thread
from blocc.errors import OptionError
from blocc.kit.arguments import check_positive, one_each, options_from
from blocc.outer.monitor import stoppable
from blocc.roads.assign import RoadAssignment, assign, check_network, road_assignment
from blocc.roads.descents import Budget
from blocc.roads.expansion import Expansion, affordable
from blocc.roads.network import RoadNetwork
from blocc.roads.question import Question
from blocc.roads.road_design import RoadDesign
from blocc.roads.road_options import RoadOptions, chosen_links, searched
from blocc.roads.rounding import size_lists, size_table
from blocc.roads.search import Search, judged
from blocc.roads.tolls import Tolling
from blocc.run.conclude import versions


@stoppable
def expand_network(
    network: RoadNetwork,
    *,
    candidates: Any = None,
    cost: Any = 1.0,
    exponent: Any = 1.0,
    max_expansion: Any = None,
    budget: float | None = None,
    sizes: Any = None,
    **options: Any,
) -> RoadDesign:
    """Choose how much to widen each candidate link so that travel time and construction together are least.

    The leader minimises ``total travel time + sum cost x^exponent``, drivers answer with a user equilibrium. The answer
    carries a bound that no expansion can beat. ``options`` are the fields of
    :class:`~blocc.roads.road_options.RoadOptions`: how many ``starts`` are tried, with which ``seed``, ``tolerance``,
    ``time_limit``, ``report``, and the files of ``checkpoint`` and ``resume``. After a time limit, Ctrl-C or SIGTERM
    the best expansion so far is assigned exactly once more and returned.

    :param candidates: links that may be widened, by their ``link_ids``, or True and False for every link; None: all
        whose time grows with the volume
    :param cost: coefficient of each candidate's cost, or one for all
    :param exponent: 1 for costs in proportion, 2 for quadratic ones; at least 1
    :param max_expansion: the most that may be added to each, or one for all; None: no more than could ever pay
    :param budget: the most that all construction may cost; 0 leaves all links that cost something as they are
    :param sizes: what can be built on a link: a list, or a number whose multiples are meant (a lane); or a mapping from
        every candidate to either. Nothing is always possible. None: any capacity. The answer is then the best among the
        neighbours of the one without sizes, and the same bound holds
    """
    began = clock()
    check_network(network)
    told = options_from(RoadOptions, options)
    chosen, figures = expansion_figures(network, candidates, cost, exponent)
    check_positive("budget", budget, optional=True, or_zero=True)
    lists = None if sizes is None else size_lists(sizes, _names(network, chosen))
    with single_blas_thread():
        with listening(Shield()):  # whatever the time limit: what may be decided depends on it
            before = assign(network)
        upper, table = expansion_limits(
            network, before.total_travel_time, chosen, figures, max_expansion, lists, budget
        )
        question = Expansion(network, chosen, np.zeros(len(chosen)), upper, **figures, sizes=table)
        limit = Budget(question.own, float(budget)) if budget else None
        found, remark = searched(
            question, _starts(question, told), limit, told, is_convex=True, known=before.paths, began=began
        )
    assert found.best is not None
    x = found.best.x
    added = _by_link(network, chosen, x, 0.0)
    after = road_assignment(
        network, found.best.answer, question.follower_costs(x), network.capacity + added, network.toll
    )
    decided = {
        "kind": "expansion",
        "expansion": added,
        "toll": network.toll,
        "marginal_value": _by_link(network, chosen, question.own(x)[1] - found.best.slope, np.nan),
        "cost": question.own(x)[0],
        "bound_expansion": None if found.bound_at is None else _by_link(network, chosen, found.bound_at, 0.0),
    }
    settings = {
        "candidates": _names(network, chosen),
        **figures,
        "max_expansion": upper,
        "budget": budget,
        "sizes": lists,
    }
    design = _design(question, found, told, before, after, decided, settings)
    return design.finished(remark, clock() - began)


@stoppable
def second_best_tolls(
    network: RoadNetwork, *, candidates: Any = None, max_toll: Any = None, **options: Any
) -> RoadDesign:
    """Choose tolls on some links so that drivers, who pay them on top of their time, lose least time in all.

    Tolls are transfers: only time counts. Tolls that the network has stay, and what is chosen comes on top of them: the
    ``toll`` of the answer is the sum, which drivers pay. The bound is the system optimum. Tolls on all links reach it
    where the network has none of its own; otherwise its own may be too high already, and the gap says what is left.
    ``options`` are those of :func:`expand_network`; the first of the ``starts`` is at what the network's own tolls lack
    of those that would be right if all links were tolled, the next at none, the others are random.

    :param candidates: links that may be tolled, by their ``link_ids``, or True and False for every link; None: all
    :param max_toll: the most that may be added to each link's own toll, in units of time; None: three times the largest
        marginal cost toll
    """
    began = clock()
    check_network(network)
    told = options_from(RoadOptions, {"starts": 2} | options)
    chosen = np.arange(network.n_links) if candidates is None else chosen_links(network, candidates)
    most = None if max_toll is None else one_each("max_toll", max_toll, len(chosen), "candidates")
    with single_blas_thread():
        with listening(Shield()):
            before, optimum = assign(network), assign(network, principle="system optimum")
        right = network.bpr(factor=1.0 + network.power).at(optimum.flow) - network.travel_times(optimum.flow)
        upper = np.full(len(chosen), 3.0 * float(right.max()) + 1e-12) if most is None else most
        question = Tolling(network, chosen, np.zeros(len(chosen)), upper)
        first = [np.clip((right - network.toll)[chosen], 0.0, upper), *_starts(question, told)][: told.starts]
        found, remark = searched(question, first, None, told, is_convex=False, known=before.paths, began=began)
    found.bound = optimum.total_travel_time - optimum.certificate.average_excess_cost * float(network.demand.sum())
    assert found.best is not None
    x = found.best.x
    after = road_assignment(network, found.best.answer, question.follower_costs(x), network.capacity, question.toll(x))
    decided = {
        "kind": "tolls",
        "expansion": np.zeros(network.n_links),
        "toll": question.toll(x),
        "marginal_value": _by_link(network, chosen, -found.best.slope, np.nan),
        "cost": 0.0,
        "bound_expansion": None,
    }
    design = _design(
        question, found, told, before, after, decided, {"candidates": _names(network, chosen), "max_toll": upper}
    )
    return design.finished(remark, clock() - began)


def _design(
    question: Question,
    found: Search,
    told: RoadOptions,
    before: RoadAssignment,
    after: RoadAssignment,
    decided: dict[str, Any],
    settings: dict[str, Any],
) -> RoadDesign:
    assert found.best is not None
    status, message = judged(found, question, told.tolerance)
    bound = float(found.bound) if np.isfinite(found.bound) else None
    objective = found.best.value
    return RoadDesign(
        network=question.network,
        objective=objective,
        bound=bound,
        gap=None if bound is None else max(0.0, objective - bound) / max(abs(objective), TINY),
        before=before,
        after=after,
        status=status,
        message=message,
        stationarity=found.improvement,
        starts=tuple(found.starts),
        history=tuple(found.steps),
        evaluations=found.evaluations,
        seconds=0.0,
        settings=plain(settings | told.settings),
        versions=versions(),
        **decided,
    )


# --- by link -------------------------------------------------------------------------------------------------------
def _names(network: RoadNetwork, chosen: Int[NDArray, "n"]) -> list[Any]:
    return [network.link_ids[link] for link in chosen.tolist()]


def _by_link(
    network: RoadNetwork, chosen: Int[NDArray, "n"], values: Float[NDArray, "n"], elsewhere: float
) -> Float[NDArray, "links"]:
    spread = np.full(network.n_links, elsewhere)
    spread[chosen] = values
    return spread


def expansion_figures(
    network: RoadNetwork, candidates: Any, cost: Any, exponent: Any
) -> tuple[Int[NDArray, "n"], dict[str, Float[NDArray, "n"]]]:
    """The links that may be widened, and what that costs."""
    chosen = np.flatnonzero(network.b > 0.0) if candidates is None else chosen_links(network, candidates)
    figures = {
        name: one_each(name, value, len(chosen), "candidates")
        for name, value in (("cost", cost), ("exponent", exponent))
    }
    if (figures["exponent"] < 1.0).any():
        raise OptionError("exponent must be at least 1: construction that gets cheaper with size has no proven bound")
    if (network.b[chosen] <= 0.0).any():
        link = network.link_ids[int(chosen[np.argmax(network.b[chosen] <= 0.0)])]
        raise OptionError(f"candidates: link {link!r} has b = 0, so that more capacity saves no time")
    return chosen, figures


def expansion_limits(
    network: RoadNetwork,
    total: float,
    chosen: Int[NDArray, "n"],
    figures: dict[str, Float[NDArray, "n"]],
    given: Any,
    lists: list[float | Float[NDArray, "sizes"]] | None,
    budget: float | None,
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n sizes"] | None]:
    """The most that each candidate may get, and the sizes that it may get."""
    paid = affordable(**figures, budget=budget)
    if lists is None:
        return np.minimum(_most(network, total, chosen, figures, given), paid), None
    most = np.array([np.nan if isinstance(sizes, float) else float(sizes[-1]) for sizes in lists])
    if given is not None or np.isnan(most).any():
        most = np.fmin(most, _most(network, total, chosen, figures, given))
    table = size_table(lists, np.minimum(most, paid))
    return np.where(np.isfinite(table), table, 0.0).max(axis=1), table


def _most(
    network: RoadNetwork,
    total: float,
    chosen: Int[NDArray, "n"],
    figures: dict[str, Float[NDArray, "n"]],
    given: Any,
) -> Float[NDArray, "n"]:
    """The most that each candidate may get: given, or so much that it would cost all the time there is to save."""
    if given is not None:
        return one_each("max_expansion", given, len(chosen), "candidates")
    if (figures["cost"] <= 0.0).any():
        link = network.link_ids[int(chosen[np.argmax(figures["cost"] <= 0.0)])]
        raise OptionError(f"link {link!r} costs nothing: give max_expansion, or nothing would limit it")
    return (total / figures["cost"]) ** (1.0 / figures["exponent"])


def _starts(question: Question, told: RoadOptions) -> list[Float[NDArray, "n"]]:
    """Nothing, all that is allowed, then random decisions, more of them small than large: limits may be far away."""
    random, width = np.random.default_rng(told.seed), question.upper - question.lower
    further = [question.lower + width * random.random(len(width)) ** 3 for _ in range(told.starts - 2)]
    return [question.lower, question.upper, *further][: told.starts]
