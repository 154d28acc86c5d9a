"""What can be set by hand for a problem in CVXPY, checked before any work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

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
        if not isinstance(self.tolerance, (int, float)) or not 1e-10 <= self.tolerance < 0.1:
            raise OptionError(f"tolerance must be a number between 1e-10 and 0.1, got {self.tolerance!r}")
        if self.gamma != "auto" and not (isinstance(self.gamma, (int, float)) and self.gamma > 0.0):
            raise OptionError(f"gamma must be 'auto' or a positive number, got {self.gamma!r}")
        if self.solver not in ("auto", "clarabel", "highs"):
            raise OptionError(f"solver must be 'auto', 'clarabel' or 'highs', got {self.solver!r}")
        if self.time_limit is not None and not self.time_limit > 0.0:
            raise OptionError(f"time_limit must be a positive number of seconds, got {self.time_limit!r}")

    def described(self) -> dict[str, Any]:
        """The settings as plain values, for checkpoints and results."""
        names = ("tolerance", "gamma", "solver", "max_iterations", "time_limit", "seed")
        return {"front": "cvxpy", **{name: getattr(self, name) for name in names}}


def make_run_options(given: dict[str, Any]) -> RunOptions:
    """Options out of what was given by name."""
    known = [one.name for one in fields(RunOptions)]
    if unknown := [name for name in given if name not in known]:
        raise OptionError(f"{unknown[0]} is no option of a problem in CVXPY; those are {', '.join(known)}")
    return RunOptions(**given)
