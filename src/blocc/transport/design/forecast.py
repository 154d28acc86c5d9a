"""What a design will take, before the work begins: memory and time, by formulas fitted to measurements."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from blocc._lib.memory import available_memory
from blocc._lib.threads import thread_count
from blocc.errors import OptionError
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.graph import is_on_accelerator

ENGINES = ("auto", "dense", "paths", "mixed")
#: Origins times nodes times links from which the engine on paths is the faster one.
LARGE = 100_000
#: Seconds that an evaluation in the prices takes on an accelerator, whatever the size: it waits for its launches.
#: Designs of 100 nodes took 19.8 s there and 23 to 37 s on the processor, in other runs; those of 25 were slower.
LAUNCHES = 3e-3
#: Seconds of one thread on paths, for each origin and each link or node. One number fits grids of 25 nodes (0.4 ms) and
#: of 100 (7 ms), Anaheim (7 ms) and Chicago (0.2 s); more than two threads hardly help.
_ON_PATHS, _MOST_THREADS = 1.4e-7, 2


def chosen_engine(network: TransportNetwork, engine: str = "auto") -> str:
    """The engine that a network is designed with: "dense", "paths" or "mixed"."""
    if engine not in ENGINES:
        raise OptionError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    if engine != "auto":
        return engine
    if not is_large(network) or find_spec("numba") is None:
        return "dense"
    return "mixed" if is_on_accelerator() and accelerator_pays(network) else "paths"


def is_large(network: TransportNetwork) -> bool:
    """Whether a network is one for the engine on paths."""
    return len(np.unique(network.origin)) * network.n_nodes * network.n_links > LARGE


def helping_threads() -> int:
    """Threads of this machine that make an evaluation on paths quicker."""
    return min(_MOST_THREADS, thread_count())


def seconds_on_paths(network: TransportNetwork) -> float:
    """What an evaluation in the prices takes on this machine's processor, by the engine on paths."""
    count = len(np.unique(network.origin)) * (network.n_links + network.n_nodes)
    return _ON_PATHS * count / helping_threads()


def accelerator_pays(network: TransportNetwork) -> bool:
    """Whether an accelerator, if there is one, evaluates sooner than the processor."""
    return seconds_on_paths(network) > LAUNCHES


#: Bytes of a process that has read a network and compiled its functions.
_BASE = 0.4e9
#: Numbers that the engine on links keeps for every origin, node and link at once.
_DENSE_COPIES = 4.4
#: Numbers that the engine on paths keeps for every two links, every origin and link, and every origin and node.
_MATRICES, _FLOWS, _TABLES = 5, 25, 25
#: Evaluations in the prices, lower levels and steps of each, in one start and its certificate; on more than 1,000 links
#: there are fewer lower levels.
_EVALUATIONS, _LOWER_LEVELS, _FEWER_LOWER_LEVELS, _STEPS = 2500, 50, 20, 50


class Forecast(NamedTuple):
    """What a design with one start takes."""

    engine: str
    memory: float  #: bytes
    seconds: float  #: on this machine, when nothing else runs; right within a factor of about three


def forecast(network: TransportNetwork, engine: str = "auto") -> Forecast:
    """Memory and time of a design of this network."""
    engine = chosen_engine(network, engine)
    origins, nodes, links = len(np.unique(network.origin)), network.n_nodes, network.n_links
    if engine == "dense":
        volume = float(origins) * nodes * links
        return Forecast(engine, _BASE + 8.0 * _DENSE_COPIES * volume, 5.0 + 2e-4 * volume)
    numbers = _MATRICES * links**2 + origins * (_FLOWS * links + _TABLES * nodes)
    evaluation = LAUNCHES if engine == "mixed" else seconds_on_paths(network)
    step = 1.8e-7 * origins * (links + nodes) + links**3 / 5e10 + 2e-3
    lower_levels = _LOWER_LEVELS if links <= 1000 else _FEWER_LOWER_LEVELS
    work = _EVALUATIONS * evaluation + lower_levels * _STEPS * step / helping_threads()
    return Forecast(engine, _BASE + 8.0 * numbers, 5.0 + work)


def check_memory(network: TransportNetwork, engine: str = "auto") -> None:
    """Refuse a design that does not fit into memory, before it begins."""
    expected, free = forecast(network, engine), available_memory()
    if expected.memory <= free:
        return
    other = forecast(network, "paths")
    advice = f"; engine='paths' needs about {_gigabytes(other.memory)}" if other.memory < expected.memory else ""
    raise OptionError(
        f"network {network.name!r} needs about {_gigabytes(expected.memory)} of memory with "
        f"engine={expected.engine!r}, and {_gigabytes(free)} are free{advice}"
    )


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.2g} GB" if count < 1e11 else f"{count / 1e9:.0f} GB"
