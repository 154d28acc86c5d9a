"""What can be set by hand for every question about electricity, checked before any work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.checks import as_number
from blocc.errors import OptionError
from blocc.kit.records import Step
from blocc.outer.monitor import StopRequest
from blocc.power.case import PowerCase
from blocc.resume.file import open_recording
from blocc.resume.fingerprint import fingerprint_of_arrays
from blocc.resume.recording import Recording

_LARGE = 150  #: buses


@dataclass(frozen=True)
class PowerOptions:
    """How to search."""

    starts: int | None = None  #: descents, from the best of many decisions; None: 2, for more than 150 buses 1
    seed: int = 0
    tolerance: float = 1e-4  #: what decisions around the answer may gain, relative to 1 + |objective|
    max_iterations: int = 30  #: of each descent
    time_limit: float | None = None  #: seconds; the best decision so far is kept
    report: Callable[[Step], Any] | None = None  #: called with every value on the way
    checkpoint: str | Path | None = None  #: a file that the run keeps itself in
    resume: str | Path | None = None  #: such a file to go on from; the run keeps itself in it as well
    checkpoint_seconds: float = 5.0  #: between two times that it is written, at least
    request: StopRequest = field(init=False, repr=False, compare=False)  #: from the call on

    def __post_init__(self) -> None:
        for name, least in (("starts", 1), ("seed", 0), ("max_iterations", 1)):
            value = getattr(self, name)
            if name == "starts" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise OptionError(f"{name} must be a whole number, at least {least}, got {value!r}")
        if not isinstance(self.tolerance, (int, float)) or not 1e-9 <= self.tolerance < 0.1:
            raise OptionError(f"tolerance must be a number between 1e-9 and 0.1, got {self.tolerance!r}")
        if self.time_limit is not None:
            as_number("time_limit", self.time_limit, positive=True)
        object.__setattr__(self, "request", StopRequest(limit=self.time_limit))

    @classmethod
    def from_names(cls, given: dict[str, Any]) -> PowerOptions:
        """Options out of what was given by name."""
        known = [one.name for one in fields(cls) if one.init]
        for name in given:
            if name not in known:
                raise OptionError(f"{name} is no option of a question about electricity; those are {', '.join(known)}")
        return cls(**given)

    def recording(self, case: PowerCase, settings: dict[str, Any]) -> Recording:
        """What a run is kept in: recognised by the figures of its case and by its settings."""
        names = [one.name for one in fields(case) if isinstance(getattr(case, one.name), np.ndarray)]
        figures = {name: getattr(case, name) for name in names}
        for place, one in case.segments.items():
            figures[f"cost of generator {place}"] = np.concatenate(one.lines)
        by = fingerprint_of_arrays({name: np.asarray(value, dtype=np.float64) for name, value in figures.items()})
        return open_recording(by, settings, np.zeros(0), self.checkpoint, self.resume, self.checkpoint_seconds)

    def starts_for(self, n_buses: int) -> int:
        """How many descents there are."""
        return self.starts if self.starts is not None else (2 if n_buses <= _LARGE else 1)

    @property
    def described(self) -> dict[str, Any]:
        """The settings that a result keeps."""
        names = ("starts", "seed", "tolerance", "max_iterations", "time_limit")
        return {name: getattr(self, name) for name in names}
