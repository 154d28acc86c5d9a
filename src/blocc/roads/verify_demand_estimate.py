"""Is an estimate of trips true? Its distances are recomputed from prior, counts and trips alone, and compared.

Both equilibria are judged by ``verify_drivers``. Nothing bounds what other trips could reach, so no claim of that kind
is checked, nor made: exact values around the estimate show whether it can be improved nearby.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blocc._lib.rounding import EXACT
from blocc.errors import OptionError
from blocc.judge.verification import Verification
from blocc.kit.arguments import check_positive, one_each
from blocc.roads.assign import check_network
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.estimate_demand import counts_of
from blocc.roads.estimation import LEAST_COUNT, LEAST_FACTOR, estimation
from blocc.roads.leader import Leader
from blocc.roads.network import RoadNetwork
from blocc.roads.verify_drivers import SAME, RoadClaims

#: What trips around the answer may gain, relative to 1 + |objective|, whatever the estimate was made with.
TOLERANCE = 1e-5


def verify_demand_estimate(
    network: RoadNetwork, estimate: DemandEstimate, tolerance: float = TOLERANCE
) -> Verification:
    """Recompute what ``estimate`` claims about ``network``, which has the prior trips, and say which claims hold.

    :param tolerance: what trips around the answer may gain, relative to 1 + |objective|; never the estimate's own
    """
    check_network(network)
    if not isinstance(estimate, DemandEstimate):
        raise OptionError(f"estimate must be a DemandEstimate (see DemandEstimate.load), got {type(estimate).__name__}")
    check_positive("tolerance", tolerance)
    return _Verifier(network, estimate, float(tolerance)).run()


class _Verifier(RoadClaims):
    """Collects the checks of one estimate."""

    def __init__(self, network: RoadNetwork, estimate: DemandEstimate, tolerance: float) -> None:
        super().__init__(network.name, tolerance, estimate.success)
        self.network, self.estimate = network, estimate

    def run(self) -> Verification:
        network, estimate = self.network, self.estimate
        if self.fits(network, estimate.network) and self._admissible():
            self.equilibrium("prior", network, network.capacity, network.toll, estimate.before)
            estimated = replace(network, demand=estimate.demand)
            total = self.equilibrium("estimate", estimated, network.capacity, network.toll, estimate.after)
            if total is not None:
                self._distances()
                leader = Leader(self.question)
                self.gain_left(leader, leader.exact(self.x), None, estimate.stationarity)
            self.add("bound", "none", "none", True, "no bound is known for estimates")
        return self.concluded()

    def _admissible(self) -> bool:
        """Prior, counts and weights as the estimate names them, and trips within the limits."""
        estimate, settings, network = self.estimate, self.estimate.settings, self.network
        off = float(np.max(np.abs(estimate.prior.demand - network.demand) / network.demand))
        self.near("prior trips", "of the network", off, SAME)
        try:
            names = [network.link_ids[link] for link in estimate.counted.tolist()]
            counted, count = counts_of(network, dict(zip(names, estimate.count.tolist(), strict=True)))
            self.of_prior = one_each(
                "prior_weight", settings["prior_weight"], network.n_pairs, "pairs", above_zero=True
            )
            self.of_counts = one_each("count_weight", settings["count_weight"], len(count), "counts", above_zero=True)
            most = float(settings["max_factor"])
        except (KeyError, IndexError, TypeError, ValueError, OptionError) as error:
            self.add("limits", "possible", str(error), False)
            return False
        self.x = estimate.demand / network.demand
        kept = bool((self.x >= LEAST_FACTOR * (1.0 - EXACT)).all() and (self.x <= most * (1.0 + EXACT)).all())
        self.holds("limits", "kept", kept, "not kept", "kept")
        self.question = estimation(network, counted, count, self.of_prior, self.of_counts, most)
        return kept and off <= SAME

    def _distances(self) -> None:
        """The objective, written out with the volumes that are claimed."""
        estimate, network = self.estimate, self.network
        from_prior = float(np.sum(self.of_prior * (estimate.demand - network.demand) ** 2 / network.demand))
        least = LEAST_COUNT * (float(estimate.count.max()) or 1.0)
        misses = (estimate.after.flow[estimate.counted] - estimate.count) ** 2
        from_counts = float(np.sum(self.of_counts * misses / np.maximum(estimate.count, least)))
        size = 1.0 + from_prior + from_counts
        self.agree("distance from the prior", estimate.prior_distance, from_prior, size)
        self.agree("distance from the counts", estimate.count_distance, from_counts, size)
        self.agree("objective", estimate.objective, from_prior + from_counts, size)
