"""What can be set by hand for every question about electricity, checked before any work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from blocc._lib.checks import as_number
from blocc.errors import OptionError
from blocc.result import HistoryRow


@dataclass(frozen=True)
class PowerOptions:
    """How to search."""

    starts: int = 2  #: descents; they begin at the best of many decisions whose value is computed exactly
    seed: int = 0
    tolerance: float = 1e-4  #: what decisions around the answer may gain, relative to 1 + |objective|
    max_iterations: int = 30  #: of each descent
    time_limit: float | None = None  #: seconds; the best decision so far is kept
    progress: bool | Callable[[int, HistoryRow], Any] | None = None

    def __post_init__(self) -> None:
        for name, least in (("starts", 1), ("seed", 0), ("max_iterations", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise OptionError(f"{name} must be a whole number, at least {least}, got {value!r}")
        if not isinstance(self.tolerance, (int, float)) or not 1e-9 <= self.tolerance < 0.1:
            raise OptionError(f"tolerance must be a number between 1e-9 and 0.1, got {self.tolerance!r}")
        if self.time_limit is not None:
            as_number("time_limit", self.time_limit, positive=True)

    @property
    def described(self) -> dict[str, Any]:
        """The settings that a result keeps."""
        names = ("starts", "seed", "tolerance", "max_iterations", "time_limit")
        return {name: getattr(self, name) for name in names}
