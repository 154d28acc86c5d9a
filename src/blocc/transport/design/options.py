"""Everything that can be set by hand in a design, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from blocc.errors import OptionError
from blocc.kit.arguments import check_positive, check_whole, options_from
from blocc.presets import PUBLISHED, Published, check_preset
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.forecast import ENGINES
from blocc.transport.network.network import TransportNetwork

#: gamma where the user leaves it open: the penalty then hides about 1e-4 of the utility, of fares up to this mean.
AUTO_GAMMA, USUAL_REVENUE = 1e4, 10.0
METHODS = ("prices", "pgd")
#: The step of the paper's text, and how many of them where nothing else is said.
PAPER_STEP, PAPER_ITERATIONS = 1.6e-4, 20_000
#: Algorithm 1 with the numbers of the paper's text (gamma 2, 3 and 4 there: the last has the highest utilities; ten
#: starts), and with those of each published program; the structured oracle stands in for their inner loops.
PRESETS: dict[str, Published | None] = {
    "default": None,
    "paper": replace(PUBLISHED["nine"], step=PAPER_STEP, iterations=PAPER_ITERATIONS),
    **{name: PUBLISHED[name] for name in ("three", "nine", "seville")},
}


@dataclass(frozen=True)
class DesignOptions:
    """Options of :func:`~blocc.transport.design.design_network.design_network`."""

    gamma: float | str = "auto"  #: the penalty; "auto": one so large that it hides about 1e-4 of the utility
    starts: int | None = None  #: random starts, of which the best is kept; None: 5, or 1 with the paper's settings
    seed: int = 0  #: of the starts
    budget: float | None = None  #: the most that construction may cost
    symmetric: bool = False  #: same capacity in both directions of a link
    max_capacity: Any = None  #: the most a link may have: a number, or one for each link; 0 forbids a link
    min_capacity: Any = None  #: the least a link must have, likewise; more than 0 forces a link
    existing_capacity: Any = None  #: what a link has today, likewise: it stays, and costs nothing
    method: str = "prices"  #: or "pgd": Algorithm 1 as published
    #: "dense": on links, "paths": on paths, for large networks, "mixed": on paths, with an accelerator; "auto": by size
    engine: str = "auto"
    preset: str = "default"  #: or "paper", "three", "nine", "seville": Algorithm 1 with published numbers
    #: What the certificate's stationarity and penalty gap may amount to, relative to 1 + |utility|.
    tolerance: float = 1e-3
    time_limit: float | None = None  #: seconds; the best design so far comes back
    max_iterations: int | None = None  #: most steps of "pgd"; None: 20,000

    def __post_init__(self) -> None:
        check_preset(self.preset, PRESETS)
        _check("engine", self.engine in ENGINES, f"one of {', '.join(ENGINES)}", self.engine)
        _check("method", self.method in METHODS, f"one of {', '.join(METHODS)}", self.method)
        if self.gamma != "auto":
            check_positive("gamma", self.gamma)
        for name, count in (("starts", self.starts), ("max_iterations", self.max_iterations)):
            if count is not None:
                check_whole(name, count, 1)
        check_whole("seed", self.seed, 0)
        check_positive("tolerance", self.tolerance)
        _check("tolerance", self.tolerance < 1, "a number between 0 and 1", self.tolerance)
        check_positive("time_limit", self.time_limit, optional=True)

    @classmethod
    def from_names(cls, given: Mapping[str, Any]) -> DesignOptions:
        """Options out of what was given by name, with what a preset implies filled in."""
        options = options_from(cls, given)
        published = PRESETS[options.preset]
        if published is not None:
            gamma = published.gamma if options.gamma == "auto" else options.gamma
            starts, iterations = options.starts or published.starts, options.max_iterations or published.iterations
            options = replace(options, method="pgd", gamma=gamma, starts=starts, max_iterations=iterations)
        if options.method != "pgd" and options.max_iterations is not None:
            raise OptionError("max_iterations counts the steps of method='pgd'; give method too, or a time_limit")
        return replace(options, starts=options.starts or 5, max_iterations=options.max_iterations or PAPER_ITERATIONS)

    @property
    def step(self) -> float:
        """eta of Algorithm 1."""
        published = PRESETS[self.preset]
        return PAPER_STEP if published is None else published.step

    def penalty(self, network: TransportNetwork) -> float:
        """gamma as a number; what it hides is as large as fares are, so that it grows with expensive ones."""
        if self.gamma != "auto":
            return float(self.gamma)
        return AUTO_GAMMA * max(1.0, float(np.mean(network.revenue)) / USUAL_REVENUE)

    @property
    def has_fixed_gamma(self) -> bool:
        """Whether gamma is the user's: then F_gamma is what counts, otherwise the exact utility."""
        return self.gamma != "auto"

    def allowed_gain(self, utility: float) -> float:
        """What may remain to be gained at a design of this utility."""
        return float(self.tolerance) * (1.0 + abs(utility))

    def capacity_set(self, network: TransportNetwork) -> CapacitySet:
        """X, for a network."""
        limits = CapacitySet(
            network,
            limit=self.max_capacity,
            minimum=self.min_capacity,
            existing=self.existing_capacity,
            budget=self.budget,
            symmetric=self.symmetric,
        )
        if self.method != "prices" and not limits.is_box:
            raise OptionError(f"method {self.method!r} knows no budget and no symmetry; use method='prices'")
        return limits

    def identity(self) -> dict[str, Any]:
        """The options that decide where each start leads; a checkpoint belongs to runs that have the same."""
        plain = self.settings() | {"max_iterations": self.max_iterations if self.method == "pgd" else None}
        return {name: value for name, value in plain.items() if name != "starts"}

    def settings(self) -> dict[str, Any]:
        """The options that shape a design, as plain values."""
        plain = {name: value for name, value in asdict(self).items() if name not in ("time_limit", "max_iterations")}
        bounds = {name: plain[name] for name in ("max_capacity", "min_capacity", "existing_capacity")}
        return plain | {name: None if given is None else np.asarray(given).tolist() for name, given in bounds.items()}


def _check(name: str, is_right: bool, expected: str, value: Any) -> None:
    if not is_right:
        raise OptionError(f"{name} must be {expected}, got {value!r}")
