"""Everything that can be set by hand, with its checks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypedDict

import jax
import numpy as np

from blocc.errors import OptionError
from blocc.lagrangian import InnerPairs

#: Tolerances from here on say nothing.
_LOOSEST = 0.1
_FINEST = 1e-15  #: and at least this


@dataclass(frozen=True)
class Options:
    """Everything that can be set by hand; every default is automatic.

    gamma: "auto" (continuation until the penalty hides nothing) or a number, kept fixed as in the paper.
    inner: "auto", "interior-point", "sparse-interior-point", "maxmin", "single-loop", "published", "pdhg",
        "newton-cg", or an oracle object.
    outer: "auto" (quasi-Newton, spectral and kink methods as needed) or "pgd" (Algorithm 1 as published).
    step: length eta of a step of "pgd".
    stop: a stopping test of "pgd", which makes all its steps otherwise: once ``|x_t - x_(t+1)| / eta``, plus
        max(1, gamma) times the largest residual of both inner solutions, is at most this.
    inner_start: an InnerPairs(y_g, mu_g, y_F, mu_F), where the inner solvers of "pgd" begin.
    tolerance: of the penalty gap, of ||yF - yg|| and of the stationarity of x, relative to the problem's size.
    inner_tolerance: of the inner solutions; None ties it to gamma and the tolerance.
    max_iterations: outer iterations (of each stage for "auto"); T for "pgd", 10,000 by default.
    time_limit: seconds, compilation included; the best point so far is returned.
    seed: for everything random.
    """

    gamma: float | str = "auto"
    inner: Any = "auto"
    outer: str = "auto"
    step: float = 0.01
    stop: float | None = None
    inner_start: InnerPairs | None = None
    tolerance: float = 1e-5
    inner_tolerance: float | None = None
    max_iterations: int | None = None
    time_limit: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.gamma, str) and self.gamma != "auto":
            raise OptionError(f"gamma must be 'auto' or a positive number, got {self.gamma!r}")
        if not isinstance(self.gamma, str):
            _positive("gamma", self.gamma)
        if self.outer not in ("auto", "pgd"):
            raise OptionError(f"outer must be 'auto' or 'pgd', got {self.outer!r}")
        if self.outer == "pgd" and isinstance(self.gamma, str):
            raise OptionError("outer='pgd' needs a fixed gamma: give a number, for instance gamma=5.0")
        for name in ("step", "tolerance"):
            _positive(name, getattr(self, name))
        for name in ("inner_tolerance", "max_iterations", "time_limit", "stop"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        for name in ("tolerance", "inner_tolerance"):
            value = getattr(self, name)
            if value is not None and value >= _LOOSEST:
                raise OptionError(
                    f"{name} must be below {_LOOSEST:g}, got {value!r}: it is relative to the problem's size, and a "
                    "looser one would call any point an answer"
                )
            if value is not None and value < _FINEST:
                raise OptionError(
                    f"{name} must be at least {_FINEST:g}, got {value!r}: it is relative to the problem's size, and "
                    "double precision tells nothing finer apart"
                )
        for name in ("stop", "inner_start"):
            if getattr(self, name) is not None and self.outer != "pgd":
                raise OptionError(f"{name} is of outer='pgd' alone: give that too, or leave out {name}")
        if self.inner_start is not None and not isinstance(self.inner_start, InnerPairs):
            raise OptionError(
                f"inner_start must be an InnerPairs(y_g, mu_g, y_F, mu_F), got {type(self.inner_start).__name__}"
            )
        if self.max_iterations is not None and not isinstance(self.max_iterations, (int, np.integer)):
            raise OptionError(f"max_iterations must be a whole number, got {self.max_iterations!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise OptionError(f"seed must be a nonnegative whole number, got {self.seed!r}")

    def described(self) -> dict[str, Any]:
        """The options as plain values, for a saved result."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        if not isinstance(self.inner, str):
            plain["inner"] = repr(self.inner)
        if self.inner_start is not None:
            plain["inner_start"] = jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), tuple(self.inner_start))
        return plain


class OptionNumbers(TypedDict, total=False):
    """The same by name, for editors and type checkers: the fields of :class:`Options`."""

    gamma: float | str
    inner: Any
    outer: str
    step: float
    stop: float | None
    inner_start: InnerPairs | None
    tolerance: float
    inner_tolerance: float | None
    max_iterations: int | None
    time_limit: float | None
    seed: int


def _positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise OptionError(f"{name} must be a positive number, got {value!r}")
    if not value > 0 or not np.isfinite(value):
        raise OptionError(f"{name} must be positive and finite, got {value!r}")
