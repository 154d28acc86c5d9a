"""A scenario: a name, and what is different in it: figures of the network by factors, and options of the design."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.files import json_bytes, shown
from blocc._lib.version import __version__
from blocc.errors import OptionError
from blocc.transport.design.options import DesignOptions
from blocc.transport.network.network import LINK_COLUMNS, MARKET_COLUMNS, TransportNetwork
from blocc.transport.network.readers import native

#: Columns of the network that a scenario may multiply.
FACTORS = (*LINK_COLUMNS, *MARKET_COLUMNS)
LONGEST_NAME = 80
#: Commas between changes, not those of a list.
_COMMA = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True)
class Scenario:
    """A name, and changes by their names.

    Changes are factors of the network's columns (``time``, ``cost``, ``demand``, ``revenue``, ``alternative_time``) and
    options of :func:`~blocc.transport.design.design_network.design_network`, such as ``budget``.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name.strip()) <= LONGEST_NAME:
            raise OptionError(f"a scenario must have a name of 1 to {LONGEST_NAME} characters, got {shown(self.name)}")
        if not isinstance(self.changes, Mapping):
            raise OptionError(f"scenario {self.name!r} must have changes by their names, got {shown(self.changes)}")
        options = [option.name for option in fields(DesignOptions)]
        for name, value in self.changes.items():
            if name not in (*FACTORS, *options):
                raise OptionError(
                    f"scenario {self.name!r} changes {shown(name)}, which is neither a factor ({', '.join(FACTORS)}) "
                    f"nor an option ({', '.join(options)})"
                )
            if name in FACTORS and not _is_factor(value):
                raise OptionError(
                    f"scenario {self.name!r}: the factor {name} must be a number >= 0, got {shown(value)}"
                )

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """A scenario out of one line: ``base``, ``budget=100,demand=1.1`` or ``growth: budget=100, demand=1.1``.

        Values are JSON, or words as they are. A line without a name is its own name.
        """
        if "=" not in text:
            name = text.strip().removesuffix(":")
            if name.replace("-", "_") in (*FACTORS, *(option.name for option in fields(DesignOptions))):
                raise OptionError(f"scenario {name!r} has no value: write {name}=VALUE, or another name for it")
            return cls(name)
        title, colon, rest = text.partition(":")
        if not colon or "=" in title:
            title, rest = text, text
        changes: dict[str, Any] = {}
        for part in _COMMA.split(rest):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or not name or not value or name in changes:
                raise OptionError(f"scenario must be NAME=VALUE,..., each name once, got {shown(part.strip())}")
            changes[name.replace("-", "_")] = _value(value)
        return cls(title.strip(), changes)

    def network(self, network: TransportNetwork) -> TransportNetwork:
        """The network with its figures multiplied; the assumptions say so."""
        factors = {name: float(value) for name, value in self.changes.items() if name in FACTORS and value != 1.0}
        if not factors:
            return network
        columns = {name: getattr(network, name) * factor for name, factor in factors.items()}
        said = (f"Scenario {self.name}: {name} was multiplied by {factor:g}." for name, factor in factors.items())
        return replace(network, **columns, assumptions=(*network.assumptions, *said))

    def options(self, usual: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a design with those of this scenario in their place."""
        return {**usual, **{name: value for name, value in self.changes.items() if name not in FACTORS}}


@dataclass(frozen=True)
class Case:
    """One design that is to be computed."""

    scenario: Scenario
    network: TransportNetwork
    options: dict[str, Any]
    x0: Float[NDArray, "links"] | None = None
    checkpoint: Path | None = None  #: where the run keeps itself, and goes on from

    @property
    def budget(self) -> float:
        """The most that construction may cost; infinite where nothing limits it."""
        given = self.options.get("budget")
        return np.inf if given is None else float(given)

    def fingerprint(self) -> str:
        """By what a design that is kept is recognised: the network, the options and the version."""
        chosen = DesignOptions.from_names(self.options)
        limits = {"time_limit": chosen.time_limit, "max_iterations": chosen.max_iterations}
        said = {"network": network_digest(self.network), "options": chosen.settings() | limits, "version": __version__}
        return hashlib.sha256(json_bytes(said)).hexdigest()


def network_digest(network: TransportNetwork) -> str:
    """SHA-256 over all that a network says."""
    return hashlib.sha256(native.render(network)).hexdigest()


def cases_of(network: TransportNetwork, scenarios: Any, options: Mapping[str, Any]) -> list[Case]:
    """Every scenario with its network and its options, all of them checked before any work begins.

    :param scenarios: changes by the scenarios' names, or a sequence of scenarios or lines for :meth:`Scenario.parse`
    """
    if not isinstance(network, TransportNetwork):
        raise OptionError(f"network must be a TransportNetwork, got {type(network).__name__}")
    if isinstance(scenarios, Mapping):
        found = [Scenario(name, changes) for name, changes in scenarios.items()]
    elif isinstance(scenarios, Sequence) and not isinstance(scenarios, str):
        found = [Scenario.parse(each) if isinstance(each, str) else each for each in scenarios]
    else:
        raise OptionError(f"scenarios must be a mapping or a sequence, got {type(scenarios).__name__}")
    if not found:
        raise OptionError("scenarios is empty: give at least one")
    cases: list[Case] = []
    for scenario in found:
        if not isinstance(scenario, Scenario):
            raise OptionError(f"scenarios must hold Scenario objects or lines of text, got {shown(scenario)}")
        if any(scenario.name == case.scenario.name for case in cases):
            raise OptionError(f"two scenarios are called {scenario.name!r}")
        case = Case(scenario, scenario.network(network), scenario.options(options))
        try:
            DesignOptions.from_names(case.options).capacity_set(case.network)
        except OptionError as error:
            raise OptionError(f"scenario {scenario.name!r}: {error}") from error
        cases.append(case)
    return cases


def _is_factor(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and bool(np.isfinite(value) and value >= 0)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
