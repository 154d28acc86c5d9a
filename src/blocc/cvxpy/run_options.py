"""What can be set by hand for a problem in CVXPY, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from blocc.cvxpy.solvers import SolverName
from blocc.errors import OptionError
from blocc.outer.monitor import State
from blocc.result import HistoryRow


@dataclass(frozen=True)
class RunOptions:
    """What can be set by hand."""

    tolerance: float = 1e-5
    gamma: float | Literal["auto"] = "auto"
    solver: SolverName = "auto"  #: of the followers' own problems
    max_iterations: int = 200  #: of each stage
    time_limit: float | None = None  #: seconds
    seed: int = 0
    callback: Callable[[State], Any] | None = None  #: called after every iteration; True stops the run
    progress: bool | Callable[[int, HistoryRow], None] | None = None

    def __post_init__(self) -> None:
        if not _is_number(self.tolerance) or not 1e-10 <= self.tolerance < 0.1:
            raise OptionError(f"tolerance must be a number between 1e-10 and 0.1, got {self.tolerance!r}")
        if self.gamma != "auto" and not (_is_number(self.gamma) and 0.0 < self.gamma < math.inf):
            raise OptionError(f"gamma must be 'auto' or a positive finite number, got {self.gamma!r}")
        if self.solver not in ("auto", "clarabel", "highs"):
            raise OptionError(f"solver must be 'auto', 'clarabel' or 'highs', got {self.solver!r}")
        if self.time_limit is not None and not (_is_number(self.time_limit) and self.time_limit > 0.0):
            raise OptionError(f"time_limit must be a positive number of seconds, got {self.time_limit!r}")
        for name, least in (("max_iterations", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise OptionError(f"{name} must be a whole number, at least {least}, got {value!r}")
        if self.callback is not None and not callable(self.callback):
            raise OptionError(f"callback must be a function of the state, got {type(self.callback).__name__}")

    def described(self) -> dict[str, Any]:
        """The settings as plain values, for checkpoints and results."""
        names = ("tolerance", "gamma", "solver", "max_iterations", "time_limit", "seed")
        return {"front": "cvxpy", **{name: getattr(self, name) for name in names}}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def make_run_options(given: dict[str, Any]) -> RunOptions:
    """Options out of what was given by name."""
    known = [one.name for one in fields(RunOptions)]
    if unknown := [name for name in given if name not in known]:
        raise OptionError(f"{unknown[0]} is no option of a problem in CVXPY; those are {', '.join(known)}")
    return RunOptions(**given)
