"""The front door of demand estimation: trips near a prior whose equilibrium reproduces counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.compiled import clock
from blocc._lib.files import plain, shown
from blocc._lib.rounding import EXACT
from blocc._lib.signals import Shield, listening
from blocc._lib.threads import single_blas_thread
from blocc.errors import OptionError
from blocc.kit.arguments import one_each, options_from
from blocc.networks.checked_rows import LARGEST, finite, identifier
from blocc.outer.monitor import stoppable
from blocc.roads.assign import RoadAssignment, assign, check_network, road_assignment
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.estimation import Estimation, estimation
from blocc.roads.network import RoadNetwork
from blocc.roads.road_options import RoadOptions, searched
from blocc.roads.search import Search, judged
from blocc.run.conclude import versions


@stoppable
def estimate_demand(
    network: RoadNetwork,
    counts: Mapping[Any, float],
    *,
    prior_weight: Any = 1.0,
    count_weight: Any = 1.0,
    max_factor: float = 10.0,
    **options: Any,
) -> DemandEstimate:
    """Estimate the trips of every pair from counted volumes.

    The leader minimises ``sum prior_weight (trips - prior)^2 / prior + sum count_weight (volume - count)^2 / count``,
    drivers answer with a user equilibrium. A count below one hundredth of the largest is divided by that
    hundredth: nobody counts nothing exactly. With both weights 1, trips and counts vary like numbers of independent
    drivers do; a prior that is off by a share r of its trips, with counts off by a share s, has the weights
    ``1 / (r^2 prior)`` and ``1 / (s^2 count)``. ``options`` are the fields of
    :class:`~blocc.roads.road_options.RoadOptions`, as for :func:`~blocc.roads.expand_network`. The first two
    of the ``starts`` are at the prior, with gamma from its least on and with large gammas alone, which may lead to
    different answers; further ones are random. Two are made unless told otherwise.

    :param network: roads with the prior trips; pairs without any stay without
    :param counts: the volume of each counted link, by its ``link_ids``
    :param prior_weight: a number above 0, or one for each pair; small: the counts decide
    :param count_weight: a number above 0, or one for each count in their order
    :param max_factor: trips of a pair are at most this multiple of the prior ones
    """
    began = clock()
    check_network(network)
    told = options_from(RoadOptions, {"starts": 2} | options)
    counted, count = counts_of(network, counts)
    of_prior = one_each("prior_weight", prior_weight, network.n_pairs, "pairs", above_zero=True)
    of_counts = one_each("count_weight", count_weight, len(count), "counts", above_zero=True)
    if (finite(max_factor) or 0.0) <= 1.0:
        raise OptionError(f"max_factor must be a number above 1, got {shown(max_factor)}")
    question = estimation(network, counted, count, of_prior, of_counts, float(max_factor))
    random = np.random.default_rng(told.seed)
    starts = [np.exp(0.3 * (n > 1) * random.normal(size=network.n_pairs)) for n in range(told.starts)]
    with single_blas_thread():
        with listening(Shield()):
            before = assign(network)
        found, remark = searched(question, starts, None, told, is_convex=False, known=before.paths, began=began)
    settings = {"prior_weight": of_prior, "count_weight": of_counts, "max_factor": float(max_factor), **told.settings}
    return _estimate(question, found, before, remark, clock() - began, settings)


def _estimate(
    question: Estimation,
    found: Search,
    before: RoadAssignment,
    remark: str,
    seconds: float,
    settings: dict[str, Any],
) -> DemandEstimate:
    assert found.best is not None
    network, x, answer = question.network, found.best.x, found.best.answer
    status, message = judged(found, question, settings["tolerance"])
    estimated = replace(network, demand=network.demand * x)
    after = road_assignment(estimated, answer, question.follower_costs(x), network.capacity, network.toll)
    notes = _sentences(question, x, after)
    estimated = replace(estimated, assumptions=(*network.assumptions, *notes))
    from_prior = float(question.prior_weight @ (network.demand * (x - 1.0) ** 2))
    from_counts = float(question.count_weight @ (answer.volume[question.counted] - question.count) ** 2)
    return DemandEstimate(
        network=estimated,
        prior=network,
        counted=question.counted,
        count=question.count,
        objective=from_prior + from_counts,
        prior_distance=from_prior,
        count_distance=from_counts,
        before=before,
        after=replace(after, network=estimated),
        status=status,
        message=message + remark,
        stationarity=found.improvement,
        history=tuple(found.steps),
        evaluations=found.evaluations,
        seconds=seconds,
        settings=plain(settings),
        versions=versions(),
    )


def _sentences(question: Estimation, x: Float[NDArray, "pairs"], after: RoadAssignment) -> list[str]:
    """What the estimate takes for granted, and where its limits hold it back."""
    names = question.network.link_ids
    lines = [
        f"Trips were estimated from {len(question.count)} counts; pairs without prior trips stay without. Counts are "
        "volumes of the period that trips and capacities are of."
    ]
    for bound, at in (("least", x <= question.lower * (1.0 + EXACT)), ("most", x >= question.upper * (1.0 - EXACT))):
        if at.any():
            factor = (question.lower if bound == "least" else question.upper)[0]
            lines.append(f"{int(at.sum())} pairs have the {bound} that is allowed: {factor:g} times their prior trips.")
    missed = (after.flow[question.counted] <= 0.0) & (question.count > 0.0)
    lines += [f"Link {names[a]!r} was counted, but no pair drives there." for a in question.counted[missed]]
    return lines


# --- arguments -----------------------------------------------------------------------------------------------------
def counts_of(network: RoadNetwork, given: Any) -> tuple[Int[NDArray, "counts"], Float[NDArray, "counts"]]:
    """Positions and volumes of counted links, checked."""
    if not isinstance(given, Mapping) or not given:
        raise OptionError(f"counts must be a mapping from link ids to volumes, with at least one, got {shown(given)}")
    place = {key: position for position, key in enumerate(network.link_ids)}
    links, volumes = [], []
    for key, value in given.items():
        known = identifier(key)
        if known is None or known not in place:
            raise OptionError(f"counts: there is no link {shown(key)}; link_ids of the network name its links")
        volume = finite(value)
        if volume is None or not 0.0 <= volume <= LARGEST:
            raise OptionError(f"counts: link {shown(key)} must have a volume from 0 to {LARGEST:g}, got {shown(value)}")
        links.append(place[known])
        volumes.append(volume)
    if len(set(links)) < len(links):
        raise OptionError("counts must name no link twice")
    return np.array(links, dtype=np.int64), np.array(volumes)
