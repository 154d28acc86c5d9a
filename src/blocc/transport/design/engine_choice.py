"""Which engine designs a network: by its size, and by what an evaluation takes on the devices that there are."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

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
